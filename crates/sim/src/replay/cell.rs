//! One cell during its replay: a trace under one kernel on one machine.
//!
//! Owns a cell's parts and its start. Other files own its events ([`crate::replay`]).
//!
//! Invariants:
//! - I1: a translation in a TLB agrees with the page table. The memory manager can only be changed
//!   by [`Cell::change`], which flushes the TLBs.
//! - I2: the same rows give the same outcome: no clock, no hash order, no threads.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Deref};
use std::sync::Arc;

use largefolio_mm::core::space::Flush;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::reclaim::compact::PROACTIVE_SLEEP_NS;
use largefolio_mm::rules::{Arch, Store};
use largefolio_mm::units::{ByteRange, Order, PageSize};
use largefolio_trace::{FileInfo, Meta};

use crate::cost::{BaseTime, Mark, Timing, stall_costs};
use crate::gaps::Met;
use crate::machine::MachineNode;
use crate::replay::changed::Changes;
use crate::replay::error::CellError;
use crate::replay::hardware::Hardware;
use crate::replay::hardware::clock::{Clock, Sleeper};
use crate::replay::observers::fault_times::FaultWork;
use crate::replay::observers::keeper::Keeper;
use crate::replay::observers::programs::Programs;
use crate::replay::observers::reads::Reads;
use crate::replay::observers::regions::RegionCounter;
use crate::replay::observers::requested::Tenths;
use crate::replay::observers::sizes::{FolioSizes, Touched};
use crate::replay::observers::statistics::Largest;
use crate::replay::outcome::Strays;
use crate::replay::program::images::Images;
use crate::replay::program::place::Places;
use crate::replay::program::{ProcessNr, Program, TraceFile};
use crate::replay::request::annotate::{Annotation, Wish};
use crate::replay::request::budget::{
    AgeingOverBudget, CPU_BYTES, ENTRY_BYTES, Excess, Meter, OverBudget, STACKS_BYTES,
    STEPS_OF_EVENT, THREAD_BYTES,
};
use crate::replay::request::cgroup::Cgroups;
use crate::replay::request::spec::{CacheState, CellSpec};

/// Number of opens below which a sweep for dead ones is not worth it.
pub(crate) const NR_OPENS_MIN: usize = 1 << 12;

pub struct Cell {
    pub(crate) spec: CellSpec,
    pub(crate) memory: Observable,
    pub(crate) program: Program,
    pub(crate) hardware: Hardware,
    pub(crate) places: Places,
    pub(crate) clock: Clock,
    flushes: Vec<Flush>,
    pub(crate) pass: Pass,
    pub(crate) counted: Counted,
    pub(crate) pictures: Option<Box<Keeper>>,
    pub(crate) regions: Option<Box<RegionCounter>>,
    pub(crate) fault_work: Option<Box<FaultWork>>,
    pub(crate) meter: Meter,
    /// Share of free memory in blocks smaller than each folio size at the start, in thousandths.
    pub(crate) unusable: BTreeMap<u64, u64>,
    pub(crate) meta: Arc<Meta>,
    pub(crate) nr_pages_at_start: u64,
    /// Number of opens at which the next sweep runs.
    pub(crate) nr_opens_max: usize,
    pub(crate) cgroups: Cgroups,
    pub(crate) settings: Changes,
    pub(crate) measured: Option<BaseTime>,
    /// Whether the trace links loads to the loads that supplied their addresses.
    pub(crate) has_links: bool,
}

/// The memory manager, for everyone to read; [`Cell::change`] changes it.
pub(crate) struct Observable(Memory);

impl Deref for Observable {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Warming,
    Reported,
}

/// Counts of one pass that are not in the memory manager or the TLBs.
pub(crate) struct Counted {
    pub(crate) nr_rows: u64,
    /// Whether the recording has begun, after any rows from before it.
    pub(crate) has_begun: bool,
    pub(crate) touched: Touched,
    pub(crate) sizes: FolioSizes,
    pub(crate) largest: Largest,
    pub(crate) strays: Strays,
    pub(crate) met: Met,
    pub(crate) nr_maps_without_pool: u64,
    pub(crate) reads: Reads,
    pub(crate) programs: Programs,
    pub(crate) base: Mark,
    pub(crate) end: Mark,
    pub(crate) tenths: Tenths,
}

impl Counted {
    pub(crate) fn new(spec: &CellSpec, meta: &Meta) -> Self {
        let rules = &spec.kernel.rules;
        Self {
            nr_rows: 0,
            has_begun: false,
            touched: Touched::default(),
            sizes: FolioSizes::default(),
            largest: Largest::default(),
            strays: Strays::default(),
            met: Met::new(rules, meta, spec.filesystem.as_deref()),
            nr_maps_without_pool: 0,
            reads: Reads::new(Timing::new(&spec.machine.costs)),
            programs: Programs::default(),
            base: Mark::default(),
            end: Mark::default(),
            tenths: Tenths::default(),
        }
    }
}

impl Cell {
    /// Creates a machine with the recorded program loaded. `images` are the trace's images if the
    /// cell relinks any. Ageing calls `should_stop` from time to time, which can stop it.
    ///
    /// # Errors
    /// Kernel and machine do not fit together, the layout cannot be placed, ageing would exceed the
    /// budget, or `should_stop` stopped it.
    pub fn new(
        spec: &CellSpec,
        meta: &Arc<Meta>,
        images: &Images,
        should_stop: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Self, CellError> {
        let mut spec = spec.clone();
        let page = spec.page_size();
        spec.machine = spec.machine.with_page_size(page)?;
        spec.kernel.rules.page = page;
        let settings = Changes::of(&spec, meta).map_err(Box::new)?;
        let mut cell = Self::empty(spec, meta, should_stop)?;
        cell.settings = settings;
        let runs_max = cell.spec.detail_runs_max;
        cell.counted.tenths = Tenths::of(meta.nr_rows_before(), meta.nr_rows);
        cell.unusable = cell.unusable_sizes();
        cell.regions = cell.spec.has_regions.then(Box::default);
        cell.fault_work = cell.spec.has_fault_times.then(Box::default);
        cell.pictures = (runs_max > 0).then(|| Box::new(Keeper::new(runs_max, meta)));
        let is_recorded_here = cell.spec.machine.cpu.as_deref() == Some(meta.machine.as_str());
        cell.measured = match &meta.attached {
            Some(attached) => BaseTime::measured(&[attached.run]),
            None => BaseTime::measured(&meta.runs).filter(|_| is_recorded_here),
        };
        cell.link(meta, images);
        cell.add_files(meta);
        let groups = std::mem::take(&mut cell.spec.cgroups);
        cell.cgroups = cell.change(|memory| Cgroups::new(&groups, memory));
        cell.spec.cgroups = groups;
        cell.allow(0);
        cell.fill_memory_files(meta);
        cell.start(meta)?;
        Ok(cell)
    }

    fn empty(
        spec: CellSpec,
        meta: &Arc<Meta>,
        should_stop: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Self, CellError> {
        let rules = &spec.kernel.rules;
        let recorded = if meta.arch == ARM64 { PageSize::K64 } else { PageSize::K4 };
        let mut config = Config::new(spec.machine.arch);
        config.ram_bytes = spec.ram_bytes;
        config.swap_bytes = spec.swap_bytes;
        config.nodes = spec.machine.nodes.iter().map(MachineNode::config).collect();
        config.fragmentation = spec.fragmentation.state(rules.page, spec.seed);
        config.ageing = (spec.aged_rounds > 0).then(|| spec.ageing());
        if let Some(ageing) = &config.ageing {
            AgeingOverBudget::check(ageing, spec.ram_bytes, rules.page, &spec.budget)?;
        }
        let mut memory = Memory::new_until(rules.clone(), &config, should_stop)?;
        memory.watch();
        if let Some(policy) = &spec.kernel.policy {
            memory.set_policy(policy.0.start().map_err(CellError::NoPolicy)?);
            memory.set_stall_costs(stall_costs(&spec.machine.costs));
        }
        let nr_pages_at_start = memory.core().buddy.nr_allocated_pages();
        let is_warm = spec.cache == CacheState::Warm;
        let mut clock = Clock::new(spec.ns_per_reference);
        if memory.rules().reclaim.compaction_proactiveness > 0 {
            clock.sleep(Sleeper::Kcompactd, PROACTIVE_SLEEP_NS);
        }
        if memory.policy_interval_ns().is_some() {
            clock.sleep(Sleeper::Policy, 0);
        }
        Ok(Self {
            memory: Observable(memory),
            program: Program::new(recorded, link_page(spec.machine.arch).max(rules.page)),
            hardware: Hardware::new(spec.nr_cpus()),
            places: Places::default(),
            clock,
            flushes: Vec::new(),
            pass: if is_warm { Pass::Warming } else { Pass::Reported },
            counted: Counted::new(&spec, meta),
            pictures: None,
            regions: None,
            fault_work: None,
            meter: Meter::default(),
            unusable: BTreeMap::new(),
            cgroups: Cgroups::default(),
            settings: Changes::default(),
            measured: None,
            has_links: meta.links,
            meta: Arc::clone(meta),
            nr_pages_at_start,
            nr_opens_max: NR_OPENS_MIN,
            spec,
        })
    }

    /// Changes the memory manager, then flushes the TLBs (I1), even if the change failed: reclaim
    /// can unmap pages first.
    #[inline]
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut Memory) -> R) -> R {
        let result = change(&mut self.memory.0);
        if self.memory.0.has_flushes() {
            self.flush();
        }
        result
    }

    #[cold]
    #[inline(never)]
    fn flush(&mut self) {
        self.memory.0.take_flushes(&mut self.flushes);
        self.count_steps(self.flushes.len() * self.hardware.nr_cpus());
        for flush in &self.flushes {
            let space_id = self.program.id_of(flush.mm);
            self.hardware.invalidate(space_id, flush.first, flush.nr_pages);
        }
        if let Some(keeper) = &mut self.pictures {
            keeper.flushed.append(&mut self.flushes);
        }
    }

    #[must_use]
    pub fn spec(&self) -> &CellSpec {
        &self.spec
    }

    /// Returns whether the run that fills the page cache is not over yet.
    #[must_use]
    pub(crate) fn is_warming(&self) -> bool {
        self.pass == Pass::Warming
    }

    fn add_files(&mut self, meta: &Meta) {
        for (nr, file) in (0..).zip(&meta.files) {
            let linked = self.program.linked.get(&nr);
            let size_bytes = linked.map_or(file.size_bytes, |image| image.size_bytes);
            let mut store = file_store(file);
            if let Some(filesystem) = &self.spec.filesystem {
                store = Store { disk: store.disk, ..Store::of(filesystem) };
            }
            let fits = |known: &&Annotation| known.fits(&file.path);
            let annotation = self.spec.annotations.iter().rev().find(fits);
            let bytes_of =
                |wish| annotation.filter(|one| one.wish() == wish).map(Annotation::bytes);
            let memory = &mut self.memory.0;
            let mapping = match store.filesystem {
                TMPFS if is_memfd(file) => memory.add_memory_file(size_bytes),
                TMPFS => memory.add_tmpfs_file(size_bytes),
                _ => memory.add_stored_file(size_bytes, store),
            };
            let holes = file.holes.iter().map(|&(pos, len_bytes)| ByteRange { pos, len_bytes });
            memory.set_holes(mapping, holes);
            self.program.files.push(TraceFile {
                mapping,
                size_bytes,
                is_device: is_device(file),
                is_elf: !file.build_id.is_empty(),
                preferred_bytes: bytes_of(Wish::Prefer),
                collapse_bytes: bytes_of(Wish::Collapse),
            });
        }
    }

    /// Adds the data of tmpfs files that existed before the trace to memory. Files larger than half
    /// of the free memory start empty.
    fn fill_memory_files(&mut self, meta: &Meta) {
        let filesystem = self.spec.filesystem.clone();
        let is_tmpfs = |file: &FileInfo| filesystem.as_ref().unwrap_or(&file.filesystem) == TMPFS;
        for (nr, file) in (0..).zip(&meta.files) {
            if !is_tmpfs(file) || is_memfd(file) {
                continue;
            }
            let mapping = self.program.files[nr].mapping;
            let room = self.memory.core().buddy.nr_free_pages() / 2 * self.page().bytes();
            if file.size_bytes <= room {
                self.change(|memory| memory.fill_memory_file(mapping));
            }
        }
    }

    fn unusable_sizes(&self) -> BTreeMap<u64, u64> {
        let buddy = &self.memory.core().buddy;
        let max = self.page().pmd_order().min(buddy.max_order());
        let orders = (1..=max.get()).map(Order::new);
        let unusable = |of: Order| u64::from(buddy.unusable_index(of));
        orders.map(|of| (self.page().bytes() << of.get(), unusable(of))).collect()
    }

    pub(crate) fn page(&self) -> PageSize {
        self.memory.rules().page
    }

    pub(crate) fn mask(&self) -> u64 {
        self.page().bytes() - 1
    }
}

fn file_store(file: &FileInfo) -> Store<'_> {
    let FileInfo { filesystem, block_bytes, disk, through, .. } = file;
    Store { filesystem, block_bytes: *block_bytes, disk, is_stacked: !through.is_empty() }
}

const TMPFS: &str = "tmpfs";

/// A device has no size. Files below `/dev/shm` are memory.
fn is_device(file: &FileInfo) -> bool {
    let path = &file.path;
    path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && file.size_bytes == 0
}

/// A memfd exists only during the trace, so all its data comes from the trace.
fn is_memfd(file: &FileInfo) -> bool {
    file.path.starts_with('[')
}

/// [`Meta::arch`] of programs that toolchains link for 64K pages.
const ARM64: &str = "aarch64";

/// Returns the page size that toolchains link for (`max-page-size`), even on smaller pages.
fn link_page(arch: Arch) -> PageSize {
    match arch {
        Arch::Arm64 => PageSize::K64,
        Arch::X86_64 => PageSize::K4,
    }
}

impl Cell {
    pub(crate) fn allow(&mut self, nr_rows: usize) {
        self.meter.nr_rows += nr_rows as u64;
        let limit = self.spec.budget.steps_after(self.meter.nr_rows);
        self.change(|memory| memory.work_mut().set_limit(limit));
    }

    pub(crate) fn count_steps(&self, nr: usize) {
        self.memory.work().add(nr as u64);
    }

    pub(crate) fn count_event(&self) {
        self.memory.work().add(STEPS_OF_EVENT);
    }

    pub(crate) fn check_budget(&mut self, process: ProcessNr) -> Result<(), CellError> {
        self.measure_process(process);
        self.check_limits()
    }

    /// Checks the budget without measuring the processes again.
    pub(crate) fn check_limits(&self) -> Result<(), CellError> {
        let budget = &self.spec.budget;
        let held = self.state_bytes();
        let work = self.memory.work();
        let excess = if work.is_spent() {
            let allowed = budget.steps_after(self.meter.nr_rows);
            let of_policy = self.memory.policy_steps();
            Excess::Steps { taken: work.nr_steps(), allowed, of_policy }
        } else if held > budget.state_bytes {
            Excess::State { held, allowed: budget.state_bytes }
        } else {
            return Ok(());
        };
        let policy = self.spec.kernel.policy.as_ref().map(|policy| policy.name().to_owned());
        let over = OverBudget { row: None, op: None, excess, policy, budget: *budget };
        Err(CellError::OverBudget(Box::new(over)))
    }

    pub(crate) fn measure_process(&mut self, process: ProcessNr) {
        let Some(measured) = self.program.processes.get(process) else { return };
        let mm = self.program.spaces[measured.space].mm;
        self.change(|memory| memory.measure(mm));
        let process = &mut self.program.processes[process];
        let space = &mut self.program.spaces[process.space];
        let parts = [
            (process.nr_entries(), &mut process.measured_bytes),
            (space.nr_entries(), &mut space.measured_bytes),
        ];
        for (nr_entries, measured_bytes) in parts {
            let bytes = nr_entries as u64 * ENTRY_BYTES;
            let before = std::mem::replace(measured_bytes, bytes);
            self.meter.process_bytes = self.meter.process_bytes - before + bytes;
        }
    }

    fn state_bytes(&self) -> u64 {
        let of_cpu = CPU_BYTES + if self.pictures.is_some() { STACKS_BYTES } else { 0 };
        let nr_threads = self.program.threads.len() as u64;
        self.memory.state_bytes()
            + self.meter.process_bytes
            + self.hardware.nr_cpus() as u64 * of_cpu
            + nr_threads * THREAD_BYTES
            + self.counted.touched.nr_words() as u64 * ENTRY_BYTES
    }
}
