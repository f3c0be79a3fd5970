//! The compared operations, with their memory and bounds.

use std::path::PathBuf;

use largefolio_linux::calibrate::stubs::Backing;
use largefolio_linux::calibrate::{AROUND_BYTES, Effort, TimedWork};
use largefolio_linux::measure::Series;
use largefolio_sim::cost::Walks;
use largefolio_sim::interval::Interval;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;

use crate::{Error, running};

/// The largest relative distance between predicted and measured ratio for stubs.
pub(super) const STUBS_BOUND: f64 = 0.15;
pub(super) const KERNEL_BOUND: f64 = 0.25;
pub(super) const BACKINGS: [Backing; 3] =
    [Backing::CacheBase, Backing::CacheLarge, Backing::MemfdCollapsed];
/// Folio sizes of most operations on anonymous memory, in base pages, the reference first. The
/// sizes of base pages and PMD entries are calibrated too, because neither has another size; the
/// others are not.
const SIZES: &[usize] = &[1, 16, 128, 512];
/// Sizes for copy-on-write, which is not calibrated.
const COW_SIZES: &[usize] = &[1, 4, 16, 512];
pub(super) const WORKS: [(TimedWork, &str, &[usize]); 5] = [
    (TimedWork::Touch, "first touch", SIZES),
    (TimedWork::ForkBeyond, "fork, less fork without the region", SIZES),
    (TimedWork::Munmap, "munmap", SIZES),
    (TimedWork::MunmapShared, "munmap, child alive", SIZES),
    (TimedWork::Cow, "store, child alive", COW_SIZES),
];
/// Returns the compared numbers of cached pages around a fault, the reference first. One and all
/// are also calibrated.
pub(super) fn cached_pages() -> Vec<usize> {
    let all = AROUND_BYTES >> running::page().shift();
    [1, 2, 4, 16].into_iter().filter(|nr| *nr <= all).collect()
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) text_bytes: usize,
    pub(super) region_bytes: usize,
    pub(super) nr_calls: usize,
    pub(super) nr_rounds: usize,
}

impl Extent {
    /// Uses other regions than the calibration, which has 384 MiB for walks and 2M folios and 192
    /// MiB for the others.
    pub(super) const fn new(effort: Effort) -> Self {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Mapped,
    Random,
}

impl Phase {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mapped => "stubs, sweep of a fresh mapping",
            Self::Random => "stubs, random calls",
        }
    }
}

pub(super) struct CheckRow {
    pub(super) operation: &'static str,
    pub(super) size: String,
    pub(super) unit: &'static str,
    /// Nanoseconds per unit; `None`: the machine file lacks a cost.
    pub(super) predicted: Option<f64>,
    /// The bounds; `None`: a cost has none.
    pub(super) interval: Option<Interval>,
    pub(super) causes: String,
    pub(super) measured: Series,
    pub(super) bound: f64,
    pub(super) is_reference: bool,
}

pub struct CheckRequest {
    pub(super) machine: Machine,
    pub(super) kernel: Kernel,
    pub(super) walks: Walks,
    pub(super) extent: Extent,
    pub(super) dir: PathBuf,
}

impl CheckRequest {
    /// Prepares a comparison with the named machine, under the rules closest to this kernel. `dir`
    /// is for files that are executed.
    ///
    /// # Errors
    /// If the machine is not known.
    pub fn new(machine: &str, effort: Effort, dir: PathBuf) -> Result<Self, Error> {
        let machine = Machine::of_user(machine)?;
        Ok(Self {
            kernel: running::nearest_rules()?,
            walks: Walks::Native.on(&machine),
            machine,
            extent: Extent::new(effort),
            dir,
        })
    }
}
