//! A user's request: kernels x machines x ways to link x memory sizes x seeds, under common
//! settings.
//!
//! Owns the checks for every caller (command line and Python) and the order of the cells: kernels
//! vary slowest, seeds fastest. Does not parse names and sizes.

pub(crate) mod allocator;
pub(crate) mod annotate;
pub(crate) mod budget;
pub mod cgroup;
pub mod changes;
pub(crate) mod fragmented;
mod groups;
pub mod numa;
pub(crate) mod pattern;
pub(crate) mod spec;

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use largefolio_mm::rules::sizes::size_name;
use largefolio_trace::{Meta, shown};

use crate::cost::Walks;
use crate::kernel::{Kernel, KernelError};
use crate::machine::{Machine, NR_CPUS_MAX};
use crate::names::nearest;
use crate::replay::hardware::clock::NS_PER_REFERENCE;
use crate::replay::program::images::candidates;
use crate::replay::program::linked::{Linked, LinkedChoices, LinkedError};
use crate::replay::request::allocator::Allocator;
use crate::replay::request::annotate::Annotation;
use crate::replay::request::budget::{Budget, FACTOR_MAX};
use crate::replay::request::cgroup::{Cgroup, NR_CGROUPS_MAX};
use crate::replay::request::changes::{NR_CHANGES_MAX, SettingChange};
use crate::replay::request::fragmented::{Fragmented, PERMILLE_MAX};
use crate::replay::request::numa::Numa;
use crate::replay::request::pattern::name_of;
use crate::replay::request::spec::{CacheState, CellSpec, SharedMoment};
use crate::size::MEMORY_GIB_MAX;

/// Maximum number of cells in one result. Each needs its own memory.
pub const NR_CELLS_MAX: usize = 256;
/// Maximum runs of folios on a report page, over all cells: 2 MiB with the paths that draw them.
const NR_DRAWN_RUNS_MAX: usize = 1 << 16;
pub const NO_LARGE_FOLIOS: &str = "none";
pub const MEMORY_BYTES: u64 = 16 << 30;
pub const AGED_ROUNDS_MAX: u32 = 100;

/// The settings for replaying a trace.
///
/// ```
/// use largefolio_sim::kernel::Kernel;
/// use largefolio_sim::machine::Machine;
/// use largefolio_sim::replay::ReplayRequest;
/// let kernels = vec![Kernel::parse("6.12").unwrap(), Kernel::parse("7.2").unwrap()];
/// let request = ReplayRequest { seeds: vec![1, 2], ..ReplayRequest::new(kernels, vec![Machine::named("altra")?]) };
/// assert_eq!(request.specs().unwrap().len(), 2); // Seeds of unfragmented memory are all alike.
/// assert!(request.has_idle_seeds());
/// # Ok::<(), largefolio_sim::machine::MachineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReplayRequest {
    pub kernels: Vec<Kernel>,
    pub machines: Vec<Machine>,
    pub seeds: Vec<u64>,
    pub memory_bytes: Vec<u64>,
    /// Swap space in bytes; 0 = private memory is never reclaimed.
    pub swap_bytes: u64,
    /// Cgroup limits. If several match a program, the last one applies.
    pub cgroups: Vec<Cgroup>,
    /// Settings that change during the replay.
    pub changes: Vec<SettingChange>,
    pub fragmentation: Fragmented,
    /// Rounds of ageing by other programs before the start; 0 = none.
    pub aged_rounds: u32,
    /// Filesystem of all files, or [`NO_LARGE_FOLIOS`]; `None` = as recorded.
    pub filesystem: Option<String>,
    pub annotations: Vec<Annotation>,
    pub linked: Vec<LinkedChoices>,
    /// An allocator that asks for huge pages; `None` = as recorded.
    pub allocator: Option<Allocator>,
    pub cache: CacheState,
    /// Nanoseconds per reference on khugepaged's clock; 0 = it never runs.
    pub ns_per_reference: u64,
    /// CPUs that threads run on; `None` = the machine's number.
    pub nr_cpus: Option<u32>,
    /// Where the program runs on machines with nodes, and its policy; `None` = node 0, no policy.
    pub numa: Option<Numa>,
    /// The moment at which results count shared memory.
    pub shared_memory: SharedMoment,
    pub walks: Walks,
    pub detail: Detail,
    /// Whether results say where the page walks are.
    pub has_regions: bool,
    /// Whether results say how long page faults take.
    pub has_fault_times: bool,
    /// Multiple of the default budget for work and state.
    pub max_work: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    #[default]
    None,
    /// Runs of folios, as many as can be drawn.
    Drawn,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error(
        "{} kernels x {} machines x {} memory sizes x {} seeds{} make {nr_cells} cells; one \
         result has at most {limit}; use fewer",
        nrs[0], nrs[1], nrs[2], nrs[3],
        if nrs[4] > 1 { format!(" x {} ways to link", nrs[4]) } else { String::new() }
    )]
    TooManyCells { nrs: [usize; 5], nr_cells: usize, limit: usize },
    #[error("--cgroup: {0} groups are too many; use at most {NR_CGROUPS_MAX}")]
    Cgroups(usize),
    #[error("--at: {0} changes are too many; use at most {NR_CHANGES_MAX}")]
    Changes(usize),
    #[error("--at: {0}")]
    Change(KernelError),
    #[error(
        "two different machines are called '{}'; give each machine file its own `name`",
        shown(.0)
    )]
    MachineName(String),
    #[error(
        "two different kernels are called '{}', or the name is empty; give each kernel its own \
         name",
        shown(.0)
    )]
    KernelName(String),
    #[error("no {0} was given; name at least one")]
    Nothing(&'static str),
    #[error(
        "{bytes} bytes of memory are not supported; expected bytes, such as 512M or 16G, and at \
         most {}",
        size_name(MEMORY_GIB_MAX << 30)
    )]
    Memory { bytes: u64 },
    #[error("a work factor of {0} is not supported; expected 1 to {FACTOR_MAX}")]
    MaxWork(u64),
    #[error("{0} CPUs are not supported; expected 1 to {NR_CPUS_MAX}")]
    NrCpus(u32),
    #[error(
        "--numa {numa}: {} has {}, so there is no node {node}; a machine file lists nodes under \
         [[nodes]]",
        shown(machine),
        if *nr_nodes == 1 { "one node".to_owned() } else { format!("{nr_nodes} nodes") }
    )]
    NoNode { numa: Numa, machine: String, node: u8, nr_nodes: usize },
    #[error(
        "--numa {numa}: {} has one node, and NUMA balancing needs several; a machine file lists \
         nodes under [[nodes]]",
        shown(machine)
    )]
    NoBalancing { numa: Numa, machine: String },
    #[error("a fragmentation of {0} thousandths is not supported; expected 0 to {PERMILLE_MAX}")]
    Fragmentation(u32),
    #[error(
        "{size}:.. is not a valid fragmentation for {machine} with {page_bytes}-byte pages; give a \
         size above the base page size, up to the largest free block"
    )]
    FragmentedSize { size: String, machine: String, page_bytes: u64 },
    #[error("{0} rounds of ageing are not supported; expected 0 to {AGED_ROUNDS_MAX}")]
    Aged(u32),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(
        "no kernel has large folios on a filesystem called '{}'; {hint}; use `--fs \
         {NO_LARGE_FOLIOS}` for a filesystem without large folios",
        shown(name)
    )]
    Filesystem { name: String, hint: String },
    #[error("--annotate {}: no file in the trace matches; `folio trace info` lists the files",
        shown(.0))]
    IdleAnnotation(String),
    #[error("--cgroup {}: no program in the trace matches; {}", shown(group), shown(hint))]
    IdleCgroup { group: String, hint: String },
    #[error(
        "--cgroup {}: no program is left for it because '{}' matches them all; omit either group",
        shown(group),
        shown(by)
    )]
    OverriddenCgroup { group: String, by: String },
    #[error(
        "--linked {}: this trace maps no program or library of that name; {}",
        shown(linked),
        shown(hint)
    )]
    IdleLinked { linked: String, hint: String },
    #[error(transparent)]
    Linked(#[from] LinkedError),
}

impl ReplayRequest {
    #[must_use]
    pub const fn new(kernels: Vec<Kernel>, machines: Vec<Machine>) -> Self {
        Self {
            kernels,
            machines,
            seeds: Vec::new(),
            memory_bytes: Vec::new(),
            swap_bytes: 0,
            cgroups: Vec::new(),
            changes: Vec::new(),
            fragmentation: Fragmented { bytes: 0, permille: 0 },
            aged_rounds: 0,
            filesystem: None,
            annotations: Vec::new(),
            linked: Vec::new(),
            allocator: None,
            cache: CacheState::Cold,
            ns_per_reference: NS_PER_REFERENCE,
            nr_cpus: None,
            numa: None,
            shared_memory: SharedMoment::Largest,
            walks: Walks::Native,
            detail: Detail::None,
            has_regions: false,
            has_fault_times: false,
            max_work: 1,
        }
    }

    /// Checks everything that does not depend on a trace, with at most `limit` cells.
    ///
    /// # Errors
    /// [`RequestError`], except for the errors of [`ReplayRequest::check_trace`].
    pub fn check(&self, limit: usize) -> Result<(), RequestError> {
        self.check_filesystem()?;
        self.check_settings()?;
        self.check_kernels()?;
        self.check_machines()?;
        self.check_cgroups()?;
        let nrs = self.nrs();
        let nr_cells = self.nr_cells();
        if nr_cells > limit {
            return Err(RequestError::TooManyCells { nrs, nr_cells, limit });
        }
        for kernel in self.kernels() {
            for machine in self.machines() {
                let spec = self.spec(kernel, machine, nr_cells);
                kernel.check_page(spec.page_size())?;
                self.check_fragmentation(&spec)?;
                SettingChange::all(&self.changes, kernel, spec.page_size())
                    .map_err(RequestError::Change)?;
                for annotation in &spec.annotations {
                    annotation.check(kernel, spec.page_size())?;
                }
                for linked in self.linked.iter().flat_map(LinkedChoices::each) {
                    linked.check(&machine.name, spec.page_size())?;
                }
            }
        }
        Ok(())
    }

    #[must_use]
    pub fn nr_cells(&self) -> usize {
        self.nrs().into_iter().fold(1, usize::saturating_mul)
    }

    fn nrs(&self) -> [usize; 5] {
        [
            self.kernels().len(),
            self.machines().len(),
            self.memory().len(),
            self.seeds().len(),
            LinkedChoices::nr_combined(&self.linked),
        ]
    }

    /// Returns the cells: kernels x machines x ways to link x memory sizes x seeds, each once, at
    /// most [`NR_CELLS_MAX`].
    ///
    /// # Errors
    /// As [`ReplayRequest::check`].
    pub fn specs(&self) -> Result<Vec<CellSpec>, RequestError> {
        self.check(NR_CELLS_MAX)?;
        let (machines, memory, seeds) = (self.machines(), self.memory(), self.seeds());
        let ways = self.ways_to_link();
        let nr_cells =
            self.kernels().len() * machines.len() * ways.len() * memory.len() * seeds.len();
        let mut specs = Vec::new();
        for kernel in self.kernels() {
            for machine in &machines {
                for linked in &ways {
                    let of_all = self.spec(kernel, machine, nr_cells);
                    let of_all = CellSpec { linked: linked.clone(), ..of_all };
                    for &ram_bytes in &memory {
                        let with_seed = |&seed| CellSpec { seed, ram_bytes, ..of_all.clone() };
                        specs.extend(seeds.iter().map(with_seed));
                    }
                }
            }
        }
        Ok(specs)
    }

    #[must_use]
    pub fn ways_to_link(&self) -> Vec<Vec<Linked>> {
        LinkedChoices::combined(&self.linked)
    }

    /// Checks that for each name some trace has an image.
    ///
    /// # Errors
    /// [`RequestError::IdleLinked`].
    pub fn check_linked(&self, metas: &[&Meta]) -> Result<(), RequestError> {
        let images: BTreeSet<&str> = metas.iter().flat_map(|meta| candidates(meta)).collect();
        for choices in &self.linked {
            let Some(named) = choices.named() else { continue };
            if !images.iter().any(|path| choices.fits(path)) {
                let hint = nearest(&named, images.iter().map(|path| name_of(path)));
                return Err(RequestError::IdleLinked { linked: choices.to_string(), hint });
            }
        }
        Ok(())
    }

    /// Checks that the annotations, the images to relink and the cgroups match the trace whose
    /// footer is `meta`.
    ///
    /// # Errors
    /// [`RequestError::IdleAnnotation`], [`RequestError::IdleLinked`], or an error of
    /// [`ReplayRequest::check_cgroups_of`].
    pub fn check_trace(&self, meta: &Meta) -> Result<(), RequestError> {
        self.check_linked(&[meta])?;
        self.check_cgroups_of(&[meta])?;
        let is_idle =
            |annotation: &&Annotation| !meta.files.iter().any(|file| annotation.fits(&file.path));
        match self.annotations.iter().find(is_idle) {
            Some(idle) => Err(RequestError::IdleAnnotation(idle.to_string())),
            None => Ok(()),
        }
    }

    #[must_use]
    pub fn has_idle_seeds(&self) -> bool {
        self.seeds().len() < unique_numbers(&self.seeds).len()
    }

    #[must_use]
    pub fn kernels(&self) -> Vec<&Kernel> {
        unique(&self.kernels)
    }

    /// Returns a note for each kernel with another version's rules or without recordings.
    #[must_use]
    pub fn rules_notes(&self) -> Vec<String> {
        let notes: Vec<String> =
            self.kernels.iter().filter_map(|kernel| kernel.note.clone()).collect();
        unique(&notes).into_iter().cloned().collect()
    }

    #[must_use]
    pub fn machines(&self) -> Vec<&Machine> {
        unique(&self.machines)
    }

    #[must_use]
    pub fn first(&self) -> Option<CellSpec> {
        let (kernel, machine) = (self.kernels.first()?, self.machines.first()?);
        let spec = self.spec(kernel, machine, 1);
        let (seed, ram_bytes) = (*self.seeds().first()?, *self.memory().first()?);
        let linked = self.ways_to_link().into_iter().next().unwrap_or_default();
        Some(CellSpec { seed, ram_bytes, linked, ..spec })
    }

    #[must_use]
    pub fn memory(&self) -> Vec<u64> {
        match self.memory_bytes.as_slice() {
            [] => vec![MEMORY_BYTES],
            some => unique_numbers(some),
        }
    }

    /// Returns the distinct seeds, or only the first if all would produce the same results.
    #[must_use]
    pub fn seeds(&self) -> Vec<u64> {
        let mut seeds = unique_numbers(&self.seeds);
        if seeds.is_empty() {
            seeds.push(1);
        }
        if self.fragmentation.permille == 0 && self.aged_rounds == 0 {
            seeds.truncate(1);
        }
        seeds
    }

    fn spec(&self, kernel: &Kernel, machine: &Machine, nr_cells: usize) -> CellSpec {
        let detail_runs_max = match self.detail {
            Detail::None => 0,
            Detail::Drawn => u32::try_from(NR_DRAWN_RUNS_MAX / nr_cells.max(1)).unwrap_or(0),
        };
        CellSpec {
            cache: self.cache,
            swap_bytes: self.swap_bytes,
            cgroups: self.cgroups.clone(),
            changes: self.changes.clone(),
            fragmentation: self.fragmentation,
            aged_rounds: self.aged_rounds,
            filesystem: self.filesystem.clone(),
            annotations: self.annotations.clone(),
            allocator: self.allocator,
            ns_per_reference: self.ns_per_reference,
            nr_cpus: self.nr_cpus,
            numa: self.numa,
            shared_memory: self.shared_memory,
            walks: self.walks,
            detail_runs_max,
            has_regions: self.has_regions,
            has_fault_times: self.has_fault_times,
            budget: Budget::times(self.max_work),
            ..CellSpec::new(kernel.clone(), machine.clone())
        }
    }

    fn check_settings(&self) -> Result<(), RequestError> {
        for (list, what) in
            [(self.kernels.is_empty(), "kernel"), (self.machines.is_empty(), "machine")]
        {
            if list {
                return Err(RequestError::Nothing(what));
            }
        }
        let bytes_max = MEMORY_GIB_MAX << 30;
        let memory = self.memory_bytes.iter().chain([&self.swap_bytes]);
        if let Some(&bytes) = memory.into_iter().find(|&&bytes| bytes > bytes_max) {
            return Err(RequestError::Memory { bytes });
        }
        if !(1..=FACTOR_MAX).contains(&self.max_work) {
            return Err(RequestError::MaxWork(self.max_work));
        }
        if let Some(nr) = self.nr_cpus.filter(|nr| !(1..=NR_CPUS_MAX).contains(nr)) {
            return Err(RequestError::NrCpus(nr));
        }
        if self.fragmentation.permille > PERMILLE_MAX {
            return Err(RequestError::Fragmentation(self.fragmentation.permille));
        }
        if self.changes.len() > NR_CHANGES_MAX {
            return Err(RequestError::Changes(self.changes.len()));
        }
        if self.aged_rounds > AGED_ROUNDS_MAX {
            return Err(RequestError::Aged(self.aged_rounds));
        }
        Ok(())
    }

    /// Checks that kernels with the same name are equal, because results identify kernels by name.
    fn check_kernels(&self) -> Result<(), RequestError> {
        for (nr, kernel) in self.kernels.iter().enumerate() {
            let is_other = |one: &&Kernel| one.name == kernel.name && *one != kernel;
            if kernel.name.is_empty() || self.kernels[..nr].iter().any(|one| is_other(&one)) {
                return Err(RequestError::KernelName(kernel.name.clone()));
            }
        }
        Ok(())
    }

    fn check_machines(&self) -> Result<(), RequestError> {
        let mut names = HashSet::new();
        let twice = self.machines().into_iter().find(|machine| !names.insert(&machine.name));
        if let Some(machine) = twice {
            return Err(RequestError::MachineName(machine.name.clone()));
        }
        let Some(numa) = self.numa else { return Ok(()) };
        let missing = |machine: &Machine| {
            let name = machine.name.clone();
            if let Some((node, nr_nodes)) = numa.missing_in(machine) {
                return Some(RequestError::NoNode { numa, machine: name, node: node.0, nr_nodes });
            }
            let is_idle = numa.balance.is_some() && machine.nodes.len() <= 1;
            is_idle.then_some(RequestError::NoBalancing { numa, machine: name })
        };
        self.machines.iter().find_map(missing).map_or(Ok(()), Err)
    }

    fn check_fragmentation(&self, spec: &CellSpec) -> Result<(), RequestError> {
        if self.fragmentation.fits(spec.page_size()) {
            return Ok(());
        }
        let size = size_name(self.fragmentation.bytes);
        let (machine, page_bytes) = (spec.machine.name.clone(), spec.page_size().bytes());
        Err(RequestError::FragmentedSize { size, machine, page_bytes })
    }

    /// Rejects unknown filesystems, which would silently have no large folios.
    fn check_filesystem(&self) -> Result<(), RequestError> {
        let Some(name) = &self.filesystem else { return Ok(()) };
        match unknown_filesystem(name) {
            Some(hint) => Err(RequestError::Filesystem { name: name.clone(), hint }),
            None => Ok(()),
        }
    }
}

/// Returns a hint with the nearest names if `name` is unknown. [`NO_LARGE_FOLIOS`] is a known name.
pub fn unknown_filesystem(name: &str) -> Option<String> {
    static KNOWN: LazyLock<BTreeSet<String>> = LazyLock::new(filesystems);
    let is_known = name == NO_LARGE_FOLIOS || KNOWN.contains(name);
    (!is_known).then(|| nearest(name, KNOWN.iter().map(String::as_str)))
}

#[must_use]
pub fn filesystems() -> BTreeSet<String> {
    let kernels = Kernel::names().filter_map(|name| Kernel::parse(name).ok());
    kernels.flat_map(|kernel| kernel.rules.filesystems.into_keys()).collect()
}

fn unique<T: PartialEq>(items: &[T]) -> Vec<&T> {
    let mut seen: Vec<&T> = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// The same for numbers, in linear time.
fn unique_numbers(numbers: &[u64]) -> Vec<u64> {
    let mut seen = HashSet::new();
    numbers.iter().copied().filter(|&number| seen.insert(number)).collect()
}

#[cfg(test)]
mod tests;
