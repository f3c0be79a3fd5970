//! The settings of one cell: kernel, machine, state of memory, and budget.

use largefolio_mm::buddy::Ageing;
use largefolio_mm::units::PageSize;
use serde::{Deserialize, Serialize};

use crate::cost::{Anchor, Walks};
use crate::kernel::Kernel;
use crate::machine::{Machine, NR_CPUS_MAX};
use crate::replay::hardware::clock::NS_PER_REFERENCE;
use crate::replay::program::linked::Linked;
use crate::replay::request::allocator::Allocator;
use crate::replay::request::annotate::Annotation;
use crate::replay::request::budget::Budget;
use crate::replay::request::cgroup::Cgroup;
use crate::replay::request::changes::SettingChange;
use crate::replay::request::fragmented::Fragmented;
use crate::replay::request::numa::Numa;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheState {
    #[default]
    Cold,
    Warm,
}

impl CacheState {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

#[derive(Clone, Debug)]
pub struct CellSpec {
    pub kernel: Kernel,
    pub machine: Machine,
    pub cache: CacheState,
    pub seed: u64,
    pub ram_bytes: u64,
    /// Swap space in bytes; 0 = anonymous memory is not reclaimed.
    pub swap_bytes: u64,
    /// Cgroup limits. If several match a program, the last one applies.
    pub cgroups: Vec<Cgroup>,
    /// Settings that change during the replay.
    pub changes: Vec<SettingChange>,
    pub fragmentation: Fragmented,
    /// Rounds of ageing by other programs before the start; 0 = none.
    pub aged_rounds: u32,
    pub filesystem: Option<String>,
    /// Folio sizes that the loader requests. If several match a file, the last one applies.
    pub annotations: Vec<Annotation>,
    /// Page sizes that images are linked for. If several match an image, the last one applies.
    pub linked: Vec<Linked>,
    /// An allocator that asks for huge pages; `None` = as recorded.
    pub allocator: Option<Allocator>,
    pub ns_per_reference: u64,
    pub nr_cpus: Option<u32>,
    /// Where the program runs on a machine with nodes, and its policy.
    pub numa: Option<Numa>,
    /// The moment at which results count shared memory.
    pub shared_memory: SharedMoment,
    pub walks: Walks,
    /// The program's measured slope, if it was measured on the machine's CPU.
    pub anchor: Option<Anchor>,
    /// Maximum runs of folios in the outcome's detail; 0 = no detail.
    pub detail_runs_max: u32,
    /// Whether the outcome says where the page walks are.
    pub has_regions: bool,
    /// Whether the outcome says how long page faults take.
    pub has_fault_times: bool,
    pub budget: Budget,
}

/// When results count the shared memory of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedMoment {
    /// When most of it is mapped: servers unmap theirs before they end.
    #[default]
    Largest,
    /// At its end, as the last `smaps` shows it.
    End,
}

/// Ageing uses this filesystem's folio sizes if every file keeps its own filesystem.
const AGED_FILESYSTEM: &str = "xfs";

impl CellSpec {
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
            changes: Vec::new(),
            fragmentation: Fragmented::default(),
            aged_rounds: 0,
            filesystem: None,
            annotations: Vec::new(),
            linked: Vec::new(),
            allocator: None,
            ns_per_reference: NS_PER_REFERENCE,
            nr_cpus: None,
            numa: None,
            shared_memory: SharedMoment::Largest,
            walks: Walks::Native,
            anchor: None,
            detail_runs_max: 0,
            has_regions: false,
            has_fault_times: false,
            budget: Budget::default(),
        }
    }

    /// Returns the ageing with the filesystem's folio sizes, or XFS's if each file keeps its own.
    pub(crate) fn ageing(&self) -> Ageing {
        let rules = &self.kernel.rules;
        let filesystem = self.filesystem.as_deref().unwrap_or(AGED_FILESYSTEM);
        let max = rules.order_range(filesystem).max;
        let sizes = rules.sizes.orders(filesystem, rules.page, max);
        let orders = sizes.exec.map_or(sizes.always, |exec| sizes.always.with(exec));
        let orders = orders.below(max.raised(1));
        Ageing { seed: self.seed, rounds: self.aged_rounds, orders }
    }

    /// Returns the number of CPUs: the requested one, else the machine's, else one per thread.
    #[must_use]
    pub fn nr_cpus(&self) -> u32 {
        let of_machine = self.machine.nr_cpus.as_ref().map(|cpus| cpus.value);
        self.nr_cpus.or(of_machine).unwrap_or(NR_CPUS_MAX)
    }

    /// Returns the base page size: the kernel's if it sets one, else the machine's.
    #[must_use]
    pub fn page_size(&self) -> PageSize {
        if self.kernel.is_page_given { self.kernel.rules.page } else { self.machine.page_size }
    }
}
