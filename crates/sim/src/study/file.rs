//! What a study says: cells and benches by name, tables of rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::curve::Curve;
use super::frontier::Frontier;
use super::metric::Metric;
use super::model::Model;
use super::parts::Input;
use crate::replay::{Budget, CellSpec};

/// A published table beside what this model gives.
#[derive(Clone, Debug)]
pub struct Study {
    /// Short name: that of the file without `.toml`.
    pub name: String,
    /// One line for a list of studies.
    pub title: String,
    /// Where the published table stands.
    pub source: String,
    /// On what it was obtained.
    pub setup: String,
    /// What the table is called that ours is compared with: published, or measured here.
    pub reference: String,
    /// What of the published work the inputs of ours hold.
    pub rests_on: Option<String>,
    /// File of the study, in errors.
    pub origin: String,
    /// What is run, by name.
    pub(super) cells: BTreeMap<String, Source>,
    /// What is measured on the running kernel, by name.
    pub(super) benches: BTreeMap<String, Bench>,
    /// Tables in the order of the file.
    pub tables: Vec<Table>,
    /// Programs below limits, in the order of the file.
    pub curves: Vec<Curve>,
    /// Kernels over many programs, in the order of the file.
    pub frontiers: Vec<Frontier>,
}

/// Where the numbers of a cell come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A trace under a kernel, on a machine.
    Replay(Input, Box<CellSpec>),
    /// The memory manager alone.
    Model(Model),
}

/// One published table.
#[derive(Clone, Debug)]
pub struct Table {
    /// What it shows, published and ours.
    pub title: String,
    /// Rows in the order of the file.
    pub rows: Vec<Row>,
}

/// A row: a pair of published numbers beside a pair of ours.
#[derive(Clone, Debug)]
pub struct Row {
    /// What the numbers are of.
    pub what: String,
    /// Published numbers, where there are any.
    pub published: Option<Published>,
    /// Unit of the published numbers.
    pub unit: String,
    /// Unit of our numbers, where it is another.
    pub ours_unit: String,
    /// How two numbers are compared.
    pub change: Change,
    /// A smaller change counts as none: what the published table resolves.
    pub same_within: f64,
    /// Where ours come from.
    pub ours: Ours,
    /// The basis that the file declares; the rest follows from `ours`.
    pub basis: Vec<Basis>,
    /// Which of our inputs are the series' own numbers.
    pub inputs_of_series: Option<String>,
    /// Our quantity, if the published one is another.
    pub other_quantity: Option<String>,
    /// Why the distance is what it is.
    pub reason: Option<String>,
    /// Why ours goes another way.
    pub disagrees: Option<String>,
}

/// How a change is expressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// `(after / before - 1) * 100`.
    #[default]
    Percent,
    /// `after - before`: of shares, in percentage points.
    Points,
    /// Percent, where a rate was published and ours is a time: `(before / after - 1) * 100` of
    /// ours.
    Speed,
}

/// Published numbers: one or both of a pair, or the change alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Published {
    /// Without the change under study.
    pub before: Option<f64>,
    /// With the change under study.
    pub after: Option<f64>,
    /// The change as printed, where the numbers were not.
    pub change: Option<f64>,
    /// Spread of the published numbers, as printed.
    pub spread: Option<String>,
    /// As printed, where that is not a number ("up to", "about").
    pub text: Option<String>,
}

impl Published {
    pub(super) fn numbers(&self) -> impl Iterator<Item = f64> {
        [self.before, self.after, self.change].into_iter().flatten()
    }
}

/// Where the numbers of a row come from.
#[derive(Clone, Debug)]
pub enum Ours {
    /// A number of one or two cells.
    Cells {
        /// Number that is read from both cells.
        metric: Metric,
        /// Cell without the change; absent in a row of one number.
        before: Option<String>,
        /// Cell with the change.
        after: String,
    },
    /// Measured on the running kernel, or quoted.
    Bench {
        /// Bench without the change.
        before: String,
        /// Bench with the change.
        after: String,
        /// The last figures, where nothing is measured now.
        quoted: Option<Quoted>,
    },
    /// Nothing here gives this number.
    None(String),
}

/// Something that can be timed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bench {
    /// Operation that is timed.
    #[serde(rename = "do")]
    pub work: BenchWork,
    /// Folio size, or bytes cleared in one go.
    #[serde(with = "super::parts::bytes")]
    pub size: u64,
    /// The running kernel, or code of this program.
    #[serde(default)]
    pub subject: Subject,
}

/// What a bench does.
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
    /// The same after the child has ended; ns per 4 KiB.
    StoreChildGone,
}

/// Who does what a bench times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum Subject {
    /// The running kernel.
    #[default]
    Host,
    /// The model under the rules of a kernel. Where memory is cleared: `page-at-a-time` and
    /// `in-one-go` by the kernel's instruction, `chosen` by this project's choice.
    Named(String),
}

impl From<String> for Subject {
    fn from(name: String) -> Self {
        if name == "this kernel" { Self::Host } else { Self::Named(name) }
    }
}

/// Medians measured earlier, in the row's unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quoted {
    /// Median without the change.
    pub before: f64,
    /// With the change under study.
    pub after: f64,
    /// The document that has them.
    pub from: String,
    /// Processor they were measured on.
    pub cpu: String,
    /// Kernel they were measured under.
    pub kernel: String,
    /// Rounds the medians are of.
    pub n: u32,
    /// Day, where the document has it.
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
    /// Lets every trace cause as much work as `budget` says.
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

    /// Benches of the rows that have them, with the row: `(table, row, before, after)`.
    pub fn benches(&self) -> impl Iterator<Item = ((usize, usize), &Bench, &Bench)> {
        let rows = self.tables.iter().enumerate().flat_map(|(table, tables)| {
            tables.rows.iter().enumerate().map(move |(nr, row)| ((table, nr), row))
        });
        rows.filter_map(|(at, row)| {
            let Ours::Bench { before, after, .. } = &row.ours else { return None };
            Some((at, self.benches.get(before)?, self.benches.get(after)?))
        })
    }

    /// Recorded traces the study replays, sorted.
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
