//! One cell in the middle of its replay: a trace under one kernel on one machine.
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
use largefolio_mm::rules::Arch;
use largefolio_mm::units::{Order, PageSize};
use largefolio_trace::Meta;

use super::annotate::{Annotation, Wish};
use super::budget::{AgeingOverBudget, Meter};
use super::cgroup::Cgroups;
use super::clock::{Clock, Sleeper};
use super::error::CellError;
use super::files::TraceFile;
use super::hardware::Hardware;
use super::images::Images;
use super::keeper::Keeper;
use super::outcome::Strays;
use super::places::Places;
use super::program::Program;
use super::programs::Programs;
use super::reads::Reads;
use super::requested::Tenths;
use super::sizes::FolioSizes;
use super::spec::{CacheState, CellSpec};
use super::statistics::Largest;
use super::touched::Touched;
use crate::cost::{BaseTime, Mark, Timing};

/// Number of opens below which a sweep for dead ones is not worth it.
pub(super) const NR_OPENS_MIN: usize = 1 << 12;

pub struct Cell {
    pub(super) spec: CellSpec,
    pub(super) memory: Observable,
    pub(super) program: Program,
    pub(super) hardware: Hardware,
    pub(super) places: Places,
    pub(super) clock: Clock,
    flushes: Vec<Flush>,
    pub(super) pass: Pass,
    pub(super) counted: Counted,
    pub(super) pictures: Option<Box<Keeper>>,
    pub(super) meter: Meter,
    /// Share of free memory in blocks smaller than each folio size at the start, in thousandths.
    pub(super) unusable: BTreeMap<u64, u64>,
    pub(super) meta: Arc<Meta>,
    pub(super) nr_pages_at_start: u64,
    /// Number of opens at which the next sweep runs.
    pub(super) nr_opens_max: usize,
    pub(super) cgroups: Cgroups,
    pub(super) measured: Option<BaseTime>,
    /// Whether the trace links loads to the loads that supplied their addresses.
    pub(super) has_links: bool,
}

/// The memory manager, for everyone to read; [`Cell::change`] changes it.
pub(super) struct Observable(Memory);

impl Deref for Observable {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    Warming,
    Reported,
}

/// Counts of one pass that are not in the memory manager or the TLBs.
pub(super) struct Counted {
    pub(super) nr_rows: u64,
    /// Whether the recording has begun, after any rows from before it.
    pub(super) has_begun: bool,
    pub(super) touched: Touched,
    pub(super) sizes: FolioSizes,
    pub(super) largest: Largest,
    pub(super) strays: Strays,
    pub(super) nr_maps_without_pool: u64,
    pub(super) reads: Reads,
    pub(super) programs: Programs,
    pub(super) base: Mark,
    pub(super) end: Mark,
    pub(super) tenths: Tenths,
}

impl Counted {
    pub(super) fn new(spec: &CellSpec) -> Self {
        Self {
            nr_rows: 0,
            has_begun: false,
            touched: Touched::default(),
            sizes: FolioSizes::default(),
            largest: Largest::default(),
            strays: Strays::default(),
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
        let mut cell = Self::empty(spec, meta, should_stop)?;
        let runs_max = cell.spec.detail_runs_max;
        cell.counted.tenths = Tenths::of(meta.nr_rows_before(), meta.nr_rows);
        cell.unusable = cell.unusable_sizes();
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
        config.fragmentation = spec.fragmentation.state(rules.page, spec.seed);
        config.ageing = (spec.aged_rounds > 0).then(|| spec.ageing());
        if let Some(ageing) = &config.ageing {
            AgeingOverBudget::check(ageing, spec.ram_bytes, rules.page, &spec.budget)?;
        }
        let mut memory = Memory::new_until(rules.clone(), &config, should_stop)?;
        memory.watch();
        if let Some(policy) = &spec.kernel.policy {
            memory.set_policy(policy.0.start().map_err(CellError::NoPolicy)?);
        }
        let nr_pages_at_start = memory.core().buddy.nr_allocated_pages();
        let is_warm = spec.cache == CacheState::Warm;
        let mut clock = Clock::new(spec.ns_per_reference);
        if memory.rules().reclaim.compaction_proactiveness > 0 {
            clock.sleep(Sleeper::Kcompactd, PROACTIVE_SLEEP_NS);
        }
        Ok(Self {
            memory: Observable(memory),
            program: Program::new(recorded, link_page(spec.machine.arch).max(rules.page)),
            hardware: Hardware::new(spec.nr_cpus()),
            places: Places::default(),
            clock,
            flushes: Vec::new(),
            pass: if is_warm { Pass::Warming } else { Pass::Reported },
            counted: Counted::new(&spec),
            pictures: None,
            meter: Meter::default(),
            unusable: BTreeMap::new(),
            cgroups: Cgroups::default(),
            measured: None,
            has_links: meta.links,
            meta: Arc::clone(meta),
            nr_pages_at_start,
            nr_opens_max: NR_OPENS_MIN,
            spec,
        })
    }

    /// Changes the memory manager, then flushes the TLBs (I1), even if the change failed: reclaim can
    /// unmap pages first.
    #[inline]
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Memory) -> R) -> R {
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
    pub(super) fn is_warming(&self) -> bool {
        self.pass == Pass::Warming
    }

    fn add_files(&mut self, meta: &Meta) {
        for (nr, file) in (0..).zip(&meta.files) {
            let linked = self.program.linked.get(&nr);
            let size_bytes = linked.map_or(file.size_bytes, |image| image.size_bytes);
            let filesystem = self.spec.filesystem.as_deref().unwrap_or(&file.filesystem);
            let fits = |known: &&Annotation| known.fits(&file.path);
            let annotation = self.spec.annotations.iter().rev().find(fits);
            let bytes_of =
                |wish| annotation.filter(|one| one.wish() == wish).map(Annotation::bytes);
            let mapping = self.memory.0.add_file(size_bytes, filesystem);
            self.program.files.push(TraceFile {
                mapping,
                size_bytes,
                is_device: file.path.starts_with("/dev/") && file.size_bytes == 0,
                is_elf: !file.build_id.is_empty(),
                preferred_bytes: bytes_of(Wish::Prefer),
                collapse_bytes: bytes_of(Wish::Collapse),
            });
        }
    }

    fn unusable_sizes(&self) -> BTreeMap<u64, u64> {
        let buddy = &self.memory.core().buddy;
        let max = self.page().pmd_order().min(buddy.max_order());
        let orders = (1..=max.get()).map(Order::new);
        let unusable = |of: Order| u64::from(buddy.unusable_index(of));
        orders.map(|of| (self.page().bytes() << of.get(), unusable(of))).collect()
    }

    pub(super) fn page(&self) -> PageSize {
        self.memory.rules().page
    }

    pub(super) fn mask(&self) -> u64 {
        self.page().bytes() - 1
    }
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
