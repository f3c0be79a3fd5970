//! The first screen: the answer in a sentence, and one row per cell.

use std::cmp::Ordering;

use largefolio_sim::replay::Outcome;
use largefolio_sim::tlb::Side;

use super::bars::{Bar, Part, drawing};
use super::folios::{KINDS, cache_parts, parts};
use super::markup::Markup;
use crate::figures::{self, change, percent, ratio, size};
use crate::labels::Labels;
use crate::sums::{LARGE_BYTES, cached_bytes, large_share, memory_bytes};
use crate::verdict::{Goal, words};
use crate::{PredictResult, text};

pub(super) fn answer(report: &PredictResult) -> Markup {
    let mut answer = Markup::new();
    if report.rows.is_empty() {
        answer.element("p class=\"answer\"", "The result has no rows.");
        return answer;
    }
    for sentences in words::sentences(report) {
        if let Some((headline, others)) = sentences.split_first() {
            answer.element("p class=\"answer\"", headline);
            if !others.is_empty() {
                answer.element("p class=\"others\"", &others.join(" "));
            }
        }
    }
    let told = report.verdict.answers.iter().find_map(|one| Some((one.reference, one.told()?)));
    if let Some((before, now)) = told {
        let name = &Labels::names(&report.rows)[now];
        facts(&mut answer, name, &report.rows[before], &report.rows[now]);
    }
    answer.element(
        "p class=\"honest\"",
        "A prediction: counted in a model of the kernel, not measured, and not verified on a \
         running kernel. Times are estimates.",
    );
    answer.raw("<p class=\"about\">");
    for line in text::title(report).iter().skip(1) {
        answer.text(line).raw("<br>");
    }
    answer.raw("</p>");
    answer
}

/// Lists the changes of the column `name`. Less is better in each line but the first.
fn facts(answer: &mut Markup, name: &str, before: &Outcome, now: &Outcome) {
    let mut facts: Vec<(&str, u64, u64)> = Vec::new();
    if !before.tlb.is_empty() {
        facts.extend([
            ("instruction walks", before.tlb.instruction.l2_misses, now.tlb.instruction.l2_misses),
            ("data walks", before.tlb.data.l2_misses, now.tlb.data.l2_misses),
        ]);
    }
    facts.extend([
        ("faults", before.faults.total, now.faults.total),
        ("bytes read", before.reads.bytes, now.reads.bytes),
        ("memory", memory_bytes(before), memory_bytes(now)),
    ]);
    if let (Some(before), Some(now)) = (before.estimate.total_ns, now.estimate.total_ns) {
        facts.push(("time of memory management", before, now));
    }
    answer.raw("<ul class=\"facts\">");
    let share = |row: &Outcome| large_share(&row.folios.text);
    let large = size(LARGE_BYTES);
    let text = format!(" of the text with {name} is in folios of {large} and larger; before: ");
    answer.raw("<li>").element("b", &share(now)).text(&text).text(&share(before)).raw("</li>");
    for (name, before, now) in facts {
        let changed = match change(ratio(before, 1), ratio(now, 1)) {
            text if text.is_empty() || text == "=" => "same".to_owned(),
            text => text,
        };
        answer
            .raw("<li>")
            .element(&format!("b class=\"{}\"", less_is_better(before, now)), &changed);
        answer.text(" ").text(name).raw("</li>");
    }
    answer.raw("</ul>");
}

fn less_is_better(before: u64, now: u64) -> &'static str {
    match now.cmp(&before) {
        Ordering::Less => "better",
        Ordering::Equal => "same",
        Ordering::Greater => "worse",
    }
}

#[derive(Clone, Copy)]
struct Column {
    title: &'static str,
    /// JSON pointer within a row; `None` if the number is a sum of several.
    at: Option<&'static str>,
    get: fn(&Outcome) -> Option<u64>,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    Count,
    Bytes,
    Time,
}

const MEMORY_COLUMNS: [Column; 5] = [
    Column { title: "Memory", at: None, get: |row| Some(memory_bytes(row)), unit: Unit::Bytes },
    Column {
        title: "Private memory",
        at: Some("statistics/machine_exact/anon_pages_bytes"),
        get: |row| Some(row.statistics.machine_exact.anon_pages_bytes),
        unit: Unit::Bytes,
    },
    Column { title: "Page cache", at: None, get: |row| Some(cached_bytes(row)), unit: Unit::Bytes },
    COLUMNS[2],
    COLUMNS[3],
];

const COLUMNS: [Column; 5] = [
    Column {
        title: "Instruction walks",
        at: Some("tlb/instruction/l2_misses"),
        get: |row| walks(row, Side::Instruction),
        unit: Unit::Count,
    },
    Column {
        title: "Data walks",
        at: Some("tlb/data/l2_misses"),
        get: |row| walks(row, Side::Data),
        unit: Unit::Count,
    },
    Column {
        title: "Faults",
        at: Some("faults/total"),
        get: |row| Some(row.faults.total),
        unit: Unit::Count,
    },
    Column {
        title: "Read from files",
        at: Some("reads/bytes"),
        get: |row| Some(row.reads.bytes),
        unit: Unit::Bytes,
    },
    Column {
        title: "Estimated time",
        at: Some("estimate/total_ns"),
        get: |row| row.estimate.total_ns,
        unit: Unit::Time,
    },
];

fn walks(row: &Outcome, side: Side) -> Option<u64> {
    (!row.tlb.is_empty()).then(|| row.tlb.side(side).l2_misses)
}

struct Picture {
    title: &'static str,
    bytes: fn(&Outcome) -> u64,
    parts: fn(&Outcome) -> Vec<Part>,
    large: fn(&Outcome) -> String,
}

const TEXT: Picture = Picture {
    title: "Mapped text by folio size",
    bytes: |row| row.folios.text.mapped_bytes,
    parts: |row| parts(row, KINDS[0]),
    large: |row| large_share(&row.folios.text),
};

const MEMORY: Picture = Picture {
    title: "Memory: page cache by folio size, then private",
    bytes: memory_bytes,
    parts: |row| {
        let private = row.statistics.machine_exact.anon_pages_bytes;
        let tip = format!("private memory: {}", figures::bytes(private));
        let private = Part { class: "total-bar".to_owned(), value: private, tip };
        cache_parts(row).into_iter().chain([private]).collect()
    },
    large: |row| {
        let large = row.cached_bytes.range(LARGE_BYTES..).map(|(_, bytes)| bytes).sum();
        let share = percent(large, cached_bytes(row));
        format!("{} of the cache", if share.is_empty() { "none" } else { &share })
    },
};

pub(super) fn overview(rows: &[Outcome], goal: Goal) -> Markup {
    let names = Labels::names(rows);
    let (columns, picture) = match goal {
        Goal::Memory => (&MEMORY_COLUMNS, &MEMORY),
        Goal::Time | Goal::Faults => (&COLUMNS, &TEXT),
    };
    let mut table = Markup::new();
    table.raw("<div class=\"wide\"><table class=\"overview\"><thead><tr>");
    for title in ["Cell", picture.title, "64K and more"] {
        table.element("th scope=\"col\"", title);
    }
    for column in columns {
        table.element("th scope=\"col\"", column.title);
    }
    table.raw("</tr></thead><tbody>");
    let max = rows.iter().map(picture.bytes).max().unwrap_or(0);
    for (nr, row) in rows.iter().enumerate() {
        table.raw(if nr == 0 { "<tr class=\"reference\">" } else { "<tr>" });
        table.element("th scope=\"row\"", &names[nr]);
        let label = format!("{}: {}", names[nr], picture.title);
        let bar = Bar { label, parts: (picture.parts)(row), total: Markup::new() };
        table.raw("<td class=\"picture\">").append(&drawing(&bar, max)).raw("</td>");
        table.element("td data-label=\"64K and more\"", &(picture.large)(row));
        for column in columns {
            number(&mut table, column, (nr, row), &rows[0]);
        }
        table.raw("</tr>");
    }
    table.raw("</tbody></table></div>\n");
    table
}

fn number(table: &mut Markup, column: &Column, (nr, row): (usize, &Outcome), first: &Outcome) {
    table.raw(&format!("<td data-label=\"{}\">", column.title));
    match (column.get)(row) {
        Some(value) => {
            let shown = shown(column.unit, value);
            match column.at {
                Some(at) => table.number(&format!("/rows/{nr}/{at}"), value, &shown),
                None => table.element("span class=\"sum\"", &shown),
            };
            if let Some(before) = (column.get)(first).filter(|_| nr > 0) {
                let class = less_is_better(before, value);
                let change = change(ratio(before, 1), ratio(value, 1));
                table.raw(" ").element(&format!("small class=\"{class}\""), &change);
            }
        }
        None => {
            table.element("small", "not known");
        }
    }
    table.raw("</td>");
}

fn shown(unit: Unit, value: u64) -> String {
    match unit {
        Unit::Count => figures::count(value),
        Unit::Bytes => figures::bytes(value),
        Unit::Time => figures::time(value),
    }
}
