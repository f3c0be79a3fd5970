//! Compares a prediction with plain runs, number by number.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::{MappedKind, Measure, Numbers};

/// Why a number is not compared. The plain runs alone decide it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotComparable {
    /// Plain runs differ from each other: the kernel chooses addresses at random. Either this
    /// number varies, or other numbers about the same memory vary by as much.
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
        let extremes = |measure: &Measure| {
            let values = real.iter().map(|numbers| numbers.get(measure));
            [values.clone().min().unwrap_or(0), values.max().unwrap_or(0)]
        };
        let mut spreads: BTreeMap<MappedKind, u64> = BTreeMap::new();
        for measure in &measures {
            if let Measure::Mapped { kind, .. } = measure {
                let [lowest, highest] = extremes(measure);
                let spread = spreads.entry(*kind).or_default();
                *spread += highest - lowest;
            }
        }
        let row = |measure: &Measure| {
            let [lowest, highest] = extremes(measure);
            let predicted = predicted.get(measure);
            let spread = match measure {
                Measure::Mapped { kind, .. } => spreads.get(kind).copied().unwrap_or(0),
                _ => 0,
            };
            let state = if lowest != highest {
                RowState::NotCompared(NotComparable::Varies)
            } else if let Some(reason) = unless(measure) {
                RowState::NotCompared(reason)
            } else if predicted == lowest {
                RowState::Equal
            } else if predicted.abs_diff(lowest) <= spread {
                RowState::NotCompared(NotComparable::Varies)
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
    use super::super::MappedHow;
    use super::*;

    fn numbers(values: &[(Measure, u64)]) -> Numbers {
        let mut numbers = Numbers::default();
        for (measure, value) in values {
            numbers.add(measure.clone(), *value);
        }
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
    fn memory_that_lies_elsewhere_is_in_folios_of_other_sizes() {
        let anon = |pages: u64| {
            let (kind, how) = (MappedKind::Anon, MappedHow::Whole);
            Measure::Mapped { kind, folio_bytes: pages * 4096, how }
        };
        let file =
            Measure::Mapped { kind: MappedKind::File, folio_bytes: 65536, how: MappedHow::Whole };
        let real = [numbers(&[(anon(1), 16384)]), numbers(&[(anon(4), 16384)])];
        let of = |predicted| Verdict::new(&predicted, &real, |_| None).first_difference().cloned();
        assert_eq!(of(numbers(&[(anon(16), 16384)])), None);
        assert_eq!(of(numbers(&[(anon(16), 65536)])).unwrap().measure, anon(16), "that is more");
        assert_eq!(of(numbers(&[(file.clone(), 16384)])).unwrap().measure, file);
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
