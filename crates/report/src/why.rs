//! Which rules make the difference between two kernels, for every result that differs.
//!
//! Owns which cells are replayed ([`largefolio_sim::why`] gives them) and for which results the
//! difference is shared out: every number of the CSV. The run time is none of them: it is what
//! changes are measured against.
//!
//! Invariants:
//! - Y1: for every result the effects in order add up to the difference, and so do the effects
//!   alone, the interactions and `together` (`sim::why` A1, A2).
//! - Y2: cells of a pair of kernels are at most three for each switch, and [`NR_PAIRS_MAX`].

mod ask;

use serde::Serialize;

use largefolio_sim::why as sim;

pub use ask::{NR_PAIRS_MAX, Question, WhyError, check};

/// Results that are shown unless others are asked for, and how sentences call them.
const HEADLINES: [(&str, &str); 7] = [
    ("tlb_instruction_l2_misses", "instruction walks"),
    ("tlb_data_l2_misses", "data walks"),
    ("faults_total", "faults"),
    ("reads", "bytes read from files"),
    ("statistics_total_exact_rss", "mapped memory (Rss)"),
    ("time_total", "estimated time"),
    ("time_known", "the known part of the estimated time"),
];

/// The answer for two rows that differ in the kernel alone. [`crate::report`] gives the schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    /// Row of the first kernel.
    pub before: usize,
    /// Row of the second kernel.
    pub after: usize,
    /// Cells that were replayed besides these two.
    pub nr_cells: usize,
    /// Rules that differ, in the order in which they came.
    pub switches: Vec<Switch>,
    /// Metrics that the table and the page show.
    pub shown: Vec<String>,
    /// Results that differ.
    pub results: Vec<Explained>,
    /// Pairs of switches with an effect whose interaction is not told apart.
    pub nr_pairs_left_out: usize,
    /// Metrics that need a cost that is not known.
    pub not_known: Vec<String>,
}

/// Rules that are changed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Switch {
    /// The rules: one, unless it cannot be changed alone.
    pub rules: Vec<Rule>,
    /// First version known to have the newer value of the last of them; `None`: an edit.
    pub since: Option<String>,
    /// The commit, where it is known.
    pub commit: Option<String>,
    /// Whether the newer value is taken away.
    pub is_undone: bool,
    /// Whether it changes any result.
    pub has_effect: bool,
}

/// One rule that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its name in a kernel file.
    pub rule: String,
    /// Its value in the first kernel.
    pub from: String,
    /// Its value in the second kernel.
    pub to: String,
}

/// A result that differs, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// As in the CSV.
    pub metric: String,
    /// As in the CSV.
    pub folio_bytes: Option<u64>,
    /// As in the CSV.
    pub unit: &'static str,
    /// Under the first kernel.
    pub before: i128,
    /// Under the second.
    pub after: i128,
    /// `after - before`.
    pub difference: i128,
    /// Of the switches that change it.
    pub effects: Vec<Effect>,
    /// Of pairs of switches, those that are not 0.
    pub interactions: Vec<sim::Interaction>,
    /// What all other interactions add up to.
    pub together: i128,
}

/// By how much a switch changes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Effect {
    /// Which.
    pub switch: usize,
    /// Set alone in the first kernel.
    pub alone: i128,
    /// What the second kernel has of it that it does not have without the switch.
    pub left_out: i128,
    /// Set after those that came before it.
    pub in_order: i128,
}

impl Why {
    /// The results to show, in the order in which they were asked for.
    pub fn shown(&self) -> impl Iterator<Item = (usize, &Explained)> {
        let has_total = self.results.iter().any(|result| result.metric == "time_total");
        let is_shown = move |name: &&String| name.as_str() != "time_known" || !has_total;
        self.shown.iter().filter(is_shown).flat_map(|name| {
            self.results.iter().enumerate().filter(move |(_, result)| result.metric == *name)
        })
    }

    /// What the interactions are called that are not told apart.
    #[must_use]
    pub const fn together(&self) -> &'static str {
        if self.nr_pairs_left_out == 0 { "three or more together" } else { "other rules together" }
    }

    /// Switches that change no result.
    #[must_use]
    pub fn nr_idle(&self) -> usize {
        self.switches.iter().filter(|switch| !switch.has_effect).count()
    }
}

impl Switch {
    pub(crate) fn new(switch: &sim::Switch, has_effect: bool) -> Self {
        let rule = |change: &largefolio_sim::kernel::Change| Rule {
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

    /// Its rules by name.
    #[must_use]
    pub fn name(&self) -> String {
        self.rules.iter().map(|rule| rule.rule.as_str()).collect::<Vec<_>>().join(" + ")
    }

    /// Its rules with their values.
    #[must_use]
    pub fn change(&self) -> String {
        let of = |rule: &Rule| format!("{}: {} -> {}", rule.rule, rule.from, rule.to);
        self.rules.iter().map(of).collect::<Vec<_>>().join(" + ")
    }

    /// Its rules, and where they come from: `fault.exec (since 6.17)`.
    #[must_use]
    pub fn with_origin(&self) -> String {
        let origin = match (&self.since, self.is_undone) {
            (None, _) => "an edit".to_owned(),
            (Some(version), true) => format!("of {version}, taken away"),
            (Some(version), false) => format!("since {version}"),
        };
        format!("{} ({origin})", self.name())
    }

    /// Where it comes from: `6.17`, `not 6.17` where that is undone, `edit`.
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
    /// How sentences and headings call it.
    #[must_use]
    pub fn name(&self) -> String {
        let headline = HEADLINES.iter().find(|(metric, _)| *metric == self.metric);
        let name = headline.map_or(self.metric.as_str(), |(_, name)| name);
        match self.folio_bytes {
            Some(bytes) => format!("{name} {}", crate::figures::size(bytes)),
            None => name.to_owned(),
        }
    }
}
