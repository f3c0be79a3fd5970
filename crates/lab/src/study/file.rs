//! The contents of a study: cells and benches by name, tables of rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::curve::Curve;
use super::frontier::Frontier;
use super::metric::Metric;
use super::model::Model;
use super::parts::Input;
use largefolio_sim::replay::{Budget, CellSpec};

#[derive(Clone, Debug)]
pub struct Study {
    /// Short name: the file name without `.toml`.
    pub name: String,
    pub title: String,
    pub source: String,
    /// Machine and software of the published numbers.
    pub setup: String,
    /// Word for the reference numbers: published, or measured here.
    pub reference: String,
    /// Parts of the published work that our inputs contain.
    pub rests_on: Option<String>,
    pub origin: String,
    pub(super) cells: BTreeMap<String, Source>,
    pub(super) benches: BTreeMap<String, Bench>,
    pub tables: Vec<Table>,
    pub curves: Vec<Curve>,
    pub frontiers: Vec<Frontier>,
}

#[derive(Clone, Debug)]
pub enum Source {
    Replay(Input, Box<CellSpec>),
    Model(Model),
}

#[derive(Clone, Debug)]
pub struct Table {
    pub title: String,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub what: String,
    pub published: Option<Published>,
    pub unit: String,
    pub ours_unit: String,
    pub change: Change,
    /// Resolution of the published table: a smaller change counts as none.
    pub same_within: f64,
    pub ours: Ours,
    pub in_kernel: Option<InKernel>,
    /// The basis declared by the file; the rest follows from `ours`.
    pub basis: Vec<Basis>,
    /// Our inputs that are the series' own numbers.
    pub inputs_of_series: Option<String>,
    /// Our quantity, if it differs from the published one.
    pub other_quantity: Option<String>,
    /// Explains the distance.
    pub reason: Option<String>,
    /// Explains why our number moves in another direction.
    pub disagrees: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// `(after / before - 1) * 100`.
    #[default]
    Percent,
    /// `after - before`: of shares, in percentage points.
    Points,
    /// Percent, if a rate was published and ours is a time: `(before / after - 1) * 100` of ours.
    Speed,
}

/// Published numbers: one or both of a pair, or only the change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Published {
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// The change as printed, if the numbers were not.
    pub change: Option<f64>,
    pub spread: Option<String>,
    /// Printed text that is not a number ("up to", "about").
    pub text: Option<String>,
}

impl Published {
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        [self.before, self.after, self.change].into_iter().flatten()
    }
}

/// Instructions of the operation, counted in kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InKernel {
    pub before: f64,
    pub after: f64,
    /// The unit, which no published table has: `instructions per store`.
    pub unit: String,
    /// Rows of `recordings/instructions`, before and after: `KERNEL:SETTINGS:OPERATION:KIB`.
    pub counted: [String; 2],
}

impl InKernel {
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        [self.before, self.after].into_iter()
    }

    /// The change in percent; `None` if it starts at 0.
    #[must_use]
    pub fn change(&self) -> Option<f64> {
        (self.before != 0.0).then(|| (self.after / self.before - 1.0) * 100.0)
    }
}

#[derive(Clone, Debug)]
pub enum Ours {
    Cells {
        metric: Metric,
        /// Cell without the change; absent in a row of one number.
        before: Option<String>,
        after: String,
    },
    Bench {
        before: String,
        after: String,
        /// Earlier results, used if nothing is measured now.
        quoted: Option<Quoted>,
    },
    /// This project has no such number; the text says why.
    None(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bench {
    #[serde(rename = "do")]
    pub work: BenchWork,
    /// Folio size, or bytes cleared in one piece.
    #[serde(with = "super::parts::bytes")]
    pub size: u64,
    #[serde(default)]
    pub subject: Subject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BenchWork {
    /// Demand faults: a fresh region, one store to every folio; GB/s.
    Fault,
    /// Zeroing cold memory; GB/s.
    Clear,
    /// fork; ns per 4 KiB.
    Fork,
    /// munmap; ns per 4 KiB.
    Munmap,
    /// A store to every page while a child shares them; ns per 4 KiB.
    StoreChildAlive,
    /// A store to every page after the child has exited; ns per 4 KiB.
    StoreChildGone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Subject {
    #[default]
    Host,
    /// The model under a kernel's rules. For clearing: `page-at-a-time` and `in-one-go` with the
    /// kernel's instruction, `chosen` with the instruction this project selects.
    Named(String),
}

impl From<String> for Subject {
    fn from(name: String) -> Self {
        if name == "this kernel" { Self::Host } else { Self::Named(name) }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quoted {
    pub before: f64,
    pub after: f64,
    pub from: String,
    pub cpu: String,
    pub kernel: String,
    pub n: u32,
    pub date: Option<String>,
    /// Smallest and largest change within a round, in percent.
    pub range: Option<[f64; 2]>,
}

impl Quoted {
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        [self.before, self.after].into_iter().chain(self.range.into_iter().flatten())
    }
}

impl Study {
    pub fn set_budget(&mut self, budget: Budget) {
        for source in self.cells.values_mut() {
            if let Source::Replay(_, spec) = source {
                spec.budget = budget;
            }
        }
        let of_curves = self.curves.iter_mut().flat_map(Curve::specs_mut);
        let of_frontiers = self.frontiers.iter_mut().flat_map(Frontier::specs_mut);
        for spec in of_curves.chain(of_frontiers) {
            spec.budget = budget;
        }
    }

    /// Returns the rows' benches: `(table, row), before, after`.
    pub fn benches(&self) -> impl Iterator<Item = ((usize, usize), &Bench, &Bench)> {
        let rows = self.tables.iter().enumerate().flat_map(|(table, tables)| {
            tables.rows.iter().enumerate().map(move |(nr, row)| ((table, nr), row))
        });
        rows.filter_map(|(at, row)| {
            let Ours::Bench { before, after, .. } = &row.ours else { return None };
            Some((at, self.benches.get(before)?, self.benches.get(after)?))
        })
    }

    #[must_use]
    pub fn traces(&self) -> Vec<&str> {
        let of_cells = self.cells.values().filter_map(|source| match source {
            Source::Replay(input, _) => Some(input),
            Source::Model(_) => None,
        });
        let of_frontiers = self.frontiers.iter().flat_map(|frontier| &frontier.programs);
        let inputs =
            of_cells.chain(self.curves.iter().map(|curve| &curve.input)).chain(of_frontiers);
        let mut traces: Vec<&str> = inputs
            .filter_map(|input| match input {
                Input::Recorded(name) => Some(name.as_str()),
                Input::Generated(_) => None,
            })
            .collect();
        traces.sort_unstable();
        traces.dedup();
        traces
    }
}
