//! `folio calibrate --check`: operations predicted with a machine file beside the same operations
//! measured.
//!
//! The predicted side runs the operation in the model under the rules of the kernel nearest to the
//! running one, counts events and prices them with the machine file; the measured side runs it here.
//! Nothing of a measurement goes into its own prediction but one thing, which is stated: what a call
//! of a stub takes apart from memory management (`stubs packed`) is measured in the same rounds.
//! Reading order: `model` (predicted), `host` (measured), `result`.

mod host;
mod model;
mod result;

use std::path::PathBuf;

use largefolio_linux::bench::anon::Operation;
use largefolio_linux::bench::stubs::Backing;
use largefolio_linux::calibrate::Effort;
use largefolio_linux::measure::{Series, Spread};
use largefolio_sim::cost::Walks;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;

use crate::{Error, running};

pub use result::CheckResult;

/// Largest distance of a predicted from a measured ratio of stubs.
const STUBS_BOUND: f64 = 0.15;
/// Of the other operations.
const ANON_BOUND: f64 = 0.25;
/// Folio sizes of anonymous memory, the reference first.
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 2 << 20];
/// Backings of stubs, the reference first.
const BACKINGS: [Backing; 3] = [Backing::CacheBase, Backing::CacheLarge, Backing::MemfdCollapsed];
/// Operations on anonymous memory.
const OPERATIONS: [(Operation, &str); 4] = [
    (Operation::Touch, "first touch"),
    (Operation::ForkBeyond, "fork, less fork without the region"),
    (Operation::Munmap, "munmap"),
    (Operation::CowCopy, "store, child alive"),
];

/// How much is compared.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Bytes of text.
    text_bytes: usize,
    /// Bytes of anonymous regions.
    region_bytes: usize,
    nr_calls: usize,
    nr_rounds: usize,
}

impl Extent {
    /// Regions are not those of the calibration: 384 MiB for walks and 2M folios, 192 MiB for the
    /// others.
    const fn new(effort: Effort) -> Self {
        match effort {
            Effort::Full => Self {
                text_bytes: 512 << 20,
                region_bytes: 256 << 20,
                nr_calls: 262_144,
                nr_rounds: 11,
            },
            Effort::Quick => {
                Self { text_bytes: 16 << 20, region_bytes: 16 << 20, nr_calls: 8192, nr_rounds: 2 }
            }
        }
    }
}

/// A phase of the stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Sweep of a fresh mapping, page cache warm.
    Mapped,
    /// Random calls, everything mapped.
    Random,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Mapped => "stubs, sweep of a fresh mapping",
            Self::Random => "stubs, random calls",
        }
    }
}

/// One operation on one size.
struct CheckRow {
    operation: &'static str,
    size: String,
    /// What one of it is.
    unit: &'static str,
    /// Nanoseconds of one; `None`: the machine file lacks a cost.
    predicted: Option<f64>,
    /// Causes of the prediction, for the reader of a miss.
    causes: String,
    measured: Series,
    bound: f64,
    /// Whether the others of the operation are compared with it.
    is_reference: bool,
}

/// A comparison that can be made.
pub struct CheckRequest {
    machine: Machine,
    kernel: Kernel,
    walks: Walks,
    extent: Extent,
    dir: PathBuf,
}

impl CheckRequest {
    /// With the machine that a user names, under the rules nearest to those of this kernel; `dir` has
    /// files that are executed.
    ///
    /// # Errors
    /// A machine that is not known.
    pub fn new(machine: &str, effort: Effort, dir: PathBuf) -> Result<Self, Error> {
        let machine = Machine::of_user(machine)?;
        let is_nested = machine.costs.walk_nested.is_some();
        Ok(Self {
            machine,
            kernel: running::nearest_rules()?,
            walks: if is_nested { Walks::Nested } else { Walks::Native },
            extent: Extent::new(effort),
            dir,
        })
    }

    /// Predicts, measures and compares; `progress` hears what is under way.
    ///
    /// # Errors
    /// What cannot be measured here or replayed.
    pub fn run(
        &self,
        command_line: Vec<String>,
        progress: &mut dyn FnMut(&'static str),
    ) -> Result<CheckResult, Error> {
        let mut notes: Vec<String> = self.kernel.note.iter().cloned().collect();
        progress("stubs");
        let mut rows = self.stubs(&mut notes)?;
        for (operation, name) in OPERATIONS {
            progress(name);
            rows.extend(self.anon(operation, name, &mut notes)?);
        }
        Ok(CheckResult::new(self, command_line, &rows, notes))
    }

    fn stubs(&self, notes: &mut Vec<String>) -> Result<Vec<CheckRow>, Error> {
        let (measured, more) = host::stubs(&self.extent, &self.dir)?;
        notes.extend(more);
        let base = Spread::of(&measured.packed.rounds_ns).map_or(0.0, |ns| ns.median);
        let mut rows = Vec::new();
        for (backing, phase, series) in measured.of {
            let estimate = model::stubs(self, backing, phase)?;
            let nr = match phase {
                Phase::Random => self.extent.nr_calls,
                Phase::Mapped => self.extent.text_bytes / 4096,
            };
            rows.push(CheckRow {
                operation: phase.name(),
                size: backing.name().to_owned(),
                unit: "call",
                predicted: estimate.ns.map(|ns| base + ns / model::float(nr)),
                causes: estimate.causes(nr),
                measured: series,
                bound: STUBS_BOUND,
                is_reference: backing == BACKINGS[0],
            });
        }
        rows.sort_by_key(|row| row.operation == Phase::Random.name());
        notes.push(format!(
            "stubs packed 64 to a page, {base:.1} ns a call, stand for the program's own time in \
             every prediction of stubs: the same number of cache lines, no faults, few pages"
        ));
        Ok(rows)
    }

    fn anon(
        &self,
        operation: Operation,
        name: &'static str,
        notes: &mut Vec<String>,
    ) -> Result<Vec<CheckRow>, Error> {
        let (measured, more) = host::anon(operation, &self.extent)?;
        notes.extend(more.into_iter().filter(|note| !notes.contains(note)).collect::<Vec<_>>());
        let nr_pages = self.extent.region_bytes / 4096;
        let mut rows = Vec::new();
        for (bytes, series) in measured {
            let estimate = model::anon(self, operation, bytes)?;
            rows.push(CheckRow {
                operation: name,
                size: String::from(largefolio_sim::machine::UnitBytes(bytes as u64)),
                unit: "4 KiB",
                predicted: estimate.ns.map(|ns| ns / model::float(nr_pages)),
                causes: estimate.causes(nr_pages),
                measured: series,
                bound: ANON_BOUND,
                is_reference: bytes == SIZES[0],
            });
        }
        Ok(rows)
    }
}
