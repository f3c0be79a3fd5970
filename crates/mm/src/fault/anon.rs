//! First touches of anonymous memory, in base pages (BEHAVIOUR.md D.2.2, D.2.8 at order 0).

use super::{Access, Fault, FaultError, Outcome};
use crate::memory::Memory;
use crate::pgtable::{Batch, FolioSpan, PteFlags};
use crate::ram::Ram;

impl<R: Ram> Memory<R> {
    /// Maps the shared zero page for a read, a zeroed page for a write.
    pub(super) fn anon_fault(&mut self, fault: Fault) -> Result<Outcome, FaultError> {
        let vpn = fault.vpn;
        if fault.access != Access::Write {
            let pfn = self.zero_pfn;
            let flags = PteFlags::YOUNG | PteFlags::SPECIAL;
            let batch = Batch { vpn, pfn, nr: 1, flags };
            self.space_mut(fault.mm).table.map_ptes(batch, FolioSpan::single(pfn));
            self.cache.counters.nr_zero_page += 1;
            return Ok(Outcome::Minor);
        }
        let (id, pfn) = self
            .cache
            .alloc_anon()
            .ok_or_else(|| fault.error(FaultError::OutOfMemory, self.rules.page.shift()))?;
        self.cache.ram.zero(pfn, 1);
        self.cache.add_maps(id, 1);
        let flags = PteFlags::YOUNG | PteFlags::WRITABLE | PteFlags::DIRTY;
        let batch = Batch { vpn, pfn, nr: 1, flags };
        self.space_mut(fault.mm).table.map_ptes(batch, FolioSpan::single(pfn));
        self.mark_anon(fault.mm, vpn);
        self.cache.counters.nr_anon += 1;
        Ok(Outcome::Minor)
    }
}
