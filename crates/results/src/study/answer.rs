//! How many rows count and match, in a sentence.

use super::result::{StudyCounts, StudyResult};
use crate::sentence::{Piece, figure, words};

pub(super) struct Class {
    pub(super) title: &'static str,
    pub(super) key: &'static str,
    pub(super) of: fn(&StudyCounts) -> usize,
}

/// Independent rows first, then rows that do not count or cannot be compared.
pub(super) const CLASSES: [Class; 7] = [
    class("match", "nr_match", |s| s.nr_match),
    class("coincidence", "nr_coincidence", |s| s.nr_coincidence),
    class("no match", "nr_miss", |s| s.nr_miss),
    class("zero", "nr_zero", |s| s.nr_zero),
    class("other quantity", "nr_other_quantity", |s| s.nr_other_quantity),
    class("own input", "nr_own_input", |s| s.nr_own_input),
    class("nothing to compare", "nr_not_compared", |s| s.nr_not_compared),
];

const fn class(title: &'static str, key: &'static str, of: fn(&StudyCounts) -> usize) -> Class {
    Class { title, key, of }
}

pub(super) fn of(report: &StudyResult) -> Option<Vec<Piece>> {
    let sum = |of: fn(&StudyCounts) -> usize| report.summary.iter().map(of).sum::<usize>();
    if sum(|s| s.nr_rows) == sum(|s| s.nr_not_compared) {
        return None;
    }
    let mut sentence = Vec::new();
    for (is_published, what) in [(true, "published"), (false, "measured")] {
        let own =
            report.studies.iter().map(|study| (study.reference == "published") == is_published);
        let of = |of: fn(&StudyCounts) -> usize| {
            let rows = report.summary.iter().zip(own.clone()).filter(|(_, is_own)| *is_own);
            rows.map(|(counts, _)| of(counts)).sum::<usize>()
        };
        if of(|s| s.nr_rows) > of(|s| s.nr_not_compared) {
            let separator = if sentence.is_empty() { "" } else { "; " };
            let shown = format!("{} of {}", of(|s| s.nr_match), of(|s| s.nr_independent));
            let rest = format!(" independent rows match the {what} level and change");
            sentence.extend([words(separator), figure(shown), words(rest)]);
        }
    }
    let nr_coincidences = sum(|s| s.nr_coincidence);
    if nr_coincidences > 0 {
        let verb = if nr_coincidences == 1 { "matches" } else { "match" };
        sentence.extend([
            words("; "),
            figure(nr_coincidences.to_string()),
            words(format!(" more {verb} only by assumed constants, which proves nothing")),
        ]);
    }
    let not_counted = [
        (sum(|s| s.nr_zero), "compare zero with zero"),
        (sum(|s| s.nr_other_quantity), "measure another quantity"),
        (sum(|s| s.nr_own_input), "use an input from their own series"),
    ];
    let mut separator = ". Not counted: ";
    for (nr, what) in not_counted.into_iter().filter(|(nr, _)| *nr > 0) {
        sentence.extend([words(separator), figure(nr.to_string()), words(format!(" {what}"))]);
        separator = "; ";
    }
    sentence.push(words("."));
    Some(sentence)
}
