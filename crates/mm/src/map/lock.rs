//! mlock: pages that stay in memory (docs/behaviour P.4.5).
//!
//! Corresponds to: `do_mlock`, `apply_mlockall_flags`, `__mm_populate`.
//!
//! Differs: a kernel keeps locked folios on a list of their own. Here they stay on their lists, and
//! reclaim skips them.

use super::MapError;
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::units::{MmId, Pfn, Vaddr, Vpn, VpnRange};
use crate::vma::{Lock, Vma};

/// The start of a range up to the first locked area.
pub(super) struct Unlocked {
    pub(super) end: Vpn,
    pub(super) refusal: Result<(), MapError>,
}

impl Memory {
    /// Locks the areas of a range, or unlocks them. [`Memory::populate_locked`] must follow.
    ///
    /// # Errors
    /// Fails if the range is invalid.
    pub fn set_lock(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        len_bytes: u64,
        lock: Lock,
    ) -> Result<(), MapError> {
        let range = self.checked_range(addr, len_bytes)?;
        self.lock_areas(mm, range, lock);
        Ok(())
    }

    /// Locks all areas, or unlocks them, and also the mappings made from now on if `later` says so
    /// (mlockall, munlockall).
    pub fn mlockall(&mut self, mm: MmId, now: Option<Lock>, later: Lock) {
        self.has_locked |= later != Lock::None;
        self.space_mut(mm).lock = later;
        let Some(lock) = now else { return };
        let areas: Vec<Vma> = self.space(mm).vmas.iter().copied().collect();
        for vma in &areas {
            self.lock_areas(mm, VpnRange { start: vma.start, end: vma.end }, lock);
        }
        for vma in areas.iter().filter(|_| lock == Lock::All) {
            // An area without access is skipped.
            let _ = self.populate_area(mm, vma);
        }
    }

    /// Populates the areas with [`Lock::All`] in a range.
    ///
    /// # Errors
    /// Fails if the range is invalid, or at the first page that cannot be populated.
    pub fn populate_locked(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        len_bytes: u64,
    ) -> Result<(), MapError> {
        let VpnRange { start, end } = self.checked_range(addr, len_bytes)?;
        for vma in self.space(mm).vmas.overlapping(start, end) {
            if vma.advice.lock == Lock::All {
                self.populate_area(mm, &vma)?;
            }
        }
        Ok(())
    }

    fn lock_areas(&mut self, mm: MmId, range: VpnRange, lock: Lock) {
        self.has_locked |= lock != Lock::None;
        if !self.has_locked {
            return;
        }
        self.change_areas(mm, range, |vma| {
            if vma.huge().is_none() {
                vma.advice.lock = lock;
            }
        });
    }

    fn populate_area(&mut self, mm: MmId, vma: &Vma) -> Result<(), MapError> {
        let page = self.rules.page;
        self.populate(mm, vma.start.vaddr(page), vma.nr_pages() << page.shift())
    }

    pub(super) fn unlocked(&self, mm: MmId, VpnRange { start, end }: VpnRange) -> Unlocked {
        let vmas = &self.space(mm).vmas;
        if !self.has_locked {
            return Unlocked { end, refusal: Ok(()) };
        }
        let areas = vmas.overlapping(start, end);
        match areas.iter().find(|vma| vma.advice.lock != Lock::None) {
            None => Unlocked { end, refusal: Ok(()) },
            Some(vma) => {
                let addr = vma.start.vaddr(self.rules.page).0;
                Unlocked { end: vma.start, refusal: Err(MapError::Locked(addr)) }
            }
        }
    }

    /// Whether an area that maps this page of a folio is locked.
    pub(crate) fn is_page_locked(&self, pfn: Pfn, sites: &[Site]) -> bool {
        let is_locked = |mm, vpn| {
            self.space(mm).vmas.find(vpn).is_some_and(|vma| vma.advice.lock != Lock::None)
        };
        self.has_locked
            && sites.iter().any(|site| site.vpn_of(pfn).is_some_and(|vpn| is_locked(site.mm, vpn)))
    }

    /// Whether an area that maps the folio is locked.
    pub(crate) fn is_locked_in(&self, id: FolioId) -> bool {
        self.has_locked
            && self.sites_of(id).iter().any(|site| {
                let areas = self.space(site.mm).vmas.overlapping(site.vpn, site.vpn.plus(site.nr));
                areas.iter().any(|vma| vma.advice.lock != Lock::None)
            })
    }
}
