//! Fault-around: a read fault maps the cached pages around its address (docs/behaviour B.5).
//!
//! Corresponds to: `do_fault_around`, `filemap_map_pages`, `filemap_map_folio_range`,
//! `filemap_map_pmd`, `next_uptodate_folio`.

use super::Fault;
use crate::core::observed::Observed;
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::{Batch, PmdState, PteFlags};
use crate::rules::{AroundCredit, AroundSpan, EofGuard};
use crate::units::{PageIndex, Vpn};
use crate::vma::MappedShmem;

#[derive(Clone, Copy)]
struct AroundRange {
    first: Vpn,
    last: Vpn,
}

#[derive(Clone, Copy, Default)]
struct Mapped {
    nr_visited: u64,
    has_fault: bool,
}

enum FirstFolio {
    Mapped,
    NoTable,
    GoOn,
}

impl Memory {
    pub(super) fn fault_around(&mut self, fault: &Fault) -> bool {
        if fault.vma.shmem == MappedShmem::Segment {
            return false;
        }
        let nr_pages = self.rules.fault_around_pages();
        let nr_pages = self.decided_around(fault, nr_pages);
        // A window of one page is just the fault itself (B.5.1).
        if nr_pages <= 1 {
            return false;
        }
        let Some(window) = self.around_window(fault, nr_pages) else { return false };
        let file = self.open_file(fault.open()).mapping;
        let vma = fault.vma;
        let last = PageIndex(vma.index_of(window.last));
        let mut next = PageIndex(vma.index_of(window.first));
        let (mut is_first, mut has_fault, mut credit) = (true, false, 0);
        while let Some(entry) = self.core.mapping(file).tree.first_in(next, last) {
            next = PageIndex(entry.end());
            let folio = self.core.folios.get(entry.folio);
            let (is_workingset, is_locked) = (folio.is_workingset, folio.is_locked);
            // The handler must see the marker, or the next window would never start (B.5.4).
            if folio.is_marked || !folio.is_uptodate {
                continue;
            }
            // Fault-around never waits: skip pages still being read (B.5.4).
            if is_locked {
                self.core.observe_locked(file, entry);
                continue;
            }
            if std::mem::take(&mut is_first) {
                match self.around_pmd(fault, entry) {
                    FirstFolio::Mapped => return true,
                    FirstFolio::NoTable => return false,
                    FirstFolio::GoOn => {}
                }
                let first = PageIndex(vma.index_of(window.first));
                self.core.observe(Observed::Around { mapping: file, first, last });
            }
            let mapped = self.around_ptes(fault, entry, window);
            has_fault |= mapped.has_fault;
            credit += self.around_credit(fault, mapped, is_workingset);
        }
        self.open_file_mut(fault.open()).state.credit(credit);
        has_fault
    }

    fn around_window(&self, fault: &Fault, nr_pages: u64) -> Option<AroundRange> {
        let table_pages = self.rules.page.pmd_order().nr_pages();
        let slot = fault.vpn.0 & (table_pages - 1);
        let before = fault.vpn.0 - fault.vma.start.0;
        let first = (slot / nr_pages * nr_pages).max(slot - slot.min(before));
        let after = slot + (fault.vma.end.0 - fault.vpn.0);
        let last = (first + nr_pages).min(table_pages).min(after) - 1;
        let base = fault.vpn.0 - slot;
        let file = self.open_file(fault.open()).mapping;
        let last_index = self.core.mapping(file).last_index(self.rules.page)?.0;
        let in_file = last_index.checked_sub(fault.vma.index_of(Vpn(base + first)))?;
        Some(AroundRange { first: Vpn(base + first), last: Vpn(base + last.min(first + in_file)) })
    }

    /// Maps the window's first folio by one PMD entry (B.5.6).
    ///
    /// If that folio fails the end-of-file test, the kernel skips this step, which also installs
    /// the PTE table. Fault-around then maps nothing over an empty PMD slot, and the finishing step
    /// decides (docs/differences.md, "last folio").
    fn around_pmd(&mut self, fault: &Fault, entry: Entry) -> FirstFolio {
        let is_whole = self.ends_before_last_page(fault, entry);
        if self.try_map_pmd(fault, entry, is_whole) {
            FirstFolio::Mapped
        } else if !is_whole && self.is_pmd_empty(fault) {
            FirstFolio::NoTable
        } else {
            FirstFolio::GoOn
        }
    }

    /// The kernel's test is off by one: a folio that ends *on* the last page also fails (B.5.6).
    fn ends_before_last_page(&self, fault: &Fault, entry: Entry) -> bool {
        let mapping = self.core.mapping(self.open_file(fault.open()).mapping);
        let last = mapping.last_index(self.rules.page);
        self.rules.fault.eof_guard == EofGuard::None
            || mapping.is_shmem
            || last.is_some_and(|last| entry.end() <= last.0)
    }

    fn around_ptes(&mut self, fault: &Fault, entry: Entry, window: AroundRange) -> Mapped {
        let vma = fault.vma;
        let first_index = vma.index_of(window.first);
        let to_vpn = |index: u64| Vpn((window.first.0 + index).wrapping_sub(first_index));
        let last_index = vma.index_of(window.last);
        let mut from = to_vpn(entry.index.0.max(first_index));
        let mut end = to_vpn(entry.end().min(last_index + 1));
        if self.can_widen(fault, entry) {
            from = to_vpn(entry.index.0);
            end = to_vpn(entry.end());
        }
        let mut mapped = Mapped { nr_visited: end.0 - from.0, has_fault: false };
        let flags = self.loaded_flags(&vma);
        while from < end {
            let run = self.none_run(fault, from, end);
            if run > 0 {
                let has_fault = from <= fault.vpn && fault.vpn.0 < from.0 + run;
                let young = if has_fault { PteFlags::YOUNG } else { PteFlags::NONE };
                let folio = self.core.folios.get(entry.folio);
                let pfn = folio.pfn_at(PageIndex(vma.index_of(from)));
                self.map_file(
                    fault.mm,
                    entry.folio,
                    Batch { vpn: from, pfn, nr: run, flags: young | flags },
                );
                mapped.has_fault |= has_fault;
            }
            from = from.plus(run + 1);
        }
        mapped
    }

    fn none_run(&self, fault: &Fault, from: Vpn, end: Vpn) -> u64 {
        let nr = end.0 - from.0;
        self.space(fault.mm).first_set_in(from, nr).map_or(nr, |set| set.0 - from.0)
    }

    fn can_widen(&self, fault: &Fault, entry: Entry) -> bool {
        // Up to 6.17, no page outside the window is mapped (B.5.7).
        if self.rules.fault.around_span == AroundSpan::Window {
            return false;
        }
        self.ends_before_last_page(fault, entry) && self.fits_area_and_table(fault, entry)
    }

    pub(super) fn fits_area_and_table(&self, fault: &Fault, entry: Entry) -> bool {
        let (area_first, area_end) = fault.vma.file_range();
        if entry.index.0 < area_first || entry.end() > area_end {
            return false;
        }
        let first = fault.vma.start.0 + (entry.index.0 - area_first);
        let last = first + (entry.order.nr_pages() - 1);
        let pmd = self.rules.page.pmd_order();
        pmd.round_down(first) == pmd.round_down(last)
    }

    fn around_credit(&self, fault: &Fault, mapped: Mapped, is_workingset: bool) -> u64 {
        if !self.is_counted(&fault.vma) {
            return 0;
        }
        match self.rules.fault.around_credit {
            // Evicted too early: finding it cached again is not a readahead success (B.5.8).
            AroundCredit::PerNewPage if is_workingset => 0,
            AroundCredit::PerPage | AroundCredit::PerNewPage => mapped.nr_visited,
            // One touch is one hit, however many neighbours it mapped (B.5.8).
            AroundCredit::OncePerFault => {
                u64::from(mapped.has_fault && !fault.pass.is_tried() && !is_workingset)
            }
        }
    }

    pub(super) fn is_pmd_empty(&self, fault: &Fault) -> bool {
        self.space(fault.mm).table.pmd(fault.vpn) == PmdState::Empty
    }
}
