//! `folio calibrate --check`: operations predicted with a machine file beside the same operations
//! measured.
//!
//! The predicted side runs the operation in the model under the rules of the kernel nearest to the
//! running one, counts events and prices them with the machine file; the measured side runs it
//! here. A measurement enters its own prediction in only one way, which is stated: the time of a
//! stub call without memory management (`stubs packed`) is measured in the same rounds. Reading
//! order: `setup` (what is compared), `model` (predicted), `host` (measured), `result`.

mod host;
mod model;
mod result;
mod setup;

use largefolio_linux::bench::anon::Operation;
use largefolio_linux::measure::Spread;

use self::setup::{ANON_BOUND, BACKINGS, CheckRow, OPERATIONS, Phase, SIZES, STUBS_BOUND};
use crate::Error;

pub use result::CheckResult;
pub use setup::CheckRequest;

impl CheckRequest {
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
            "stubs packed 64 to a page, {base:.1} ns per call, represent the program's own time in \
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
