//! Why folios are not larger: everything that was refused, by name.

use std::collections::BTreeSet;

use largefolio_sim::replay::Outcome;

use super::cells::names;
use super::frame::{TABLE_END, table_head};
use super::markup::{Markup, pointer_part};
use crate::figures::{grouped, size};

/// One reason and its count in each cell.
struct Refusal {
    name: String,
    /// Place in a row of the JSON.
    at: String,
    /// Absent where the cell does not name it.
    counts: Vec<Option<u64>>,
}

/// The table, or a sentence where nothing was refused.
pub(super) fn table(rows: &[Outcome]) -> Markup {
    let refusals: Vec<Refusal> = all(rows)
        .into_iter()
        .filter(|refusal| refusal.counts.iter().any(|count| count.unwrap_or(0) > 0))
        .collect();
    let mut body = Markup::new();
    if refusals.is_empty() {
        body.element("p", "Nothing was refused in any cell.");
        return body;
    }
    body.raw("<div class=\"wide\">").append(&table_head("Refused", &names(rows)));
    for refusal in refusals {
        body.raw("<tr>").element("th scope=\"row\"", &refusal.name);
        for (nr, count) in refusal.counts.iter().enumerate() {
            body.raw("<td>");
            if let Some(count) = count {
                body.number(&format!("/rows/{nr}/{}", refusal.at), count, &grouped(*count));
            }
            body.raw("</td>");
        }
        body.raw("</tr>");
    }
    body.raw(TABLE_END).raw("</div>");
    body
}

fn all(rows: &[Outcome]) -> Vec<Refusal> {
    let each = |name: &str, at: &str, get: &dyn Fn(&Outcome) -> Option<u64>| Refusal {
        name: name.to_owned(),
        at: at.to_owned(),
        counts: rows.iter().map(get).collect(),
    };
    let words = |reason: &str| reason.replace('_', " ");
    let mut refusals = vec![
        each("readahead at a cold fault: the miss counter", "reads/gated", &|row| {
            Some(row.reads.gated)
        }),
        each("large folio of a file: no free memory", "reads/large_folio_fallback", &|row| {
            Some(row.reads.large_folio_fallback)
        }),
    ];
    let sizes: BTreeSet<u64> = rows.iter().flat_map(|row| row.anon_sizes.keys().copied()).collect();
    for bytes in sizes {
        let at = format!("anon_sizes/{bytes}/anon_fault_fallback");
        let name = format!("private folio of {}: no free memory", size(bytes));
        refusals
            .push(each(&name, &at, &|row| Some(row.anon_sizes.get(&bytes)?.anon_fault_fallback)));
    }
    let reasons: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.pmd_refused.keys().copied()).collect();
    for reason in reasons {
        let at = format!("pmd_refused/{}", pointer_part(reason));
        let name = format!("mapping by a PMD entry: {}", words(reason));
        refusals.push(each(&name, &at, &|row| row.pmd_refused.get(reason).copied()));
    }
    let reasons: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.collapse.refused.keys().copied()).collect();
    for reason in reasons {
        let at = format!("collapse/refused/{}", pointer_part(reason));
        let name = format!("collapse: {}", words(reason));
        refusals.push(each(&name, &at, &|row| row.collapse.refused.get(reason).copied()));
    }
    refusals
}
