//! Measures this machine's costs for a machine file.
//!
//! Reading order: [`cpu`](Cpu) (the CPU's own data), `curve` (translation), `step` (the steps of a
//! curve), `loads` (cache lines and overlapping walks), `rounds` (which rounds count),
//! [`work`](Work) (one operation), `operations` (many of them), `kernel` (faults, fork, unmapping),
//! `storage`, [`Calibration`]. They use [`anon`] (anonymous memory by folio size), [`mod@clear`]
//! (clearing and copying in user space) and [`stubs`] (calls to one instruction per page).
//!
//! Everything is measured in interleaved rounds. A [`Figure`] is the median of rounds with its
//! spread. `docs/design/calibration.md` explains each figure and its accuracy.

pub mod anon;
mod cached;
pub mod clear;
mod cpu;
mod curve;
mod kernel;
mod loads;
mod operations;
mod returned;
mod rounds;
mod step;
mod storage;
pub mod stubs;
mod work;

use std::path::Path;

use largefolio_bulk::{Primitive, Tuning};

pub use cached::AROUND_BYTES;
pub use cpu::{Cpu, Structure, TlbLevel, fastest_clock_ghz};
pub use curve::{Curve, HostLines, Pages, Side};
pub use kernel::{KernelCosts, REGION_BYTES, SIZES_PAGES};
pub use loads::{LineCosts, WalkShares};
pub use operations::{OfSize, Operations, Times, allowed, operations};
pub use rounds::{CLOCK_WITHIN, Pace, Until};
pub use step::{Bracket, Point, solve, step_within};
pub use storage::Storage;
pub use work::TimedWork;

use self::anon::BenchError;
use self::clear::{Arena, Cell, PAGEWISE};
use self::stubs::StubsError;
use crate::geometry::{Geometry, page_bytes};
use crate::proc::host;
pub use crate::proc::host::Caches;
use crate::setting::thp::size_name;
use crate::system::Live;

use crate::measure::Spread;
use crate::measure::counters::Counting;

#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    #[error(transparent)]
    Stubs(#[from] StubsError),
    #[error(transparent)]
    Bench(#[from] BenchError),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub ns: Spread,
    pub how: String,
}

impl Figure {
    /// Computes the cost per unit from rounds that took `rounds_ns` for `nr` units each. Returns
    /// `None` unless the median is finite and above 0.
    #[must_use]
    pub fn of(rounds_ns: &[f64], nr: usize, how: &str) -> Option<Self> {
        let each: Vec<f64> = rounds_ns.iter().map(|ns| ns / count(nr.max(1))).collect();
        let ns = Spread::of(&each).filter(|ns| ns.median.is_finite() && ns.median > 0.0)?;
        Some(Self { ns, how: how.to_owned() })
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of this module are below 2^40")]
pub(crate) const fn count(nr: usize) -> f64 {
    nr as f64
}

const NO_COUNTERS: &str = "hardware counters: the hypervisor or kernel.perf_event_paranoid hides \
                           them (docs/reference/record.md#hardware-counters)";
/// Memory in which the page frames are counted.
const HOST_LINES_BYTES: usize = 64 << 20;
/// Largest working set of a curve in bytes: 98,304 pages of 4K.
const CURVE_BYTES_MAX: usize = 384 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// A few seconds: wide brackets, few rounds.
    Quick,
    /// A few minutes.
    Full,
}

impl Effort {
    /// Returns the rounds of all measurements that are not a difference of times.
    #[must_use]
    pub const fn nr_rounds(self) -> usize {
        match self {
            Self::Quick => 3,
            Self::Full => 9,
        }
    }

    /// Returns the rounds of faults, fork and unmapping: their costs are differences of times.
    const fn kernel_rounds(self) -> Until {
        match self {
            Self::Quick => Until::Counted(3),
            Self::Full => Until::Agree(6),
        }
    }

    const fn part(self) -> usize {
        match self {
            Self::Quick => 8,
            Self::Full => 1,
        }
    }

    /// Returns the working sets of the curves in pages, limited to the same bytes with larger base
    /// pages. The last one measures the cost of a walk: random references over 384 MiB, whose page
    /// table exceeds a level-2 cache. The check's region is 512 MiB.
    fn working_sets(self) -> Vec<usize> {
        const QUICK: [usize; 12] = [8, 32, 48, 64, 80, 128, 512, 1024, 2048, 3072, 4096, 16384];
        const FULL: [usize; 42] = [
            8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384,
            448, 512, 576, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2304, 2560, 2816, 3072,
            3584, 4096, 6144, 8192, 16384, 49152, 98304,
        ];
        match self {
            Self::Quick => QUICK.to_vec(),
            Self::Full => FULL.to_vec(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rate {
    pub unit_bytes: usize,
    pub figure: Figure,
}

#[derive(Clone, Debug, Default)]
pub struct MapcountCosts {
    pub page: Option<Figure>,
    /// A call that changes an owner word.
    pub owner_word: Option<Figure>,
}

#[derive(Clone, Debug, Default)]
pub struct Calibration {
    pub cpu: Cpu,
    pub clock_ghz: Option<Spread>,
    pub curves: Vec<Curve>,
    pub caches: Caches,
    pub lines: LineCosts,
    /// Shares of a walk that delay the program.
    pub walk_shares: WalkShares,
    pub kernel: KernelCosts,
    /// Map counts and owner words. Empty here, because measuring them needs the model's code.
    pub mapcounts: MapcountCosts,
    pub clear: Vec<Rate>,
    /// First touch of a PMD folio, if the host must back its memory again.
    pub returned: Option<Figure>,
    pub copy: Vec<Rate>,
    pub storage: Storage,
    /// How widely new base pages are spread over the host's table.
    pub host_lines: Option<HostLines>,
    pub missing: Vec<String>,
}

impl Calibration {
    /// Measures everything. Files on disk are made in `dir`. `progress` receives the name of each
    /// next step.
    ///
    /// # Errors
    /// If not even base pages can be measured. Other failures are in `missing`.
    pub fn run(
        effort: Effort,
        dir: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Self, CalibrateError> {
        let caches = host::caches(&Live);
        let mut calibration = Self { cpu: Cpu::detect(), caches, ..Self::default() };
        // First, because memory that other steps free is in better order than a program's.
        match HostLines::of_fresh(HOST_LINES_BYTES / effort.part()) {
            Ok(host_lines) => calibration.host_lines = host_lines,
            Err(error) => calibration.missing.push(format!("lines of the host's table: {error}")),
        }
        // Next, because the guest takes minutes to return the memory that other steps free.
        progress("memory returned to the host");
        match returned::measure(effort.nr_rounds().div_ceil(3)) {
            Ok(returned) => calibration.returned = returned,
            Err(error) => calibration.missing.push(format!("memory returned to a host: {error}")),
        }
        progress("faults, fork and unmapping");
        calibration.kernel = kernel::measure(effort.kernel_rounds(), effort.part())?;
        calibration.clock_ghz = calibration.kernel.pace.as_ref().map(|pace| pace.clock_ghz);
        calibration.missing.append(&mut calibration.kernel.missing);
        progress("clearing and copying");
        (calibration.clear, calibration.copy) = rates(effort)?;
        progress("reads");
        match storage::measure(dir, (64 << 20) / effort.part(), effort.nr_rounds()) {
            Ok(storage) => calibration.storage = storage,
            Err(error) => calibration.missing.push(format!("storage: {error}")),
        }
        for (side, name) in [(Side::Data, "data"), (Side::Instruction, "instruction")] {
            progress(&format!("{name} translation"));
            calibration.add_curves(effort, side, name, dir);
        }
        progress("lines and walks");
        match loads::lines(caches, effort.nr_rounds(), effort.part()) {
            Ok(lines) => calibration.lines = lines,
            Err(error) => calibration.missing.push(format!("latency of caches: {error}")),
        }
        match loads::shares(effort.nr_rounds(), effort.part(), dir) {
            Ok(shares) => calibration.walk_shares = shares,
            Err(error) => calibration.missing.push(format!("overlap of walks: {error}")),
        }
        if Counting::start().is_none() {
            calibration.missing.push(NO_COUNTERS.to_owned());
        }
        Ok(calibration)
    }

    fn add_curves(&mut self, effort: Effort, side: Side, name: &str, dir: &Path) {
        let mut sets = effort.working_sets();
        sets.retain(|nr| nr.saturating_mul(page_bytes()) <= CURVE_BYTES_MAX);
        match curve::measure(side, &sets, effort.nr_rounds(), dir) {
            Ok((curves, missing)) => {
                self.curves.extend(curves);
                let pmd = size_name(Geometry::running().pmd_bytes());
                let of = |why| format!("{name} translation of {pmd} folios: {why}");
                self.missing.extend(missing.map(of));
            }
            Err(error) => self.missing.push(format!("{name} translation: {error}")),
        }
    }

    #[must_use]
    pub fn curve(&self, side: Side, pages: Pages) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.side == side && curve.pages == pages)
    }
}

fn rates(effort: Effort) -> Result<(Vec<Rate>, Vec<Rate>), CalibrateError> {
    let units: &[usize] = match effort {
        Effort::Quick => &[4 << 10],
        Effort::Full => &[4 << 10, 64 << 10, 2 << 20],
    };
    let arena_bytes = (256 << 20) / effort.part();
    let mut arena = Arena::new(arena_bytes, arena_bytes)?;
    let nr_rounds = effort.nr_rounds().min(5);
    let mut of = |work, what: &str| {
        let mut rates = Vec::new();
        for &unit_bytes in units {
            let cell = Cell { work, len_bytes: unit_bytes, is_hot: false };
            let series = cell.measure(&mut arena, Tuning::host(), nr_rounds);
            let by = |which: Primitive| {
                series.iter().find(|(subject, _)| *subject == clear::Subject::Whole(which))
            };
            let Some((_, series)) = by(PAGEWISE).or_else(|| by(Primitive::Portable)) else {
                continue;
            };
            let how = format!("{what} in user space, cold, by the kernel's method");
            let figure = Figure::of(&series.rounds_ns, cell.moved_bytes() / unit_bytes, &how);
            rates.extend(figure.map(|figure| Rate { unit_bytes, figure }));
        }
        rates
    };
    Ok((of(clear::ClearWork::Clear, "clearing"), of(clear::ClearWork::Copy, "copying")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cost_is_no_figure() {
        for bad in [f64::NAN, f64::INFINITY, 0.0, -3.0] {
            assert_eq!(Figure::of(&[bad, bad], 1, "x"), None, "{bad}");
        }
        assert_eq!(Figure::of(&[], 1, "x"), None);
        let figure = Figure::of(&[20.0, 40.0, 30.0], 10, "x").unwrap();
        assert!((figure.ns.median - 3.0).abs() < 1e-12 && figure.ns.n == 3);
    }
}
