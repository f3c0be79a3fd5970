//! The model's prediction for the verified change.

use std::fmt::Write as _;
use std::path::Path;

use largefolio_linux::measure::bootstrap;
use largefolio_linux::verify::rounds::NR_ROUNDS_MIN;
use largefolio_linux::verify::verdict::nr_rounds_until;
use largefolio_sim::cost::{Anchor, Estimate, MeasuredChange, TimeKind};
use largefolio_sim::interval::Interval;
use largefolio_sim::machine::{FLOOR_PERCENT, Machine, TimeErrors};
use largefolio_sim::replay::{CacheState, CellSpec, replay};
use largefolio_trace::OpenTrace;
use serde::Serialize;

use super::sentences;
use crate::running::{self, ChangedRules};
use crate::{Error, Remark, anchor, figures};

/// Why a prediction is cut at 0.
const CLIPPED: &str = "the estimated saving exceeds the whole measured time, so a cost in the \
                       machine file is wrong for this run; measure this machine with folio \
                       calibrate";

#[derive(Debug)]
pub struct VerifyPrediction {
    trace: OpenTrace,
    plain: CellSpec,
    changed: CellSpec,
    settings: Vec<String>,
    saves_anchor: bool,
    remarks: Vec<Remark>,
}

/// The trace that a prediction replays, and on which machine.
#[derive(Clone, Copy, Debug)]
pub struct PredictedFrom<'a> {
    pub trace: &'a Path,
    pub machine: &'a str,
    /// Whether to keep the measured slope of user time with the trace.
    pub saves_anchor: bool,
}

/// The predicted change of one measured time.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PredictedTime {
    /// Estimated time of the changed run minus the plain run's, in ns; `None` if a cost is not
    /// known.
    pub(super) difference_ns: Option<i64>,
    /// The measured plain time plus that difference, over the plain time, at least 0.
    pub(super) ratio: Option<f64>,
    /// The smallest and largest ratio within the costs' bounds.
    pub(super) ratio_range: Option<[f64; 2]>,
    /// Why the ratio is 0 instead of less.
    pub(super) clipped: Option<&'static str>,
    /// Whether the measured ratio is in that range; `None` if the rounds cannot show it.
    pub(super) holds: Option<bool>,
    pub(super) cannot_tell: Option<String>,
}

/// The measured times that a prediction is compared with.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredTimes {
    pub wall: MeasuredTime,
    pub user: MeasuredTime,
    pub system: MeasuredTime,
}

/// The plain runs' median in nanoseconds, and the ratio of changed to plain.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredTime {
    pub plain_ns: f64,
    pub ratio: Option<bootstrap::Interval>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PredictedChange {
    pub(super) kernel: String,
    pub(super) changed_kernel: String,
    pub(super) rules_note: Option<String>,
    pub(super) machine: String,
    /// Of wall time.
    #[serde(flatten)]
    pub(super) wall: PredictedTime,
    pub(super) user: PredictedTime,
    pub(super) system: PredictedTime,
    pub(super) not_known: Vec<String>,
    pub(super) assumed: Vec<String>,
    /// The machine's errors, which the bounds contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) errors: Option<TimeErrors>,
    /// The measured slope that the predicted user time contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) anchor: Option<Anchor>,
    /// The slope of these rounds, which is now kept with the trace. The prediction is without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) saved_anchor: Option<Anchor>,
    /// Why no slope was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_saved: Option<String>,
}

impl VerifyPrediction {
    /// Prepares replays of the program in `trace` on this kernel, with `settings` (name and value)
    /// as the change.
    ///
    /// # Errors
    /// If a trace, kernel, machine or setting cannot be used for a prediction.
    pub fn plan(from: PredictedFrom<'_>, settings: &[(&str, &str)]) -> Result<Self, Error> {
        // An unreadable trace must fail before twenty rounds are measured.
        let trace = OpenTrace::open(from.trace)?;
        let ChangedRules { plain, changed } = running::changed_rules(settings)?;
        let machine = Machine::of_user(from.machine)?;
        if from.saves_anchor {
            anchor::check_is_here("--save-anchor", [&machine])?;
        }
        let spec =
            |kernel| CellSpec { cache: CacheState::Warm, ..CellSpec::new(kernel, machine.clone()) };
        let mut remarks: Vec<Remark> =
            Remark::of_rules(plain.note.as_deref()).into_iter().collect();
        let mut specs = [spec(plain), spec(changed)];
        // A slope corrects the model's own prediction.
        if !from.saves_anchor {
            remarks.extend(anchor::apply(&trace, &mut specs));
        }
        let [plain, changed] = specs;
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(Self { trace, plain, changed, settings, saves_anchor: from.saves_anchor, remarks })
    }

    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    /// Replays both. Differences below `margin` count as none.
    ///
    /// # Errors
    /// If the trace cannot be replayed.
    pub fn run(&self, measured: &MeasuredTimes, margin: f64) -> Result<PredictedChange, Error> {
        let specs = [self.plain.clone(), self.changed.clone()];
        let (_, outcomes) = replay(self.trace.path(), &specs, &mut |_| {})?;
        let [plain, changed] = outcomes.as_slice() else { unreachable!("a cell has one outcome") };
        let mut estimate = changed.estimate.clone();
        estimate.compare(&plain.estimate);
        let floor_ns = measured.wall.plain_ns * FLOOR_PERCENT / 100.0;
        let change = |kind| {
            let change = changed.estimate.change_of(&plain.estimate, kind)?;
            Some(changed.estimate.widened(change, floor_ns, kind))
        };
        let of = |kind, measured: &MeasuredTime| predicted(change(Some(kind)), measured, margin);
        let wall = predicted(change(None), &measured.wall, margin);
        let saved = self.saves_anchor.then(|| {
            let user = changed.estimate.change_of(&plain.estimate, Some(TimeKind::User));
            self.save_anchor(user.unwrap_or_default().mid, measured)
        });
        let (saved_anchor, not_saved) = match saved {
            Some(Ok(anchor)) => (Some(anchor), None),
            // The rounds count without it.
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        Ok(PredictedChange {
            errors: changed.estimate.errors.clone(),
            anchor: changed.estimate.anchor.clone(),
            saved_anchor,
            not_saved,
            kernel: plain.kernel.clone(),
            changed_kernel: changed.kernel.clone(),
            rules_note: self.plain.kernel.note.clone(),
            machine: changed.machine.clone(),
            wall: PredictedTime { difference_ns: estimate.difference_ns, ..wall },
            user: of(TimeKind::User, &measured.user),
            system: of(TimeKind::System, &measured.system),
            not_known: names(&[&plain.estimate, &estimate]),
            assumed: estimate.assumed().map(|(name, _)| name.to_owned()).collect(),
        })
    }
}

impl VerifyPrediction {
    /// Keeps the slope of the measured user time with the trace, if it was measured.
    fn save_anchor(&self, change_ns: f64, measured: &MeasuredTimes) -> Result<Anchor, Error> {
        let run_ns = measured.user.plain_ns + measured.system.plain_ns;
        let (Some(ratio), Some(cpu)) = (measured.user.ratio, &self.plain.machine.cpu) else {
            return Err(Error::request("no rounds count, so no slope of user time was measured"));
        };
        let percent = |ns: f64| 100.0 * ns / run_ns.max(1.0);
        // 95% of the values are within 1.96 standard deviations.
        let sd = (ratio.high - ratio.low) / (2.0 * 1.96);
        let change = MeasuredChange {
            predicted: percent(change_ns),
            measured: percent(measured.user.plain_ns * (ratio.median - 1.0)),
            sd: percent(measured.user.plain_ns * sd),
        };
        let of = (self.settings.clone(), ratio.n);
        anchor::save(&self.trace, cpu, &[change], Vec::new(), of)
    }
}

/// Predicts a time from the estimated `change` and compares it with the measured one.
fn predicted(change: Option<Interval>, measured: &MeasuredTime, margin: f64) -> PredictedTime {
    let MeasuredTime { plain_ns, ratio: measured } = *measured;
    let Some(change) = change else { return PredictedTime::default() };
    #[expect(clippy::cast_possible_truncation, reason = "a time of one run in ns")]
    let difference_ns = Some(change.mid.round() as i64);
    if plain_ns <= 0.0 {
        let cannot_tell = Some("the plain runs took none of this time".to_owned());
        return PredictedTime { difference_ns, cannot_tell, ..PredictedTime::default() };
    }
    let (ratio, clipped) = ratio_of(change.mid, plain_ns);
    let range = range(change, plain_ns);
    let (holds, cannot_tell) = match measured {
        Some(measured) => place(range, ratio, &measured, margin),
        None => (None, Some("no ratio was measured".to_owned())),
    };
    // A time of 0 was never meant.
    let holds = if clipped.is_some() { holds.map(|_| false) } else { holds };
    let (ratio, ratio_range) = (Some(ratio), Some(range));
    PredictedTime { difference_ns, ratio, ratio_range, clipped, holds, cannot_tell }
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

/// Returns the predicted ratio. A run cannot save more time than it takes: if the estimate says so,
/// a cost is wrong for this run, and the ratio is 0.
fn ratio_of(difference_ns: f64, plain_ns: f64) -> (f64, Option<&'static str>) {
    let ratio = 1.0 + difference_ns / plain_ns;
    if ratio > 0.0 { (ratio, None) } else { (0.0, Some(CLIPPED)) }
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
    pub(super) fn why_none(&self) -> String {
        format!("the machine file lacks {}", self.not_known.join(", "))
    }

    pub(super) fn text(&self) -> String {
        let version = self.kernel.split('+').next().unwrap_or_default();
        let mut text =
            format!("predicted, with the rules of {version} and machine {}:\n", self.machine);
        for (name, time) in self.times() {
            let _ = writeln!(text, "  {name:<12}{}", time.text(|| self.why_none()));
        }
        if let Some(errors) = &self.errors {
            let _ = writeln!(text, "  bounds: {}", figures::of_errors(errors));
        }
        let slope = |anchor: &Anchor| {
            let Interval { low, mid, high } = anchor.slope;
            format!("{mid:.2} times the model's [{low:.2} .. {high:.2}]")
        };
        if let Some(anchor) = &self.anchor {
            let of = anchor.settings.join(", ");
            let _ = writeln!(
                text,
                "  user time changes as measured for this program: {} ({of}, n = {})",
                slope(anchor),
                anchor.nr_rounds
            );
        }
        if let Some(why) = &self.not_saved {
            let _ = writeln!(text, "  NOTHING WAS KEPT WITH THE TRACE: {why}");
        }
        if let Some(anchor) = &self.saved_anchor {
            let _ = writeln!(
                text,
                "  kept with the trace for later predictions: user time changes {}",
                slope(anchor)
            );
        }
        if !self.assumed.is_empty() {
            let _ = writeln!(text, "  depends on assumed costs: {}", self.assumed.join(", "));
        }
        if self.wall.ratio.is_some() && !self.not_known.is_empty() {
            let names = self.not_known.join(", ");
            let _ = writeln!(text, "  typical values, not in the machine file: {names}");
        }
        text
    }

    pub(super) const fn times(&self) -> [(&'static str, &PredictedTime); 3] {
        [("wall time", &self.wall), ("user time", &self.user), ("system time", &self.system)]
    }
}

impl PredictedTime {
    pub(super) fn text(&self, why_none: impl Fn() -> String) -> String {
        let Some(ratio) = self.ratio else {
            let why = self.cannot_tell.clone().unwrap_or_else(why_none);
            return format!("not known: {why}");
        };
        let percent = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
        let bounds = self.ratio_range.map_or_else(String::new, |[low, high]| {
            format!(" [{} .. {}]", percent(low), percent(high))
        });
        let clipped = self.clipped.map_or(String::new(), |why| format!("; cut at -100%: {why}"));
        let place = match (self.holds, &self.cannot_tell) {
            (Some(true), _) => "; the measured ratio is within these bounds".to_owned(),
            (Some(false), _) => "; THE MEASURED RATIO IS OUTSIDE THEM".to_owned(),
            (None, Some(why)) => format!("; the rounds cannot show whether it holds: {why}"),
            (None, None) => String::new(),
        };
        format!("{}%{bounds}{clipped}{place}", percent(ratio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_prediction_is_of_a_time_below_zero() {
        assert_eq!(ratio_of(-25.0, 100.0), (0.75, None));
        assert_eq!(ratio_of(300.0, 100.0), (4.0, None));
        for saved in [100.0, 101.0, 402.0, 1e18] {
            assert_eq!(ratio_of(-saved, 100.0), (0.0, Some(CLIPPED)));
        }
    }

    #[test]
    fn a_clipped_prediction_is_a_miss() {
        let change = Interval { low: -500.0, mid: -402.0, high: -20.0 };
        let ratio = Some(bootstrap::Interval { median: 0.5, low: 0.49, high: 0.51, n: 20 });
        let time = predicted(Some(change), &MeasuredTime { plain_ns: 100.0, ratio }, 0.01);
        assert_eq!((time.ratio, time.holds), (Some(0.0), Some(false)));
        let text = time.text(String::new);
        assert!(
            text.starts_with("-100.0% [-100.0 .. -20.0]; cut at -100%: the estimated"),
            "{text}"
        );
        assert!(text.ends_with("; THE MEASURED RATIO IS OUTSIDE THEM"), "{text}");
    }

    #[test]
    fn a_time_that_the_plain_runs_lack_has_no_ratio() {
        let none = MeasuredTime { plain_ns: 0.0, ratio: None };
        let time = predicted(Some(Interval::exact(7.0)), &none, 0.01);
        assert_eq!((time.difference_ns, time.ratio), (Some(7), None));
        assert!(time.text(String::new).starts_with("not known: the plain runs took none"));
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
}
