//! Moving a folio to other page frames (docs/behaviour I.11).
//!
//! Answers to: `migrate_pages`, `migrate_folio`, `folio_mc_copy`, `remove_migration_ptes`.
//!
//! The folio keeps its owner, references, map counts and list position. Its entries name the new
//! frames and keep their flags.

use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::FolioSpan;
use crate::ram::Work;
use crate::units::Pfn;

impl Memory {
    pub(super) fn can_migrate(&self, id: FolioId) -> bool {
        let folio = self.core.folios.get(id);
        !folio.has_extra_refs()
            && folio.refs > 0
            && folio.pmd_maps() == 0
            && !folio.is_locked
            && self.core.folios.lru().is_on_lru(id)
    }

    pub(super) fn migrate(&mut self, id: FolioId, to: Pfn) {
        let sites = self.sites_of(id);
        let folio = self.core.folios.get(id);
        let (from, order, nr) = (folio.pfn, folio.order, folio.nr_pages());
        let plan = self.rules.clear.move_plan(self.arch, self.rules.page, nr);
        self.core.ram.copy_folio(from, to, &plan);
        self.core.stretches.plan(Work::Copy, &plan);
        self.core.folios.move_frames(id, to);
        let span = FolioSpan::new(to, order);
        for site in sites {
            self.flush(site.mm, site.vpn, site.nr);
            let table = &mut self.space_mut(site.mm).table;
            table.unfold_range(site.vpn, site.nr);
            for by in 0..site.nr {
                let vpn = site.vpn.plus(by);
                let flags = table.pte(vpn).flags();
                let pfn = to.plus(site.pfn.0 - from.0 + by);
                let _ = table.replace_pte(vpn, pfn, flags, span);
            }
        }
        self.core.buddy.free(from, order);
        self.core.counters.reclaim.pgmigrate_success += nr;
    }
}
