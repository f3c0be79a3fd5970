//! What to replay a trace under: kernel, machine, state of memory, and how much it may take.

use largefolio_mm::buddy::Ageing;
use largefolio_mm::units::PageSize;
use serde::{Deserialize, Serialize};

use super::annotate::Annotation;
use super::budget::Budget;
use super::cgroup::Cgroup;
use super::clock::NS_PER_REFERENCE;
use super::fragmented::Fragmented;
use super::linked::Linked;
use crate::cost::Walks;
use crate::kernel::Kernel;
use crate::machine::{Machine, NR_CPUS_MAX};

/// State of the page cache when the program starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    /// Empty.
    #[default]
    Cold,
    /// As an earlier run of the same program left it.
    Warm,
}

impl CacheState {
    /// Name in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// What to replay a trace under.
#[derive(Clone, Debug)]
pub struct CellSpec {
    /// Kernel, at the base page it was asked for with.
    pub kernel: Kernel,
    /// Machine, at its own base page size.
    pub machine: Machine,
    /// Page cache at the start.
    pub cache: CacheState,
    /// Seed of the initial state of memory.
    pub seed: u64,
    /// Physical memory in bytes.
    pub ram_bytes: u64,
    /// Swap space in bytes; 0: anonymous memory is not reclaimed.
    pub swap_bytes: u64,
    /// Limits of control groups, the last that fits a program first.
    pub cgroups: Vec<Cgroup>,
    /// How fragmented memory is at the start.
    pub fragmentation: Fragmented,
    /// Rounds in which other programs wore memory down before; 0 = none.
    pub aged_rounds: u32,
    /// Filesystem of every file, instead of the recorded ones.
    pub filesystem: Option<String>,
    /// Folio sizes that the loader asks for, the last that fits a file first.
    pub annotations: Vec<Annotation>,
    /// Pages that images are linked for, the last that fits an image first.
    pub linked: Vec<Linked>,
    /// Nanoseconds of a reference on khugepaged's clock; 0 = it never runs.
    pub ns_per_reference: u64,
    /// CPUs that threads run on, instead of the machine's.
    pub nr_cpus: Option<u32>,
    /// Which walks the time estimate assumes.
    pub walks: Walks,
    /// Runs of folios that the outcome's detail may have; 0 = no detail is kept.
    pub detail_runs_max: u32,
    /// How much the replay may do and hold.
    pub budget: Budget,
}

/// Filesystem whose folio sizes ageing uses where every file keeps its own.
const AGED_FILESYSTEM: &str = "xfs";

impl CellSpec {
    /// A cold cell with 16 GiB of unfragmented memory.
    #[must_use]
    pub fn new(kernel: Kernel, machine: Machine) -> Self {
        let (cache, seed, ram_bytes) = (CacheState::Cold, 1, 16 << 30);
        Self {
            kernel,
            machine,
            cache,
            seed,
            ram_bytes,
            swap_bytes: 0,
            cgroups: Vec::new(),
            fragmentation: Fragmented::default(),
            aged_rounds: 0,
            filesystem: None,
            annotations: Vec::new(),
            linked: Vec::new(),
            ns_per_reference: NS_PER_REFERENCE,
            nr_cpus: None,
            walks: Walks::Native,
            detail_runs_max: 0,
            budget: Budget::default(),
        }
    }

    /// Ageing with the folio sizes that the kernel gives to the files of the cell; those of XFS
    /// where each file has its own filesystem.
    pub(super) fn ageing(&self) -> Ageing {
        let rules = &self.kernel.rules;
        let filesystem = self.filesystem.as_deref().unwrap_or(AGED_FILESYSTEM);
        let max = rules.order_range(filesystem).max;
        let sizes = rules.sizes.orders(filesystem, rules.page, max);
        let orders = sizes.exec.map_or(sizes.always, |exec| sizes.always.with(exec));
        let orders = orders.below(max.raised(1));
        Ageing { seed: self.seed, rounds: self.aged_rounds, orders }
    }

    /// CPUs that threads run on: as asked for, else the machine's, else one for every thread.
    #[must_use]
    pub fn nr_cpus(&self) -> u32 {
        let of_machine = self.machine.nr_cpus.as_ref().map(|cpus| cpus.value);
        self.nr_cpus.or(of_machine).unwrap_or(NR_CPUS_MAX)
    }

    /// The base page: the kernel's where it was asked for, else the machine's.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        if self.kernel.is_page_given { self.kernel.rules.page } else { self.machine.page_size }
    }
}
