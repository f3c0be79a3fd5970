//! Which rule makes the difference, as CSV: one row for each share of a result.
//!
//! `part` is `alone`, `left_out` or `in_order` for one switch, `interaction` for two, `together`
//! for all others, or the whole `difference`. `is_judged` is true if recordings judge both kernels.

use super::cell;
use largefolio_sim::explain::{Explained, Why};

use crate::ExportError;
use crate::cells::Cells;
use crate::predict::PredictResult;

const COLUMNS: [&str; 16] = [
    "kernel_before",
    "kernel_after",
    "machine",
    "page_bytes",
    "seed",
    "cache",
    "memory_bytes",
    "metric",
    "folio_bytes",
    "part",
    "rules",
    "since",
    "value",
    "unit",
    "is_judged",
    "linked",
];

/// Part, rules, version, value.
type Share = (&'static str, String, String, i128);

pub(super) fn record(
    report: &PredictResult,
    answers: &[Why],
    csv: &mut Cells,
) -> Result<(), ExportError> {
    csv.record(COLUMNS)?;
    for why in answers {
        for result in &why.results {
            for share in shares(why, result) {
                csv.record(row(report, why, result, share))?;
            }
        }
    }
    Ok(())
}

fn shares(why: &Why, result: &Explained) -> Vec<Share> {
    let name = |nr: usize| why.switches[nr].name();
    let nothing = String::new;
    let mut shares = vec![("difference", nothing(), nothing(), result.difference)];
    for effect in &result.effects {
        let of =
            |part, value| (part, name(effect.switch), why.switches[effect.switch].origin(), value);
        shares.extend([
            of("in_order", effect.in_order),
            of("alone", effect.alone),
            of("left_out", effect.left_out),
        ]);
    }
    for pair in &result.interactions {
        let names = pair.switches.map(name).join(" with ");
        shares.push(("interaction", names, nothing(), pair.value));
    }
    if result.together != 0 {
        shares.push(("together", nothing(), nothing(), result.together));
    }
    shares
}

fn row(report: &PredictResult, why: &Why, result: &Explained, share: Share) -> [String; 16] {
    let (before, after) = (&report.rows[why.before], &report.rows[why.after]);
    let (part, rules, since, value) = share;
    let [machine, page_bytes, seed, cache, memory_bytes] = cell(after);
    [
        before.kernel.clone(),
        after.kernel.clone(),
        machine,
        page_bytes,
        seed,
        cache,
        memory_bytes,
        result.metric.clone(),
        result.folio_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        part.to_owned(),
        rules,
        since,
        value.to_string(),
        result.unit.to_owned(),
        (before.is_judged && after.is_judged).to_string(),
        after.linked.join(" "),
    ]
}
