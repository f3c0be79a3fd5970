//! `folio calibrate --check`: operations predicted with a machine file, compared with measurements.
//!
//! The predicted side runs the operation in the model under the rules closest to the running
//! kernel, and prices the events with the machine file. The measured side runs it here. One
//! measurement enters the prediction, as the result states: the time of a stub call without memory
//! management (`stubs packed`), measured in the same rounds. Reading order: `setup` (the
//! comparisons), `model` (predicted), `host` (measured), `result`.

mod host;
mod model;
mod result;
mod setup;

use largefolio_linux::calibrate::{AROUND_BYTES, Effort, TimedWork};
use largefolio_linux::measure::{Series, Spread};
use largefolio_linux::verify::rounds::NR_ROUNDS_MIN;

use self::host::Measured;
use self::setup::{BACKINGS, CheckRow, Extent, KERNEL_BOUND, Phase, STUBS_BOUND, WORKS};
use crate::{Error, running};

pub use result::CheckResult;
pub use setup::CheckRequest;

impl CheckRequest {
    /// Predicts, measures and compares. `progress` receives the current step.
    ///
    /// # Errors
    /// If something cannot be measured here or replayed.
    pub fn run(
        &self,
        command_line: Vec<String>,
        progress: &mut dyn FnMut(&'static str),
    ) -> Result<CheckResult, Error> {
        let mut notes: Vec<String> = self.kernel.note.iter().cloned().collect();
        progress("stubs");
        let mut rows = self.stubs(&mut notes)?;
        progress("faults, fork and unmapping");
        let measured = host::measure(&self.extent)?;
        notes.push(measured.pace.note());
        if self.extent.nr_rounds < NR_ROUNDS_MIN {
            notes.push(format!(
                "{} rounds reveal only gross errors: a MISS can be due to chance; without --quick, \
                 there are {} rounds",
                self.extent.nr_rounds,
                Extent::new(Effort::Full).nr_rounds
            ));
        }
        notes.extend(measured.notes.iter().cloned());
        for (work, operation, _) in WORKS {
            for (_, bytes, series) in measured.of.iter().filter(|(of, ..)| *of == work) {
                rows.push(self.anon(work, operation, *bytes, series)?);
            }
        }
        rows.extend(self.faults(&measured)?);
        Ok(CheckResult::new(self, command_line, &rows, measured.pace, notes))
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
                Phase::Mapped => self.extent.text_bytes >> running::page().shift(),
            };
            let (predicted, interval, causes) = estimate.each(nr, base);
            rows.push(CheckRow {
                operation: phase.name(),
                size: backing.name().to_owned(),
                unit: "call",
                predicted,
                interval,
                causes,
                measured: series,
                bound: STUBS_BOUND,
                is_reference: backing == BACKINGS[0],
            });
        }
        rows.sort_by_key(|row| row.operation == Phase::Random.name());
        notes.push(format!(
            "stubs packed 64 to a page, {base:.1} ns per call, represent the program's own time in \
             every prediction for stubs: they use the same number of cache lines but few pages, \
             and cause no faults"
        ));
        Ok(rows)
    }

    fn anon(
        &self,
        work: TimedWork,
        operation: &'static str,
        bytes: usize,
        series: &Series,
    ) -> Result<CheckRow, Error> {
        let nr_units = self.extent.region_bytes / 4096;
        let (predicted, interval, causes) = model::anon(self, work, bytes)?.each(nr_units, 0.0);
        Ok(CheckRow {
            operation,
            size: String::from(largefolio_sim::machine::UnitBytes(bytes as u64)),
            unit: "4 KiB",
            predicted,
            interval,
            causes,
            measured: series.clone(),
            bound: KERNEL_BOUND,
            is_reference: bytes as u64 == running::page().bytes(),
        })
    }

    fn faults(&self, measured: &Measured) -> Result<Vec<CheckRow>, Error> {
        let nr_faults = self.extent.region_bytes / AROUND_BYTES;
        let row = |(nr_cached, series): &(usize, Series)| {
            let (predicted, interval, causes) =
                model::faults(self, *nr_cached)?.each(nr_faults, 0.0);
            Ok(CheckRow {
                operation: "read fault, cached file pages, by their number in 64 KiB",
                size: nr_cached.to_string(),
                unit: "fault",
                predicted,
                interval,
                causes,
                measured: series.clone(),
                bound: KERNEL_BOUND,
                is_reference: *nr_cached == 1,
            })
        };
        measured.faults.iter().map(row).collect()
    }
}
