//! The code that causes faults and page walks, drawn as a flame graph of two levels: files, and the
//! functions in them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use largefolio_sim::replay::regions::CodePage;

use crate::figures::{counted, grouped, percent};
use crate::html::bars::{Bar, BarPart, bars};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use crate::predict::PredictResult;
use crate::predict::labels::Labels;
use crate::predict::places::{code_label, file_name};

pub(super) const LEAD: &str = "Upper bars are files, lower bars the functions in them, in the same \
                               order; a pointer on a bar shows its name. Several functions can share \
                               a page of code.";

/// Pages of code per cell that are drawn and listed. The rest of a file is one part.
const NR_PAGES: usize = 64;
/// Colours of neighbouring parts.
const NR_CLASSES: usize = 8;

/// What the graph counts.
struct Counter {
    caption: &'static str,
    what: &'static str,
    /// The result's field for one page, if there is one for this number.
    field: Option<&'static str>,
    of: fn(&CodePage) -> u64,
}

const COUNTERS: [Counter; 2] = [
    Counter {
        caption: "Faults by code",
        what: "fault",
        field: Some("faults"),
        of: |page| page.faults,
    },
    Counter { caption: "Page walks by code", what: "page walk", field: None, of: CodePage::walks },
];

/// Draws each cell that says where its walks are; `None` if none does.
pub(super) fn figures(report: &PredictResult) -> Option<Markup> {
    let names = Labels::names(&report.rows);
    let mut body = Markup::new();
    let mut is_empty = true;
    for (nr, row) in report.rows.iter().enumerate() {
        let Some(regions) = row.regions.as_ref().filter(|regions| !regions.code.is_empty()) else {
            continue;
        };
        is_empty = false;
        for counter in &COUNTERS {
            let caption = format!("{}: {}", counter.caption, names[nr]);
            let picture = flame(report, &regions.code, counter);
            body.append(&figure(&caption, &picture, &table(report, nr, &regions.code, counter)));
        }
    }
    (!is_empty).then_some(body)
}

fn flame(report: &PredictResult, code: &[CodePage], counter: &Counter) -> Markup {
    let mut by_file: BTreeMap<&str, Vec<&CodePage>> = BTreeMap::new();
    for page in code {
        by_file.entry(&page.path).or_default().push(page);
    }
    let sum = |pages: &[&CodePage]| pages.iter().map(|page| (counter.of)(page)).sum::<u64>();
    let whole: u64 = code.iter().map(counter.of).sum();
    let part = |class: usize, name: &str, value: u64| BarPart {
        class: format!("cause c{}", class % NR_CLASSES),
        value,
        tip: format!("{name}: {}, {}", counted(value, counter.what), percent(value, whole)),
    };
    let mut files: Vec<(&str, Vec<&CodePage>)> = by_file.into_iter().collect();
    files.sort_by_key(|(_, pages)| Reverse(sum(pages)));
    let (mut of_files, mut of_functions) = (Vec::new(), Vec::new());
    for (path, mut pages) in files {
        let name = if path.is_empty() { "generated code".to_owned() } else { file_name(path) };
        of_files.push(part(of_files.len(), &name, sum(&pages)));
        pages.sort_by_key(|page| Reverse((counter.of)(page)));
        let rest = pages.split_off(pages.len().min(NR_PAGES));
        for page in pages {
            let label = code_label(&report.functions, page);
            of_functions.push(part(of_functions.len(), &label, (counter.of)(page)));
        }
        of_functions.push(part(of_functions.len(), &format!("{name}, elsewhere"), sum(&rest)));
    }
    let mut total = Markup::new();
    total.text(&counted(whole, counter.what));
    bars(&[
        Bar { label: "files".to_owned(), parts: of_files, total },
        Bar { label: "functions".to_owned(), parts: of_functions, total: Markup::new() },
    ])
}

fn table(report: &PredictResult, row: usize, code: &[CodePage], counter: &Counter) -> Markup {
    let mut table = table_head("Code", &[counter.caption.to_owned()]);
    let mut pages: Vec<(usize, &CodePage)> = code.iter().enumerate().collect();
    pages.sort_by_key(|(_, page)| Reverse((counter.of)(page)));
    for (nr, page) in pages.into_iter().take(NR_PAGES).filter(|(_, page)| (counter.of)(page) > 0) {
        let value = (counter.of)(page);
        table.raw("<tr>").element("th scope=\"row\"", &code_label(&report.functions, page));
        table.raw("<td>");
        match counter.field {
            Some(field) => {
                let at = format!("/rows/{row}/regions/code/{nr}/{field}");
                table.number(&at, value, &grouped(value))
            }
            None => table.text(&grouped(value)),
        };
        table.raw("</td></tr>");
    }
    table.raw(TABLE_END);
    table
}
