//! Folio sizes of each kind of memory: the published table as stacked bars.

use std::collections::BTreeSet;

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::sizes::{FolioSizes, SizeTable};

use crate::figures::{self, Scale, percent, size};
use crate::html::bars::{Bar, BarPart, bars};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use crate::html::sizes::{class, legend};
use crate::predict::labels::Labels;
use crate::predict::sums::cached_bytes;

#[derive(Clone, Copy)]
pub(super) struct FolioKind {
    name: &'static str,
    key: &'static str,
    get: fn(&FolioSizes) -> &SizeTable,
}

pub(super) const KINDS: [FolioKind; 4] = [
    FolioKind { name: "Text", key: "text", get: |folios| &folios.text },
    FolioKind { name: "File data", key: "data", get: |folios| &folios.data },
    FolioKind { name: "Private memory", key: "anon", get: |folios| &folios.anon },
    FolioKind { name: "Shared memory", key: "shmem", get: |folios| &folios.shmem },
];

pub(super) fn figures(rows: &[Outcome]) -> Markup {
    let mut body = Markup::new();
    let sizes: BTreeSet<u64> = rows
        .iter()
        .flat_map(|row| KINDS.map(|kind| (kind.get)(&row.folios).by_size.keys().copied()))
        .flatten()
        .chain(rows.iter().flat_map(|row| row.cached_bytes.keys().copied()))
        .collect();
    body.append(&legend(&sizes, &[("unaligned", "not aligned"), ("partial", "partly mapped")]));
    let names = Labels::names(rows);
    for kind in KINDS {
        let is_mapped = |row: &Outcome| (kind.get)(&row.folios).mapped_bytes > 0;
        if rows.iter().any(is_mapped) {
            let of = |nr: usize| bar(nr, &rows[nr], &names[nr], kind);
            let picture = bars(&(0..rows.len()).map(of).collect::<Vec<_>>());
            body.append(&figure(kind.name, &picture, &table(rows, &names, kind)));
        }
    }
    if rows.iter().any(|row| cached_bytes(row) > 0) {
        body.append(&cache(rows, &names));
    }
    body
}

fn cache(rows: &[Outcome], names: &[String]) -> Markup {
    let bar = |(row, name): (&Outcome, &String)| {
        let mut total = Markup::new();
        total.text(&figures::bytes(cached_bytes(row)));
        Bar { label: name.clone(), parts: cache_parts(row), total }
    };
    let picture = bars(&rows.iter().zip(names).map(bar).collect::<Vec<_>>());
    let scale = Scale::of_bytes(rows.iter().map(cached_bytes).max().unwrap_or(0));
    let mut table = table_head(&format!("Page cache, {}", scale.name), names);
    let sizes: BTreeSet<u64> =
        rows.iter().flat_map(|row| row.cached_bytes.keys().copied()).collect();
    for bytes in sizes {
        table.raw("<tr>").element("th scope=\"row\"", &size(bytes));
        for (nr, row) in rows.iter().enumerate() {
            table.raw("<td>");
            if let Some(&value) = row.cached_bytes.get(&bytes) {
                let at = format!("/rows/{nr}/cached_bytes/{bytes}");
                table.number(&at, value, &scale.show(value)).raw(" ");
                table.element("small", &percent(value, cached_bytes(row)));
            }
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    figure("Page cache at the end", &picture, &table)
}

pub(super) fn cache_parts(row: &Outcome) -> Vec<BarPart> {
    let all = cached_bytes(row);
    let part = |(&bytes, &value): (&u64, &u64)| {
        let (name, share) = (size(bytes), percent(value, all));
        let tip = format!("cached in {name} folios: {}, {share}", figures::bytes(value));
        BarPart { class: class(bytes), value, tip }
    };
    row.cached_bytes.iter().map(part).collect()
}

fn bar(nr: usize, row: &Outcome, name: &str, kind: FolioKind) -> Bar {
    let mapped = (kind.get)(&row.folios).mapped_bytes;
    let mut total = Markup::new();
    let at = format!("/rows/{nr}/folios/{}/mapped_bytes", kind.key);
    total.number(&at, mapped, &figures::bytes(mapped));
    Bar { label: name.to_owned(), parts: parts(row, kind), total }
}

/// Returns aligned folios from small to large, then unaligned ones, then partial ones.
pub(super) fn parts(row: &Outcome, kind: FolioKind) -> Vec<BarPart> {
    let census = (kind.get)(&row.folios);
    let part = |class: String, value: u64, what: String| BarPart {
        tip: format!("{what}: {}, {}", figures::bytes(value), percent(value, census.mapped_bytes)),
        class,
        value,
    };
    let aligned = census.by_size.iter().map(|(&bytes, row)| {
        part(class(bytes), row.aligned_bytes, format!("{} aligned", size(bytes)))
    });
    let unaligned = census.by_size.iter().map(|(&bytes, row)| {
        let class = format!("{} faint", class(bytes));
        part(class, row.unaligned_bytes, format!("{} not aligned", size(bytes)))
    });
    let partial =
        part("partial".to_owned(), census.partial_bytes, "partly mapped folios".to_owned());
    aligned.chain(unaligned).chain([partial]).collect()
}

fn table(rows: &[Outcome], names: &[String], kind: FolioKind) -> Markup {
    let get = |nr: usize| (kind.get)(&rows[nr].folios);
    let max = (0..rows.len()).map(|nr| get(nr).mapped_bytes).max().unwrap_or(0);
    let scale = Scale::of_bytes(max);
    let mut table = table_head(&format!("{}, {}", kind.name, scale.name), names);
    let mut line = |label: &str, at: &str, value: &dyn Fn(usize) -> Option<u64>| {
        if (0..rows.len()).all(|nr| value(nr).unwrap_or(0) == 0) {
            return;
        }
        table.raw("<tr>").element("th scope=\"row\"", label);
        for nr in 0..rows.len() {
            table.raw("<td>");
            if let Some(value) = value(nr) {
                let at = format!("/rows/{nr}/folios/{}/{at}", kind.key);
                table.number(&at, value, &scale.show(value)).raw(" ");
                table.element("small", &percent(value, get(nr).mapped_bytes));
            }
            table.raw("</td>");
        }
        table.raw("</tr>");
    };
    line("all", "mapped_bytes", &|nr| Some(get(nr).mapped_bytes));
    let sizes: BTreeSet<u64> =
        (0..rows.len()).flat_map(|nr| get(nr).by_size.keys().copied()).collect();
    for bytes in sizes {
        let row = |nr: usize| get(nr).by_size.get(&bytes).copied();
        let (name, at) = (size(bytes), |what: &str| format!("by_size/{bytes}/{what}_bytes"));
        line(&format!("{name} aligned"), &at("aligned"), &|nr| Some(row(nr)?.aligned_bytes));
        line(&format!("{name} not aligned"), &at("unaligned"), &|nr| {
            Some(row(nr)?.unaligned_bytes)
        });
    }
    line("partly mapped", "partial_bytes", &|nr| Some(get(nr).partial_bytes));
    line("contpte-mapped", "contpte_bytes", &|nr| Some(get(nr).contpte_bytes));
    line("PMD-mapped", "pmd_bytes", &|nr| Some(get(nr).pmd_bytes));
    table.raw(TABLE_END);
    table
}
