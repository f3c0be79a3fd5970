//! One cell: a trace under one kernel on one machine.
//!
//! The hot loop. A row of references is placed, looked up in its thread's TLB and, on a miss, in
//! the page table; only a page that is not mapped reaches the memory manager. So the cost of a
//! trace grows with its rows, and that of memory management with distinct pages.
//!
//! Invariants:
//! - I1: a translation in a TLB agrees with the page table: every change the memory manager makes
//!   is flushed before the next lookup.
//! - I2: the same rows give the same outcome: no clock, no hash order, no threads.

use largefolio_mm::buddy::Fragmentation;
use largefolio_mm::core::space::Flush;
use largefolio_mm::fault::{self, FaultError};
use largefolio_mm::fork::ForkError;
use largefolio_mm::io::OutOfMemory;
use largefolio_mm::map::MapError;
use largefolio_mm::memory::{Config, Memory, MemoryError};
use largefolio_mm::pgtable::{AccessBits, Leaf, PageTable, PteFlags};
use largefolio_mm::rules::Arch;
use largefolio_mm::units::{MappingId, Order, PageSize, Vaddr, Vpn};
use largefolio_trace::{Batch, Event, Meta, Op, ThreadId};

use super::annotate::Annotation;
use super::budget::{Meter, OverBudget};
use super::census::FolioCensus;
use super::clock::Clock;
use super::detail::{Keeper, Origin};
use super::hardware::{NR_RUNNING_MAX, NR_THREADS_MAX, Thread};
use super::outcome::Strays;
use super::place::RECORDED_SHIFT;
use super::program::{Process, ProcessNr, Threads};
use super::reads::Reads;
use super::spec::{CacheState, CellSpec};
use super::touched::Touched;
use crate::cost::{Mark, Timing};
use crate::machine::MachineError;
use crate::tlb::{self, Aggregation, Coalescing, Lookup, Side, Walk};

/// Why a cell cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// The machine has no such base page.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine's memory cannot be made.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A fault found no free page.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// A fork found no page for what it must copy.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// A read or write call found no free page.
    #[error(transparent)]
    Io(#[from] OutOfMemory),
    /// A mapping of the recorded layout or of a recorded call is impossible.
    #[error(transparent)]
    Map(#[from] MapError),
    /// More threads than a program has.
    #[error(
        "thread {0}: a trace may name {NR_THREADS_MAX} threads, of which {NR_RUNNING_MAX} run at \
         the same time"
    )]
    TooManyThreads(ThreadId),
    /// A thread nobody announced.
    #[error(
        "thread {0} is not the first and no fork of the trace made it: the trace is damaged; \
         record it again"
    )]
    UnknownThread(ThreadId),
    /// More work or state than a trace may cause.
    #[error(transparent)]
    OverBudget(Box<OverBudget>),
    /// More processes than a program has.
    #[error("a trace may have {NR_PROCESSES_MAX} processes")]
    TooManyProcesses,
}

/// Processes of a trace: a large build in one recording.
pub(super) const NR_PROCESSES_MAX: usize = 1 << 14;
/// Slots of the direct-mapped table of recorded pages in front of the segments.
const NR_PLACES: usize = 1 << 10;
/// A recorded page number no trace contains.
const NO_PAGE: u64 = u64::MAX;
/// Pages pinned before the start where memory is to be fragmented, in thousandths.
const USED_PERMILLE: u32 = 100;

/// Place of one recorded page for one process.
#[derive(Clone, Copy)]
struct Place {
    page: u64,
    process: ProcessNr,
    vpn: Vpn,
}

const NO_PLACE: Place = Place { page: NO_PAGE, process: 0, vpn: Vpn(0) };

/// One cell in the middle of a replay.
pub struct Cell {
    pub(super) spec: CellSpec,
    pub(super) memory: Memory,
    pub(super) files: Vec<MappingId>,
    pub(super) sizes: Vec<u64>,
    pub(super) is_device: Vec<bool>,
    /// Folio size that the loader asks for, of each file.
    pub(super) preferred: Vec<Option<u64>>,
    /// Files with a build id: images whose segments a linker laid out.
    pub(super) is_elf: Vec<bool>,
    /// Pages the modelled programs are linked for.
    pub(super) link: PageSize,
    pub(super) processes: Vec<Process>,
    pub(super) threads: Threads,
    pub(super) touched: Touched,
    pub(super) census: FolioCensus,
    pub(super) strays: Strays,
    pub(super) reads: Reads,
    pub(super) is_replaced: bool,
    /// What pictures need, where they were asked for.
    pub(super) detail: Option<Box<Keeper>>,
    pub(super) hardware: Vec<Option<Box<Thread>>>,
    /// Threads with a TLB.
    pub(super) running: Vec<ThreadId>,
    places: Vec<Place>,
    /// What the last change of translations was.
    pub(super) flushes: Vec<Flush>,
    pub(super) finished_tlbs: tlb::Counters,
    clock: Clock,
    is_warming: bool,
    /// Rows of this run that were replayed in earlier batches.
    nr_rows: u64,
    pub(super) meter: Meter,
    /// Counters when the warming run ended.
    pub(super) base: Mark,
}

impl Cell {
    /// A machine with the recorded program loaded.
    ///
    /// # Errors
    /// When kernel and machine do not fit together or the layout cannot be placed.
    pub fn new(spec: &CellSpec, meta: &Meta) -> Result<Self, CellError> {
        let mut spec = spec.clone();
        let page = spec.page_size();
        spec.machine = spec.machine.with_page_size(page)?;
        spec.kernel.rules.page = page;
        let mut cell = Self::empty(&spec)?;
        let runs_max = spec.detail_runs_max;
        cell.detail = (runs_max > 0).then(|| Box::new(Keeper::new(runs_max, meta)));
        cell.add_files(meta);
        cell.allow(0);
        cell.load(meta)?;
        cell.check_budget(0)?;
        Ok(cell)
    }

    fn empty(spec: &CellSpec) -> Result<Self, CellError> {
        let mut config = Config::new(spec.machine.arch);
        config.ram_bytes = spec.ram_bytes;
        config.swap_bytes = spec.swap_bytes;
        config.fragmentation = (spec.unusable_permille > 0).then_some(Fragmentation {
            seed: spec.seed,
            used_permille: USED_PERMILLE,
            order: spec.kernel.rules.page.pmd_order().min(Order::new(9)),
            unusable_permille: spec.unusable_permille,
        });
        let mut memory = Memory::new(spec.kernel.rules.clone(), &config)?;
        memory.watch();
        Ok(Self {
            memory,
            files: Vec::new(),
            sizes: Vec::new(),
            is_device: Vec::new(),
            is_elf: Vec::new(),
            preferred: Vec::new(),
            link: link_page(spec.machine.arch).max(spec.kernel.rules.page),
            processes: Vec::new(),
            threads: Threads::default(),
            touched: Touched::default(),
            census: FolioCensus::default(),
            strays: Strays::default(),
            reads: Reads::new(Timing::new(&spec.machine.costs)),
            is_replaced: false,
            detail: None,
            hardware: Vec::new(),
            running: Vec::new(),
            places: vec![NO_PLACE; NR_PLACES],
            flushes: Vec::new(),
            finished_tlbs: tlb::Counters::default(),
            clock: Clock::new(spec.ns_per_reference),
            is_warming: spec.cache == CacheState::Warm,
            nr_rows: 0,
            meter: Meter::default(),
            base: Mark::default(),
            spec: spec.clone(),
        })
    }

    /// The combination this cell replays.
    #[must_use]
    pub fn spec(&self) -> &CellSpec {
        &self.spec
    }

    /// Whether the run that fills the page cache is still to come.
    #[must_use]
    pub fn is_warming(&self) -> bool {
        self.is_warming
    }

    fn add_files(&mut self, meta: &Meta) {
        for file in &meta.files {
            let filesystem = self.spec.filesystem.as_deref().unwrap_or(&file.filesystem);
            self.files.push(self.memory.add_file(file.size_bytes, filesystem));
            self.sizes.push(file.size_bytes);
            // Devices have no page cache: a mapping of one is anonymous memory here.
            self.is_device.push(file.path.starts_with("/dev/") && file.size_bytes == 0);
            self.is_elf.push(!file.build_id.is_empty());
            let mut annotations = self.spec.annotations.iter().rev();
            let preferred = annotations.find(|known| known.fits(&file.path));
            self.preferred.push(preferred.map(Annotation::bytes));
        }
    }

    /// Ends the run that filled the page cache and loads the program again.
    ///
    /// # Errors
    /// When the layout cannot be placed.
    pub fn end_warming(&mut self, meta: &Meta) -> Result<(), CellError> {
        self.end_processes();
        self.is_warming = false;
        self.base = Mark { counters: *self.memory.counters(), ram: self.memory.cache().ram };
        self.hardware.clear();
        self.running.clear();
        self.finished_tlbs = tlb::Counters::default();
        (self.census, self.strays) = (FolioCensus::default(), Strays::default());
        self.touched = Touched::default();
        self.memory.take_observed();
        self.reads = Reads::new(Timing::new(&self.spec.machine.costs));
        if let Some(keeper) = &mut self.detail {
            keeper.restart((self.base.counters.pgfault, self.base.counters.nr_read));
        }
        (self.processes, self.threads) = (Vec::new(), Threads::default());
        self.nr_rows = 0;
        self.forget_processes();
        self.forget_places();
        self.load(meta)
    }

    /// Replays the rows of a batch.
    ///
    /// # Errors
    /// When memory is exhausted or a recorded call cannot be followed at all.
    pub fn replay(&mut self, batch: &Batch) -> Result<(), CellError> {
        let (threads, ops) = (batch.threads(), batch.ops());
        let (addrs, lens) = (batch.addrs(), batch.lens());
        self.allow(batch.len());
        for row in 0..batch.len() {
            let replayed = match ops[row] {
                EXEC => self.reference(threads[row], Kind::EXEC, addrs[row], lens[row]),
                READ => self.reference(threads[row], Kind::READ, addrs[row], lens[row]),
                WRITE => self.reference(threads[row], Kind::WRITE, addrs[row], lens[row]),
                _ => self.call(&batch.event(row)),
            };
            if let Err(error) = replayed {
                return Err(error.at(self.nr_rows + row as u64, Op::from_number(ops[row])));
            }
        }
        self.nr_rows += batch.len() as u64;
        Ok(())
    }

    /// One event that is not a reference, and what follows from it.
    fn call(&mut self, event: &Event) -> Result<(), CellError> {
        let process = self.process_of(event.thread)?;
        self.event(process, event)?;
        self.drain_flushes();
        if matches!(event.op, Op::Madvise | Op::Collapse) {
            self.note_collapsed(Origin::Collapse);
        }
        self.settle_call(event);
        self.count_detail();
        self.check_budget(process)
    }

    /// A run of references to one recorded page.
    #[inline]
    fn reference(
        &mut self,
        thread: ThreadId,
        kind: Kind,
        addr: u64,
        count: u64,
    ) -> Result<(), CellError> {
        if self.clock.advance(count) {
            self.run_khugepaged();
        }
        let nr = self.hardware_of(thread)?;
        let process = self.running_thread(nr)?.process;
        let Some(vpn) = self.place(process, addr) else {
            self.strays.unmapped += count;
            return Ok(());
        };
        let thread = self.running_thread(nr)?;
        let found = thread.tlb.lookup_run(kind.side, vpn, kind.tlb, count);
        if let Some(stacks) = &thread.stacks
            && !stacks.of(kind.side).is_top(vpn, kind.tlb)
        {
            self.measure(nr, kind, vpn, found);
        }
        match found {
            Lookup::L1 | Lookup::L2 => Ok(()),
            Lookup::Miss | Lookup::Permission => self.walk(nr, kind, vpn, count),
        }
    }

    /// Lets khugepaged wake once, and do what it has waited for.
    #[cold]
    #[inline(never)]
    fn run_khugepaged(&mut self) {
        let wake_ns = self.memory.khugepaged_wakes_ns();
        self.memory.run_khugepaged(wake_ns);
        self.clock.sleep(self.memory.khugepaged_wakes_ns() - wake_ns);
        self.drain_flushes();
        self.note_collapsed(Origin::Khugepaged);
    }

    /// A TLB miss: walk, fault where nothing is mapped, fill.
    #[cold]
    #[inline(never)]
    fn walk(&mut self, nr: usize, kind: Kind, vpn: Vpn, count: u64) -> Result<(), CellError> {
        let process = self.running_thread(nr)?.process;
        let mm = self.processes[process].mm;
        let addr = vpn.vaddr(self.memory.rules().page);
        let before = self.mark_fault();
        let touched = self.memory.touch(mm, addr, kind.mm);
        // Memory may have been reclaimed even where the touch failed.
        self.drain_flushes();
        self.count_detail();
        let leaf = match touched {
            Ok(touched) => {
                if touched.outcome != fault::Outcome::Hit {
                    self.check_budget(process)?;
                }
                touched.leaf
            }
            Err(error) => return self.stray(error, count),
        };
        if let Some(before) = before {
            self.note_fault(mm, leaf.pfn_of(vpn), before);
        }
        let cause = Origin::of_fault(kind.side, kind.tlb == tlb::Access::Write);
        self.settle_walk(leaf.pfn_of(vpn), cause);
        let coalescing = self.running_thread(nr)?.tlb.coalescing();
        let walk = walk_of(&self.memory.space(mm).table, &leaf, vpn, coalescing);
        self.running_thread(nr)?.tlb.fill_walk(kind.side, &walk);
        self.fill_stack(nr, kind.side, &coalescing.entry(&walk));
        Ok(())
    }

    fn stray(&mut self, error: FaultError, count: u64) -> Result<(), CellError> {
        match error {
            FaultError::NotMapped(_) => self.strays.unmapped += count,
            FaultError::Protected(_) => self.strays.protected += count,
            FaultError::BeyondFile(_) => self.strays.beyond_file += count,
            FaultError::OutOfMemory(_) => return Err(error.into()),
        }
        Ok(())
    }

    /// The page of the modelled process for a recorded address.
    #[inline]
    fn place(&mut self, process: ProcessNr, addr: u64) -> Option<Vpn> {
        let page = addr >> RECORDED_SHIFT;
        let slot = self.places[(page as usize ^ (process << 7)) & (NR_PLACES - 1)];
        if slot.page == page && slot.process == process {
            return Some(slot.vpn);
        }
        self.place_slowly(process, addr)
    }

    #[cold]
    #[inline(never)]
    fn place_slowly(&mut self, process: ProcessNr, addr: u64) -> Option<Vpn> {
        let segment = self.processes[process].segments.find(addr)?;
        let vpn = Vaddr(segment.place(addr)).vpn(self.memory.rules().page);
        if let Some((file, pos)) = segment.file {
            let pos = pos + (addr - segment.start);
            let size = self.sizes[file as usize];
            self.touched.mark(file, (pos, 1), size);
        }
        let page = addr >> RECORDED_SHIFT;
        self.places[(page as usize ^ (process << 7)) & (NR_PLACES - 1)] =
            Place { page, process, vpn };
        Some(vpn)
    }

    /// Segments changed: every place is looked up again.
    pub(super) fn forget_places(&mut self) {
        self.places.fill(NO_PLACE);
    }

    /// Ends a process: counts what it maps, then unmaps it.
    pub(super) fn end_process(&mut self, process: ProcessNr) {
        let mm = self.processes[process].mm;
        if self.memory.space(mm).is_dead {
            return;
        }
        self.census.add_process(&self.memory, mm);
        if let Some(keeper) = &mut self.detail {
            keeper.add_process(&self.memory, &self.processes[process], process);
        }
        self.memory.exit(mm);
        self.close_all(process);
        let is_of_process = |nr: &ThreadId| {
            let thread = self.hardware[*nr as usize].as_ref();
            thread.is_some_and(|thread| thread.process == process)
        };
        let ended: Vec<_> = self.running.iter().copied().filter(is_of_process).collect();
        self.count_steps(self.running.len());
        for thread in ended {
            self.end_thread(thread);
        }
        self.measure_process(process);
    }

    pub(super) fn end_processes(&mut self) {
        for process in 0..self.processes.len() {
            self.end_process(process);
        }
        self.drain_flushes();
    }
}

/// Pages that toolchains link for (`max-page-size`) where the kernel has smaller ones too.
fn link_page(arch: Arch) -> PageSize {
    match arch {
        Arch::Arm64 => PageSize::K64,
        Arch::X86_64 => PageSize::K4,
    }
}

/// Numbers of the reference ops, as the batches of a trace hold them.
const EXEC: u8 = Op::Exec as u8;
const READ: u8 = Op::Read as u8;
const WRITE: u8 = Op::Write as u8;

/// A kind of reference, as TLB and memory manager name it.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) side: Side,
    pub(super) tlb: tlb::Access,
    mm: fault::Access,
}

impl Kind {
    const EXEC: Self =
        Self { side: Side::Instruction, tlb: tlb::Access::Read, mm: fault::Access::Exec };
    const READ: Self = Self { side: Side::Data, tlb: tlb::Access::Read, mm: fault::Access::Read };
    const WRITE: Self =
        Self { side: Side::Data, tlb: tlb::Access::Write, mm: fault::Access::Write };
}

/// What a walk that ends at `leaf` gives a TLB.
pub(super) fn walk_of(table: &PageTable, leaf: &Leaf, vpn: Vpn, coalescing: Coalescing) -> Walk {
    let bits = match coalescing.aggregation {
        Aggregation::Zen | Aggregation::Zen32K => AccessBits::Equal,
        Aggregation::None | Aggregation::Hpa => AccessBits::Any,
    };
    let run = match coalescing.run_cap() {
        Order::ZERO => Order::ZERO,
        cap => table.contiguous_run(vpn, cap, bits).unwrap_or(Order::ZERO),
    };
    Walk {
        vpn,
        pfn: leaf.pfn_of(vpn),
        is_writable: leaf.flags.contains(PteFlags::WRITABLE),
        leaf: leaf.kind,
        order: leaf.order,
        run,
    }
}
