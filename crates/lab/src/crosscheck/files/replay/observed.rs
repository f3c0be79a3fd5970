//! The model's events and state, in the form of a recording.

use std::collections::BTreeSet;

use largefolio_mm::core::observed::{EntryKind, Observed};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::readahead::RaState;
use largefolio_mm::units::{Order, Pfn, Vaddr, Vpn};

use super::super::body::FolioRun;
use super::super::step::{
    CachedFolio, EntryLine, FileStep, HandlerHit, PageRun, PrintedState, WindowLine,
};
use super::super::timing::{LeftOut, Waited};
use super::FileReplay;

impl FileReplay {
    pub(super) fn observed(&mut self, nr: usize) -> FileStep {
        let mut step = FileStep::default();
        for event in self.memory.take_observed() {
            match event {
                Observed::Insertion { mapping, index, order, .. } => {
                    let (file, order) = (self.number_of(mapping), order.get());
                    step.insertions.push(CachedFolio { file, index: index.0, order });
                }
                Observed::Removal { mapping, index, order } => {
                    let (file, order) = (self.number_of(mapping), order.get());
                    step.removals.push(CachedFolio { file, index: index.0, order });
                    step.removed_at.push(step.insertions.len());
                }
                Observed::Handler { mapping, index } => {
                    step.handler.push((self.number_of(mapping), index.0));
                }
                Observed::Around { mapping, first, last } => {
                    step.around.push((self.number_of(mapping), first.0, last.0));
                }
                Observed::InFlight { mapping, index, order, nr_requests } => {
                    let pages = index.0..index.0 + order.nr_pages();
                    let file = self.number_of(mapping);
                    self.reads.leave_out(LeftOut { step: nr, file, pages, nr_requests });
                }
                Observed::Waited { mapping, index, end } => {
                    let file = self.number_of(mapping);
                    self.reads.wait(Waited { step: nr, file, behind: index.0 + 1..end.0 });
                }
                Observed::ColdFault { state, .. } => step.cold.push(printed(&state)),
                Observed::HandlerHit { index, is_marked, state } => {
                    let state = printed(&state);
                    step.hits.push(HandlerHit {
                        index: index.0,
                        is_marked,
                        is_locked: false,
                        state,
                    });
                }
                Observed::Entry { kind, mapping, index, nr_pages, state } => {
                    let file = self.number_of(mapping);
                    step.entries.push(entry_line(kind, file, index, nr_pages, &state));
                }
                Observed::Window { mapping, start, state } => step.windows.push(WindowLine {
                    file: self.number_of(mapping),
                    is_base: false,
                    start,
                    order: Some(state.order.get()),
                    size: state.size,
                    async_size: state.async_size,
                }),
                Observed::Base { mapping, start, nr_pages, lookahead } => {
                    step.windows.push(WindowLine {
                        file: self.number_of(mapping),
                        is_base: true,
                        start,
                        order: None,
                        size: nr_pages,
                        async_size: lookahead,
                    });
                }
                // khugepaged sleeps in recordings of files.
                Observed::Scanned { .. } => {}
            }
        }
        step
    }

    pub(in super::super) fn cached_pages(&self) -> BTreeSet<u64> {
        let Some(&file) = self.files.get(&0) else { return BTreeSet::new() };
        let entries = self.memory.core().mapping(file).tree.iter();
        entries.flat_map(|entry| entry.index.0..entry.end()).collect()
    }

    pub(in super::super) fn present(&self, area: u32) -> Vec<PageRun> {
        let mut runs: Vec<PageRun> = Vec::new();
        for part in self.parts(area) {
            match runs.last_mut() {
                Some(run) if run.1 + 1 == part.first => run.1 = part.last,
                _ => runs.push((part.first, part.last)),
            }
        }
        runs
    }

    pub(in super::super) fn pmd_kib(&self, area: u32) -> u64 {
        let nr_pages: u64 = self
            .parts(area)
            .filter(|part| part.is_pmd)
            .map(|part| part.last - part.first + 1)
            .sum();
        (nr_pages * self.page_bytes()) >> 10
    }

    pub(in super::super) fn folio_runs(&self, area: u32) -> Vec<FolioRun> {
        let folios = &self.memory.core().folios;
        let mut runs: Vec<FolioRun> = Vec::new();
        let mut next = None;
        for part in self.parts(area) {
            for index in part.first..=part.last {
                let pfn = Pfn(part.pfn.0 + (index - part.first));
                let Some(folio) = folios.of_pfn(pfn).map(|id| folios.get(id)) else { continue };
                if folio.order == Order::ZERO {
                    continue;
                }
                let is_head = folio.pfn == pfn;
                match runs.last_mut() {
                    Some(run) if !is_head && next == Some((index, pfn)) => run.nr_pages += 1,
                    _ => runs.push(FolioRun { first: index, nr_pages: 1, is_head }),
                }
                next = Some((index + 1, Pfn(pfn.0 + 1)));
            }
        }
        runs
    }

    /// Lists the mapped parts of a mapping, one per page-table leaf.
    fn parts(&self, area: u32) -> impl Iterator<Item = Part> {
        let page = self.memory.rules().page;
        let area = self.areas.get(&area);
        let of = area.map(|area| (Vaddr(area.addr).vpn(page), area.nr_pages, area.first));
        let (start, nr_pages, base) = of.unwrap_or((Vpn(0), 0, 0));
        let end = start.plus(nr_pages);
        let leaves = self.memory.space(self.mm).table.leaves(start, nr_pages);
        leaves.map(move |leaf| {
            let (from, to) = (leaf.first_vpn.max(start), leaf.end_vpn().min(end));
            let first = from.0 - start.0 + base;
            let is_pmd = leaf.kind == LeafKind::Pmd;
            Part { first, last: first + (to.0 - from.0) - 1, pfn: leaf.pfn_of(from), is_pmd }
        })
    }
}

/// File pages `first ..= last` of a mapping, mapped by one leaf to pfns from `pfn`.
struct Part {
    first: u64,
    last: u64,
    pfn: Pfn,
    is_pmd: bool,
}

fn printed(state: &RaState) -> PrintedState {
    let mmap_miss = state.mmap_miss();
    PrintedState { start: state.start, size: state.size, async_size: state.async_size, mmap_miss }
}

fn entry_line(kind: EntryKind, file: u32, index: u64, nr_pages: u64, state: &RaState) -> EntryLine {
    EntryLine {
        kind,
        file,
        index,
        nr_pages,
        order: state.order.get(),
        size: state.size,
        async_size: state.async_size,
        ra_pages: state.ra_pages,
        mmap_miss: state.mmap_miss(),
        prev_pos: state.prev_pos.map_or(-1, |pos| i64::try_from(pos).unwrap_or(i64::MAX)),
    }
}
