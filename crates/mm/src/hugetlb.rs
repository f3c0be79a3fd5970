//! hugetlb: huge pages that come from a pool (docs/behaviour O).
//!
//! Corresponds to: `hugetlb_reserve_pages`, `hugetlb_file_setup`, `hugetlb_vm_op_split`.
//!
//! ```text
//!   mmap: reserve all pages --> refused if the pool has too few unreserved pages       (O.2)
//!   fault: owner or shared: a reserved page; child: an unreserved one, else SIGBUS     (O.3)
//!   store to a page that fork shared: mapped once -> kept, else copied as a whole      (O.4)
//! ```
//!
//! A process's huge pages are kept outside its page table, because a huge page can never be partly
//! unmapped, split, reclaimed or collapsed. The pools are in [`crate::core::hugetlb`]. Reading
//! order: this file, `fault`, `copy`, `unmap`.
//!
//! Invariants:
//! - I1: a hugetlb area, and each part of it, begins and ends at a multiple of its page size.
//! - I2: an entry is writable only if its area is and, for a private entry, only if its page is
//!   exclusive.

mod copy;
mod fault;
mod unmap;

pub use crate::core::hugetlb::{HugeCounts, HugeFolio, HugeOwner, HugePool, PoolError, orders};

use crate::core::hugetlb::HugeFile;
use crate::core::space::HugeEntry;
use crate::map::MapError;
use crate::memory::Memory;
use crate::placement;
use crate::units::{MmId, Order, Vaddr, Vpn, VpnRange};
use crate::vma::{Advice, Backing, HugeArea, MappedShmem, Prot, Sharing, Vma};

/// Arguments of a huge-page mapping.
#[derive(Clone, Copy, Debug)]
pub struct HugeMap {
    /// Address; `None` lets the kernel choose. Replaces existing mappings (`MAP_FIXED`).
    pub addr: Option<Vaddr>,
    /// Length in bytes, rounded up to huge pages.
    pub len_bytes: u64,
    /// Order of one huge page; the machine needs a pool of this size.
    pub order: Order,
    /// Allowed accesses.
    pub prot: Prot,
    /// Whether children share stores.
    pub sharing: Sharing,
    /// Whether pages are reserved: false with `MAP_NORESERVE`.
    pub is_reserved: bool,
}

/// Why huge pages could not be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HugeMapError {
    /// No pool has pages of this size.
    #[error("there is no pool of huge pages of {0} bytes")]
    NoPool(u64),
    /// The pool has fewer free, unreserved pages than the mapping needs (`ENOMEM`).
    #[error(
        "{wanted} huge pages of {page_bytes} bytes are needed, but only {available} are available"
    )]
    PoolTooSmall {
        /// Pages that the mapping needs.
        wanted: u64,
        /// Bytes per page.
        page_bytes: u64,
        /// Free, unreserved pages.
        available: u64,
    },
    /// Any other mmap error.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl Memory {
    /// Maps huge pages and returns the address.
    ///
    /// # Errors
    /// Fails if the size has no pool, the pool has too few pages, or mmap itself fails.
    pub fn mmap_huge(&mut self, mm: MmId, map: HugeMap) -> Result<Vaddr, HugeMapError> {
        let HugeMap { order, prot, sharing, is_reserved, .. } = map;
        let page = self.rules.page;
        let page_bytes = page.bytes() << order.get();
        if self.core.hugetlb.pool(order).is_none() {
            return Err(HugeMapError::NoPool(page_bytes));
        }
        let VpnRange { start, end } = self.place_huge(mm, &map)?;
        self.check_huge_cut(mm, VpnRange { start, end })?;
        self.check_area_count(mm)?;
        let wanted = (end.0 - start.0) >> order.get();
        let pool = self.core.hugetlb.pool_mut(order);
        if is_reserved && !pool.try_reserve(wanted) {
            self.core.counters.hugetlb.nr_maps_refused += 1;
            let available = self.core.hugetlb.pool_mut(order).nr_available();
            return Err(HugeMapError::PoolTooSmall { wanted, page_bytes, available });
        }
        // The replaced mapping returns its reservations only now (O.2.1).
        self.unmap_pages(mm, start, end);
        let regions = match sharing {
            Sharing::Shared if is_reserved => (0..wanted).collect(),
            Sharing::Shared | Sharing::Private => std::collections::BTreeSet::new(),
        };
        let pages = std::collections::BTreeMap::new();
        let file = self.core.hugetlb.add_file(HugeFile { order, sharing, regions, pages });
        let is_owner = is_reserved && sharing == Sharing::Private;
        let area = HugeArea { file, order, pgoff: 0, is_owner, has_lost: false };
        self.space_mut(mm).vmas.insert(Vma {
            start,
            end,
            prot,
            sharing,
            backing: Backing::Hugetlb(area),
            advice: Advice::default(),
            anon: None,
            moved_by: 0,
            is_accounted: prot.can_write && sharing == Sharing::Private,
            is_armed: false,
            ahead: None,
            grows_to: None,
            shmem: MappedShmem::Named,
        });
        Ok(start.vaddr(page))
    }

    fn place_huge(&self, mm: MmId, map: &HugeMap) -> Result<VpnRange, MapError> {
        let page = self.rules.page;
        let nr_pages = map.order.round_up(page.pages_in(map.len_bytes));
        let Some(addr) = map.addr else {
            let place = placement::find_aligned(&self.space(mm).vmas, page, nr_pages, map.order);
            let start = place.filter(|_| nr_pages > 0).ok_or(MapError::NoSpace(nr_pages))?;
            return Ok(VpnRange { start, end: start.plus(nr_pages) });
        };
        let range = self.checked_range(addr, nr_pages << page.shift())?;
        if !map.order.is_aligned(range.start.0) {
            return Err(MapError::Unaligned(addr.0));
        }
        Ok(range)
    }

    pub(crate) fn check_huge_cut(
        &self,
        mm: MmId,
        VpnRange { start, end }: VpnRange,
    ) -> Result<(), MapError> {
        if self.core.hugetlb.is_empty() {
            return Ok(());
        }
        let vmas = &self.space(mm).vmas;
        for edge in [start, end] {
            let order = vmas.find(edge).and_then(Vma::huge).map(|area| area.order);
            if order.is_some_and(|order| !order.is_aligned(edge.0)) {
                return Err(MapError::HugeCut(edge.vaddr(self.rules.page).0));
            }
        }
        Ok(())
    }

    /// A call refused because of its end has already split the area at its start (O.5.1).
    pub(crate) fn split_huge_area(&mut self, mm: MmId, at: Vpn) {
        let vmas = &mut self.space_mut(mm).vmas;
        let Some(vma) = vmas.find(at).filter(|vma| vma.start < at).copied() else { return };
        if vma.huge().is_some_and(|area| area.order.is_aligned(at.0)) {
            for part in vmas.remove(at, vma.end) {
                vmas.insert(part);
            }
        }
    }

    pub(crate) fn check_huge_move(
        &self,
        vma: &Vma,
        from: VpnRange,
        to: VpnRange,
    ) -> Result<(), MapError> {
        let Some(HugeArea { order, .. }) = vma.huge() else { return Ok(()) };
        let page = self.rules.page;
        let edges = [from.start, from.end, to.start, to.end];
        if let Some(edge) = edges.into_iter().find(|edge| !order.is_aligned(edge.0)) {
            return Err(MapError::HugeCut(edge.vaddr(page).0));
        }
        if to.end.0 - to.start.0 > from.end.0 - from.start.0 {
            return Err(MapError::HugeGrows(from.start.vaddr(page).0));
        }
        Ok(())
    }

    /// Returns the counts of the pool of a size; `None` if there is no pool.
    #[must_use]
    pub fn huge_counts(&self, order: Order) -> Option<HugeCounts> {
        self.core.hugetlb.pool(order).map(crate::core::hugetlb::Pool::counts)
    }

    /// Returns the orders that have a pool.
    pub fn huge_orders(&self) -> impl Iterator<Item = Order> {
        self.core.hugetlb.pools().map(crate::core::hugetlb::Pool::order)
    }

    /// Returns the view of a mapped huge page.
    #[must_use]
    pub fn huge_page(&self, entry: &HugeEntry) -> HugeView {
        let shape = self.core.hugetlb.shape(entry.order);
        let HugeFolio { owner, mapcount, is_exclusive, .. } =
            self.core.hugetlb.folio(entry.order, entry.pfn);
        HugeView {
            owner: *owner,
            mapcount: mapcount.entire_mapcount(),
            is_exclusive: *is_exclusive,
            is_exclusively_mapped: !mapcount.maybe_mapped_shared(&shape),
        }
    }

    /// Returns the entry that maps `vpn`, and the first page that it maps.
    #[must_use]
    pub fn huge_entry_at(&self, mm: MmId, vpn: Vpn) -> Option<(Vpn, HugeEntry)> {
        let (first, entry) = self.space(mm).huge.range(..=vpn).next_back()?;
        (vpn.0 - first.0 < entry.order.nr_pages()).then_some((*first, *entry))
    }
}

/// A huge page as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeView {
    /// Owner of the page.
    pub owner: HugeOwner,
    /// Number of mappings, as in kpagecount.
    pub mapcount: u32,
    /// `AnonExclusive`.
    pub is_exclusive: bool,
    /// Bit 56 of pagemap: mapped once, as far as the kernel can tell (F.2.2).
    pub is_exclusively_mapped: bool,
}
