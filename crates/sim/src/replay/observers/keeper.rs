//! Collects the data for pictures while a cell runs. [`super::detail`] defines the invariants.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_mm::core::observed::{EntryKind, Observed};
use largefolio_mm::core::space::Flush;
use largefolio_mm::counters::Counters;
use largefolio_mm::folio::Owner;
use largefolio_mm::mapping::tree::Entry;
use largefolio_mm::memory::Memory;
use largefolio_mm::units::{MappingId, MmId, Order, PageIndex, PageSize, Vaddr, Vpn};
use largefolio_trace::Meta;

use crate::replay::observers::causes::Causes;
use crate::replay::observers::detail::{Area, AreaKind, Bucket, Detail, FolioRun, Origin};
use crate::replay::observers::programs::ProgramNr;
use crate::replay::observers::timeline::{NR_BUCKETS, Recorder};
use crate::replay::program::place::Segment;
use crate::replay::program::space::AddressSpace;
use crate::tlb::curve::{Curve, Distances, LruStack, NR_ENTRIES_MAX, OwnSizes};
use crate::tlb::{Side, TlbConfig};

struct Placed {
    area: Area,
    first: Vpn,
    end: u64,
    next: Vpn,
}

impl Placed {
    fn new(kind: AreaKind, process: usize, segment: &Segment, page: PageSize) -> Self {
        let (path, start, runs) = (String::new(), segment.start, Vec::new());
        let first = Vaddr(segment.placed).vpn(page);
        let area = Area { kind, path, process, start, len_bytes: 0, runs };
        Self { area, first, end: segment.placed, next: first }
    }

    fn continues(&self, segment: &Segment) -> bool {
        self.end == segment.placed && self.area.start + self.area.len_bytes == segment.start
    }

    fn add(&mut self, memory: &Memory, mm: MmId, segment: &Segment, keeper: &Keeper) {
        let page = memory.rules().page;
        let len = segment.end - segment.start;
        self.area.len_bytes += len;
        self.end = segment.placed + len;
        let end = Vpn(page.pages_in(self.end));
        // If two segments share a page, it belongs to the first.
        let nr_pages = end.0.saturating_sub(self.next.0);
        for leaf in memory.space(mm).table.leaves(self.next, nr_pages) {
            let vpn = leaf.first_vpn.max(self.next);
            let nr_pages = leaf.end_vpn().min(end).0 - vpn.0;
            let pfn = leaf.pfn_of(vpn);
            let Some((Owner::Anon { .. }, order)) = memory.owner_of(pfn) else { continue };
            let page = vpn.0 - self.first.0;
            let origin = keeper.causes.of(pfn, order, mm);
            self.area.push(FolioRun { page, nr_pages, order, origin });
            if self.area.runs.len() > keeper.runs_max {
                break;
            }
        }
        self.next = self.next.max(end);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    faults: u64,
    pages_read: u64,
}

impl Counted {
    pub(crate) const fn of(now: &Counters) -> Self {
        Self { faults: now.pgfault, pages_read: now.nr_read }
    }
}

#[derive(Debug)]
pub(crate) struct Keeper {
    runs_max: usize,
    paths: Vec<String>,
    nr_references: u64,
    /// References before the recording; `u64::MAX` until it begins.
    nr_before: u64,
    has_before: bool,
    /// The cause of folios without an observed insertion.
    unobserved: Origin,
    inserted: BTreeMap<(MappingId, PageIndex), (Order, Origin)>,
    pub(crate) causes: Causes,
    areas: Vec<Area>,
    nr_runs: usize,
    nr_left_out: u64,
    buckets: Vec<Bucket>,
    timeline: Recorder,
    counted: Counted,
    /// TLB flushes of the event that is replayed.
    pub(crate) flushed: Vec<Flush>,
    /// Depths at which references found their entries in the stacks.
    pub(crate) measured: Measured,
}

impl Keeper {
    pub(crate) fn new(runs_max: u32, meta: &Meta) -> Self {
        Self {
            runs_max: runs_max as usize,
            paths: meta.files.iter().map(|file| file.path.clone()).collect(),
            nr_references: meta.nr_references_recorded(),
            nr_before: if meta.nr_rows_before() > 0 { u64::MAX } else { 0 },
            has_before: meta.nr_rows_before() > 0,
            unobserved: Origin::Remade,
            inserted: BTreeMap::new(),
            causes: Causes::default(),
            areas: Vec::new(),
            nr_runs: 0,
            nr_left_out: 0,
            buckets: vec![Bucket::default(); NR_BUCKETS],
            timeline: Recorder::new(meta.nr_references_recorded()),
            counted: Counted::default(),
            flushed: Vec::new(),
            measured: Measured::default(),
        }
    }

    /// Restarts after the run that filled the page cache. `seen` holds its counters.
    pub(crate) fn restart(&mut self, counted: Counted) {
        self.inserted.clear();
        self.flushed.clear();
        self.causes = Causes::default();
        self.areas.clear();
        self.nr_runs = 0;
        (self.nr_left_out, self.counted, self.unobserved) = (0, counted, Origin::Earlier);
        self.nr_before = if self.has_before { u64::MAX } else { 0 };
        self.buckets = vec![Bucket::default(); NR_BUCKETS];
        self.measured = Measured::default();
        self.timeline.restart();
    }

    /// Starts the recording after `references`. `seen` holds the counters of the earlier rows.
    pub(crate) fn begin(&mut self, counted: Counted, references: u64) {
        (self.counted, self.nr_before) = (counted, references);
        self.buckets = vec![Bucket::default(); NR_BUCKETS];
    }

    /// Records one fault or call. Insertions that the marker did not start are due to `cause`.
    pub(crate) fn observe(&mut self, observed: &[Observed], cause: Origin) {
        let mut now = cause;
        for event in observed {
            match *event {
                Observed::Insertion { mapping, index, order, .. } => {
                    self.inserted.insert((mapping, index), (order, now));
                }
                Observed::Entry { kind: EntryKind::Async, .. } => now = Origin::Marker,
                Observed::Window { .. } | Observed::Base { .. } => {}
                _ => now = cause,
            }
        }
    }

    /// Adds the new counts since the last call to the bucket of `references`.
    pub(crate) fn count(&mut self, now: Counted, references: u64, page_bytes: u64) {
        let whole = u128::from(self.nr_references.max(1));
        let nr = u128::from(references.saturating_sub(self.nr_before)) * NR_BUCKETS as u128 / whole;
        let nr = usize::try_from(nr).unwrap_or(NR_BUCKETS).min(NR_BUCKETS - 1);
        let bucket = &mut self.buckets[nr];
        bucket.faults += now.faults - self.counted.faults;
        bucket.read_bytes += (now.pages_read - self.counted.pages_read) * page_bytes;
        self.counted = now;
    }

    /// Records that `nr` more processes of a program live; `nr` can be negative.
    pub(crate) fn change_lives(&mut self, program: ProgramNr, nr: i64, references: u64) {
        self.timeline.change(program, nr, references.saturating_sub(self.nr_before));
    }

    pub(crate) fn note_memory(&mut self, used_bytes: u64, references: u64) {
        self.timeline.note_memory(used_bytes, references.saturating_sub(self.nr_before));
    }

    pub(crate) fn has_counted(&self, now: Counted) -> bool {
        self.counted == now
    }

    pub(crate) fn add_space(&mut self, memory: &Memory, space: &AddressSpace) {
        let mut open: Option<Placed> = None;
        for segment in space.segments.private() {
            let continues =
                |placed: &Placed| placed.continues(segment) && segment.start != space.heap.start;
            let mut placed = match open.take() {
                Some(placed) if continues(&placed) => placed,
                before => {
                    self.keep(before.map(|placed| placed.area));
                    let kind = kind_of(space, segment.start);
                    Placed::new(kind, space.owner, segment, memory.rules().page)
                }
            };
            placed.add(memory, space.mm, segment, self);
            open = Some(placed);
        }
        self.keep(open.map(|placed| placed.area));
        self.causes.end(space.mm);
    }

    /// Keeps an area with folios. Waits for twice the maximum number of runs before it drops areas.
    fn keep(&mut self, area: Option<Area>) {
        let Some(area) = area.filter(|area| !area.runs.is_empty()) else { return };
        self.nr_runs += area.runs.len();
        self.areas.push(area);
        if self.nr_runs > 2 * self.runs_max {
            self.choose();
        }
    }

    /// Drops areas until the rest fit (I2): first oversized ones, then the smallest.
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

    fn add_files(&mut self, memory: &Memory, files: &[MappingId]) {
        for (nr, &file) in files.iter().enumerate() {
            let path = self.paths.get(nr).cloned().unwrap_or_default();
            let len_bytes = memory.core().mapping(file).size_bytes;
            let (kind, runs) = (AreaKind::File, Vec::new());
            let mut area = Area { kind, path, process: 0, start: 0, len_bytes, runs };
            // As for mincore, a folio with only some of its blocks read is not there.
            let is_complete = |entry: &Entry| memory.core().folios.get(entry.folio).is_uptodate;
            for entry in memory.folios(file).filter(is_complete) {
                let observed_from = self.inserted.get(&(file, entry.index));
                let origin = match observed_from {
                    Some(&(order, origin)) if order == entry.order => origin,
                    Some(_) => Origin::Remade,
                    None => self.unobserved,
                };
                let (page, nr_pages) = (entry.index.0, entry.order.nr_pages());
                area.push(FolioRun { page, nr_pages, order: entry.order, origin });
                if area.runs.len() > self.runs_max {
                    break;
                }
            }
            self.keep(Some(area));
        }
    }

    pub(crate) fn finish(
        mut self,
        memory: &Memory,
        files: &[MappingId],
        tlb_curve: Curve,
        references: u64,
    ) -> Detail {
        self.add_files(memory, files);
        self.choose();
        // The stable sort keeps files in trace order.
        self.areas.sort_by_key(|area| (area.kind != AreaKind::File, area.process, area.start));
        Detail {
            causes: Origin::ALL.map(Origin::name).to_vec(),
            areas: self.areas,
            nr_left_out: self.nr_left_out,
            buckets: self.buckets,
            tlb_curve,
            timeline: self.timeline.finish(references.saturating_sub(self.nr_before)),
        }
    }
}

pub(crate) fn kind_of(space: &AddressSpace, start: u64) -> AreaKind {
    if space.stacks.iter().any(|stack| stack.contains(&start)) {
        AreaKind::Stack
    } else if space.heap.start == start {
        AreaKind::Heap
    } else {
        AreaKind::Private
    }
}

/// A CPU's stacks. Their pages carry the TLB's tags.
pub(crate) struct Stacks([LruStack; 2]);

impl Stacks {
    pub(crate) fn new(page: PageSize) -> Self {
        Self([LruStack::new(page, NR_ENTRIES_MAX), LruStack::new(page, NR_ENTRIES_MAX)])
    }

    #[inline]
    pub(crate) const fn of(&self, side: Side) -> &LruStack {
        &self.0[side as usize]
    }

    pub(crate) const fn of_mut(&mut self, side: Side) -> &mut LruStack {
        &mut self.0[side as usize]
    }

    pub(crate) fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        self.0.iter_mut().for_each(|stack| stack.invalidate(first, nr_pages));
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) distances: [Distances; 2],
    /// By side; bit `k`: a walk found an entry of order `k`.
    pub(crate) orders: [u32; 2],
}

impl Measured {
    pub(crate) fn curve(&self, config: &TlbConfig, page: PageSize) -> Curve {
        let [instruction, data] = self.orders.map(|orders| OwnSizes::new(config, page, orders));
        let own = OwnSizes {
            l2_instruction: instruction.l2_instruction,
            l1_instruction: instruction.l1_instruction,
            ..data
        };
        Curve::new(&self.distances, own)
    }
}
