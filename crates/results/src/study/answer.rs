//! How close the rows come, in a sentence.

use super::result::{StudyCounts, StudyResult};
use crate::sentence::{Piece, figure, words};

/// How close rows are that can be compared.
type Class = (&'static str, fn(&StudyCounts) -> usize);
const FARTHER: [Class; 4] = [
    ("within a factor of 2", |counts| counts.nr_within_factor_2),
    ("in the same direction only", |counts| counts.nr_same_direction),
    ("apart", |counts| counts.nr_apart),
    ("in the other direction", |counts| counts.nr_other_direction),
];

/// Nothing where no row can be compared.
pub(super) fn of(report: &StudyResult) -> Option<Vec<Piece>> {
    let sum = |of: fn(&StudyCounts) -> usize| report.summary.iter().map(of).sum::<usize>();
    let nr_close = sum(|counts| counts.nr_within_10_percent);
    let farther = FARTHER.map(|(title, of)| (title, sum(of)));
    let nr_compared = nr_close + farther.iter().map(|(_, nr)| nr).sum::<usize>();
    if nr_compared == 0 {
        return None;
    }
    let mut sentence = vec![
        figure(format!("{nr_close} of {nr_compared}")),
        words(" comparable rows are within 10% of the published number"),
    ];
    for (title, nr) in farther.into_iter().filter(|(_, nr)| *nr > 0) {
        sentence.extend([words("; "), figure(nr.to_string()), words(format!(" {title}"))]);
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
