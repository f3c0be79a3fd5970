//! What is compared, on how much memory, within which bounds.

use std::path::PathBuf;

use largefolio_linux::bench::stubs::Backing;
use largefolio_linux::calibrate::{AROUND_BYTES, Effort, Work};
use largefolio_linux::measure::Series;
use largefolio_sim::cost::Walks;
use largefolio_sim::interval::Interval;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;

use crate::{Error, running};

/// Largest distance of a predicted from a measured ratio of stubs.
pub(super) const STUBS_BOUND: f64 = 0.15;
/// Of the other operations.
pub(super) const KERNEL_BOUND: f64 = 0.25;
/// Backings of stubs, the reference first.
pub(super) const BACKINGS: [Backing; 3] =
    [Backing::CacheBase, Backing::CacheLarge, Backing::MemfdCollapsed];
/// Folio sizes of most operations on anonymous memory, in base pages and the reference first. Base
/// pages and PMD entries have no other size, so those are calibrated as well; the others are not.
const SIZES: &[usize] = &[1, 16, 128, 512];
/// Of copy-on-write, of which nothing is calibrated.
const COW_SIZES: &[usize] = &[1, 4, 16, 512];
/// Operations on anonymous memory, and their sizes in base pages.
pub(super) const WORKS: [(Work, &str, &[usize]); 5] = [
    (Work::Touch, "first touch", SIZES),
    (Work::ForkBeyond, "fork, less fork without the region", SIZES),
    (Work::Munmap, "munmap", SIZES),
    (Work::MunmapShared, "munmap, child alive", SIZES),
    (Work::Cow, "store, child alive", COW_SIZES),
];
/// Cached pages of those that fault-around looks at, the reference first. One and all are calibrated.
pub(super) fn cached_pages() -> Vec<usize> {
    let all = AROUND_BYTES >> running::page().shift();
    [1, 2, 4, 16].into_iter().filter(|nr| *nr <= all).collect()
}

/// How much is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Bytes of text.
    pub(super) text_bytes: usize,
    /// Bytes of anonymous regions.
    pub(super) region_bytes: usize,
    pub(super) nr_calls: usize,
    pub(super) nr_rounds: usize,
}

impl Extent {
    /// Regions are not those of the calibration: 384 MiB for walks and 2M folios, 192 MiB for the
    /// others.
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

/// A phase of the stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Sweep of a fresh mapping, page cache warm.
    Mapped,
    /// Random calls, everything mapped.
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

/// One operation on one size.
pub(super) struct CheckRow {
    pub(super) operation: &'static str,
    pub(super) size: String,
    /// What one of it is.
    pub(super) unit: &'static str,
    /// Nanoseconds of one; `None`: the machine file lacks a cost.
    pub(super) predicted: Option<f64>,
    /// Its bounds; `None`: a cost has none.
    pub(super) interval: Option<Interval>,
    /// Causes of the prediction, for the reader of a miss.
    pub(super) causes: String,
    pub(super) measured: Series,
    pub(super) bound: f64,
    /// Whether the others of the operation are compared with it.
    pub(super) is_reference: bool,
}

/// A comparison that can be made.
pub struct CheckRequest {
    pub(super) machine: Machine,
    pub(super) kernel: Kernel,
    pub(super) walks: Walks,
    pub(super) extent: Extent,
    pub(super) dir: PathBuf,
}

impl CheckRequest {
    /// With the machine that a user names, under the rules nearest to those of this kernel; `dir` has
    /// files that are executed.
    ///
    /// # Errors
    /// A machine that is not known.
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
