//! The first screen: the answer in a sentence, and one row per cell.

use std::cmp::Ordering;

use largefolio_sim::metrics::{self, Better};
use largefolio_sim::replay::Outcome;

use super::folios::{KINDS, cache_parts, parts};
use crate::figures::{self, change, percent, ratio, size};
use crate::html::bars::{Bar, BarPart, drawing};
use crate::html::markup::Markup;
use crate::predict::labels::Labels;
use crate::predict::sums::{LARGE_BYTES, cached_bytes, large_share, memory_bytes};
use crate::predict::verdict::{Goal, sentences};
use crate::predict::{PredictResult, text};

pub(super) fn answer(report: &PredictResult) -> Markup {
    let mut answer = Markup::new();
    if report.rows.is_empty() {
        answer.element("p class=\"answer\"", "The result has no rows.");
        return answer;
    }
    for sentences in sentences::describe(report) {
        if let Some((headline, others)) = sentences.split_first() {
            answer.element("p class=\"answer\"", headline);
            if !others.is_empty() {
                answer.element("p class=\"others\"", &others.join(" "));
            }
        }
    }
    let explained =
        report.verdict.answers.iter().find_map(|one| Some((one.reference, one.explained_row()?)));
    if let Some((before, now)) = explained {
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
    let of = |path, name| {
        let metric = metrics::at(path);
        Some((name, metric.better, metric.count(before)?, metric.count(now)?))
    };
    let memory = ("memory", Better::Less, memory_bytes(before), memory_bytes(now));
    let facts = [
        of("tlb.instruction.l2_misses", "instruction walks"),
        of("tlb.data.l2_misses", "data walks"),
        of("faults.total", "faults"),
        of("reads.bytes", "bytes read"),
        Some(memory),
        of("estimate.total_ns", "time of memory management"),
    ];
    answer.raw("<ul class=\"facts\">");
    let share = |row: &Outcome| large_share(&row.folios.text);
    let large = size(LARGE_BYTES);
    let text = format!(" of the text with {name} is in folios of {large} and larger; before: ");
    answer.raw("<li>").element("b", &share(now)).text(&text).text(&share(before)).raw("</li>");
    for (name, better, before, now) in facts.into_iter().flatten() {
        let changed = match change(ratio(before, 1), ratio(now, 1)) {
            text if text.is_empty() || text == "=" => "same".to_owned(),
            text => text,
        };
        answer
            .raw("<li>")
            .element(&format!("b class=\"{}\"", class(better, before, now)), &changed);
        answer.text(" ").text(name).raw("</li>");
    }
    answer.raw("</ul>");
}

fn class(better: Better, before: u64, now: u64) -> &'static str {
    match (better, now.cmp(&before)) {
        (Better::Less, Ordering::Less) => "better",
        (Better::Less, Ordering::Greater) => "worse",
        _ => "same",
    }
}

#[derive(Clone, Copy)]
enum Source {
    /// A metric's path.
    Metric(&'static str),
    /// A sum of bytes that has no place in the JSON.
    Bytes(fn(&Outcome) -> u64),
}

#[derive(Clone, Copy)]
struct Column {
    title: &'static str,
    source: Source,
}

impl Column {
    const fn metric(title: &'static str, path: &'static str) -> Self {
        Self { title, source: Source::Metric(path) }
    }

    const fn bytes(title: &'static str, of: fn(&Outcome) -> u64) -> Self {
        Self { title, source: Source::Bytes(of) }
    }

    fn value(&self, row: &Outcome) -> Option<u64> {
        match self.source {
            Source::Metric(path) => metrics::at(path).count(row),
            Source::Bytes(of) => Some(of(row)),
        }
    }
}

const MEMORY_COLUMNS: [Column; 5] = [
    Column::bytes("Memory", memory_bytes),
    Column::metric("Private memory", "statistics.machine_exact.anon_pages_bytes"),
    Column::bytes("Page cache", cached_bytes),
    COLUMNS[2],
    COLUMNS[3],
];

const COLUMNS: [Column; 5] = [
    Column::metric("Instruction walks", "tlb.instruction.l2_misses"),
    Column::metric("Data walks", "tlb.data.l2_misses"),
    Column::metric("Faults", "faults.total"),
    Column::metric("Read from files", "reads.bytes"),
    Column::metric("Estimated time", "estimate.total_ns"),
];

struct Picture {
    title: &'static str,
    bytes: fn(&Outcome) -> u64,
    parts: fn(&Outcome) -> Vec<BarPart>,
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
        let private = BarPart { class: "total-bar".to_owned(), value: private, tip };
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
    match column.value(row) {
        Some(value) => {
            let better = match column.source {
                Source::Metric(path) => {
                    let metric = metrics::at(path);
                    let pointer = format!("/rows/{nr}/{}", path.replace('.', "/"));
                    table.number(&pointer, value, &shown(metric.unit, value));
                    metric.better
                }
                Source::Bytes(_) => {
                    table.element("span class=\"sum\"", &figures::bytes(value));
                    Better::Less
                }
            };
            if let Some(before) = column.value(first).filter(|_| nr > 0) {
                let class = class(better, before, value);
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

fn shown(unit: &str, value: u64) -> String {
    match unit {
        "bytes" => figures::bytes(value),
        "ns" => figures::time(value),
        _ => figures::count(value),
    }
}
