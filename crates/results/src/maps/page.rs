//! The running system as a page: sums by kind; processes, mappings and files by folio size; strips
//! for the largest items; reasons with remedies.

use std::collections::BTreeSet;

use crate::ExportError;
use crate::figures::{self, percent, size};
use crate::html::bars::{Bar, BarPart, bars};
use crate::html::frame::{Basis, Page, Section, TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use crate::html::runs::{Drawn, Strip};
use crate::html::sizes::{class, legend};
use largefolio_linux::census::Access;
use largefolio_linux::remedies::Remedy;
use largefolio_linux::system::Live;

use super::headline::{self, LARGE_BYTES};
use super::plain::shortened;
use super::reading::Reading;
use super::summary::{NamedSizes, SizeData, StripData, Summary};
use super::text::terms;
use crate::page::{footer, meanings, section};
use crate::remedy::takes;
use crate::sentence;

/// Maximum number of characters of a name next to a bar; the table has the whole name.
const NAME_CHARS: usize = 56;

pub(super) fn of(reading: &Reading, command_line: &[String]) -> Result<Page, ExportError> {
    of_summary(&Summary::of(reading, command_line, &Live), title(reading))
}

pub(super) fn of_summary(summary: &Summary<'_>, title: String) -> Result<Page, ExportError> {
    let mut sections = Vec::new();
    if summary.nr_processes > 0 {
        sections.extend(of_census(summary));
    }
    if !summary.files.is_empty() {
        let mut body = sized("Cached, by folio size", "File", &rows(&summary.files, "files"));
        let nrs = [
            (summary.nr_files_not_shown, "smaller files are not shown"),
            (summary.nr_files_not_cached, "files without cached pages"),
        ];
        body.append(&omission_notes(&nrs));
        body.append(&strips(summary, true));
        let lead = "Folios of the page cache, mapped or not; the largest files first.";
        sections.push(section("files", "Page cache of files", Basis::Measured, lead, body));
    }
    sections.push(section("sources", "Sources", Basis::None, "", sources(summary)));
    Ok(Page {
        title,
        kind: "folio maps: which folio sizes are in use, and why not larger ones",
        answer: headline(summary),
        sections,
        json: serde_json::to_string(summary)?,
        footer: footer(summary.tool_version, summary.command_line),
    })
}

fn title(reading: &Reading) -> String {
    let files = reading.cached.as_ref().map(|cached| match cached.files.as_slice() {
        [one] => one.path.to_string_lossy().into_owned(),
        many => format!("{} files", many.len()),
    });
    match (reading.census.as_ref().map(|census| census.processes.as_slice()), files) {
        (Some([one]), _) => format!("{} ({})", one.name, one.pid),
        (Some(many), Some(files)) => format!("{} processes, {files}", many.len()),
        (Some(many), None) => format!("{} processes", many.len()),
        (None, files) => files.unwrap_or_default(),
    }
}

fn of_census(summary: &Summary<'_>) -> Vec<Section> {
    let once = if summary.access == Some(Access::Full) { "each page once" } else { "a plain sum" };
    let lead = format!("Mapped memory by kind, {once}.");
    let kinds = sized("By kind", "Kind", &rows(&summary.kinds, "kinds"));
    let mut sections = vec![
        section("why", "Why not larger", Basis::Measured, WHY, why(summary)),
        section("kinds", "Folio sizes", Basis::Measured, &lead, kinds),
    ];
    if summary.nr_processes > 1 {
        let mut body = sized("By process", "Process", &rows(&summary.processes, "processes"));
        body.append(&omission_notes(&[(summary.nr_processes_not_shown, "smaller processes")]));
        let lead = "Memory that several processes share counts in each of them.";
        sections.push(section("processes", "Processes", Basis::Measured, lead, body));
    }
    let mut body = sized("By mapping", "Mapping", &rows(&summary.mappings, "mappings"));
    body.append(&omission_notes(&[(summary.nr_mappings_not_shown, "smaller mappings")]));
    let lead = if summary.nr_processes > 1 {
        "The largest mappings; mappings of one file with the same permissions are combined."
    } else {
        "The largest."
    };
    sections.push(section("mappings", "Mappings", Basis::Measured, lead, body));
    if summary.strips.iter().any(|strip| !strip.is_file) {
        let body = strips(summary, false);
        sections.push(section("places", "Where the folios are", Basis::Measured, PLACES, body));
    }
    sections
}

const PLACES: &str = "The address space of the largest mappings, from first page to last, read \
                      just after the counts. With scripts: point at a strip to see a folio and its \
                      place; drag or press + and - to zoom; use the arrow keys to step from folio \
                      to folio.";

const WHY: &str = "Each mapping is compared with the largest folio size that fits in it. The same \
                   bytes can have several reasons. Each command was checked with the verb that \
                   would execute it; the gain counts blocks that now contain at least one page.";

fn headline(summary: &Summary<'_>) -> Markup {
    let mut markup = Markup::new();
    let total = &summary.total;
    markup.append(&sentence::marked(&match summary.access {
        Some(access) if summary.nr_processes > 0 => {
            headline::processes(total, access, summary.pmd_bytes)
        }
        _ => headline::files(&summary.cached),
    }));
    if let Some((name, remedy)) = summary.best() {
        markup.append(&best(name, remedy));
    }
    if summary.nr_processes > 0 {
        markup.raw("<ul class=\"facts\">");
        let facts = [
            ("mapped_bytes", total.mapped_bytes, "mapped"),
            ("contpte_bytes", total.contpte_bytes, "in contpte blocks"),
            ("unaligned_bytes", total.unaligned_bytes, "not aligned"),
            ("partial_bytes", total.partial_bytes, "partly mapped"),
        ];
        for (key, bytes, text) in facts.into_iter().filter(|(_, bytes, _)| *bytes > 0) {
            markup.raw("<li><b>").number(&format!("/total/{key}"), bytes, &figures::bytes(bytes));
            markup.raw("</b> ").text(text).raw("</li>");
        }
        markup.raw("</ul>");
    }
    if summary.nr_refused > 0 {
        let nr = summary.nr_refused;
        let text = format!("The kernel does not show {nr} of the processes to this user.");
        markup.element("p class=\"honest\"", &text);
    }
    let about = format!("kernel {}, {} pages", summary.kernel, size(summary.page_bytes));
    markup.element("p class=\"about\"", &about);
    markup
}

fn best(name: &str, remedy: &Remedy) -> Markup {
    let mut best = Markup::new();
    let (gain, size) = (figures::bytes(remedy.gain_bytes), size(remedy.folio_bytes));
    best.raw("<div class=\"best\"><p>").text("The remedy with the largest gain is for ");
    let mut parts = vec![format!(": {gain} in {size} folios")];
    parts.extend(takes(remedy));
    best.element("b", name).text(&format!("{}. ", parts.join("; it ")));
    best.raw("<a href=\"#why\">All remedies</a></p>");
    best.element("code class=\"remedy\"", &remedy.to_string());
    for term in terms(remedy).iter().skip(1) {
        best.raw("<br>").element("small", term);
    }
    best.raw("</div>");
    best
}

type NamedRow<'a> = (&'a NamedSizes, String);

fn rows<'a>(named: &'a [NamedSizes], key: &str) -> Vec<NamedRow<'a>> {
    named.iter().enumerate().map(|(nr, one)| (one, format!("/{key}/{nr}"))).collect()
}

fn size_name(size_data: &SizeData) -> String {
    size_data.folio_bytes.map_or_else(|| "unknown size".to_owned(), size)
}

fn sized(caption: &str, corner: &str, rows: &[NamedRow<'_>]) -> Markup {
    let all = || rows.iter().flat_map(|(one, _)| &one.sizes.by_size);
    let known: BTreeSet<u64> = all().filter_map(|size| size.folio_bytes).collect();
    let mut others = Vec::new();
    let has = |of: fn(&SizeData) -> bool| all().any(of);
    for (is_there, class, text) in [
        (has(|size| size.unaligned_bytes > 0), "unaligned", "not aligned"),
        (has(|size| size.partial_bytes > 0), "partial", "partly mapped"),
        (has(|size| size.folio_bytes.is_none()), "unknown", "size not known"),
    ] {
        others.extend(is_there.then_some((class, text)));
    }
    let drawn: Vec<Bar> = rows.iter().map(|(one, at)| bar(one, at)).collect();
    let mut picture = legend(&known, &others);
    picture.raw("<div class=\"named\">").append(&bars(&drawn)).raw("</div>");
    figure(caption, &picture, &table(corner, &known, rows))
}

fn bar(one: &NamedSizes, at: &str) -> Bar {
    let (all, name) = (one.sizes.mapped_bytes, shortened(&one.name, NAME_CHARS));
    let part = |class: String, value: u64, what: String| BarPart {
        tip: format!("{name}\n{what}: {}, {}", figures::bytes(value), percent(value, all)),
        class,
        value,
    };
    let colour = |size: &SizeData| size.folio_bytes.map_or_else(|| "unknown".to_owned(), class);
    let sizes = &one.sizes.by_size;
    let whole = sizes.iter().map(|size| {
        let aligned = size.mapped_bytes - size.unaligned_bytes - size.partial_bytes;
        part(colour(size), aligned, format!("{} folios", size_name(size)))
    });
    let unaligned = sizes.iter().map(|size| {
        let class = format!("{} faint", colour(size));
        part(class, size.unaligned_bytes, format!("{} folios, not aligned", size_name(size)))
    });
    let partial = part("partial".to_owned(), one.sizes.partial_bytes, "partly mapped".to_owned());
    let parts = whole.chain(unaligned).chain([partial]).collect();
    let mut total = Markup::new();
    total.number(&format!("{at}/mapped_bytes"), all, &figures::bytes(all));
    if !one.about.is_empty() {
        total.raw("<br>").element("small", &one.about);
    }
    Bar { label: name.clone(), parts, total }
}

fn table(corner: &str, known: &BTreeSet<u64>, rows: &[NamedRow<'_>]) -> Markup {
    let mut columns = vec!["all".to_owned()];
    columns.extend(known.iter().map(|bytes| size(*bytes)));
    let has_unknown =
        rows.iter().any(|(one, _)| one.sizes.by_size.iter().any(|size| size.folio_bytes.is_none()));
    columns.extend(has_unknown.then(|| "not known".to_owned()));
    columns.extend(["not aligned", "partly mapped", "contpte", "PMD"].map(str::to_owned));
    let mut table = table_head(corner, &columns);
    for (one, at) in rows {
        let sizes = &one.sizes;
        table.raw("<tr><th scope=\"row\">").text(&one.name);
        if !one.about.is_empty() {
            table.text(" ").element("small", &one.about);
        }
        table.raw("</th>");
        number(&mut table, &format!("{at}/mapped_bytes"), sizes.mapped_bytes);
        let wanted = known.iter().map(|bytes| Some(*bytes)).chain(has_unknown.then_some(None));
        for folio_bytes in wanted {
            let index = sizes.by_size.iter().position(|size| size.folio_bytes == folio_bytes);
            match index {
                Some(nr) => {
                    let at = format!("{at}/by_size/{nr}/mapped_bytes");
                    number(&mut table, &at, sizes.by_size[nr].mapped_bytes);
                }
                None => {
                    table.raw("<td></td>");
                }
            }
        }
        for (key, bytes) in [
            ("unaligned_bytes", sizes.unaligned_bytes),
            ("partial_bytes", sizes.partial_bytes),
            ("contpte_bytes", sizes.contpte_bytes),
            ("pmd_bytes", sizes.pmd_bytes),
        ] {
            number(&mut table, &format!("{at}/{key}"), bytes);
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

fn number(table: &mut Markup, at: &str, bytes: u64) {
    table.raw("<td>").number(at, bytes, &figures::bytes(bytes)).raw("</td>");
}

fn omission_notes(nrs: &[(usize, &str)]) -> Markup {
    let mut text = Markup::new();
    for (nr, what) in nrs.iter().filter(|(nr, _)| *nr > 0) {
        text.element("p class=\"note\"", &format!("And {nr} {what}; --json lists all of them."));
    }
    text
}

fn strips(summary: &Summary<'_>, of_files: bool) -> Markup {
    let wanted = summary.strips.iter().enumerate().filter(|(_, strip)| strip.is_file == of_files);
    let wanted: Vec<(usize, &StripData)> = wanted.collect();
    let folio_bytes = |run: &[u64; 4]| summary.page_bytes << run[2].min(40);
    let runs = || wanted.iter().flat_map(|(_, strip)| &strip.runs);
    let sizes: BTreeSet<u64> = runs().map(folio_bytes).collect();
    let mut body = Markup::new();
    if wanted.is_empty() {
        return body;
    }
    let mut others = vec![("hole", "nothing there")];
    // Indexes of `RunMapping::Unaligned` and `RunMapping::Partial`.
    let is_faint = |run: &[u64; 4]| matches!(run[3], 2 | 3);
    if runs().any(is_faint) {
        others.push(("pale s16", "pale: not aligned, or partly mapped"));
    }
    body.append(&legend(&sizes, &others));
    for (nr, strip) in wanted {
        let drawn: Vec<Drawn> = strip
            .runs
            .iter()
            .map(|run| Drawn {
                page: run[0],
                nr_pages: run[1],
                folio_bytes: folio_bytes(run),
                is_faint: is_faint(run),
            })
            .collect();
        let coarse = if strip.cell_pages > 1 {
            let cell = figures::bytes(strip.cell_pages.saturating_mul(summary.page_bytes));
            format!("; too many folios to draw: each {cell} shows the size that covers most of it")
        } else {
            String::new()
        };
        let about = format!("{}{coarse}", strip.about);
        let (page_bytes, nr_pages) = (summary.page_bytes, strip.nr_pages);
        let drawing =
            Strip { nr, name: &strip.name, about: &about, nr_pages, page_bytes, runs: &drawn };
        let (end, table) = drawn_table(&drawn, page_bytes);
        body.append(&drawing.figure(&end, &table));
    }
    body
}

fn drawn_table(drawn: &[Drawn], page_bytes: u64) -> (String, Markup) {
    let mut by_size = std::collections::BTreeMap::<u64, u64>::new();
    for run in drawn {
        *by_size.entry(run.folio_bytes).or_default() += run.nr_pages * page_bytes;
    }
    let all: u64 = by_size.values().sum();
    let large: u64 = by_size.range(LARGE_BYTES..).map(|(_, bytes)| bytes).sum();
    let share = percent(large, all);
    let end = format!("{} in 64K+", if share.is_empty() { "0%" } else { &share });
    let mut table = table_head("Folio size", &["drawn".to_owned()]);
    for (bytes, sum) in by_size {
        table.raw("<tr>").element("th scope=\"row\"", &size(bytes));
        table.element("td", &figures::bytes(sum)).raw("</tr>");
    }
    table.raw(TABLE_END);
    (end, table)
}

fn why(summary: &Summary<'_>) -> Markup {
    let mut body = Markup::new();
    if summary.reasons.is_empty() {
        body.element("p", "No folio could be larger.");
        return body;
    }
    let mut drawn = Vec::new();
    let mut table = table_head("Reason", &["bytes".to_owned()]);
    for (nr, reason) in summary.reasons.iter().enumerate() {
        let at = format!("/reasons/{nr}/bytes");
        table.raw("<tr>").element("th scope=\"row\"", reason.meaning);
        number(&mut table, &at, reason.bytes);
        table.raw("</tr>");
        if reason.refusal.has_no_remedy() {
            continue;
        }
        let mut total = Markup::new();
        total.number(&at, reason.bytes, &figures::bytes(reason.bytes));
        let tip = format!("{}: {}", reason.meaning, figures::bytes(reason.bytes));
        let parts = vec![BarPart { class: "total-bar".to_owned(), value: reason.bytes, tip }];
        drawn.push(Bar { label: reason.meaning.to_owned(), parts, total });
    }
    table.raw(TABLE_END);
    if drawn.is_empty() {
        body.raw("<div class=\"wide\">").append(&table).raw("</div>");
    } else {
        let mut picture = Markup::new();
        picture.raw("<div class=\"named\">").append(&bars(&drawn)).raw("</div>");
        body.append(&figure("Bytes by reason", &picture, &table));
        body.append(&remedies(summary));
    }
    body.append(&omission_notes(&[(
        summary.nr_subjects_not_shown,
        "smaller mappings that could have larger \
        folios",
    )]));
    for reason in summary.reasons.iter().filter(|reason| reason.refusal.has_no_remedy()) {
        let text = format!("Besides {} {}.", figures::bytes(reason.bytes), reason.meaning);
        body.element("p class=\"note\"", &text);
    }
    body
}

fn remedies(summary: &Summary<'_>) -> Markup {
    let mut table = Markup::new();
    table.raw("<h3>How to change it</h3><div class=\"wide\"><table class=\"wrap left subjects\">");
    table.raw("<thead><tr>");
    for title in ["Mapping", "Not large", "Could be", "Why, and how to change it"] {
        table.element("th scope=\"col\"", title);
    }
    table.raw("</tr></thead><tbody>");
    for (nr, subject) in summary.subjects.iter().enumerate() {
        table.raw("<tr><th scope=\"row\">").text(&subject.name);
        if subject.nr_processes > 1 {
            table.text(" ").element("small", &format!("{} processes", subject.nr_processes));
        }
        table.raw("</th>");
        table.raw("<td data-label=\"not large\">");
        let bytes = figures::bytes(subject.bytes);
        table.number(&format!("/subjects/{nr}/bytes"), subject.bytes, &bytes).raw("</td>");
        table.element("td data-label=\"could be\"", &size(subject.target_bytes)).raw("<td>");
        for (at, reason) in subject.reasons.iter().enumerate() {
            let at = format!("/subjects/{nr}/reasons/{at}/bytes");
            table.raw("<div>").text(reason.meaning).raw(" <small>");
            table.number(&at, reason.bytes, &figures::bytes(reason.bytes)).raw("</small>");
            table.raw("</div>");
        }
        for remedy in &subject.remedies {
            table.raw("<div>").element("code class=\"remedy\"", &remedy.to_string());
            for term in terms(remedy) {
                table.raw("<br>").element("small", &term);
            }
            table.raw("</div>");
        }
        table.raw("</td></tr>");
    }
    table.raw(TABLE_END).raw("</div>");
    table
}

fn sources(summary: &Summary<'_>) -> Markup {
    let contpte = format!(
        "Naturally aligned blocks of {} that are fully mapped from one folio; arm64 can hold each \
         in one TLB entry.",
        size(summary.contpte_bytes)
    );
    meanings(&[
        (
            "measured",
            "Read from pagemap, kpageflags and smaps of the running kernel; nothing is estimated. \
             Processes kept running during the measurement. This page shows only the largest \
             items; --json lists all of them.",
        ),
        (
            "aligned",
            "The whole folio is mapped, at an address with the same alignment as its position in \
             the file or in memory.",
        ),
        ("not aligned", "The whole folio is mapped at any other address."),
        ("partly mapped", "Only a part of the folio is mapped."),
        ("contpte", &contpte),
        (
            "could be",
            "The folio size worth having on this machine if a whole folio fits in the mapping; \
             otherwise the size of a contpte block.",
        ),
    ])
}

#[cfg(test)]
mod tests;
