//! A page as programs see it in pagemap, kpageflags and kpagecount (docs/behaviour F.2, F.5.4).
//!
//! Corresponds to: `pagemap_read`, `stable_page_flags`, `kpagecount_read`.

pub mod statistics;

use crate::core::swap::Swap;
use crate::folio::{FolioId, Owner};
use crate::memory::Memory;
use crate::pgtable::{LeafKind, PteFlags};
use crate::rules::anon::PmdExclusive;
use crate::units::{MmId, Order, Pfn, Vaddr};

/// A present page of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "bits of pagemap: independent of each other")]
pub struct PageView {
    /// Frame in the entry.
    pub pfn: Pfn,
    /// Folio order; 0 for the zero page, the PMD order for the huge zero folio.
    pub order: Order,
    /// Owner of the folio; `None` for pages of zeroes.
    pub owner: Option<Owner>,
    /// PTE, folded PTE or PMD entry.
    pub kind: LeafKind,
    /// Whether a store succeeds without a fault.
    pub is_writable: bool,
    /// Whether the page is known to be exclusive to the process (`AnonExclusive`).
    pub is_anon_exclusive: bool,
    /// Bit 56 of pagemap: mapped exactly once, as far as the kernel can tell.
    pub is_exclusively_mapped: bool,
    /// Whether its folio is queued for a deferred split as partially mapped.
    pub is_partially_mapped: bool,
    /// Number of mappings, as in kpagecount.
    pub mapcount: u32,
}

impl Memory {
    /// Returns the number of pages in the swap cache.
    #[must_use]
    pub fn nr_swap_cached(&self) -> u64 {
        self.core.pressure.swap.as_ref().map_or(0, Swap::nr_cached)
    }

    /// Returns the number of swap slots in use.
    #[must_use]
    pub fn nr_swapped(&self) -> u64 {
        self.core.pressure.swap.as_ref().map_or(0, Swap::nr_used)
    }

    /// Returns the number of pages in zswap.
    #[must_use]
    pub fn nr_zswapped(&self) -> u64 {
        self.core.pressure.zswap.nr_stored()
    }

    /// Returns the page at `addr`; `None` if it is not present.
    #[must_use]
    pub fn page_at(&self, mm: MmId, addr: Vaddr) -> Option<PageView> {
        let vpn = addr.vpn(self.rules.page);
        let leaf = self.space(mm).table.leaf(vpn)?;
        let pfn = leaf.pfn_of(vpn);
        let is_writable = leaf.flags.contains(PteFlags::WRITABLE);
        let Some(id) = self.core.folios.of_pfn(pfn) else {
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
                mapcount: 0,
            });
        };
        let folio = self.core.folios.get(id);
        let head = if leaf.kind == LeafKind::Pmd { leaf.pfn } else { pfn };
        let shown = match self.rules.anon.pmd_exclusive {
            PmdExclusive::FirstPage | PmdExclusive::FirstNormalPage => head,
            PmdExclusive::EachPage => pfn,
        };
        let page = (shown.0 - folio.pfn.0) as u32;
        let is_exclusively_mapped =
            folio.mapcount.is_page_exclusive(&self.core.shape(folio.order), page);
        Some(PageView {
            pfn,
            order: folio.order,
            owner: Some(folio.owner),
            kind: leaf.kind,
            is_writable,
            is_anon_exclusive: self.core.folios.is_exclusive(head),
            is_exclusively_mapped,
            is_partially_mapped: folio.is_partially_mapped,
            mapcount: folio
                .mapcount
                .page_mapcount(&self.core.shape(folio.order), (pfn.0 - folio.pfn.0) as u32),
        })
    }

    /// Whether several processes may map the folio (F.2.2, F.2.3). With owner tracking, `false` is
    /// exact.
    #[must_use]
    pub fn maybe_mapped_shared(&self, id: FolioId) -> bool {
        let folio = self.core.folios.get(id);
        folio.mapcount.maybe_mapped_shared(&self.core.shape(folio.order))
    }
}
