//! Watched rounds: before and after each one, the core's clock and a fixed piece of work are timed.
//!
//! Decides which rounds count and when there are enough of them. Does not own the measured
//! operations.
//!
//! - R1: a round counts if the clock before and after it is within [`CLOCK_WITHIN`] of the median
//!   of all rounds. Another round replaces a rejected one, up to a limit.
//! - R2: under [`Until::Agree`], two consecutive blocks of rounds must have the same medians
//!   ([`AGREE_WITHIN`]). Those two blocks are the result. If no two blocks agree, all rounds are
//!   the result, and [`Pace::agreed`] is false.
//! - R3: subjects alternate in an order that reverses from round to round, and the first round does
//!   not count. Every cost therefore covers the same minutes.

use std::fmt::Write as _;
use std::time::Instant;

use serde::Serialize;

use super::anon::FolioSize;
use crate::geometry::page_bytes;
use crate::measure::{Series, Spread, turns};
use crate::setting::thp::size_name;

use super::cpu::fastest_clock_ghz;
use super::work::TimedWork;
use super::{CalibrateError, count};

/// Maximum distance of a round's clock from the median of all rounds. Turbo steps are smaller, a
/// throttled core is farther away.
pub const CLOCK_WITHIN: f64 = 0.10;
const AGREE_WITHIN: f64 = 0.15;
/// Share of the medians that must agree. One disturbed value does not justify more rounds.
const AGREE_SHARE: f64 = 0.9;
const TOUCH_BYTES: usize = 16 << 20;

/// Runs one round of a subject and returns its values, the same number in every round.
pub(super) type Subject<'a> = Box<dyn FnMut() -> Result<Vec<f64>, CalibrateError> + 'a>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Counted(usize),
    /// Two blocks of this many that agree, or six blocks in all.
    Agree(usize),
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pace {
    pub clock_ghz: Spread,
    pub clock_all_ghz: Spread,
    /// First touch of a base page in the fixed piece of work, in nanoseconds, in the rounds that
    /// count.
    pub touch_ns: Spread,
    pub nr_rounds: usize,
    pub nr_rejected: usize,
    /// Whether two blocks agreed, and the distance within which nine tenths of their medians are.
    /// Absent unless [`Until::Agree`] was used.
    pub agreed: Option<(bool, f64)>,
    pub seconds: f64,
}

impl Pace {
    #[must_use]
    pub fn note(&self) -> String {
        let Self { clock_ghz, clock_all_ghz: all, touch_ns, .. } = self;
        let mut text = format!(
            "{} rounds in {:.0} s at {:.2} GHz, {} rejected because the clock was more than {:.0}% \
             off the median; first touch of a {} folio, the fixed work in each round, took {:.0} \
             ns [{:.0} .. {:.0}]",
            self.nr_rounds,
            self.seconds,
            clock_ghz.median,
            self.nr_rejected,
            CLOCK_WITHIN * 100.0,
            size_name(page_bytes() as u64),
            touch_ns.median,
            touch_ns.min,
            touch_ns.max,
        );
        if self.nr_rejected > 0 {
            let _ = write!(text, ". THE CLOCK CHANGED: {:.2} to {:.2} GHz", all.min, all.max);
        }
        match self.agreed {
            Some((true, by)) => {
                let _ = write!(
                    text,
                    ". The last two blocks of rounds agree: nine tenths of the medians are within \
                     {:.0}%",
                    by * 100.0
                );
            }
            Some((false, by)) => {
                let _ = write!(
                    text,
                    ". NO TWO BLOCKS OF ROUNDS AGREE: a tenth of the last medians differ by \
                     {:.0}% or more; repeat the calibration when the machine is less busy",
                    by * 100.0
                );
            }
            None => {}
        }
        text + "."
    }
}

#[derive(Clone, Debug)]
struct Round {
    clock_ghz: [f64; 2],
    touch_ns: f64,
    values: Vec<Vec<f64>>,
}

/// Runs `subjects` in rounds and returns the series of each value of each subject.
///
/// # Errors
/// The first error of a subject.
pub(super) fn watched(
    until: Until,
    subjects: &mut [Subject<'_>],
) -> Result<(Vec<Vec<Series>>, Pace), CalibrateError> {
    let start = Instant::now();
    let mut rounds: Vec<Round> = Vec::new();
    run(0, subjects)?;
    let (chosen, agreed) = loop {
        rounds.push(run(rounds.len() + 1, subjects)?);
        if let Some(end) = enough(until, &rounds) {
            break end;
        }
    };
    let nr_counted = counted(&rounds).len();
    let all: Vec<&Round> = rounds.iter().collect();
    let chosen: Vec<&Round> = chosen.into_iter().map(|nr| &rounds[nr]).collect();
    let spread = |of: &[&Round], value: &dyn Fn(&Round) -> f64| {
        let values: Vec<f64> = of.iter().map(|round| value(round)).collect();
        Spread::of(&values).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0, n: 0 })
    };
    let clock = |round: &Round| f64::midpoint(round.clock_ghz[0], round.clock_ghz[1]);
    let pace = Pace {
        clock_ghz: spread(&chosen, &clock),
        clock_all_ghz: spread(&all, &clock),
        touch_ns: spread(&chosen, &|round| round.touch_ns),
        nr_rounds: rounds.len(),
        nr_rejected: rounds.len() - nr_counted,
        agreed,
        seconds: start.elapsed().as_secs_f64(),
    };
    Ok((series(&chosen), pace))
}

fn run(nr: usize, subjects: &mut [Subject<'_>]) -> Result<Round, CalibrateError> {
    let before = fastest_clock_ghz();
    let base = FolioSize::enable(page_bytes())?;
    TimedWork::Touch.time_ns(&base, TOUCH_BYTES)?;
    let touch_ns =
        TimedWork::Touch.time_ns(&base, TOUCH_BYTES)? / count(TOUCH_BYTES / page_bytes());
    let mut values = vec![Vec::new(); subjects.len()];
    for which in turns(nr, subjects.len()) {
        values[which] = subjects[which]()?;
    }
    Ok(Round { clock_ghz: [before, fastest_clock_ghz()], touch_ns, values })
}

fn counted(rounds: &[Round]) -> Vec<usize> {
    let all: Vec<f64> = rounds.iter().flat_map(|round| round.clock_ghz).collect();
    let Some(Spread { median, .. }) = Spread::of(&all) else { return Vec::new() };
    let is_near = |ghz: &f64| (ghz / median - 1.0).abs() <= CLOCK_WITHIN;
    (0..rounds.len()).filter(|&nr| rounds[nr].clock_ghz.iter().all(is_near)).collect()
}

/// The rounds of the result, and whether two blocks agreed. `None` asks for more rounds.
type Chosen = (Vec<usize>, Option<(bool, f64)>);

fn enough(until: Until, rounds: &[Round]) -> Option<Chosen> {
    let counted = counted(rounds);
    match until {
        Until::Counted(nr) => {
            (counted.len() >= nr || rounds.len() >= 2 * nr).then_some((counted, None))
        }
        Until::Agree(block) => {
            let is_last = rounds.len() >= 6 * block;
            let last = counted.len().checked_sub(2 * block).map(|first| &counted[first..]);
            let by = last.map(|last| apart(rounds, &last[..block], &last[block..]));
            match (by, last) {
                (Some(by), Some(last)) if by <= AGREE_WITHIN => {
                    Some((last.to_vec(), Some((true, by))))
                }
                _ if is_last => Some((counted, Some((false, by.unwrap_or(f64::INFINITY))))),
                _ => None,
            }
        }
    }
}

fn apart(rounds: &[Round], first: &[usize], second: &[usize]) -> f64 {
    let of = |nrs: &[usize]| -> Vec<f64> {
        let chosen: Vec<&Round> = nrs.iter().map(|&nr| &rounds[nr]).collect();
        let medians = series(&chosen).into_iter().flatten();
        medians.filter_map(|series| Some(series.spread()?.median)).collect()
    };
    let pairs = of(first).into_iter().zip(of(second));
    let mut by: Vec<f64> = pairs.map(|(one, other)| (other / one - 1.0).abs()).collect();
    by.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a few dozen"
    )]
    let nr = (count(by.len()) * AGREE_SHARE).ceil() as usize;
    by.get(nr.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn series(rounds: &[&Round]) -> Vec<Vec<Series>> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let one = |subject: usize, value: usize| Series {
        rounds_ns: rounds.iter().map(|round| round.values[subject][value]).collect(),
    };
    let subjects = first.values.iter().enumerate();
    subjects.map(|(nr, values)| (0..values.len()).map(|value| one(nr, value)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(clock_ghz: f64, value: f64) -> Round {
        Round { clock_ghz: [clock_ghz; 2], touch_ns: 1.0, values: vec![vec![value; 10]] }
    }

    fn rounds(of: &[(f64, f64)]) -> Vec<Round> {
        of.iter().map(|&(clock, value)| round(clock, value)).collect()
    }

    #[test]
    fn a_round_at_another_clock_does_not_count_and_another_takes_its_place() {
        let mut all = rounds(&[(3.6, 1.0), (1.9, 1.9), (3.5, 1.0)]);
        assert_eq!(counted(&all), [0, 2]);
        assert_eq!(enough(Until::Counted(3), &all), None);
        all.push(round(3.6, 1.0));
        assert_eq!(enough(Until::Counted(3), &all), Some((vec![0, 2, 3], None)));
        // Only its end was slow.
        all[3].clock_ghz[1] = 1.9;
        assert_eq!(enough(Until::Counted(3), &all), None);
        all.extend(rounds(&[(1.9, 1.0), (3.6, 1.0)]));
        assert_eq!(enough(Until::Counted(5), &all), None);
        assert!(enough(Until::Counted(3), &all).is_some(), "twice as many as asked");
    }

    #[test]
    fn blocks_that_drift_are_repeated_until_two_agree() {
        let mut all = rounds(&[(3.6, 100.0), (3.6, 100.0), (3.6, 150.0), (3.6, 150.0)]);
        assert_eq!(enough(Until::Agree(2), &all), None);
        all.push(round(3.6, 150.0));
        assert_eq!(enough(Until::Agree(2), &all), None, "half of a block is from before");
        all.push(round(3.6, 160.0));
        let (chosen, agreed) = enough(Until::Agree(2), &all).unwrap();
        assert_eq!(chosen, [2, 3, 4, 5]);
        let (is_agreed, by) = agreed.unwrap();
        assert!(is_agreed && (by - 155.0 / 150.0 + 1.0).abs() < 1e-9, "{by}");
    }

    #[test]
    fn a_machine_that_never_rests_gives_all_rounds_and_says_so() {
        let values = (0..6).map(|nr| (3.6, 2.0_f64.powi(nr))).collect::<Vec<_>>();
        let (chosen, agreed) = enough(Until::Agree(1), &rounds(&values)).unwrap();
        assert_eq!((chosen.len(), agreed), (6, Some((false, 1.0))));
        let values = (0..6).map(|nr| (if nr % 2 == 0 { 1.0 } else { 3.6 }, 1.0));
        let all = rounds(&values.collect::<Vec<_>>());
        let (chosen, agreed) = enough(Until::Agree(3), &all).map_or((vec![], None), |end| end);
        assert_eq!((chosen.len(), agreed), (0, None), "continues: 18 are the limit");
    }

    #[test]
    fn one_disturbed_value_in_ten_is_no_reason_to_go_on() {
        let mut all = rounds(&[(3.6, 100.0), (3.6, 100.0)]);
        all[1].values[0][3] = 1000.0;
        assert!(enough(Until::Agree(1), &all).is_some());
        all[1].values[0][4] = 1000.0;
        assert_eq!(enough(Until::Agree(1), &all), None);
    }

    #[test]
    fn subjects_take_turns_and_the_first_round_is_not_counted() {
        let order = std::cell::RefCell::new(String::new());
        let subject = |name: char, value: f64| -> Subject<'_> {
            let order = &order;
            Box::new(move || {
                order.borrow_mut().push(name);
                Ok(vec![value, 2.0 * value])
            })
        };
        let mut subjects = [subject('a', 1.0), subject('b', 5.0)];
        let (series, pace) = watched(Until::Counted(1), &mut subjects).unwrap();
        assert!(order.borrow().starts_with("abba"), "{}", order.borrow());
        // If the clock changes just here, there is one more round and none counts.
        assert!(pace.nr_rounds <= 2 && pace.touch_ns.median >= 0.0, "{pace:?}");
        if pace.nr_rejected == 0 {
            assert_eq!(series[1][1].rounds_ns, [10.0]);
            assert!(!pace.note().contains("CHANGED"), "{}", pace.note());
        }
    }

    #[test]
    fn a_changed_clock_is_told() {
        let spread = Spread { median: 3.6, min: 1.9, max: 3.7, n: 4 };
        let pace = Pace {
            clock_ghz: spread,
            clock_all_ghz: spread,
            touch_ns: spread,
            nr_rounds: 6,
            nr_rejected: 2,
            agreed: Some((false, 0.4)),
            seconds: 3.0,
        };
        let note = pace.note();
        assert!(note.contains("2 rejected") && note.contains("1.90 to 3.70 GHz"), "{note}");
        assert!(note.contains("NO TWO BLOCKS OF ROUNDS AGREE"), "{note}");
    }
}
