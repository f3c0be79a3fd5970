//! The check as a page: the verdict, filesystems by readahead window, what was compared, and each
//! difference.
//!
//! A set of recordings has no size limit, but a page does. The page's data contains counts, the
//! rows that differ, and the first few other rows. `--json` contains everything.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_report::ExportError;
use largefolio_report::figures::grouped;
use largefolio_report::html::bars::{Bar, Part, bars, drawing};
use largefolio_report::html::frame::{Basis, Page, TABLE_END, figure, table_head};
use largefolio_report::html::markup::{Markup, pointer_part};
use largefolio_sim::crosscheck::{Aspect, Difference};
use serde::Serialize;

use super::result::{CrosscheckOutcome as Outcome, CrosscheckResult, CrosscheckRow as Row};
use super::words::{outcome, words};
use crate::page::{footer, meanings, section};

const TEXT_BYTES_MAX: usize = 1 << 19;
/// Maximum number of listed rows that do not differ.
const NR_ROWS_MAX: usize = 1000;
/// Maximum number of columns of filesystem and window; with more, windows are summed.
const NR_COLUMNS_MAX: usize = 8;

const OUTCOMES: [Outcome; 4] =
    [Outcome::Equal, Outcome::Different, Outcome::Skipped, Outcome::Failed];

#[derive(Serialize)]
struct Data<'a> {
    schema_version: u32,
    tool_version: &'static str,
    command_line: &'a [String],
    kernel: &'a str,
    kept: Option<&'a str>,
    rules: &'a str,
    outcomes: BTreeMap<&'static str, u64>,
    /// By kernel or filesystem, and by filesystem or window.
    cells: Vec<CellData>,
    compared: BTreeMap<&'static str, u64>,
    nr_repeated: usize,
    reasons: Vec<ReasonData<'a>>,
    different: Vec<DifferentData<'a>>,
    nr_different_not_shown: usize,
    rows: Vec<RowData<'a>>,
    nr_rows_not_shown: usize,
}

#[derive(Serialize)]
struct CellData {
    row: String,
    column: String,
    outcomes: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct ReasonData<'a> {
    outcome: &'static str,
    reason: &'a str,
    nr: u64,
    first: &'a str,
}

#[derive(Serialize)]
struct DifferentData<'a> {
    name: &'a str,
    variant: &'a str,
    rules: &'a str,
    is_repeated: bool,
    nr_steps: usize,
    differences: &'a [Difference],
}

#[derive(Serialize)]
struct RowData<'a> {
    name: &'a str,
    outcome: &'static str,
    nr_steps: usize,
    nr_compared: u64,
    nr_differences: usize,
}

pub(super) fn of(report: &CrosscheckResult) -> Result<Page, ExportError> {
    let data = Data::of(report);
    let mut sections = vec![
        section("matrix", "Recordings", Basis::Counted, LEAD, matrix(&data, report)),
        section(
            "compared",
            "Compared quantities",
            Basis::Counted,
            "Quantities compared between kernel and model.",
            compared(&data),
        ),
    ];
    if !data.different.is_empty() {
        let lead = "The replay stops at the first step that differs; both sides of that step are \
                    shown.";
        sections.push(section(
            "differences",
            "Differences",
            Basis::Counted,
            lead,
            differences(&data),
        ));
    }
    if !data.reasons.is_empty() {
        sections.push(section("left-out", "Left out", Basis::Counted, "", reasons(&data)));
    }
    sections.push(section("rows", "Every recording", Basis::Counted, "", rows(&data)));
    sections.push(section("sources", "Sources", Basis::None, "", sources()));
    let title = if report.kernel.is_empty() { "recordings" } else { &report.kernel };
    Ok(Page {
        title: title.to_owned(),
        kind: "folio crosscheck: does the model match the kernel?",
        answer: answer(&data),
        sections,
        json: serde_json::to_string(&data)?,
        footer: footer(&report.command_line),
    })
}

const LEAD: &str = "One recording per workload. Green means that everything compared agrees.";

impl<'a> Data<'a> {
    fn of(report: &'a CrosscheckResult) -> Self {
        let all = &report.rows;
        let mut outcomes = BTreeMap::new();
        let mut compared: BTreeMap<Aspect, u64> = BTreeMap::new();
        let mut by_reason: BTreeMap<(&'static str, &str), (u64, &str)> = BTreeMap::new();
        for row in all {
            *outcomes.entry(outcome(row.outcome)).or_default() += 1;
            for (aspect, nr) in &row.compared {
                *compared.entry(*aspect).or_default() += nr;
            }
            if let Some(reason) = &row.reason {
                let key = (outcome(row.outcome), reason.as_str());
                by_reason.entry(key).or_insert((0, &row.name)).0 += 1;
            }
        }
        let reason = |((outcome, reason), (nr, first))| ReasonData { outcome, reason, nr, first };
        let different: Vec<&Row> =
            all.iter().filter(|row| row.outcome == Outcome::Different).collect();
        let shown = shown(&different);
        Self {
            schema_version: super::result::SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line: &report.command_line,
            kernel: &report.kernel,
            kept: report.kept.as_deref(),
            rules: all.iter().find(|row| !row.rules.is_empty()).map_or("", |row| &row.rules),
            outcomes,
            cells: cells(report),
            compared: compared.into_iter().map(|(aspect, nr)| (words(aspect), nr)).collect(),
            nr_repeated: all.iter().filter(|row| row.is_repeated).count(),
            reasons: by_reason.into_iter().map(reason).collect(),
            nr_different_not_shown: different.len() - shown.len(),
            different: shown,
            rows: all.iter().take(NR_ROWS_MAX).map(RowData::of).collect(),
            nr_rows_not_shown: all.len().saturating_sub(NR_ROWS_MAX),
        }
    }

    fn nr(&self, of: Outcome) -> u64 {
        self.outcomes.get(outcome(of)).copied().unwrap_or(0)
    }
}

fn shown<'a>(different: &[&'a Row]) -> Vec<DifferentData<'a>> {
    let len =
        |one: &Difference| one.kernel.len() + one.model.len() + one.place.to_string().len() + 256;
    let mut left = TEXT_BYTES_MAX;
    let mut shown = Vec::new();
    for row in different {
        let mut nr = 0;
        for one in &row.differences {
            let Some(rest) = left.checked_sub(len(one)) else { break };
            (left, nr) = (rest, nr + 1);
        }
        if nr == 0 {
            break;
        }
        let Row { name, variant, rules, is_repeated, nr_steps, .. } = row;
        shown.push(DifferentData {
            name,
            variant,
            rules,
            is_repeated: *is_repeated,
            nr_steps: *nr_steps,
            differences: &row.differences[..nr],
        });
    }
    shown
}

impl<'a> RowData<'a> {
    fn of(row: &'a Row) -> Self {
        Self {
            name: &row.name,
            outcome: outcome(row.outcome),
            nr_steps: row.nr_steps,
            nr_compared: row.compared.values().sum(),
            nr_differences: row.differences.len(),
        }
    }
}

/// Groups by filesystem and window. With several kernels, groups by kernel, and by filesystem with
/// window.
fn cells(report: &CrosscheckResult) -> Vec<CellData> {
    let window = |row: &Row| format!("{}K", row.window_kb);
    let both = |row: &Row| format!("{} {}", row.filesystem, window(row));
    let nr_columns = report.rows.iter().map(both).collect::<BTreeSet<_>>().len();
    let mut cells: BTreeMap<(String, u64, String), BTreeMap<&'static str, u64>> = BTreeMap::new();
    for row in &report.rows {
        let key = if !report.kernel.is_empty() {
            (row.filesystem.clone(), row.window_kb, window(row))
        } else if nr_columns <= NR_COLUMNS_MAX {
            (row.variant.clone(), row.window_kb, both(row))
        } else {
            (row.variant.clone(), 0, row.filesystem.clone())
        };
        *cells.entry(key).or_default().entry(outcome(row.outcome)).or_default() += 1;
    }
    let cell = |((row, _, column), outcomes)| CellData { row, column, outcomes };
    cells.into_iter().map(cell).collect()
}

fn answer(data: &Data<'_>) -> Markup {
    let (equal, different) = (data.nr(Outcome::Equal), data.nr(Outcome::Different));
    let all = equal + different;
    let (class, verdict, text) = match (different, all) {
        (_, 0) => ("open", "nothing compared", "No workload was recorded.".to_owned()),
        (0, _) => ("yes", "equal", format!("Kernel and model agree in all {all} recordings.")),
        _ => (
            "no",
            "different",
            format!("Kernel and model differ in {different} of {all} recordings."),
        ),
    };
    let mut answer = Markup::new();
    answer.raw("<p class=\"answer\">").element(&format!("b class=\"verdict {class}\""), verdict);
    answer.text(&text).raw("</p><ul class=\"facts\">");
    for of in OUTCOMES {
        let nr = data.nr(of);
        if nr > 0 {
            answer.raw("<li><b>");
            answer.number(&format!("/outcomes/{}", outcome(of)), nr, &grouped(nr));
            answer.raw("</b> ").text(outcome(of)).raw("</li>");
        }
    }
    let items: u64 = data.compared.values().sum();
    answer.raw("<li>").element("b", &grouped(items)).text(" items compared").raw("</li></ul>");
    answer.raw("<p class=\"about\">");
    if !data.kernel.is_empty() {
        answer.text(&format!("kernel {}", data.kernel)).raw("<br>");
    }
    answer.text(&format!("rules {}", data.rules));
    if let Some(kept) = data.kept {
        answer.raw("<br>").text(&format!("recordings are in {kept}"));
    }
    answer.raw("</p>");
    answer
}

fn parts(cell: &CellData) -> Vec<Part> {
    let part = |of: Outcome| {
        let nr = cell.outcomes.get(outcome(of)).copied().unwrap_or(0);
        let tip = format!("{}, {}: {nr} {}", cell.row, cell.column, outcome(of));
        Part { class: outcome(of).to_owned(), value: nr, tip }
    };
    OUTCOMES.map(part).to_vec()
}

fn matrix(data: &Data<'_>, report: &CrosscheckResult) -> Markup {
    let mut columns: Vec<&str> = Vec::new();
    let mut rows: Vec<&str> = Vec::new();
    for cell in &data.cells {
        for (known, name) in [(&mut columns, &cell.column), (&mut rows, &cell.row)] {
            if !known.contains(&name.as_str()) {
                known.push(name);
            }
        }
    }
    let corner = if report.kernel.is_empty() { "Kernel" } else { "Filesystem" };
    let sum = |cell: &CellData| cell.outcomes.values().sum::<u64>();
    let max = data.cells.iter().map(sum).max().unwrap_or(0);
    let mut picture = Markup::new();
    picture.raw("<ul class=\"legend\">");
    for of in OUTCOMES.into_iter().filter(|of| data.nr(*of) > 0) {
        picture.raw("<li><svg class=\"key\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">");
        let class = outcome(of);
        picture.raw(&format!("<rect class=\"{class}\" width=\"12\" height=\"12\"/></svg>"));
        picture.text(class).raw("</li>");
    }
    picture.raw("</ul><div class=\"wide\"><table class=\"matrix left\"><thead><tr>");
    for title in std::iter::once(&corner).chain(&columns) {
        picture.element("th scope=\"col\"", title);
    }
    picture.raw("</tr></thead><tbody>");
    for row in rows {
        picture.raw("<tr>").element("th scope=\"row\"", row);
        for column in &columns {
            picture.raw("<td>");
            let found = |cell: &&CellData| cell.row == row && cell.column == *column;
            if let Some(cell) = data.cells.iter().find(found) {
                picture.text(&said(cell));
                let label = format!("{row}, {column}");
                let bar = Bar { label, parts: parts(cell), total: Markup::new() };
                picture.append(&drawing(&bar, max));
            }
            picture.raw("</td>");
        }
        picture.raw("</tr>");
    }
    picture.raw(TABLE_END).raw("</div>");
    let caption = format!(
        "{corner} by {}",
        if report.kernel.is_empty() { "filesystem" } else { "readahead window" }
    );
    figure(&caption, &picture, &cells_table(data))
}

fn said(cell: &CellData) -> String {
    let of = |of: Outcome| Some((cell.outcomes.get(outcome(of))?, outcome(of)));
    let words = OUTCOMES.into_iter().filter_map(of).map(|(nr, word)| format!("{nr} {word}"));
    words.collect::<Vec<_>>().join(", ")
}

fn cells_table(data: &Data<'_>) -> Markup {
    let mut table = table_head("Recordings", &OUTCOMES.map(|of| outcome(of).to_owned()));
    for (nr, cell) in data.cells.iter().enumerate() {
        table.raw("<tr>").element("th scope=\"row\"", &format!("{}, {}", cell.row, cell.column));
        for of in OUTCOMES.map(outcome) {
            table.raw("<td>");
            if let Some(value) = cell.outcomes.get(of) {
                table.number(&format!("/cells/{nr}/outcomes/{of}"), value, &grouped(*value));
            }
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

fn compared(data: &Data<'_>) -> Markup {
    let mut by_count: Vec<_> = data.compared.iter().filter(|(_, nr)| **nr > 0).collect();
    by_count.sort_by_key(|(_, nr)| std::cmp::Reverse(**nr));
    if by_count.is_empty() {
        let mut body = Markup::new();
        body.element("p", "Nothing was compared.");
        return body;
    }
    let mut drawn = Vec::new();
    let mut table = table_head("Compared", &["items".to_owned()]);
    for (aspect, &nr) in by_count {
        let at = format!("/compared/{}", pointer_part(aspect));
        let mut total = Markup::new();
        total.number(&at, nr, &grouped(nr));
        let tip = format!("{aspect}: {}", grouped(nr));
        let parts = vec![Part { class: "total-bar".to_owned(), value: nr, tip }];
        drawn.push(Bar { label: (*aspect).to_owned(), parts, total });
        table.raw("<tr>").element("th scope=\"row\"", aspect).raw("<td>");
        table.number(&at, nr, &grouped(nr)).raw("</td></tr>");
    }
    table.raw(TABLE_END);
    figure("Items compared", &bars(&drawn), &table)
}

fn differences(data: &Data<'_>) -> Markup {
    let mut body = Markup::new();
    for (nr, one) in data.different.iter().enumerate() {
        body.element("h3", one.name).raw("<p class=\"note\">");
        body.text(&format!("{}, rules {}; ", one.variant, one.rules));
        body.number(&format!("/different/{nr}/nr_steps"), one.nr_steps, &one.nr_steps.to_string());
        body.text(" steps");
        body.text(if one.is_repeated { "; recorded twice" } else { "" }).raw("</p>");
        for difference in one.differences {
            let Difference { aspect, place, kernel, model } = difference;
            body.raw("<div class=\"wide\"><table class=\"wrap left sides\"><tbody>");
            body.raw("<tr class=\"heading\"><th scope=\"row\">step</th><td>");
            body.text(&format!("{place}: {}", words(*aspect))).raw("</td></tr>");
            let sides = [
                ("state", place.before()),
                ("kernel", Some(kernel.as_str())),
                ("model", Some(model.as_str())),
            ];
            for (side, text) in sides {
                let Some(text) = text else { continue };
                body.raw("<tr>").element("th scope=\"row\"", side);
                body.element("td class=\"pairs\"", text).raw("</tr>");
            }
            body.raw(TABLE_END).raw("</div>");
        }
    }
    if data.nr_different_not_shown > 0 {
        let text = format!(
            "{} more differ; --json lists all of \
                            them.",
            data.nr_different_not_shown
        );
        body.element("p class=\"note\"", &text);
    }
    body
}

fn reasons(data: &Data<'_>) -> Markup {
    let mut table = Markup::new();
    table.raw("<div class=\"wide\"><table class=\"left\"><thead><tr>");
    for title in ["Outcome", "Recordings", "Why", "The first"] {
        table.element("th scope=\"col\"", title);
    }
    table.raw("</tr></thead><tbody>");
    for (nr, reason) in data.reasons.iter().enumerate() {
        table.raw("<tr>").element("th scope=\"row\"", reason.outcome).raw("<td>");
        table.number(&format!("/reasons/{nr}/nr"), reason.nr, &grouped(reason.nr));
        table.raw("</td>").element("td", reason.reason).element("td", reason.first).raw("</tr>");
    }
    table.raw(TABLE_END).raw("</div>");
    if data.nr_repeated > 0 {
        let nr = data.nr_repeated;
        let text = format!("{nr} recorded twice, because a pause was too short or they differ.");
        table.element("p class=\"note\"", &text);
    }
    table
}

fn rows(data: &Data<'_>) -> Markup {
    let columns = ["outcome", "steps", "items compared", "differences"].map(str::to_owned);
    let nr = data.rows.len();
    let mut body = Markup::new();
    body.raw("<details class=\"more\"><summary>")
        .text(&format!("{nr} recordings"))
        .raw("</summary>");
    body.raw("<div class=\"wide\">").append(&table_head("Recording", &columns));
    for (nr, row) in data.rows.iter().enumerate() {
        body.raw("<tr>").element("th scope=\"row\"", row.name).element("td", row.outcome);
        let numbers = [
            ("nr_steps", row.nr_steps as u64),
            ("nr_compared", row.nr_compared),
            ("nr_differences", row.nr_differences as u64),
        ];
        for (key, value) in numbers {
            body.raw("<td>").number(&format!("/rows/{nr}/{key}"), value, &grouped(value));
            body.raw("</td>");
        }
        body.raw("</tr>");
    }
    body.raw(TABLE_END).raw("</div></details>");
    if data.nr_rows_not_shown > 0 {
        let text = format!("{} more are in --json and --csv.", data.nr_rows_not_shown);
        body.element("p class=\"note\"", &text);
    }
    body
}

fn sources() -> Markup {
    meanings(&[
        (
            "kernel",
            "Read from tracefs and pagemap while a workload ran on a filesystem in memory, or \
             from a recording of such a run.",
        ),
        ("model", "The same touches, replayed under the named rules."),
        ("equal", "Nothing that was compared differs."),
        ("skipped", "Deliberately not recorded; the reason is given."),
        ("failed", "The workload could not be recorded; the reason is given."),
    ])
}
