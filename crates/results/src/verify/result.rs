//! The comparison as text, CSV and JSON.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use largefolio_linux::verify::rounds::Rounds;
use largefolio_linux::verify::run::Sample;
use largefolio_linux::verify::verdict::{Compared, Doubt, Verdict, doubts};
use largefolio_report::ExportError;
use largefolio_report::figures::{self, printable};
use serde::Serialize;

use super::prediction::Predicted;
use crate::running;

/// Version of the JSON's layout.
const SCHEMA_VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub(super) struct QuantityRow {
    pub(super) quantity: &'static str,
    pub(super) unit: &'static str,
    pub(super) plain: f64,
    pub(super) plain_min: f64,
    pub(super) plain_max: f64,
    pub(super) changed: f64,
    pub(super) changed_min: f64,
    pub(super) changed_max: f64,
    /// Changed over plain within a round; none where a plain value is 0.
    pub(super) ratio: Option<f64>,
    /// 95 per cent confidence interval of the median ratio.
    pub(super) ratio_low: Option<f64>,
    pub(super) ratio_high: Option<f64>,
    pub(super) nr_rounds: usize,
}

/// What was measured of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) wall_ns: u64,
    pub(super) user_ns: u64,
    pub(super) system_ns: u64,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct RoundRow {
    /// From 1.
    pub(super) nr: usize,
    pub(super) plain: RunRow,
    pub(super) changed: RunRow,
    /// Changed over plain of the quantity the verdict is about; none where plain is 0.
    pub(super) ratio: Option<f64>,
}

/// Everything about one comparison.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyResult {
    pub(super) schema_version: u32,
    pub(super) tool_version: &'static str,
    pub(super) kernel: String,
    pub(super) command: Vec<String>,
    pub(super) change: String,
    /// What came of it in the changed runs, as far as it is known.
    pub(super) effects: Vec<String>,
    pub(super) verdict: &'static str,
    /// What the verdict is about.
    pub(super) metric: &'static str,
    /// Differences below it are none; 0.01 is one per cent.
    pub(super) margin: f64,
    pub(super) rows: Vec<QuantityRow>,
    /// Every round; of a page with very many some of them.
    pub(super) rounds: Vec<RoundRow>,
    pub(super) prediction: Option<Predicted>,
    pub(super) warnings: Vec<String>,
}

impl VerifyResult {
    /// Of `rounds`, which compare as `compared`.
    #[must_use]
    pub fn new(compared: &[Compared], verdict: Verdict, rounds: &Rounds) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            kernel: running::release(),
            command: Vec::new(),
            change: String::new(),
            effects: Vec::new(),
            verdict: match verdict {
                Verdict::Confirmed => "confirmed",
                Verdict::NotConfirmed => "not confirmed",
                Verdict::Inconclusive => "inconclusive",
            },
            metric: "",
            margin: 0.0,
            rows: compared.iter().map(row).collect(),
            rounds: rounds_of(rounds),
            prediction: None,
            warnings: doubts(rounds).iter().map(warning).collect(),
        }
    }

    /// What the verdict is about.
    #[must_use]
    pub fn about(mut self, metric: &'static str, margin: f64, change: String) -> Self {
        for round in &mut self.rounds {
            let (plain, changed) = (round.plain.of(metric), round.changed.of(metric));
            round.ratio = (plain > 0).then(|| figures::ratio(changed, plain));
        }
        Self { change, metric, margin, ..self }
    }

    /// What came of the change.
    #[must_use]
    pub fn with_effects(self, effects: Vec<String>) -> Self {
        Self { effects, ..self }
    }

    /// What the model says.
    #[must_use]
    pub fn beside(self, prediction: Option<Predicted>) -> Self {
        Self { prediction, ..self }
    }

    /// The command line this came from.
    #[must_use]
    pub fn of(self, command: Vec<String>) -> Self {
        Self { command, ..self }
    }

    pub(super) fn shown(&self) -> String {
        let mut text = String::new();
        let n = self.rows.first().map_or(0, |row| row.nr_rounds);
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            text,
            "kernel {}; {n} rounds, alternating; changed: {}",
            self.kernel, self.change
        );
        text.push('\n');
        for effect in &self.effects {
            let _ = writeln!(text, "  {}", printable(effect));
        }
        if !self.effects.is_empty() {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "  {:14} {:>30} {:>30}  {:>24}",
            "median [range]", "plain", "changed", "ratio [95% interval]"
        );
        for row in &self.rows {
            let plain = spread(row.unit, [row.plain, row.plain_min, row.plain_max]);
            let changed = spread(row.unit, [row.changed, row.changed_min, row.changed_max]);
            let ratio = match (row.ratio, row.ratio_low, row.ratio_high) {
                (Some(median), Some(low), Some(high)) => {
                    format!("{median:.3} [{low:.3} .. {high:.3}]")
                }
                _ => "-".to_owned(),
            };
            let _ = writeln!(text, "  {:14} {plain:>30} {changed:>30}  {ratio:>24}", row.quantity);
        }
        let _ = writeln!(text, "\n{}: {}", self.verdict, self.reason());
        text += &self.prediction.as_ref().map(Predicted::text).unwrap_or_default();
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        text
    }

    /// The verdict in a sentence.
    pub(super) fn reason(&self) -> String {
        let row = self.rows.iter().find(|row| row.quantity == self.metric);
        let interval = row.and_then(|row| Some((row.ratio?, row.ratio_low?, row.ratio_high?)));
        let Some((median, low, high)) = interval else {
            return format!("no ratio of {} time: too few rounds, or a time of 0", self.metric);
        };
        let (metric, change) = (self.metric, 100.0 * (median - 1.0));
        let interval = format!("{:+.1}% to {:+.1}%", 100.0 * (low - 1.0), 100.0 * (high - 1.0));
        let margin = 100.0 * self.margin;
        match self.verdict {
            "confirmed" => format!("{metric} time {change:+.1}% ({interval})"),
            "not confirmed" if low > 1.0 + self.margin => {
                format!("{metric} time {change:+.1}% ({interval}): slower")
            }
            "not confirmed" => {
                format!("{metric} time {change:+.1}% ({interval}): not faster by {margin}%")
            }
            _ => format!(
                "{metric} time {change:+.1}% ({interval}): may or may not be faster by {margin}%; \
                 more rounds make the interval narrower"
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
    fn new(sample: &Sample) -> Self {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            wall_ns: ns(sample.wall),
            user_ns: ns(sample.user),
            system_ns: ns(sample.system),
            minor_faults: sample.nr_minor_faults,
            major_faults: sample.nr_major_faults,
        }
    }

    /// The value of a quantity.
    pub(super) fn of(&self, metric: &str) -> u64 {
        match metric {
            "user" => self.user_ns,
            "system" => self.system_ns,
            _ => self.wall_ns,
        }
    }
}

fn rounds_of(rounds: &Rounds) -> Vec<RoundRow> {
    let both = rounds.plain.iter().zip(&rounds.changed);
    let round = |(nr, (plain, changed))| RoundRow {
        nr,
        plain: RunRow::new(plain),
        changed: RunRow::new(changed),
        ratio: None,
    };
    (1..).zip(both).map(round).collect()
}

fn row(compared: &Compared) -> QuantityRow {
    let Compared { plain, changed, ratio, .. } = compared;
    QuantityRow {
        quantity: compared.name,
        unit: compared.unit,
        plain: plain.median,
        plain_min: plain.min,
        plain_max: plain.max,
        changed: changed.median,
        changed_min: changed.min,
        changed_max: changed.max,
        ratio: ratio.map(|ratio| ratio.median),
        ratio_low: ratio.map(|ratio| ratio.low),
        ratio_high: ratio.map(|ratio| ratio.high),
        nr_rounds: plain.n,
    }
}

/// `12.3 ms [11.9 .. 14.0]`, median first.
pub(super) fn spread(unit: &str, values: [f64; 3]) -> String {
    let (divisor, unit) = match (unit, values[0]) {
        ("ns", large) if large >= 1e9 => (1e9, " s"),
        ("ns", _) => (1e6, " ms"),
        _ => (1.0, ""),
    };
    let [median, min, max] = values.map(|value| value / divisor);
    let digits = if unit.is_empty() { 0 } else { 2 };
    format!("{median:.digits$}{unit} [{min:.digits$} .. {max:.digits$}]")
}

/// The doubt with its remedy.
fn warning(doubt: &Doubt) -> String {
    match doubt {
        Doubt::FewRounds { nr } => {
            format!("{nr} rounds are too few for a reliable interval; use --runs 20")
        }
        Doubt::Noise { part } => format!(
            "the middle half of the plain runs spreads over {:.0}% of their median: end other \
             programs, or run more rounds (--runs, --time)",
            100.0 * part
        ),
        Doubt::Drift { ratio } => format!(
            "the machine drifts: the second half of the plain runs took {ratio:.2} of the first; \
             ratios within a round still hold, but times do not. A longer --time tells more"
        ),
        Doubt::Short { wall_ns } => format!(
            "a run takes {:.1} ms, mostly to start the process; give the command more work",
            wall_ns / 1e6
        ),
        Doubt::Stopped { nr } => format!("stopped by a signal after {nr} rounds"),
    }
}
