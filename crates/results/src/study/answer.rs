//! How close the rows come, in a sentence.

use super::result::{StudyCounts, StudyResult};
use crate::sentence::{Piece, figure, words};

/// How close rows are.
pub(super) struct Class {
    /// As a title.
    pub(super) title: &'static str,
    /// Where "20 of 46 rows are" stands before it.
    words: &'static str,
    /// Its key in the JSON.
    pub(super) key: &'static str,
    pub(super) of: fn(&StudyCounts) -> usize,
}

/// The closest first; rows of the last cannot be compared.
pub(super) const CLASSES: [Class; 6] = [
    class("within 10%", "within 10%", "nr_within_10_percent", |s| s.nr_within_10_percent),
    class("within a factor of 2", "within a factor of 2", "nr_within_factor_2", |s| {
        s.nr_within_factor_2
    }),
    class("same direction only", "in the same direction only", "nr_same_direction", |s| {
        s.nr_same_direction
    }),
    class("apart", "apart", "nr_apart", |s| s.nr_apart),
    class("other direction", "in the other direction", "nr_other_direction", |s| {
        s.nr_other_direction
    }),
    class("nothing to compare", "not comparable", "nr_not_compared", |s| s.nr_not_compared),
];

const fn class(
    title: &'static str,
    words: &'static str,
    key: &'static str,
    of: fn(&StudyCounts) -> usize,
) -> Class {
    Class { title, words, key, of }
}

/// Nothing where no row can be compared.
pub(super) fn of(report: &StudyResult) -> Option<Vec<Piece>> {
    let sum = |of: fn(&StudyCounts) -> usize| report.summary.iter().map(of).sum::<usize>();
    let [close, farther @ .., _] = CLASSES;
    let nr_close = sum(close.of);
    let farther = farther.map(|class| (class.words, sum(class.of)));
    let nr_compared = nr_close + farther.iter().map(|(_, nr)| nr).sum::<usize>();
    if nr_compared == 0 {
        return None;
    }
    let mut sentence = vec![
        figure(format!("{nr_close} of {nr_compared}")),
        words(format!(" comparable rows are {} of the published number", close.words)),
    ];
    for (class, nr) in farther.into_iter().filter(|(_, nr)| *nr > 0) {
        sentence.extend([words("; "), figure(nr.to_string()), words(format!(" {class}"))]);
    }
    let nr_coincidences = sum(|counts| counts.nr_coincidences);
    if nr_coincidences > 0 {
        let rest = if nr_coincidences == 1 { "rests" } else { "rest" };
        sentence.extend([
            words("; "),
            figure(nr_coincidences.to_string()),
            words(format!(" of those within 10% or a factor of 2 {rest} on assumed constants")),
        ]);
    }
    sentence.push(words("."));
    Some(sentence)
}
