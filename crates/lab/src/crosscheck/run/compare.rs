//! Compares a prediction with plain runs, number by number.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::{Measure, Numbers};

/// Why a number is not compared. The plain runs alone decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotComparable {
    /// Plain runs differ from each other: the kernel chooses addresses at random.
    Varies,
    /// The kernel's vDSO page, which all processes share, is in the sum.
    Vdso,
    /// A signal killed a process before it could be read.
    Killed,
}

impl fmt::Display for NotComparable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Varies => "varies between plain runs (random addresses)",
            Self::Vdso => "the kernel's vDSO, which all processes share, is in the sum",
            Self::Killed => "a process was killed before it could be read",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowState {
    Different,
    NotCompared(NotComparable),
    Equal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub measure: Measure,
    pub predicted: u64,
    /// Lowest and highest of the plain runs.
    pub real: [u64; 2],
    pub state: RowState,
}

/// The rows in the order of [`Measure`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub rows: Vec<Row>,
}

impl Verdict {
    /// Compares. `unless` names a reason not to compare a number.
    #[must_use]
    pub fn new(
        predicted: &Numbers,
        real: &[Numbers],
        unless: impl Fn(&Measure) -> Option<NotComparable>,
    ) -> Self {
        let sides = std::iter::once(predicted).chain(real);
        let measures: BTreeSet<&Measure> = sides.flat_map(Numbers::measures).collect();
        let row = |measure: &Measure| {
            let values = real.iter().map(|numbers| numbers.get(measure));
            let lowest = values.clone().min().unwrap_or(0);
            let highest = values.max().unwrap_or(0);
            let predicted = predicted.get(measure);
            let state = if lowest != highest {
                RowState::NotCompared(NotComparable::Varies)
            } else if let Some(reason) = unless(measure) {
                RowState::NotCompared(reason)
            } else if predicted == lowest {
                RowState::Equal
            } else {
                RowState::Different
            };
            Row { measure: measure.clone(), predicted, real: [lowest, highest], state }
        };
        Self { rows: measures.into_iter().map(row).collect() }
    }

    /// Returns whether at least one number was compared and none differs.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.first_difference().is_none() && self.nr(RowState::Equal) > 0
    }

    #[must_use]
    pub fn first_difference(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.state == RowState::Different)
    }

    #[must_use]
    pub fn nr(&self, state: RowState) -> usize {
        self.rows.iter().filter(|row| row.state == state).count()
    }

    /// Returns the rows with the differences first.
    #[must_use]
    pub fn ranked(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.state);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(values: &[(Measure, u64)]) -> Numbers {
        let mut numbers = Numbers::default();
        values.iter().for_each(|(measure, value)| numbers.add(measure.clone(), *value));
        numbers
    }

    #[test]
    fn a_number_that_varies_is_not_compared_and_an_absent_one_is_zero() {
        let predicted = numbers(&[(Measure::MajorFaults, 3), (Measure::BytesRead, 4096)]);
        let real = [
            numbers(&[(Measure::MajorFaults, 3), (Measure::MinorFaults, 7)]),
            numbers(&[(Measure::MajorFaults, 3), (Measure::MinorFaults, 8)]),
        ];
        let verdict = Verdict::new(&predicted, &real, |_| None);
        let states: Vec<_> =
            verdict.rows.iter().map(|row| (row.measure.clone(), row.state)).collect();
        let varies = RowState::NotCompared(NotComparable::Varies);
        let expected = [
            (Measure::MajorFaults, RowState::Equal),
            (Measure::MinorFaults, varies),
            (Measure::BytesRead, RowState::Different),
        ];
        assert_eq!(states, expected);
        assert!(!verdict.is_equal());
        assert_eq!(verdict.ranked()[0].measure, Measure::BytesRead);
        assert_eq!(verdict.first_difference().map(|row| row.real), Some([0, 0]));
    }

    #[test]
    fn a_reason_against_comparing_hides_a_difference() {
        let predicted = numbers(&[(Measure::PssKib, 5), (Measure::Rss, 7)]);
        let real = [numbers(&[(Measure::PssKib, 6), (Measure::Rss, 7)])];
        let unless = |of: &Measure| (*of == Measure::PssKib).then_some(NotComparable::Vdso);
        assert!(Verdict::new(&predicted, &real, unless).is_equal());
        assert!(!Verdict::new(&predicted, &real, |_| None).is_equal());
        let all = |_: &Measure| Some(NotComparable::Vdso);
        assert!(!Verdict::new(&predicted, &real, all).is_equal(), "nothing was compared");
    }
}
