//! What a page of a process looks like from outside: pagemap, kpageflags, kpagecount
//! (BEHAVIOUR.md F.2, F.5.4).

use crate::folio::{FolioId, Owner};
use crate::memory::Memory;
use crate::pgtable::{LeafKind, PteFlags};
use crate::ram::Ram;
use crate::rules::anon::{Mapcount, Reuse};
use crate::space::MmId;
use crate::units::{Order, Pfn, Vaddr};

/// A present page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "bits of pagemap: independent of each other")]
pub struct PageView {
    /// Its frame.
    pub pfn: Pfn,
    /// Order of its folio; 0 for the zero page, the PMD order for the huge zero folio.
    pub order: Order,
    /// What its folio holds; `None` for pages of zeroes.
    pub owner: Option<Owner>,
    /// What maps it.
    pub kind: LeafKind,
    /// Whether a store goes through without a fault.
    pub is_writable: bool,
    /// Whether the page is known to be the process's own (`AnonExclusive`).
    pub is_anon_exclusive: bool,
    /// Bit 56 of pagemap: mapped exactly once, as far as the kernel can tell.
    pub is_exclusively_mapped: bool,
    /// Whether its folio is queued for a deferred split as partially mapped.
    pub is_partially_mapped: bool,
}

impl<R: Ram> Memory<R> {
    /// The page at `addr`; `None` when it is not present.
    #[must_use]
    pub fn page_at(&self, mm: MmId, addr: Vaddr) -> Option<PageView> {
        let vpn = addr.vpn(self.rules.page);
        let leaf = self.space(mm).table.leaf(vpn)?;
        let pfn = leaf.pfn_of(vpn);
        let is_writable = leaf.flags.contains(PteFlags::WRITABLE);
        let Some(id) = self.cache.folios.of_pfn(pfn) else {
            let order = if leaf.kind == LeafKind::Pmd { leaf.order } else { Order::ZERO };
            return Some(PageView {
                pfn,
                order,
                owner: None,
                kind: leaf.kind,
                is_writable,
                is_anon_exclusive: false,
                is_exclusively_mapped: false,
                is_partially_mapped: false,
            });
        };
        let folio = self.cache.folios.get(id);
        let head = if leaf.kind == LeafKind::Pmd { leaf.pfn } else { pfn };
        let is_exclusively_mapped = match self.cache.mapcount {
            Mapcount::PerPage => self.cache.folios.page_maps(pfn) == 1,
            Mapcount::PerFolio => !self.maybe_mapped_shared(id),
        };
        Some(PageView {
            pfn,
            order: folio.order,
            owner: Some(folio.owner),
            kind: leaf.kind,
            is_writable,
            is_anon_exclusive: self.cache.folios.is_exclusive(head),
            is_exclusively_mapped,
            is_partially_mapped: folio.is_partially_mapped,
        })
    }

    /// Whether more than one process may map the folio (F.2.2, F.2.3): never a false "no" where
    /// owners are tracked.
    #[must_use]
    pub fn maybe_mapped_shared(&self, id: FolioId) -> bool {
        let folio = self.cache.folios.get(id);
        if !folio.is_large() || folio.maps <= 1 {
            return folio.maps > 1;
        }
        match self.rules.anon.reuse {
            Reuse::Tracked => folio.owners.is_shared(),
            Reuse::SmallOnly => {
                let first_maps = u64::from(self.cache.folios.frames().maps(folio.pfn));
                folio.pmd_maps > 0 || folio.maps > folio.nr_pages() || first_maps > 1
            }
        }
    }
}
