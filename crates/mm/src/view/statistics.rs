//! The numbers in `smaps`, `numa_maps` and `meminfo` (docs/behaviour F.5.4 .. F.5.9).
//!
//! Corresponds to: `smaps_account`, `gather_stats`.
//!
//! With `NO_PAGE_MAPCOUNT`, the kernel derives a page's statistics from its folio's counts
//! ([`CountedBy::Kernel`]). [`CountedBy::Tables`] walks all page tables for the exact result; the
//! difference is the kernel's error.
//!
//! Not covered: swapped pages, `Locked`, `Referenced`, `LazyFree`, KSM and hugetlb.

use crate::counters::mapped::MappedCounters;
use crate::folio::{Folio, FolioId};
use crate::memory::Memory;
use crate::pgtable::{Leaf, LeafKind, PteFlags};
use crate::rules::anon::PmdExclusive;
use crate::units::{MmId, Pfn, Vpn, VpnRange};

/// Fraction bits of PSS (`PSS_SHIFT`).
const PSS_SHIFT: u32 = 12;

/// Source of the map counts.
#[derive(Clone, Copy, Debug)]
pub enum CountedBy<'a> {
    /// The kernel's own counts.
    Kernel,
    /// The entries of all page tables.
    Tables(&'a PageMaps),
}

/// Mappings of each page in the page tables of all processes.
#[derive(Clone, Debug)]
pub struct PageMaps {
    by_pfn: Vec<u32>,
    mapped: MappedCounters,
}

impl PageMaps {
    fn of(&self, pfn: Pfn) -> u32 {
        self.by_pfn.get(pfn.0 as usize).copied().unwrap_or(0)
    }

    /// Mapped pages of the machine, each counted once.
    #[must_use]
    pub const fn mapped(&self) -> &MappedCounters {
        &self.mapped
    }
}

/// PSS: bytes with 12 fraction bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pss(u64);

impl Pss {
    /// Whole bytes; `smaps` prints whole kB.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 >> PSS_SHIFT
    }
}

impl std::ops::AddAssign for Pss {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// `smaps` values for some pages of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Smaps {
    /// Present pages.
    pub rss_bytes: u64,
    /// Present pages, each divided by its mappings.
    pub pss: Pss,
    /// PSS of private memory.
    pub pss_anon: Pss,
    /// PSS of files on a disk.
    pub pss_file: Pss,
    /// PSS of files in memory.
    pub pss_shmem: Pss,
    /// PSS of dirty pages.
    pub pss_dirty: Pss,
    /// Clean pages that count as shared.
    pub shared_clean_bytes: u64,
    /// Dirty pages that count as shared.
    pub shared_dirty_bytes: u64,
    /// Clean pages that count as private.
    pub private_clean_bytes: u64,
    /// Dirty pages that count as private.
    pub private_dirty_bytes: u64,
    /// Private memory.
    pub anonymous_bytes: u64,
    /// `AnonHugePages`: private memory mapped by PMD entries.
    pub anon_by_pmd_bytes: u64,
    /// `ShmemPmdMapped`.
    pub shmem_by_pmd_bytes: u64,
    /// `FilePmdMapped`.
    pub file_by_pmd_bytes: u64,
    /// Pages with bit 56 of pagemap: mapped exactly once, as far as the kernel can tell.
    pub exclusive_bytes: u64,
    /// Pages whose `kpagecount` is 1.
    pub mapped_once_bytes: u64,
    /// Largest map count of a page (`mapmax` of `numa_maps`); 0 if no page is mapped.
    pub mapmax: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts {
    mapcount: u32,
    is_private: bool,
}

struct Same {
    nr: u64,
    counts: Counts,
    is_dirty: bool,
}

impl Smaps {
    /// USS: memory that would be freed if the process exited.
    #[must_use]
    pub const fn uss_bytes(&self) -> u64 {
        self.private_clean_bytes + self.private_dirty_bytes
    }

    fn add(&mut self, folio: &Folio, same: &Same, page_bytes: u64) {
        let bytes = same.nr * page_bytes;
        let share = (page_bytes << PSS_SHIFT) / u64::from(same.counts.mapcount.max(1));
        let pss = Pss(same.nr * share);
        self.rss_bytes += bytes;
        self.pss += pss;
        *self.pss_of(folio) += pss;
        if same.is_dirty {
            self.pss_dirty += pss;
        }
        let total = match (same.counts.is_private, same.is_dirty) {
            (false, false) => &mut self.shared_clean_bytes,
            (false, true) => &mut self.shared_dirty_bytes,
            (true, false) => &mut self.private_clean_bytes,
            (true, true) => &mut self.private_dirty_bytes,
        };
        *total += bytes;
        if same.counts.mapcount == 1 {
            self.mapped_once_bytes += bytes;
        }
    }

    const fn pss_of(&mut self, folio: &Folio) -> &mut Pss {
        match (folio.is_anon(), folio.is_swapbacked) {
            (true, _) => &mut self.pss_anon,
            (false, true) => &mut self.pss_shmem,
            (false, false) => &mut self.pss_file,
        }
    }

    const fn by_pmd_of(&mut self, folio: &Folio) -> &mut u64 {
        match (folio.is_anon(), folio.is_swapbacked) {
            (true, _) => &mut self.anon_by_pmd_bytes,
            (false, true) => &mut self.shmem_by_pmd_bytes,
            (false, false) => &mut self.file_by_pmd_bytes,
        }
    }
}

impl Memory {
    /// Counts each page's mappings in the page tables, in time proportional to the entries.
    #[must_use]
    pub fn page_maps(&self) -> PageMaps {
        let mut maps = PageMaps { by_pfn: Vec::new(), mapped: MappedCounters::default() };
        let mut by_pmd = vec![false; self.core.folios.nr_places()];
        for (mm, _) in self.spaces() {
            for (leaf, id) in self.folio_leaves(mm, ALL) {
                let folio = self.core.folios.get(id);
                let first = leaf.pfn.0 as usize;
                let end = first + leaf.order.nr_pages() as usize;
                if end > maps.by_pfn.len() {
                    maps.by_pfn.resize(end, 0);
                }
                let pages = &mut maps.by_pfn[first..end];
                let nr_new = pages.iter().filter(|&&nr| nr == 0).count();
                for nr in pages {
                    *nr += 1;
                }
                let is_pmd = leaf.kind == LeafKind::Pmd;
                let is_first_pmd = is_pmd && !std::mem::replace(&mut by_pmd[id.nr()], is_pmd);
                let nr_by_pmd = if is_first_pmd { folio.nr_pages() } else { 0 };
                let nr_by_pmd = nr_by_pmd.cast_signed();
                maps.mapped.add(folio.mapped_kind(), nr_new.cast_signed() as i64, nr_by_pmd);
            }
        }
        maps
    }

    /// Returns the `smaps` values for `pages` of a process.
    #[must_use]
    pub fn smaps(&self, mm: MmId, pages: VpnRange, by: CountedBy<'_>) -> Smaps {
        let mut smaps = Smaps::default();
        let page_bytes = self.rules.page.bytes();
        for (leaf, id) in self.folio_leaves(mm, pages) {
            let folio = self.core.folios.get(id);
            let is_dirty = leaf.flags.contains(PteFlags::DIRTY) || folio.is_dirty;
            let from = leaf.first_vpn.max(pages.start);
            let end = leaf.end_vpn().min(pages.end);
            let nr = end.0 - from.0;
            let first_decides = leaf.kind == LeafKind::Pmd
                && self.rules.anon.pmd_exclusive != PmdExclusive::EachPage;
            let first = self.counts_of(folio, leaf.pfn, by);
            // F.5.6: without other references, this entry is the only mapping.
            let is_only = leaf.kind == LeafKind::Pmd
                && matches!(by, CountedBy::Kernel)
                && folio.refs == self.core.pmd_refs(id);
            let mut at = 0;
            while at < nr {
                let counts_at = |at| self.counts_of(folio, leaf.pfn_of(from.plus(at)), by);
                let counts = counts_at(at);
                let end = (at + 1..nr).find(|&next| counts_at(next) != counts).unwrap_or(nr);
                let added = if is_only { Counts { is_private: true, ..counts } } else { counts };
                smaps.add(folio, &Same { nr: end - at, counts: added, is_dirty }, page_bytes);
                let shown = if first_decides { first } else { counts };
                if shown.is_private {
                    smaps.exclusive_bytes += (end - at) * page_bytes;
                }
                // `numa_maps` checks only the first page of a PMD entry.
                if at == 0 || leaf.kind != LeafKind::Pmd {
                    smaps.mapmax = smaps.mapmax.max(counts.mapcount);
                }
                at = end;
            }
            if folio.is_anon() {
                smaps.anonymous_bytes += nr * page_bytes;
            }
            if leaf.kind == LeafKind::Pmd {
                *smaps.by_pmd_of(folio) += nr * page_bytes;
            }
        }
        // Hugetlb pages are reported separately, except in this value.
        for (_, entry) in self.space(mm).huge.range(pages.start..pages.end) {
            smaps.mapmax = smaps.mapmax.max(self.huge_page(entry).mapcount);
        }
        smaps
    }

    /// Returns the `smaps_rollup` values of a process.
    #[must_use]
    pub fn smaps_rollup(&self, mm: MmId, by: CountedBy<'_>) -> Smaps {
        self.smaps(mm, ALL, by)
    }

    fn folio_leaves(&self, mm: MmId, pages: VpnRange) -> impl Iterator<Item = (Leaf, FolioId)> {
        let leaves = self.space(mm).table.leaves(pages.start, pages.end.0 - pages.start.0);
        let mapped = leaves.filter(|leaf| !leaf.flags.contains(PteFlags::SPECIAL));
        mapped.filter_map(|leaf| Some((leaf, self.core.folios.of_pfn(leaf.pfn)?)))
    }

    fn counts_of(&self, folio: &Folio, pfn: Pfn, by: CountedBy<'_>) -> Counts {
        match by {
            CountedBy::Kernel => {
                let shape = self.core.shape(folio.order);
                let page = (pfn.0 - folio.pfn.0) as u32;
                Counts {
                    mapcount: folio.mapcount.page_mapcount(&shape, page),
                    is_private: folio.mapcount.is_page_exclusive(&shape, page),
                }
            }
            CountedBy::Tables(maps) => {
                let mapcount = maps.of(pfn);
                Counts { mapcount, is_private: mapcount == 1 }
            }
        }
    }
}

const ALL: VpnRange = VpnRange { start: Vpn(0), end: crate::pgtable::PageTable::VPN_END };
