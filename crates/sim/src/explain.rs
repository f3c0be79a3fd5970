//! Finds which rules make the difference between two kernels.
//!
//! Two searches share the replays: [`WhyQuestion::answer`] attributes every number of the CSV to
//! every rule; [`halve`] finds the rules that matter for one number, with few replays. The run time
//! is excluded: changes are measured against it.
//!
//! Owns which cells are replayed (from [`crate::why`]). Does not own wording.
//!
//! Invariants:
//! - Y1: for every result, the effects in order add up to the difference. So do the effects alone
//!   plus the interactions plus `together` (`sim::why` A1, A2).
//! - Y2: a pair of kernels takes at most three cells per switch, plus [`NR_PAIRS_MAX`].

mod attribution;
mod halving;
mod replays;

use largefolio_mm::rules::sizes::size_name;
use largefolio_trace::{OpenTrace, shown};
use serde::Serialize;

use crate::kernel::{KernelChange, KernelError};
use crate::replay::{CellSpec, Outcome, ReplayError, ReplayRequest};
use crate::why;

pub use attribution::NR_PAIRS_MAX;
pub use halving::{NR_CELLS_MAX, SMALL, Steps, halve};
pub use replays::{Progress, Replays};

/// Results shown by default, and their names in sentences.
const HEADLINES: [(&str, &str); 7] = [
    ("tlb_instruction_l2_misses", "instruction walks"),
    ("tlb_data_l2_misses", "data walks"),
    ("faults_total", "faults"),
    ("reads", "bytes read from files"),
    ("statistics_total_exact_rss", "mapped memory (Rss)"),
    ("time_total", "estimated time"),
    ("time_known", "the known part of the estimated time"),
];

/// The answer for two rows that differ only in the kernel. `schemas/predict.json` describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    pub before: usize,
    pub after: usize,
    pub nr_cells: usize,
    pub switches: Vec<Switch>,
    pub shown: Vec<String>,
    pub results: Vec<Explained>,
    /// Pairs of switches that have an effect but no separate interaction.
    pub nr_pairs_left_out: usize,
    pub not_known: Vec<String>,
}

/// Rules that change together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// One rule, unless it cannot change alone.
    pub rules: Vec<Rule>,
    /// The first version known to have the newer value of the last rule; `None`: an edit.
    pub since: Option<String>,
    pub commit: Option<String>,
    /// Whether the change reverts to the older value.
    pub is_undone: bool,
    pub has_effect: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    pub rule: String,
    pub from: String,
    pub to: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// Metric, size and unit as in the CSV.
    pub metric: String,
    pub folio_bytes: Option<u64>,
    pub unit: &'static str,
    pub before: i128,
    pub after: i128,
    pub difference: i128,
    /// One per switch that changes the result.
    pub effects: Vec<Effect>,
    pub interactions: Vec<why::Interaction>,
    pub together: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// Index of the switch.
    pub switch: usize,
    /// The change if only this switch is set in the first kernel.
    pub alone: i128,
    /// The change that the second kernel loses without this switch.
    pub left_out: i128,
    /// The change if the switch is set after all older ones.
    pub in_order: i128,
}

impl Why {
    pub fn shown(&self) -> impl Iterator<Item = (usize, &Explained)> {
        let has_total = self.results.iter().any(|result| result.metric == "time_total");
        let is_shown = move |name: &&String| name.as_str() != "time_known" || !has_total;
        self.shown.iter().filter(is_shown).flat_map(|name| {
            self.results.iter().enumerate().filter(move |(_, result)| result.metric == *name)
        })
    }

    #[must_use]
    pub const fn together(&self) -> &'static str {
        if self.nr_pairs_left_out == 0 { "three or more together" } else { "other rules together" }
    }

    #[must_use]
    pub fn nr_idle(&self) -> usize {
        self.switches.iter().filter(|switch| !switch.has_effect).count()
    }
}

impl Switch {
    fn new(switch: &why::Switch, has_effect: bool) -> Self {
        let rule = |change: &KernelChange| Rule {
            rule: change.rule(),
            from: change.from(),
            to: change.to(),
        };
        let origin = switch.changes.last().and_then(|change| change.origin.clone());
        Self {
            rules: switch.changes.iter().map(rule).collect(),
            since: origin.as_ref().map(|origin| origin.version.clone()),
            commit: origin.as_ref().and_then(|origin| origin.commit.clone()),
            is_undone: origin.is_some_and(|origin| origin.is_undone),
            has_effect,
        }
    }

    #[must_use]
    pub fn name(&self) -> String {
        self.rules.iter().map(|rule| rule.rule.as_str()).collect::<Vec<_>>().join(" + ")
    }

    #[must_use]
    pub fn change(&self) -> String {
        let of = |rule: &Rule| format!("{}: {} -> {}", rule.rule, rule.from, rule.to);
        self.rules.iter().map(of).collect::<Vec<_>>().join(" + ")
    }

    /// Returns its rules and their origin: `fault.exec (since 6.17)`.
    #[must_use]
    pub fn with_origin(&self) -> String {
        let origin = match (&self.since, self.is_undone) {
            (None, _) => "an edit".to_owned(),
            (Some(version), true) => format!("from {version}, removed"),
            (Some(version), false) => format!("since {version}"),
        };
        format!("{} ({origin})", self.name())
    }

    /// Returns the origin: `6.17`, `not 6.17` if it is reverted, `edit`.
    #[must_use]
    pub fn origin(&self) -> String {
        match (&self.since, self.is_undone) {
            (None, _) => "edit".to_owned(),
            (Some(version), true) => format!("not {version}"),
            (Some(version), false) => version.clone(),
        }
    }
}

impl Explained {
    #[must_use]
    pub fn name(&self) -> String {
        let headline = HEADLINES.iter().find(|(metric, _)| *metric == self.metric);
        let name = headline.map_or(self.metric.as_str(), |(_, name)| name);
        match self.folio_bytes {
            Some(bytes) => format!("{name} {}", size_name(bytes)),
            None => name.to_owned(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WhyError {
    #[error("--why compares two kernels, but {} given; name exactly two, such as \
             6.12,7.2", were(*.0))]
    Kernels(usize),
    #[error("--why compares two kernels, but both are {}", shown(.0))]
    Same(String),
    #[error("there is no result '{}'; {hint}", shown(result))]
    Unknown { result: String, hint: String },
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// `one was`, `3 were`.
fn were(nr: usize) -> String {
    if nr == 1 { "one was".to_owned() } else { format!("{nr} were") }
}

/// Checks that `request` compares two kernels.
///
/// # Errors
/// If it does not.
pub fn check(request: &ReplayRequest) -> Result<(), WhyError> {
    match (request.kernels().as_slice(), request.kernels.len()) {
        ([_, _], _) => Ok(()),
        ([one], 2..) => Err(WhyError::Same(one.name.clone())),
        (kernels, _) => Err(WhyError::Kernels(kernels.len())),
    }
}

#[derive(Clone, Copy, Debug)]
pub struct WhyQuestion<'a> {
    pub trace: &'a OpenTrace,
    pub nr_rows: u64,
    pub specs: &'a [CellSpec],
    pub rows: &'a [Outcome],
    /// Metrics to show; empty: the first metrics in the table of `predict`.
    pub results: &'a [String],
}

impl<'a> WhyQuestion<'a> {
    /// Returns the replays of one explanation.
    #[must_use]
    pub fn replays(&self, progress: Progress<'a>) -> Replays<'a> {
        Replays::new(self.trace, self.nr_rows, progress)
    }
}
