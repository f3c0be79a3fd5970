//! The TLB misses in each cell.

use std::collections::BTreeSet;

use largefolio_sim::replay::Outcome;
use largefolio_sim::tlb::SideCounters;

use super::curve;
use crate::figures::{self, per_million};
use crate::html::bars::{Bar, BarPart, bars};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use crate::html::sizes::legend;
use crate::predict::labels::Labels;
use crate::predict::sums::references;

type Get = fn(&Outcome) -> &SideCounters;

struct Level {
    title: &'static str,
    key: &'static str,
    get: fn(&SideCounters) -> u64,
}

const LEVELS: [Level; 2] = [
    Level {
        title: "Page-table walks per million references",
        key: "l2_misses",
        get: |side| side.l2_misses,
    },
    Level {
        title: "Level-1 misses per million references",
        key: "l1_misses",
        get: |side| side.l1_misses,
    },
];

pub(super) fn figures(rows: &[Outcome]) -> Markup {
    let mut body = Markup::new();
    let sides = [("instruction", "instructions"), ("data", "data")];
    body.append(&legend(&BTreeSet::new(), &sides));
    let names = Labels::names(rows);
    for level in LEVELS {
        let of = |(row, name): (&Outcome, &String)| bar(row, name, &level);
        let picture = bars(&rows.iter().zip(&names).map(of).collect::<Vec<_>>());
        body.append(&figure(level.title, &picture, &table(rows, &names, &level)));
    }
    if let Some(curves) = curve::figures(rows) {
        body.append(&curves);
    }
    body
}

/// Bars show rates because cells can run different numbers of references.
fn bar(row: &Outcome, name: &str, level: &Level) -> Bar {
    let (references, tlb) = (references(row), &row.tlb);
    let part = |class: &str, side: &SideCounters, what: &str| {
        let misses = (level.get)(side);
        let rate = u128::from(misses) * 1_000_000_000 / u128::from(references.max(1));
        BarPart {
            class: class.to_owned(),
            value: u64::try_from(rate).unwrap_or(u64::MAX),
            tip: format!(
                "{what}: {}, {} per million references",
                figures::count(misses),
                per_million(misses, references)
            ),
        }
    };
    let parts = vec![
        part("instruction", &tlb.instruction, "instructions"),
        part("data", &tlb.data, "data"),
    ];
    let sum = (level.get)(&tlb.instruction).saturating_add((level.get)(&tlb.data));
    let mut total = Markup::new();
    total.text(&per_million(sum, references));
    Bar { label: name.to_owned(), parts, total }
}

fn table(rows: &[Outcome], names: &[String], level: &Level) -> Markup {
    let mut table = table_head("", names);
    let sides: [(&str, &str, Get); 2] = [
        ("Instructions", "instruction", |row| &row.tlb.instruction),
        ("Data", "data", |row| &row.tlb.data),
    ];
    for (title, key, get) in sides {
        table.raw("<tr>").element("th scope=\"row\"", title);
        for (nr, row) in rows.iter().enumerate() {
            let misses = (level.get)(get(row));
            let at = format!("/rows/{nr}/tlb/{key}/{}", level.key);
            table.raw("<td>").number(&at, misses, &figures::grouped(misses)).raw(" ");
            table.element("small", &per_million(misses, references(row))).raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}
