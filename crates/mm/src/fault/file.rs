//! The fault handler: the page-cache lookup of one pass (docs/behaviour B.2, B.3).
//!
//! Corresponds to: `filemap_fault`, `do_async_mmap_readahead`.

use super::decide::Decided;
use super::{Fault, FaultError, Pass, Retry};
use crate::core::NewFolio;
use crate::core::groups::ChargeEffort;
use crate::core::observed::{EntryKind, Observed};
use crate::core::open_file::OpenFile;
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::readahead::marker::{self, MarkerHit};
use crate::rules::{ExecMiss, HitCredit};
use crate::shmem::Need;
use crate::units::{MappingId, PageIndex};
use crate::vma::{AccessAdvice, Vma};

pub(super) enum Lookup {
    Cached(Entry),
    Retry(Retry),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AsyncStep {
    Nothing,
    Dropped,
}

impl Memory {
    pub(super) fn find_or_read(&mut self, fault: &Fault) -> Result<Lookup, FaultError> {
        let file = self.open_file(fault.open()).mapping;
        let index = PageIndex(fault.index());
        if index.0 >= self.core.mapping(file).nr_file_pages(self.rules.page) {
            return Err(fault.error(FaultError::BeyondFile, self.rules.page.shift()));
        }
        self.core.observe(Observed::Handler { mapping: file, index });
        if self.core.mapping(file).is_zero_filled {
            return self.find_or_zero(fault, file);
        }
        let Some(entry) = self.core.find(file, index) else {
            self.core.counters.nr_cold += 1;
            let state = self.open_file(fault.open()).state;
            self.core.observe(Observed::ColdFault { index, state });
            self.sync_step(fault);
            if self.core.find(file, index).is_none() {
                let order = self.core.mapping(file).orders.min;
                let first = PageIndex(order.round_down(index.0));
                self.prepare_smallest(file);
                self.insert(NewFolio::new(file, first, order), ChargeEffort::Full)
                    .map_err(|_| fault.error(FaultError::OutOfMemory, self.rules.page.shift()))?;
            }
            if let Some(entry) = self.core.find(file, index) {
                self.core.folios.get_mut(entry.folio).is_locked = false;
                self.core.wait(Some(entry.folio));
            }
            return Ok(Lookup::Retry(Retry::Major));
        };
        // An earlier pass waited for this page, so take it as it is (B.2.5).
        if fault.pass == Pass::Tried {
            let folio = self.core.folios.get_mut(entry.folio);
            (folio.is_locked, folio.is_uptodate) = (false, true);
            return Ok(Lookup::Cached(entry));
        }
        // Hold the folio: readahead may start reclaim.
        self.core.folios.get_mut(entry.folio).refs += 1;
        let step = self.async_step(fault, entry);
        let folio = self.core.folios.get_mut(entry.folio);
        folio.refs -= 1;
        let had_to_wait = std::mem::take(&mut folio.is_locked);
        let was_uptodate = std::mem::replace(&mut folio.is_uptodate, true);
        // I/O ran without the lock: the area may have changed (B.2.5).
        if step == AsyncStep::Dropped || had_to_wait || !was_uptodate {
            self.core.wait(None);
            return Ok(Lookup::Retry(Retry::Minor));
        }
        Ok(Lookup::Cached(entry))
    }

    /// Shared memory: an absent page becomes a zeroed folio, without readahead (Q.2.1).
    fn find_or_zero(&mut self, fault: &Fault, file: MappingId) -> Result<Lookup, FaultError> {
        let index = PageIndex(fault.index());
        if self.core.find(file, index).is_none() {
            let need = Need::Fault { mm: fault.mm, vma: &fault.vma, vpn: fault.vpn };
            self.insert_shmem(file, index, need)
                .ok_or_else(|| fault.error(FaultError::OutOfMemory, self.rules.page.shift()))?;
        }
        let Some(entry) = self.core.find(file, index) else {
            unreachable!("the page was just inserted")
        };
        self.zero_shmem(entry.folio);
        Ok(Lookup::Cached(entry))
    }

    /// A hit in the handler lowers the miss counter; the marker starts the next window (B.3).
    fn async_step(&mut self, fault: &Fault, entry: Entry) -> AsyncStep {
        let open = fault.open();
        let OpenFile { mapping: file, state, .. } = *self.open_file(open);
        let is_marked = self.core.folios.get(entry.folio).is_marked;
        let index = PageIndex(fault.index());
        self.core.observe(Observed::HandlerHit { index, is_marked, state });
        let is_random = fault.vma.advice.access == AccessAdvice::Random;
        // `MADV_RANDOM`, or readahead is off: hits have no effect, so they are not counted (B.3).
        if is_random || state.ra_pages == 0 {
            return AsyncStep::Nothing;
        }
        let is_locked = self.core.folios.get(entry.folio).is_locked;
        let is_credited = match self.rules.fault.hit_credit {
            HitCredit::Always => true,
            // A page still being read was a miss: it does not show that readahead works.
            HitCredit::Unlocked => !is_locked,
        };
        // A hit cancels a miss: pages read ahead are used (B.3).
        if is_credited && self.is_counted(&fault.vma) {
            self.open_file_mut(open).state.credit(1);
        }
        if !is_marked {
            return AsyncStep::Nothing;
        }
        self.core.folios.get_mut(entry.folio).is_marked = false;
        self.core.counters.nr_async += 1;
        let state = self.open_file(open).state;
        let hit = MarkerHit {
            index: fault.index(),
            order: entry.order,
            nr_pages: state.ra_pages,
            io_pages: self.device(file).io_pages,
        };
        let (index, nr_pages) = (hit.index, hit.nr_pages);
        let kind = EntryKind::Async;
        self.core.observe(Observed::Entry { kind, mapping: file, index, nr_pages, state });
        let ra = self.readahead(open);
        if let Some(own) = marker::choose(ra.state, ra.tree, hit, ra.rules) {
            match self.decided_marker(fault, state, own) {
                Decided::Own => self.read(open, self.fault_target(fault), own),
                Decided::Nothing => {}
                Decided::Read(plan) => self.read(open, self.fault_target(fault), plan),
            }
        }
        AsyncStep::Dropped
    }

    pub(super) fn is_counted(&self, vma: &Vma) -> bool {
        let is_exempt = vma.prot.can_exec || vma.advice.access == AccessAdvice::Sequential;
        self.rules.fault.exec_miss != ExecMiss::Balanced || !is_exempt
    }
}
