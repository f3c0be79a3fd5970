//! The comparison as text, CSV and JSON.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use crate::ExportError;
use crate::figures::printable;
use largefolio_linux::measure::bootstrap::Interval;
use largefolio_linux::timed_run::memory_sample::MemorySample;
use largefolio_linux::verify::metric::Better;
use largefolio_linux::verify::rounds::{LoadRun, NR_ROUNDS_MIN, Rounds};
use largefolio_linux::verify::threshold::{Threshold, ThresholdOutcome};
use largefolio_linux::verify::verdict::{self, Compared, Judged, Verdict, VerifyQuestion, doubts};
use serde::Serialize;

use super::prediction::PredictedChange;
use super::sentences::{self, dropped, spread, warning};
use crate::running;

const SCHEMA_VERSION: u32 = 3;

#[derive(Clone, Debug, Serialize)]
pub(super) struct QuantityRow {
    pub(super) quantity: String,
    pub(super) unit: String,
    pub(super) plain: f64,
    pub(super) plain_min: f64,
    pub(super) plain_max: f64,
    pub(super) changed: f64,
    pub(super) changed_min: f64,
    pub(super) changed_max: f64,
    /// The ratio of changed to plain within a round; 1 if both are 0, and `None` if only one is.
    pub(super) ratio: Option<f64>,
    /// The 95% confidence interval of the median ratio; with fewer than six rounds, the range.
    /// `None` for an infinite end.
    pub(super) ratio_low: Option<f64>,
    pub(super) ratio_high: Option<f64>,
    pub(super) nr_rounds: usize,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) wall_ns: u64,
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) value: Option<f64>,
    pub(super) rehearsals: usize,
    /// Folio size and bytes near the end of the run; `None` if they were not read.
    pub(super) folios: Option<Vec<[u64; 2]>>,
    pub(super) server: Option<ServerRow>,
}

/// The server's resource usage during the load, and its memory afterwards.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ServerRow {
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    /// Since the server's start.
    pub(super) minor_faults: u64,
    pub(super) folios: Option<Vec<[u64; 2]>>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct RoundRow {
    pub(super) nr: usize,
    pub(super) plain: RunRow,
    pub(super) changed: RunRow,
    /// The deciding quantity's ratio of changed to plain; 1 if both are 0, and `None` if only the
    /// plain one is.
    pub(super) ratio: Option<f64>,
    pub(super) dropped: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct SettingRow {
    /// Name in `folio tune`.
    pub name: String,
    /// The value before the rounds and in every plain run.
    pub plain: String,
    pub changed: String,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct ThresholdRow {
    pub(super) threshold: String,
    /// `passed`, `failed`, `open`.
    pub(super) outcome: &'static str,
    pub(super) why: Option<String>,
    pub(super) ratio: Option<f64>,
    pub(super) ratio_low: Option<f64>,
    pub(super) ratio_high: Option<f64>,
}

impl ThresholdRow {
    pub(super) fn sentence(&self) -> String {
        let why = self.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("{}: --fail-if {}{why}", self.outcome, self.threshold)
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Change {
    pub change: String,
    pub settings: Vec<SettingRow>,
    /// `NAME=VALUE` of the changed runs.
    pub environment: Vec<String>,
    pub effects: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct VerifyResult {
    pub(super) schema_version: u32,
    pub(super) tool_version: &'static str,
    pub(super) kernel: String,
    pub(super) command: Vec<String>,
    #[serde(flatten)]
    pub(super) change: Change,
    /// `confirmed`, `not confirmed`, `inconclusive`, `not proved`.
    pub(super) verdict: &'static str,
    pub(super) metric: String,
    /// `lower`, `higher`.
    pub(super) better: &'static str,
    /// Smaller differences count as none; 0.01 is one percent.
    pub(super) margin: f64,
    pub(super) nr_rounds: usize,
    pub(super) nr_counted: usize,
    pub(super) nr_rounds_needed: Option<usize>,
    /// Where the change shows: `folios`, `faults`.
    pub(super) shows_in: Vec<&'static str>,
    pub(super) thresholds: Vec<ThresholdRow>,
    pub(super) rows: Vec<QuantityRow>,
    /// Every round; a page with very many rounds has a selection.
    pub(super) rounds: Vec<RoundRow>,
    pub(super) prediction: Option<PredictedChange>,
    pub(super) warnings: Vec<String>,
}

impl VerifyResult {
    #[must_use]
    pub fn new(rounds: &Rounds, judged: &Judged, question: &VerifyQuestion) -> Self {
        let name = question.metric.name.clone();
        let proved = &judged.proved;
        let ratio = judged.compared.iter().find(|one| one.name == name).and_then(|one| one.ratio);
        let limit = verdict::limit(question.margin, question.metric.better);
        let is_open = judged.verdict == Verdict::Inconclusive;
        let mut warnings: Vec<String> =
            dropped(rounds.plain.len(), &proved.dropped).into_iter().collect();
        warnings.extend(doubts(proved, question.trace).iter().map(warning));
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            kernel: running::release(),
            command: Vec::new(),
            change: Change::default(),
            verdict: match judged.verdict {
                Verdict::Confirmed => "confirmed",
                Verdict::NotConfirmed => "not confirmed",
                Verdict::Inconclusive => "inconclusive",
                Verdict::NotProved => "not proved",
            },
            better: match question.metric.better {
                Better::Lower => "lower",
                Better::Higher => "higher",
            },
            margin: question.margin,
            nr_rounds: rounds.plain.len(),
            nr_counted: proved.rounds.plain.len(),
            nr_rounds_needed: ratio
                .filter(|_| is_open)
                .and_then(|ratio| verdict::nr_rounds_until(&ratio, (ratio.median - limit).abs())),
            shows_in: proved.traces.clone(),
            thresholds: thresholds(judged, question),
            rows: judged.compared.iter().map(row).collect(),
            rounds: rounds_of(rounds, judged, &name),
            metric: name,
            prediction: None,
            warnings,
        }
    }

    #[must_use]
    pub fn about(self, change: Change) -> Self {
        Self { change, ..self }
    }

    #[must_use]
    pub fn with_prediction(self, prediction: Option<PredictedChange>) -> Self {
        Self { prediction, ..self }
    }

    #[must_use]
    pub fn of(self, command: Vec<String>) -> Self {
        Self { command, ..self }
    }

    /// Returns whether the answer is yes: every limit is met or, without limits, the change is
    /// confirmed.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        if self.thresholds.is_empty() {
            return self.verdict == "confirmed";
        }
        self.thresholds.iter().all(|one| one.outcome == "passed")
    }

    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "kernel {}; {} rounds, alternating; changed: {}",
            self.kernel,
            self.nr_counted,
            printable(&self.change.change)
        );
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {}", printable(warning));
        }
        let _ = writeln!(text, "{}: {}", self.verdict, self.reason());
        for limit in &self.thresholds {
            let _ = writeln!(text, "{}", printable(&limit.sentence()));
        }
        text += &self.prediction.as_ref().map(PredictedChange::text).unwrap_or_default();
        text.push('\n');
        for effect in &self.change.effects {
            let _ = writeln!(text, "  {}", printable(effect));
        }
        let rehearsals = self.rehearsals();
        let _ = rehearsals.as_ref().map(|line| writeln!(text, "  {line}"));
        if !self.change.effects.is_empty() || rehearsals.is_some() {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "  {:19} {:>30} {:>30}  {:>24}",
            "median [range]",
            "plain",
            "changed",
            format!("ratio [{}]", sentences::interval(self.nr_counted))
        );
        for row in &self.rows {
            let plain = spread(&row.unit, [row.plain, row.plain_min, row.plain_max]);
            let changed = spread(&row.unit, [row.changed, row.changed_min, row.changed_max]);
            let ratio = match (row.ratio, row.ratio_low, row.ratio_high) {
                (Some(median), Some(low), Some(high)) => {
                    format!("{median:.3} [{low:.3} .. {high:.3}]")
                }
                _ => "-".to_owned(),
            };
            let _ = writeln!(text, "  {:19} {plain:>30} {changed:>30}  {ratio:>24}", row.quantity);
        }
        if let Some(nr) = self.nr_of_selecting() {
            let _ = writeln!(
                text,
                "\n  faults, memory and folios determine which rounds count, so their rows cover \
                 all {nr} rounds"
            );
        }
        text
    }

    fn rehearsals(&self) -> Option<String> {
        let of = |round: &RoundRow| [round.plain.rehearsals, round.changed.rehearsals];
        let all = || self.rounds.iter().flat_map(of);
        let (least, most) = (all().min()?, all().max().filter(|most| *most > 0)?);
        Some(format!(
            "before each timed run it ran {least} to {most} times untimed, until its CPU time \
             stayed the same (8 at most)"
        ))
    }

    fn nr_of_selecting(&self) -> Option<usize> {
        let selecting = self.rows.iter().filter(|row| matches!(&*row.unit, "faults" | "bytes"));
        selecting.map(|row| row.nr_rounds).max().filter(|nr| *nr > self.nr_counted)
    }

    pub(super) fn reason(&self) -> String {
        if self.verdict == "not proved" {
            return format!(
                "the change took effect in {} of {} rounds, and {NR_ROUNDS_MIN} are needed",
                self.nr_counted, self.nr_rounds
            );
        }
        let row = self.rows.iter().find(|row| row.quantity == self.metric);
        let interval = row.and_then(|row| Some((row.ratio?, row.ratio_low?, row.ratio_high?)));
        let what = sentences::metric_name(&self.metric);
        let Some((median, low, high)) = interval else {
            return format!("no ratio of {what}: too few rounds, or a value of 0");
        };
        let percent = |ratio: f64| format!("{:+.1}%", 100.0 * (ratio - 1.0));
        let is_time = sentences::is_time(&self.metric);
        // For a time, the direction is obvious.
        let direction =
            if is_time { String::new() } else { format!(", {} is better", self.better) };
        let change = format!(
            "{what} {} ({} to {}){direction}",
            percent(median),
            percent(low),
            percent(high)
        );
        let by = match 100.0 * self.margin {
            0.0 => String::new(),
            margin => format!(" by {margin}%"),
        };
        let (better, worse) = if is_time { ("faster", "slower") } else { ("better", "worse") };
        let is_worse = match self.better {
            "higher" => high < 1.0 - self.margin,
            _ => low > 1.0 + self.margin,
        };
        match self.verdict {
            "confirmed" => change,
            "not confirmed" if is_worse => format!("{change}: {worse}"),
            "not confirmed" => format!("{change}: not {better}{by}"),
            _ if row.is_none_or(|row| row.nr_rounds < NR_ROUNDS_MIN) => {
                format!("{change}: fewer than {NR_ROUNDS_MIN} rounds cannot decide")
            }
            _ => format!(
                "{change}: may or may not be {better}{by}; {}",
                sentences::rounds_needed(self.nr_rounds_needed)
            ),
        }
    }

    pub(super) fn records(&self) -> Result<String, ExportError> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        for row in &self.rows {
            writer.serialize(row)?;
        }
        let bytes = writer.into_inner().map_err(csv::IntoInnerError::into_error)?;
        Ok(String::from_utf8(bytes).map_err(io::Error::other)?)
    }
}

impl RunRow {
    fn new(run: &LoadRun, metric: &str) -> Self {
        let sample = &run.sample;
        Self {
            wall_ns: ns(sample.wall),
            user_ns: ns(sample.user),
            system_ns: ns(sample.system),
            minor_faults: sample.nr_minor_faults,
            major_faults: sample.nr_major_faults,
            value: verdict::value(run, metric),
            rehearsals: run.nr_rehearsals,
            folios: run.memory.as_ref().map(folios),
            server: run.served.as_ref().map(|served| ServerRow {
                user_ns: ns(served.user),
                system_ns: ns(served.system),
                minor_faults: served.nr_minor_faults,
                folios: served.memory.as_ref().map(folios),
            }),
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// If this user may not read the folio size, it is 0.
fn folios(sample: &MemorySample) -> Vec<[u64; 2]> {
    let unknown = (sample.unknown_bytes > 0).then_some([0, sample.unknown_bytes]);
    unknown.into_iter().chain(sample.folios.iter().map(|(size, bytes)| [*size, *bytes])).collect()
}

fn rounds_of(rounds: &Rounds, judged: &Judged, metric: &str) -> Vec<RoundRow> {
    let mut dropped = judged.proved.dropped.iter().peekable();
    let both = rounds.plain.iter().zip(&rounds.changed);
    let round = |(nr, (plain, changed))| {
        let (plain, changed) = (RunRow::new(plain, metric), RunRow::new(changed, metric));
        let values = plain.value.zip(changed.value);
        RoundRow {
            nr,
            ratio: finite(values.map(|(plain, changed)| verdict::ratio(plain, changed))),
            plain,
            changed,
            dropped: dropped.next_if(|one| one.nr == nr).map(|one| one.why.clone()),
        }
    };
    (1..).zip(both).map(round).collect()
}

fn thresholds(judged: &Judged, question: &VerifyQuestion) -> Vec<ThresholdRow> {
    let ratio = |name: &str| judged.compared.iter().find(|one| one.name == name)?.ratio;
    let of = |(limit, outcome): (&Threshold, &ThresholdOutcome)| {
        let ratio: Option<Interval> = ratio(&limit.quantity);
        let (outcome, why) = match outcome {
            ThresholdOutcome::Passed => ("passed", None),
            ThresholdOutcome::Failed => ("failed", None),
            ThresholdOutcome::Open(why) => {
                ("open", Some(sentences::undecided_reason(*why, ratio.as_ref())))
            }
        };
        ThresholdRow {
            threshold: limit.to_string(),
            outcome,
            why,
            ratio: finite(ratio.map(|ratio| ratio.median)),
            ratio_low: finite(ratio.map(|ratio| ratio.low)),
            ratio_high: finite(ratio.map(|ratio| ratio.high)),
        }
    };
    question.thresholds.iter().zip(&judged.outcomes).map(of).collect()
}

/// JSON has no infinite numbers.
fn finite(ratio: Option<f64>) -> Option<f64> {
    ratio.filter(|ratio| ratio.is_finite())
}

fn row(compared: &Compared) -> QuantityRow {
    let Compared { name, unit, plain, changed, ratio } = compared;
    QuantityRow {
        quantity: name.clone(),
        unit: unit.clone(),
        plain: plain.median,
        plain_min: plain.min,
        plain_max: plain.max,
        changed: changed.median,
        changed_min: changed.min,
        changed_max: changed.max,
        ratio: finite(ratio.map(|ratio| ratio.median)),
        ratio_low: finite(ratio.map(|ratio| ratio.low)),
        ratio_high: finite(ratio.map(|ratio| ratio.high)),
        nr_rounds: plain.n,
    }
}
