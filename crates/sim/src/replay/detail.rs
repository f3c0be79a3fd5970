//! What a picture of a replay needs beyond its counts: where each folio lies and who caused it, and
//! when faults and reads happened.
//!
//! Kept only where [`super::CellSpec::detail_runs_max`] asks for it. Owns no decision: it hears what
//! the memory manager did, and looks at memory when a process and the replay end.
//!
//! ```text
//!   insertions, each with its cause --> (file, index) -> order, cause --+
//!   page cache at the end ----------------------------------------------+--> runs of a file
//!   faults and collapses, each with its folio --> first frame -> order, cause --+
//!   page table of a process at its end -----------------------------------------+--> runs of private
//!                                                                                    memory
//!   counters after a fault or a call -----------------------------------> buckets of the trace
//! ```
//!
//! Invariants:
//! - I1: the runs of an area ascend and do not overlap; a run is whole folios of one order, by one
//!   cause, one after the other.
//! - I2: all areas of a cell together have at most `detail_runs_max` runs; what does not fit is left
//!   out, the smallest areas first, and counted.
//! - I3: the buckets add up to the faults and to the bytes read of the outcome.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::core::observed::{EntryKind, Observed};
use largefolio_mm::folio::Owner;
use largefolio_mm::memory::Memory;
use largefolio_mm::units::{MappingId, MmId, Order, PageIndex, PageSize, Vaddr, Vpn};
use largefolio_trace::{LayoutKind, Meta, Op};
use serde::{Serialize, Serializer};

use super::causes::Causes;
use super::cell::Cell;
use super::curve::Measured;
use super::place::Segment;
use super::program::{Process, ProcessNr};
use crate::tlb::Side;
use crate::tlb::curve::Curve;

/// Buckets of a trace: a picture a few hundred dots wide shows each of them.
pub const NR_BUCKETS: usize = 200;

/// Who caused a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A fault of an instruction fetch.
    Fetch,
    /// A fault of a load.
    Load,
    /// A fault of a store.
    Store,
    /// Readahead that the marker started.
    Marker,
    /// A read call.
    ReadCall,
    /// A write call, or what else changes a file.
    WriteCall,
    /// `madvise` or `fadvise`.
    Advice,
    /// The run before, which left a warm page cache.
    Earlier,
    /// A collapse or a split of file pages; of private memory what nobody was heard to touch: a
    /// folio that moved, or that a call filled.
    Remade,
    /// The first touch of private memory.
    Touch,
    /// The first touch, where a larger folio was wanted and none was free.
    Fallback,
    /// A copy on write.
    Copy,
    /// A fault that brought the page back from swap space.
    SwapIn,
    /// A collapse by khugepaged.
    Khugepaged,
    /// `MADV_COLLAPSE`.
    Collapse,
    /// A split: a larger folio was here.
    Split,
    /// The process forked from, which had it before.
    Inherited,
}

impl Origin {
    /// Every cause, in the order of its numbers in [`Run`].
    pub const ALL: [Self; 17] = [
        Self::Fetch,
        Self::Load,
        Self::Store,
        Self::Marker,
        Self::ReadCall,
        Self::WriteCall,
        Self::Advice,
        Self::Earlier,
        Self::Remade,
        Self::Touch,
        Self::Fallback,
        Self::Copy,
        Self::SwapIn,
        Self::Khugepaged,
        Self::Collapse,
        Self::Split,
        Self::Inherited,
    ];

    /// Name in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fetch => "instruction fault",
            Self::Load => "load fault",
            Self::Store => "store fault",
            Self::Marker => "readahead marker",
            Self::ReadCall => "read call",
            Self::WriteCall => "write call",
            Self::Advice => "advice",
            Self::Earlier => "earlier run",
            Self::Remade => "collapse, split, move or call",
            Self::Touch => "first touch",
            Self::Fallback => "first touch, no larger folio was free",
            Self::Copy => "copy on write",
            Self::SwapIn => "swap-in",
            Self::Khugepaged => "khugepaged",
            Self::Collapse => "MADV_COLLAPSE",
            Self::Split => "split of a larger folio",
            Self::Inherited => "the parent, before the fork",
        }
    }

    /// The cause of what a fault inserts.
    pub(super) fn of_fault(side: Side, is_store: bool) -> Self {
        match (side, is_store) {
            (Side::Instruction, _) => Self::Fetch,
            (Side::Data, true) => Self::Store,
            (Side::Data, false) => Self::Load,
        }
    }

    /// The cause of what a call inserts.
    pub(super) fn of_call(op: Op) -> Self {
        match op {
            Op::Pread => Self::ReadCall,
            Op::Fadvise | Op::Madvise => Self::Advice,
            _ => Self::WriteCall,
        }
    }
}

/// Folios of one order and one cause, one after the other.
///
/// As JSON: `[page, nr_pages, order, cause]`, in base pages of the cell; `cause` is an index into
/// `detail.causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First base page, from the start of the area.
    pub page: u64,
    /// Base pages.
    pub nr_pages: u64,
    /// Order of each folio.
    pub order: Order,
    /// Who caused them.
    pub origin: Origin,
}

impl Serialize for Run {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.page, self.nr_pages, self.order.get(), self.origin as u8).serialize(serializer)
    }
}

/// What an area is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AreaKind {
    /// The page cache of a file.
    File,
    /// Memory from brk.
    Heap,
    /// The stack.
    Stack,
    /// Other private memory.
    Private,
}

/// A file, or a range of private memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    /// What it is.
    pub kind: AreaKind,
    /// Path of the file; empty for private memory.
    pub path: String,
    /// Number of the process; 0 for files, which processes share.
    pub process: ProcessNr,
    /// Recorded address of private memory: the same in every cell; 0 for files.
    pub start: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Folios at the end: of the replay for files, of the process for private memory.
    pub runs: Vec<Run>,
}

impl Area {
    fn nr_pages(&self) -> u64 {
        self.runs.iter().map(|run| run.nr_pages).sum()
    }

    /// Adds a folio, or the part of one, behind the others.
    fn push(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(last)
                if last.page + last.nr_pages == run.page
                    && (last.order, last.origin) == (run.order, run.origin) =>
            {
                last.nr_pages += run.nr_pages;
            }
            _ => self.runs.push(run),
        }
    }
}

/// A part of the trace: one [`NR_BUCKETS`]th of its references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Faults.
    pub faults: u64,
    /// Bytes read from files.
    pub read_bytes: u64,
}

/// The detail of an outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Detail {
    /// Names of the causes, by the number that runs have.
    pub causes: Vec<&'static str>,
    /// Files by their number in the trace, then private memory by process and address.
    pub areas: Vec<Area>,
    /// Areas that hold folios and did not fit.
    pub nr_left_out: u64,
    /// The trace in parts of equal references.
    pub buckets: Vec<Bucket>,
    /// TLB misses over the number of entries.
    pub tlb_curve: Curve,
}

/// Private memory while its segments are put together.
struct Placed {
    area: Area,
    first: Vpn,
    /// Placed address after the last segment.
    end: u64,
    /// Page after the last one that was looked at.
    next: Vpn,
}

impl Placed {
    fn new(kind: AreaKind, process: ProcessNr, segment: &Segment, page: PageSize) -> Self {
        let (path, start, runs) = (String::new(), segment.start, Vec::new());
        let first = Vaddr(segment.placed).vpn(page);
        let area = Area { kind, path, process, start, len_bytes: 0, runs };
        Self { area, first, end: segment.placed, next: first }
    }

    /// Whether `segment` begins where this ends, recorded and placed.
    fn goes_on(&self, segment: &Segment) -> bool {
        self.end == segment.placed && self.area.start + self.area.len_bytes == segment.start
    }

    /// Adds a segment, and what of it is present and private.
    fn add(&mut self, (memory, mm): (&Memory, MmId), segment: &Segment, keeper: &Keeper) {
        let page = memory.rules().page;
        let len = segment.end - segment.start;
        self.area.len_bytes += len;
        self.end = segment.placed + len;
        let end = Vpn(page.pages_in(self.end));
        // A page that two segments share is the first one's.
        let nr_pages = end.0.saturating_sub(self.next.0);
        for leaf in memory.space(mm).table.leaves(self.next, nr_pages) {
            let vpn = leaf.first_vpn.max(self.next);
            let nr_pages = leaf.end_vpn().min(end).0 - vpn.0;
            let pfn = leaf.pfn_of(vpn);
            let Some((Owner::Anon { .. }, order)) = memory.owner_of(pfn) else { continue };
            let page = vpn.0 - self.first.0;
            let origin = keeper.causes.of(pfn, order, mm);
            self.area.push(Run { page, nr_pages, order, origin });
            if self.area.runs.len() > keeper.runs_max {
                break;
            }
        }
        self.next = self.next.max(end);
    }
}

/// What is kept while a cell runs.
#[derive(Debug)]
pub(super) struct Keeper {
    runs_max: usize,
    paths: Vec<String>,
    /// Recorded first addresses of the stacks.
    stacks: Vec<(u64, u64)>,
    nr_references: u64,
    /// The cause of folios that nobody was heard to insert.
    unheard: Origin,
    inserted: BTreeMap<(MappingId, PageIndex), (Order, Origin)>,
    /// The causes of private memory.
    pub(super) causes: Causes,
    areas: Vec<Area>,
    /// Runs of all areas.
    nr_runs: usize,
    nr_left_out: u64,
    buckets: Vec<Bucket>,
    /// Faults and pages read that stand in a bucket.
    seen: (u64, u64),
    /// How far down the stacks references found their entries.
    pub(super) measured: Measured,
}

impl Keeper {
    pub(super) fn new(runs_max: u32, meta: &Meta) -> Self {
        let stacks = meta.layout.iter().filter(|entry| entry.kind == LayoutKind::Stack);
        Self {
            runs_max: runs_max as usize,
            paths: meta.files.iter().map(|file| file.path.clone()).collect(),
            stacks: stacks.map(|e| (e.addr, e.addr.saturating_add(e.len))).collect(),
            nr_references: meta.nr_references,
            unheard: Origin::Remade,
            inserted: BTreeMap::new(),
            causes: Causes::default(),
            areas: Vec::new(),
            nr_runs: 0,
            nr_left_out: 0,
            buckets: vec![Bucket::default(); NR_BUCKETS],
            seen: (0, 0),
            measured: Measured::default(),
        }
    }

    /// Starts again after the run that filled the page cache, which left `seen` in the counters.
    pub(super) fn restart(&mut self, seen: (u64, u64)) {
        self.inserted.clear();
        self.causes = Causes::default();
        self.areas.clear();
        self.nr_runs = 0;
        (self.nr_left_out, self.seen, self.unheard) = (0, seen, Origin::Earlier);
        self.buckets = vec![Bucket::default(); NR_BUCKETS];
        self.measured = Measured::default();
    }

    /// Hears what one fault or call did; `cause` brought in what the marker did not.
    pub(super) fn hear(&mut self, observed: &[Observed], cause: Origin) {
        let mut now = cause;
        for event in observed {
            match *event {
                Observed::Insertion { mapping, index, order } => {
                    self.inserted.insert((mapping, index), (order, now));
                }
                Observed::Entry { kind: EntryKind::Async, .. } => now = Origin::Marker,
                Observed::Window { .. } | Observed::Base { .. } => {}
                _ => now = cause,
            }
        }
    }

    /// Counters after `references`: what is new goes into their bucket.
    fn count(&mut self, (faults, pages_read): (u64, u64), references: u64, page_bytes: u64) {
        let whole = u128::from(self.nr_references.max(1));
        let nr = u128::from(references) * NR_BUCKETS as u128 / whole;
        let nr = usize::try_from(nr).unwrap_or(NR_BUCKETS).min(NR_BUCKETS - 1);
        let bucket = &mut self.buckets[nr];
        bucket.faults += faults - self.seen.0;
        bucket.read_bytes += (pages_read - self.seen.1) * page_bytes;
        self.seen = (faults, pages_read);
    }

    /// Keeps the private memory of a process that is about to end.
    pub(super) fn add_process(&mut self, memory: &Memory, process: &Process, nr: ProcessNr) {
        let mut open: Option<Placed> = None;
        for segment in process.segments.private() {
            let goes_on =
                |placed: &Placed| placed.goes_on(segment) && segment.start != process.heap.start;
            let mut placed = match open.take() {
                Some(placed) if goes_on(&placed) => placed,
                before => {
                    self.keep(before.map(|placed| placed.area));
                    let kind = self.kind_of(process, segment.start);
                    Placed::new(kind, nr, segment, memory.rules().page)
                }
            };
            placed.add((memory, process.mm), segment, self);
            open = Some(placed);
        }
        self.keep(open.map(|placed| placed.area));
    }

    fn kind_of(&self, process: &Process, start: u64) -> AreaKind {
        if self.stacks.iter().any(|&(first, end)| (first..end).contains(&start)) {
            AreaKind::Stack
        } else if process.heap.start == start {
            AreaKind::Heap
        } else {
            AreaKind::Private
        }
    }

    /// Keeps an area that holds folios. At twice the number of runs it is time to choose: so each
    /// area is looked at a few times, however many there are.
    fn keep(&mut self, area: Option<Area>) {
        let Some(area) = area.filter(|area| !area.runs.is_empty()) else { return };
        self.nr_runs += area.runs.len();
        self.areas.push(area);
        if self.nr_runs > 2 * self.runs_max {
            self.choose();
        }
    }

    /// Leaves the smallest areas out until the others fit (I2); those that alone do not fit first.
    fn choose(&mut self) {
        let is_oversized = |area: &Area| area.runs.len() > self.runs_max;
        let mut ranked: Vec<usize> = (0..self.areas.len()).collect();
        ranked.sort_by_key(|&nr| (!is_oversized(&self.areas[nr]), self.areas[nr].nr_pages()));
        let mut victims = BTreeSet::new();
        for nr in ranked {
            if self.nr_runs <= self.runs_max {
                break;
            }
            self.nr_runs -= self.areas[nr].runs.len();
            victims.insert(nr);
        }
        self.nr_left_out += victims.len() as u64;
        let mut nr = 0;
        self.areas.retain(|_| {
            nr += 1;
            !victims.contains(&(nr - 1))
        });
    }

    /// Keeps the page cache of every file.
    fn add_files(&mut self, memory: &Memory, files: &[MappingId]) {
        for (nr, &file) in files.iter().enumerate() {
            let path = self.paths.get(nr).cloned().unwrap_or_default();
            let len_bytes = memory.cache().mapping(file).size_bytes;
            let (kind, runs) = (AreaKind::File, Vec::new());
            let mut area = Area { kind, path, process: 0, start: 0, len_bytes, runs };
            for entry in memory.folios(file) {
                let heard = self.inserted.get(&(file, entry.index));
                let origin = match heard {
                    Some(&(order, origin)) if order == entry.order => origin,
                    Some(_) => Origin::Remade,
                    None => self.unheard,
                };
                let (page, nr_pages) = (entry.index.0, entry.order.nr_pages());
                area.push(Run { page, nr_pages, order: entry.order, origin });
                if area.runs.len() > self.runs_max {
                    break;
                }
            }
            self.keep(Some(area));
        }
    }

    fn finish(mut self, memory: &Memory, files: &[MappingId], tlb_curve: Curve) -> Detail {
        self.add_files(memory, files);
        self.choose();
        // Stable: files stay in the order of the trace.
        self.areas.sort_by_key(|area| (area.kind != AreaKind::File, area.process, area.start));
        Detail {
            causes: Origin::ALL.map(Origin::name).to_vec(),
            areas: self.areas,
            nr_left_out: self.nr_left_out,
            buckets: self.buckets,
            tlb_curve,
        }
    }
}

impl Cell {
    /// After a fault or a call: what it added to the counters.
    pub(super) fn count_detail(&mut self) {
        let Some(keeper) = &self.detail else { return };
        let now = (self.memory.counters().pgfault, self.memory.counters().nr_read);
        if keeper.seen == now {
            return;
        }
        let (references, page_bytes) = (self.references(), self.memory.rules().page.bytes());
        if let Some(keeper) = &mut self.detail {
            keeper.count(now, references, page_bytes);
        }
    }

    /// The detail at the end.
    pub(super) fn take_detail(&mut self) -> Option<Detail> {
        self.count_detail();
        let keeper = self.detail.take()?;
        let curve = keeper.measured.curve(&self.spec.machine.tlb, self.memory.rules().page);
        Some(keeper.finish(&self.memory, &self.files, curve))
    }
}
