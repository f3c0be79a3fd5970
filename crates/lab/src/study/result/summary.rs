//! How many rows count and match, in a sentence.

use std::fmt::Write as _;

use super::table::{StudyCounts, StudyResult};

pub(super) fn of(report: &StudyResult) -> Option<String> {
    let sum = |of: fn(&StudyCounts) -> usize| report.summary.iter().map(of).sum::<usize>();
    if sum(|s| s.nr_rows) == sum(|s| s.nr_not_compared) {
        return None;
    }
    let mut sentence = String::new();
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
            let _ = write!(sentence, "{separator}{shown}{rest}");
        }
    }
    let nr_coincidences = sum(|s| s.nr_coincidence);
    if nr_coincidences > 0 {
        let verb = if nr_coincidences == 1 { "matches" } else { "match" };
        let _ = write!(
            sentence,
            "; {nr_coincidences} more {verb} only by assumed constants, which proves nothing"
        );
    }
    let not_counted = [
        (sum(|s| s.nr_zero), "compare zero with zero"),
        (sum(|s| s.nr_other_quantity), "measure a different quantity"),
        (sum(|s| s.nr_own_input), "use an input from their own series"),
    ];
    let mut separator = ". Not counted: ";
    for (nr, what) in not_counted.into_iter().filter(|(nr, _)| *nr > 0) {
        let _ = write!(sentence, "{separator}{nr} {what}");
        separator = "; ";
    }
    sentence.push('.');
    Some(sentence)
}
