//! The model's prediction for the verified change.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use largefolio_linux::measure::bootstrap;
use largefolio_linux::verify::rounds::NR_ROUNDS_MIN;
use largefolio_linux::verify::verdict::nr_rounds_until;
use largefolio_sim::cost::Estimate;
use largefolio_sim::interval::Interval;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CacheState, CellSpec, replay};
use largefolio_trace::Reader;
use serde::Serialize;

use super::sentences;
use crate::{Error, Remark, running};

/// Why an estimate does not apply to the measured run.
const UNUSABLE: &str = "the estimated saving exceeds the whole measured run, so a cost in the \
                        machine file is wrong for this run; measure this machine with folio \
                        calibrate";

/// The error if nothing can be predicted.
const NO_RULES: &str = "the model has no rules for the running kernel; verify without --trace";

#[derive(Debug)]
pub struct VerifyPrediction {
    trace: PathBuf,
    plain: CellSpec,
    changed: CellSpec,
}

#[derive(Clone, Debug, Serialize)]
pub struct PredictedChange {
    pub(super) kernel: String,
    pub(super) changed_kernel: String,
    pub(super) rules_note: Option<String>,
    pub(super) machine: String,
    /// Estimated time of the changed run minus the plain run's, in ns; `None` if a cost is not
    /// known.
    pub(super) difference_ns: Option<i64>,
    /// The measured plain wall time plus that difference, over the plain time; `None` if that is
    /// not a time.
    pub(super) ratio: Option<f64>,
    /// The smallest and largest ratio within the costs' bounds.
    pub(super) ratio_range: Option<[f64; 2]>,
    /// Why there is a difference but no ratio.
    pub(super) unusable: Option<&'static str>,
    /// Whether the measured ratio is in that range; `None` if the rounds cannot show it.
    pub(super) holds: Option<bool>,
    pub(super) cannot_tell: Option<String>,
    pub(super) not_known: Vec<String>,
    pub(super) assumed: Vec<String>,
}

impl VerifyPrediction {
    /// Prepares replays of the program in `trace` on this kernel, with `settings` (name and value)
    /// as the change.
    ///
    /// # Errors
    /// If a trace, kernel, machine or setting cannot be used for a prediction.
    pub fn plan(trace: &Path, machine: &str, settings: &[(&str, &str)]) -> Result<Self, Error> {
        // An unreadable trace must fail before twenty rounds are measured.
        Reader::open(trace)?;
        let plain =
            running::rules_with_settings().map_err(|error| Error::about(NO_RULES, error))?;
        let mut name = plain.name.clone();
        for (setting, value) in settings {
            match running::edit(setting, value) {
                Some(edit) => name = format!("{name}+{edit}"),
                None => {
                    return Err(Error::request(format!(
                        "the model does not know the setting {setting}, so its effect cannot be \
                         predicted; verify without --trace"
                    )));
                }
            }
        }
        let changed = Kernel::parse(&name)?;
        let machine = Machine::of_user(machine)?;
        let spec =
            |kernel| CellSpec { cache: CacheState::Warm, ..CellSpec::new(kernel, machine.clone()) };
        Ok(Self { trace: trace.to_owned(), plain: spec(plain), changed: spec(changed) })
    }

    #[must_use]
    pub fn remarks(&self) -> Option<Remark> {
        Remark::of_rules(self.plain.kernel.note.as_deref())
    }

    /// Replays both; `plain_ns` and `ratio` are the measured wall time. Differences below `margin`
    /// count as none.
    ///
    /// # Errors
    /// If the trace cannot be replayed.
    pub fn run(
        &self,
        plain_ns: f64,
        ratio: Option<bootstrap::Interval>,
        margin: f64,
    ) -> Result<PredictedChange, Error> {
        let specs = [self.plain.clone(), self.changed.clone()];
        let (_, outcomes) = replay(&self.trace, &specs, &mut |_| {})?;
        let [plain, changed] = outcomes.as_slice() else { unreachable!("a cell has one outcome") };
        let mut estimate = changed.estimate.clone();
        estimate.compare(&plain.estimate);
        let change = changed.estimate.change(&plain.estimate);
        #[expect(clippy::cast_precision_loss, reason = "a time of one run in ns")]
        let difference = estimate.difference_ns.map(|ns| ns as f64);
        // Unknown costs still have bounds.
        let difference = difference.or(change.map(|change| change.mid));
        let (predicted, unusable) = ratio_of(difference, plain_ns);
        let range = change.map(|change| range(change, plain_ns));
        let (holds, cannot_tell) = match (range, ratio) {
            (Some(range), Some(ratio)) => place(range, predicted.unwrap_or(1.0), &ratio, margin),
            (Some(_), None) => (None, Some("no ratio was measured".to_owned())),
            (None, _) => (None, None),
        };
        Ok(PredictedChange {
            kernel: plain.kernel.clone(),
            changed_kernel: changed.kernel.clone(),
            rules_note: self.plain.kernel.note.clone(),
            machine: changed.machine.clone(),
            difference_ns: estimate.difference_ns,
            ratio: predicted,
            ratio_range: range,
            unusable,
            holds,
            cannot_tell,
            not_known: names(&[&plain.estimate, &estimate]),
            assumed: estimate.assumed().map(|(name, _)| name.to_owned()).collect(),
        })
    }
}

/// Returns whether the measurement is in the predicted `range`, or why that is undecidable: an
/// interval wider than the predicted effect overlaps the range in any case.
fn place(
    [low, high]: [f64; 2],
    predicted: f64,
    measured: &bootstrap::Interval,
    margin: f64,
) -> (Option<bool>, Option<String>) {
    let open = |why: String| (None, Some(why));
    if measured.n < NR_ROUNDS_MIN {
        return open(format!("fewer than {NR_ROUNDS_MIN} rounds"));
    }
    if measured.high < low || measured.low > high {
        return (Some(false), None);
    }
    if low < 1.0 - margin && high > 1.0 + margin {
        return open("its bounds allow both a gain and a loss".to_owned());
    }
    let effect = (predicted - 1.0).abs().max(margin);
    if measured.high - measured.low > effect {
        return open(format!(
            "the measured interval is wider than the predicted effect; {}",
            sentences::rounds_needed(nr_rounds_until(measured, effect / 2.0))
        ));
    }
    if (low..=high).contains(&measured.median) {
        return (Some(true), None);
    }
    open("the measured interval crosses a bound; more rounds make it narrower".to_owned())
}

/// Returns the wall-time ratios for a change within bounds. A run takes at least 0 time.
fn range(change: Interval, plain_ns: f64) -> [f64; 2] {
    [change.low, change.high].map(|ns| (1.0 + ns / plain_ns).max(0.0))
}

/// Returns the predicted ratio of wall time, or why there is none. A run cannot save more time than
/// it takes; if the estimate says so, one of its costs is wrong for this run.
fn ratio_of(difference_ns: Option<f64>, plain_ns: f64) -> (Option<f64>, Option<&'static str>) {
    let ratio = difference_ns.map(|ns| 1.0 + ns / plain_ns);
    match ratio {
        Some(ratio) if ratio > 0.0 => (Some(ratio), None),
        Some(_) => (None, Some(UNUSABLE)),
        None => (None, None),
    }
}

/// Names the costs that either estimate lacks, without duplicates.
fn names(estimates: &[&Estimate]) -> Vec<String> {
    let mut all: Vec<String> =
        estimates.iter().flat_map(|estimate| estimate.not_known.iter().cloned()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl PredictedChange {
    /// Describes a prediction without a ratio.
    pub(super) fn no_ratio(&self) -> &'static str {
        if self.unusable.is_some() { "not usable" } else { "not known" }
    }

    pub(super) fn why_none(&self) -> String {
        let lacks = || format!("the machine file lacks {}", self.not_known.join(", "));
        self.unusable.map_or_else(lacks, str::to_owned)
    }

    pub(super) fn text(&self) -> String {
        let version = self.kernel.split('+').next().unwrap_or_default();
        let what = format!("rules of {version}, machine {}", self.machine);
        let mut rests = match self.assumed.as_slice() {
            [] => String::new(),
            assumed => format!("  depends on assumed costs: {}\n", assumed.join(", ")),
        };
        if self.ratio.is_some() && !self.not_known.is_empty() {
            let names = self.not_known.join(", ");
            let _ = writeln!(rests, "  typical values, not in the machine file: {names}");
        }
        let Some(ratio) = self.ratio else {
            return format!(
                "predicted: {} ({what}): {}\n{rests}",
                self.no_ratio(),
                self.why_none()
            );
        };
        let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
        let bounds = self.ratio_range.map_or_else(String::new, |[low, high]| {
            format!(" [{} .. {}]", percent(low), percent(high))
        });
        let place = match (self.holds, &self.cannot_tell) {
            (Some(true), _) => "; the measured ratio is within these bounds".to_owned(),
            (Some(false), _) => "; THE MEASURED RATIO IS OUTSIDE THEM".to_owned(),
            (None, Some(why)) => format!("; the rounds cannot show whether it holds: {why}"),
            (None, None) => String::new(),
        };
        format!("predicted: wall time {}%{bounds} ({what}){place}\n{rests}", percent(ratio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_prediction_is_of_a_time_below_zero() {
        assert_eq!(ratio_of(Some(-25.0), 100.0), (Some(0.75), None));
        assert_eq!(ratio_of(Some(300.0), 100.0), (Some(4.0), None));
        assert_eq!(ratio_of(None, 100.0), (None, None));
        for saved in [100.0, 101.0, 402.0, 1e18] {
            assert_eq!(ratio_of(Some(-saved), 100.0), (None, Some(UNUSABLE)));
        }
    }

    #[test]
    fn the_measured_ratio_is_compared_with_the_range() {
        let change = Interval { low: -40.0, mid: -25.0, high: 5.0 };
        let ratios = range(change, 100.0);
        assert!((ratios[0] - 0.6).abs() < 1e-12 && (ratios[1] - 1.05).abs() < 1e-12);
        assert_eq!(
            range(Interval { low: -300.0, ..change }, 100.0)[0].to_bits(),
            0.0_f64.to_bits()
        );
    }

    #[test]
    fn an_uninformative_interval_confirms_no_prediction() {
        let measured = |low: f64, high: f64, n| bootstrap::Interval {
            median: f64::midpoint(low, high),
            low,
            high,
            n,
        };
        let of = |range, low, high, n| place(range, 0.9, &measured(low, high, n), 0.01);
        assert_eq!(of([0.85, 0.95], 0.88, 0.93, 20), (Some(true), None));
        assert_eq!(of([0.85, 0.95], 0.96, 1.5, 20), (Some(false), None));
        let (holds, why) = of([0.85, 0.95], 0.72, 2.14, 20);
        assert_eq!(holds, None);
        let why = why.unwrap();
        assert!(
            why.contains("wider than the predicted effect; a decision takes more rounds"),
            "{why}"
        );
        let why = of([0.85, 0.95], 0.80, 0.96, 20).1.unwrap();
        assert!(
            why.ends_with("effect; at least 105 rounds are needed to decide (--runs 105)"),
            "{why}"
        );
        assert!(of([0.85, 0.95], 0.88, 0.93, 9).1.unwrap().contains("fewer than 10"));
        assert!(of([0.5, 1.5], 0.88, 0.93, 20).1.unwrap().contains("allow both"));
        assert!(of([0.85, 0.90], 0.89, 0.95, 20).1.unwrap().contains("crosses a bound"));
    }

    #[test]
    fn impossible_settings_are_unusable() {
        let (ratio, unusable) = ratio_of(Some(-402.0), 100.0);
        let predicted = PredictedChange {
            kernel: "6.18+page=4K".to_owned(),
            rules_note: None,
            changed_kernel: "6.18+page=4K+thp=always".to_owned(),
            machine: "zen4".to_owned(),
            difference_ns: Some(-402),
            ratio,
            ratio_range: None,
            unusable,
            holds: None,
            cannot_tell: None,
            not_known: Vec::new(),
            assumed: vec!["fault".to_owned()],
        };
        let text = predicted.text();
        let begin =
            "predicted: not usable (rules of 6.18, machine zen4): the estimated saving exceeds";
        assert!(text.starts_with(begin) && !text.contains('%'), "{text}");
        assert!(text.ends_with("depends on assumed costs: fault\n"), "{text}");
    }
}
