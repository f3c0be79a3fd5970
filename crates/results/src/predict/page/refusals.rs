//! Why folios are not larger: all refusals by kind and reason, as bars per cell.

use std::collections::BTreeSet;

use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_sim::replay::Outcome;

use crate::figures::{grouped, size};
use crate::html::bars::{Bar, BarPart, bars};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::{Markup, pointer_part};
use crate::predict::labels::Labels;

/// Number of colours; a kind with more reasons reuses them.
const NR_COLOURS: usize = 8;

const KINDS: [(RefusalKind, &str); 5] = [
    (RefusalKind::Readahead, "Readahead refused"),
    (RefusalKind::Memory, "Larger folios not available"),
    (RefusalKind::Pmd, "PMD mappings of files refused"),
    (RefusalKind::Collapse, "Collapse refused"),
    (RefusalKind::Writers, "Refused opens and runs, and dropped caches"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum RefusalKind {
    Readahead,
    Memory,
    Pmd,
    Collapse,
    Writers,
}

struct RefusalRow {
    kind: RefusalKind,
    name: String,
    /// The reason's meaning, and a remedy if one exists.
    why: String,
    at: String,
    counts: Vec<Option<u64>>,
}

/// Draws a figure per kind, or writes a sentence if nothing was refused.
pub(super) fn figures(rows: &[Outcome]) -> Markup {
    let names = Labels::names(rows);
    let occurred = |refusal: &RefusalRow| refusal.counts.iter().any(|count| count.unwrap_or(0) > 0);
    let refusals: Vec<RefusalRow> = all(rows).into_iter().filter(occurred).collect();
    let mut body = Markup::new();
    if refusals.is_empty() {
        body.element("p", "Nothing was refused in any cell.");
    }
    for (kind, title) in KINDS {
        let of_kind: Vec<&RefusalRow> =
            refusals.iter().filter(|refusal| refusal.kind == kind).collect();
        if !of_kind.is_empty() {
            let picture = picture(&of_kind, &names);
            body.append(&figure(title, &picture, &table(&of_kind, &names)));
        }
    }
    body
}

fn colour(nr: usize) -> String {
    format!("reason k{}", nr % NR_COLOURS)
}

fn picture(refusals: &[&RefusalRow], names: &[String]) -> Markup {
    let mut picture = Markup::new();
    picture.raw("<ul class=\"reasons\">");
    for (nr, refusal) in refusals.iter().enumerate() {
        picture.raw("<li><svg class=\"key\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">");
        picture.raw(&format!("<rect class=\"{}\" width=\"12\" height=\"12\"/>", colour(nr)));
        picture.raw("</svg>").element("b", &refusal.name).text(": ").text(&refusal.why);
        picture.raw("</li>");
    }
    picture.raw("</ul>");
    let bar = |(cell, name): (usize, &String)| {
        let parts = refusals.iter().enumerate().map(|(nr, refusal)| {
            let value = refusal.counts[cell].unwrap_or(0);
            let tip = format!("{}: {}", refusal.name, grouped(value));
            BarPart { class: colour(nr), value, tip }
        });
        let parts: Vec<BarPart> = parts.collect();
        let mut total = Markup::new();
        let sum = parts.iter().map(|part| part.value).fold(0, u64::saturating_add);
        total.text(&if sum == 0 { "none".to_owned() } else { grouped(sum) });
        Bar { label: name.clone(), parts, total }
    };
    picture.append(&bars(&names.iter().enumerate().map(bar).collect::<Vec<_>>()));
    picture
}

fn table(refusals: &[&RefusalRow], names: &[String]) -> Markup {
    let mut table = table_head("Refused", names);
    for refusal in refusals {
        table.raw("<tr>").element("th scope=\"row\"", &refusal.name);
        for (nr, count) in refusal.counts.iter().enumerate() {
            table.raw("<td>");
            if let Some(count) = count {
                table.number(&format!("/rows/{nr}/{}", refusal.at), count, &grouped(*count));
            }
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

fn all(rows: &[Outcome]) -> Vec<RefusalRow> {
    let mut all = of_reads(rows);
    all.extend(of_memory(rows));
    all.extend(of_pmds(rows));
    all.extend(of_collapse(rows));
    all.extend(of_writers(rows));
    all
}

/// Collects a reason; `at` is its JSON pointer within a row, `get` reads its count.
fn reason(
    rows: &[Outcome],
    kind: RefusalKind,
    (name, why): (&str, &str),
    at: &str,
    get: &dyn Fn(&Outcome) -> Option<u64>,
) -> RefusalRow {
    let (name, why, at) = (name.to_owned(), why.to_owned(), at.to_owned());
    RefusalRow { kind, name, why, at, counts: rows.iter().map(get).collect() }
}

fn of_reads(rows: &[Outcome]) -> Vec<RefusalRow> {
    let why = "readahead stops for a mapping whose faults keep missing the page cache (mmap_miss): \
               missing pages are then read one by one";
    let get = |row: &Outcome| Some(row.reads.gated);
    vec![reason(rows, RefusalKind::Readahead, ("the miss counter", why), "reads/gated", &get)]
}

fn of_memory(rows: &[Outcome]) -> Vec<RefusalRow> {
    let why = "readahead found no free memory of the requested size; the rest of the window uses \
               the smallest folios";
    let name = ("folios of files", why);
    let at = "reads/large_folio_fallback";
    let get = |row: &Outcome| Some(row.reads.large_folio_fallback);
    let mut all = vec![reason(rows, RefusalKind::Memory, name, at, &get)];
    let sizes: BTreeSet<u64> = rows.iter().flat_map(|row| row.anon_sizes.keys().copied()).collect();
    for bytes in sizes {
        let name = format!("private folios of {}", size(bytes));
        let why = "a first touch found no free folio of this size (anon_fault_fallback) and used \
            a smaller size";
        let at = format!("anon_sizes/{bytes}/anon_fault_fallback");
        let get = |row: &Outcome| Some(row.anon_sizes.get(&bytes)?.anon_fault_fallback);
        all.push(reason(rows, RefusalKind::Memory, (&name, why), &at, &get));
    }
    all
}

fn of_pmds(rows: &[Outcome]) -> Vec<RefusalRow> {
    let keys: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.pmd_refused.keys().copied()).collect();
    let of = |key: &str| {
        let at = format!("pmd_refused/{}", pointer_part(key));
        let get = |row: &Outcome| row.pmd_refused.get(key).copied();
        reason(rows, RefusalKind::Pmd, (&phrase(key), why_no_pmd(key)), &at, &get)
    };
    keys.into_iter().map(of).collect()
}

fn why_no_pmd(key: &str) -> &'static str {
    match key {
        "misaligned" => {
            "address and file offset differ modulo the PMD size; link with that max-page-size, or \
             map at a congruent address"
        }
        "vma_too_small" => {
            "the mapping does not contain the whole PMD range; only a longer segment helps"
        }
        "nohugepage" => "the program requested small pages with MADV_NOHUGEPAGE",
        "end_of_file" => "the folio extends past the end of the file",
        "table_present" => {
            "the range's pages were mapped one by one earlier, and their page table remains"
        }
        _ => "reason not known",
    }
}

fn of_collapse(rows: &[Outcome]) -> Vec<RefusalRow> {
    let keys: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.collapse.refused.keys().copied()).collect();
    let of = |key: &str| {
        let known = CollapseRefusal::ALL.into_iter().find(|refusal| refusal.name() == key);
        let why = known.map_or_else(String::new, |refusal| refusal.to_string());
        let at = format!("collapse/refused/{}", pointer_part(key));
        let get = |row: &Outcome| row.collapse.refused.get(key).copied();
        reason(rows, RefusalKind::Collapse, (&phrase(key), &why), &at, &get)
    };
    keys.into_iter().map(of).collect()
}

fn of_writers(rows: &[Outcome]) -> Vec<RefusalRow> {
    type Get = fn(&Outcome) -> Option<u64>;
    let all: [(&str, &str, &str, Get); 3] = [
        (
            "text busy",
            "attempts to open a running program for writing (ETXTBSY)",
            "writers/text_busy",
            |row| Some(row.writers.text_busy),
        ),
        (
            "open for writing",
            "attempts to start a program that is open for writing (ETXTBSY)",
            "writers/open_for_write",
            |row| Some(row.writers.open_for_write),
        ),
        (
            "dropped caches",
            "opens for writing that dropped the file's page cache because it contained huge folios",
            "writers/drops",
            |row| Some(row.writers.drops),
        ),
    ];
    let of = |(name, why, at, get): (&str, &str, &str, Get)| {
        reason(rows, RefusalKind::Writers, (name, why), at, &get)
    };
    all.into_iter().map(of).collect()
}

fn phrase(key: &str) -> String {
    key.replace('_', " ")
}
