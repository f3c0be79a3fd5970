//! mmap and munmap; the other calls are in submodules.
//!
//! Corresponds to: `do_mmap`, `mmap_region`.
//!
//! Reading order: this file, `protect`, `advise`, `cold`, `lock`, `remap`.

mod advise;
mod cold;
mod lock;
mod protect;
mod remap;

pub use advise::Madvice;

use crate::mapping::gate::TextBusy;
use crate::mapping::{FileName, Mapping};
use crate::memory::Memory;
use crate::placement::{self, Congruence, Want};
use crate::rules::Placement;
use crate::rules::anon::MapStack;
use crate::rules::shmem::ShmemEnabled;
use crate::units::VpnRange;
use crate::units::{MmId, Vaddr, Vpn};
use crate::vma::{Advice, Backing, HugeAdvice, MappedShmem, OpenId, Prot, Purpose, Sharing, Vma};

/// Arguments of mmap.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Address; `None` lets the kernel choose. Replaces existing mappings (`MAP_FIXED`).
    pub addr: Option<Vaddr>,
    /// Length in bytes, rounded up to pages.
    pub len_bytes: u64,
    /// Allowed accesses.
    pub prot: Prot,
    /// Whether stores stay private or reach the file.
    pub sharing: Sharing,
    /// Backing; the file position is in pages.
    pub backing: Backing,
    /// Folio size in bytes from the loader's annotation (K.1.4).
    pub preferred: Option<u64>,
    /// Use of an anonymous mapping.
    pub purpose: Purpose,
}

impl Map {
    /// Private mapping of `len_bytes` of a file from page `pgoff`, at any address.
    #[must_use]
    pub fn file(open: OpenId, pgoff: u64, len_bytes: u64, prot: Prot) -> Self {
        let backing = Backing::File { open, pgoff };
        let (sharing, preferred, purpose) = (Sharing::Private, None, Purpose::Memory);
        Self { addr: None, len_bytes, prot, sharing, backing, preferred, purpose }
    }

    /// Private anonymous mapping of `len_bytes`, at any address.
    #[must_use]
    pub fn anon(len_bytes: u64, prot: Prot) -> Self {
        let (sharing, backing, purpose) = (Sharing::Private, Backing::Anon, Purpose::Memory);
        Self { addr: None, len_bytes, prot, sharing, backing, preferred: None, purpose }
    }

    /// Sets a fixed address.
    #[must_use]
    pub fn at(self, addr: Vaddr) -> Self {
        Self { addr: Some(addr), ..self }
    }

    /// Makes the mapping shared.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { sharing: Sharing::Shared, ..self }
    }

    /// Sets the use of an anonymous mapping.
    #[must_use]
    pub fn used_as(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }
}

/// Why an area could not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// The length is zero or extends past the end of the address space.
    #[error("a mapping of {len_bytes} bytes at {addr:#x} does not fit in the address space")]
    BadRange {
        /// Requested address, 0 = any.
        addr: u64,
        /// Requested length in bytes.
        len_bytes: u64,
    },
    /// The address is not a multiple of the page size.
    #[error("address {0:#x} is not a multiple of the page size")]
    Unaligned(u64),
    /// No gap is large enough.
    #[error("there is no free address range for {0} pages")]
    NoSpace(u64),
    /// Nothing is mapped at the address.
    #[error("address {0:#x} is not mapped")]
    NotMapped(u64),
    /// The process has reached its area limit (`max_map_count`).
    #[error("a process may have at most {NR_AREAS_MAX} mappings")]
    TooManyAreas,
    /// A file offset cannot express the file position.
    #[error("{nr_pages} pages from file page {pgoff} extend past the largest file offset")]
    BadOffset {
        /// First page of the file.
        pgoff: u64,
        /// Pages of the mapping.
        nr_pages: u64,
    },
    /// The page cache has no folios of this size.
    #[error(
        "the page cache cannot have folios of {bytes} bytes; expected {page_bytes} to {max_bytes}"
    )]
    NoSuchFolio {
        /// Requested size in bytes.
        bytes: u64,
        /// Base page size in bytes: the smallest folio.
        page_bytes: u64,
        /// Largest page-cache folio in bytes.
        max_bytes: u64,
    },
    /// The advice applies only to private anonymous memory (`EINVAL`).
    #[error("address {0:#x} is not private anonymous memory")]
    NotAnonymous(u64),
    /// An edge of the range is inside a huge page (`EINVAL`).
    #[error("address {0:#x} is inside a huge page, which can only be changed as a whole")]
    HugeCut(u64),
    /// A mapping of huge pages would become longer (`EINVAL`).
    #[error("the mapping of huge pages at {0:#x} cannot become longer")]
    HugeGrows(u64),
    /// A mapping of huge pages does not accept this advice (`EINVAL`).
    #[error("the mapping of huge pages at {0:#x} does not accept this advice")]
    HugeAdvice(u64),
    /// Locked pages cannot be discarded (`EINVAL`).
    #[error("address {0:#x} is locked into memory (mlock): its pages cannot be discarded")]
    Locked(u64),
    /// Only shared memory can be mapped a second time (`EINVAL`).
    #[error("address {0:#x} is not shared memory, so it cannot be mapped a second time")]
    NotShared(u64),
    /// A shared mapping with stores would write a file that a process runs.
    #[error(transparent)]
    TextBusy(#[from] TextBusy),
    /// The old and the new range overlap.
    #[error("a mapping at {from:#x} cannot move to {to:#x}: the ranges overlap")]
    Overlap {
        /// Old address.
        from: u64,
        /// New address.
        to: u64,
    },
}

/// Default of `vm.max_map_count`.
const NR_AREAS_MAX: usize = 65_530;
/// Highest user address plus one: the larger of 47 and 48 bits.
const SPACE_BYTES: u64 = 1 << 48;

impl Memory {
    /// Maps a file or anonymous memory. Returns the address.
    ///
    /// # Errors
    /// Fails if the range is invalid, no gap is large enough, or stores would reach a file that a
    /// process runs.
    pub fn mmap(&mut self, mm: MmId, map: Map) -> Result<Vaddr, MapError> {
        let page = self.rules.page;
        let nr_pages = page.pages_in(map.len_bytes);
        let start = if let Some(addr) = map.addr {
            self.checked_range(addr, map.len_bytes)?.start
        } else {
            self.count_areas(self.space(mm).vmas.len(), 0);
            self.place(mm, (map.backing, map.sharing), nr_pages)?
        };
        self.check_area_count(mm)?;
        let end = start.plus(nr_pages);
        if nr_pages == 0 {
            let addr = start.vaddr(page).0;
            return Err(MapError::BadRange { addr, len_bytes: map.len_bytes });
        }
        self.check_offset(map.backing, nr_pages)?;
        self.check_huge_cut(mm, VpnRange { start, end })?;
        self.write_through_mapping(map.backing, map.sharing, map.prot)?;
        self.unmap_pages(mm, start, end);
        let Map { prot, sharing, mut backing, .. } = map;
        if backing == Backing::Anon && sharing == Sharing::Shared {
            let open = self.add_anon_shared(nr_pages << page.shift());
            backing = Backing::File { open, pgoff: 0 };
        }
        let preferred = map.preferred.map(|bytes| self.folio_order(bytes)).transpose()?;
        let huge = match (map.purpose, self.rules.anon.map_stack) {
            (Purpose::Stack, MapStack::Nohuge) => HugeAdvice::Nohuge,
            _ => HugeAdvice::Default,
        };
        let lock = self.space(mm).lock;
        let advice = Advice { huge, preferred, lock, ..Advice::default() };
        let (anon, moved_by, is_armed, ahead) = (None, 0, false, None);
        let grows_to = match map.purpose {
            Purpose::Growing { bytes_max } => {
                Some(Vpn(end.0.saturating_sub(page.pages_in(bytes_max))))
            }
            _ => None,
        };
        let is_accounted = prot.can_write && sharing == Sharing::Private;
        let vma = Vma {
            start,
            end,
            prot,
            sharing,
            backing,
            advice,
            anon,
            moved_by,
            is_accounted,
            is_armed,
            ahead,
            grows_to,
            shmem: self.shmem_area(backing, map.purpose),
        };
        self.set_mmap_state(&vma);
        self.space_mut(mm).vmas.insert(vma);
        self.khugepaged_enter_areas(mm, VpnRange { start, end });
        Ok(start.vaddr(page))
    }

    /// Proposed for series 000, in no kernel (K.1.4): sets the readahead state at mmap, not at a
    /// fault.
    fn set_mmap_state(&mut self, vma: &Vma) {
        let order = self.rules.order.mmap_state(self.rules.page);
        let (Some(order), Backing::File { open, .. }) = (order, vma.backing) else { return };
        if vma.prot.can_exec {
            let opened = self.open_file_mut(open);
            opened.state.ra_pages = order.nr_pages();
            opened.start_order = Some(order);
        }
    }

    pub(crate) fn check_area_count(&self, mm: MmId) -> Result<(), MapError> {
        let is_full = self.space(mm).vmas.len() >= NR_AREAS_MAX;
        if is_full { Err(MapError::TooManyAreas) } else { Ok(()) }
    }

    /// Unmaps a range. Skips parts that are not mapped.
    ///
    /// # Errors
    /// Fails if the range is empty, unaligned or outside the address space.
    pub fn munmap(&mut self, mm: MmId, addr: Vaddr, len_bytes: u64) -> Result<(), MapError> {
        let VpnRange { start, end } = self.checked_range(addr, len_bytes)?;
        self.check_huge_cut(mm, VpnRange { start, end }).inspect_err(|_| {
            self.split_huge_area(mm, start);
        })?;
        self.unmap_pages(mm, start, end);
        Ok(())
    }

    pub(crate) fn change_areas(
        &mut self,
        mm: MmId,
        VpnRange { start, end }: VpnRange,
        change: impl FnMut(&mut Vma),
    ) {
        self.space_mut(mm).vmas.change(start, end, change);
        for edge in [start, end] {
            let area = self.space(mm).vmas.find(edge);
            if area.is_some_and(|area| area.start == edge) {
                self.cut_pmds(mm, edge, edge);
            }
        }
    }

    pub(super) fn check_offset(&self, backing: Backing, nr_pages: u64) -> Result<(), MapError> {
        let Backing::File { pgoff, .. } = backing else { return Ok(()) };
        let limit = 1 << (63 - self.rules.page.shift());
        let is_inside = pgoff.checked_add(nr_pages).is_some_and(|end| end <= limit);
        if is_inside { Ok(()) } else { Err(MapError::BadOffset { pgoff, nr_pages }) }
    }

    /// Returns where the kernel would put a mapping without an address (B.6.3).
    ///
    /// # Errors
    /// Fails if no gap is large enough.
    pub fn address_for(&self, mm: MmId, map: &Map) -> Result<Vaddr, MapError> {
        let nr_pages = self.rules.page.pages_in(map.len_bytes);
        let place = self.place(mm, (map.backing, map.sharing), nr_pages)?;
        Ok(place.vaddr(self.rules.page))
    }

    fn place(
        &self,
        mm: MmId,
        (backing, sharing): (Backing, Sharing),
        nr_pages: u64,
    ) -> Result<Vpn, MapError> {
        let page = self.rules.page;
        let pmd = page.pmd_order();
        let congruent_to = match backing {
            Backing::Anon if sharing == Sharing::Shared => {
                let order = self.rules.shmem.placed_order(page, self.rules.max_pagecache_order());
                let order = order.filter(|order| nr_pages >= order.nr_pages());
                order.map(|order| Congruence { pgoff: 0, order })
            }
            Backing::File { open, pgoff } => {
                let mapping = self.core.mapping(self.open_file(open).mapping);
                let spans = placement::spans_pmd(pgoff, nr_pages, pmd);
                let is_aligned = mapping.disk.places_aligned || self.places_shmem(mapping);
                (is_aligned && spans).then_some(Congruence { pgoff, order: pmd })
            }
            Backing::Hugetlb(_) => None,
            Backing::Anon => {
                let is_aligned = self.rules.placement == Placement::LargeFilesAndAnon
                    && nr_pages > 0
                    && pmd.is_aligned(nr_pages);
                is_aligned.then_some(Congruence { pgoff: 0, order: pmd })
            }
        };
        let want = Want { nr_pages, congruent_to };
        placement::find(&self.space(mm).vmas, self.rules.page, want)
            .ok_or(MapError::NoSpace(nr_pages))
    }

    fn shmem_area(&self, backing: Backing, purpose: Purpose) -> MappedShmem {
        let Backing::File { open, .. } = backing else { return MappedShmem::Named };
        let mapping = self.core.mapping(self.open_file(open).mapping);
        match purpose {
            Purpose::Segment => MappedShmem::Segment,
            _ if mapping.is_shmem && mapping.name != FileName::Named => MappedShmem::Unnamed,
            _ => MappedShmem::Named,
        }
    }

    /// Whether a mapping of shared memory is placed for PMD folios (Q.3.2).
    fn places_shmem(&self, mapping: &Mapping) -> bool {
        let setting = self.rules.shmem.setting(mapping.is_mounted());
        mapping.is_zero_filled && !matches!(setting, ShmemEnabled::Never | ShmemEnabled::Deny)
    }

    pub(crate) fn checked_range(&self, addr: Vaddr, len_bytes: u64) -> Result<VpnRange, MapError> {
        let page = self.rules.page;
        if !addr.0.is_multiple_of(page.bytes()) {
            return Err(MapError::Unaligned(addr.0));
        }
        let is_inside = addr.0.checked_add(len_bytes).is_some_and(|end| end <= SPACE_BYTES);
        if len_bytes == 0 || !is_inside {
            return Err(MapError::BadRange { addr: addr.0, len_bytes });
        }
        let start = addr.vpn(page);
        Ok(VpnRange { start, end: start.plus(page.pages_in(len_bytes)) })
    }
}
