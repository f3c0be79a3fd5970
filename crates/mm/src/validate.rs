//! Checks a whole memory manager against the invariants between its parts.
//!
//! Invariants:
//! - I1: `refs == maps + pins + 2^order` for a folio in the page cache, `refs == maps + pins > 0`
//!   for others (docs/behaviour L.5).
//! - I2: a folio's `maps` equals the number of entries that map it, over all page tables (F.1).
//! - I3: an entry maps a live folio, or it maps the zero page and is special.
//! - I4: an entry of a file folio maps the page that its area expects there, inside the file (or,
//!   without an end-of-file test, inside the file's last folio).
//! - I5: an entry is inside an area; a PMD entry is inside a single one.
//! - I6: trees and folio table agree, and every tree satisfies L.1.
//! - I7: the pages of all folios, the zero page and the pinned pages equal the allocated pages.
//! - I8: an open file's miss counter is at most 1000 (L.4).
//! - I9: an entry is writable only if its area is; in a private area, only anonymous pages are
//!   writable, and each of them is exclusive (L.8).
//! - I10: an area that maps anonymous pages is marked so, otherwise fork would skip them (E.1.5).
//! - I11: a folio's counts agree with the page tables: PMD entries, mapped pages, each page's
//!   mappings; an exclusive page is anonymous and mapped at most once (F.1, L.8).
//! - I12: owner tracking never claims too many mappings (L.6, F.4.2).
//! - I13: the deferred-split queue matches the folios' flags and contains every partially mapped
//!   folio; the size counters equal the number of folios (G.2).
//! - I14: a file's gate counts its writers, the processes that run it and its huge folios (H.3).
//! - I15: a folio is on one LRU list, or isolated; the lists count their folios.
//! - I16: a swapped page is inside an area, is not mapped, and has a PTE table; a swap slot has one
//!   user per swapped page that names it.
//! - I17: the machine's counts of mapped pages agree with the page tables: each mapped page once,
//!   or, without per-page map counts, every page of a mapped folio (F.5.2).
//! - I18: entries, mapcounts, free pages and reservations of huge pages agree
//!   ([`crate::core::hugetlb`]).

mod counts;

use crate::core::space::Space;
use crate::counters::mapped::MappedCounters;
use crate::folio::{FolioId, Owner};
use crate::memory::Memory;
use crate::pgtable::{Leaf, LeafKind, PageTable, PteFlags};
use crate::rules::EofGuard;
use crate::units::{MappingId, MmId, Order, PageIndex, Pfn, Vpn};
use crate::vma::{Backing, OpenId, Sharing, Vma};
use crate::{buddy, mapping, pgtable, rmap};
use counts::EntryCounts;

/// Limit of the miss counter (docs/behaviour 0.4).
const MISS_LIMIT: u32 = 1000;

/// A broken invariant, numbered as in the module documentation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// References do not add up.
    #[error("I1: folio {folio:?} has {refs} references, {maps} mappings and {pins} pins")]
    I1 {
        /// The folio.
        folio: FolioId,
        /// Its references: mappings, pins and the page cache.
        refs: u64,
        /// Mappings that it counts, PTEs and PMD entries.
        maps: u64,
        /// Device references among them.
        pins: u64,
    },
    /// A folio's map count disagrees with the page tables.
    #[error("I2: folio {folio:?} counts {maps} mappings, but the page tables have {found}")]
    I2 {
        /// The folio.
        folio: FolioId,
        /// Mappings that the folio counts.
        maps: u64,
        /// Mappings in the tables.
        found: u64,
    },
    /// An entry maps a page without an owner.
    #[error("I3: page {vpn} of {mm:?} maps pfn {pfn}, which belongs to no folio")]
    I3 {
        /// Process with the wrong entry.
        mm: MmId,
        /// Virtual page of the entry.
        vpn: Vpn,
        /// Frame in the entry.
        pfn: Pfn,
    },
    /// An entry maps another page than the area's file has there.
    #[error("I4: page {vpn} of {mm:?} maps pfn {pfn}, not its file's page")]
    I4 {
        /// Process with the wrong entry.
        mm: MmId,
        /// Virtual page of the entry.
        vpn: Vpn,
        /// Frame in the entry.
        pfn: Pfn,
    },
    /// An entry is outside every area.
    #[error("I5: page {vpn} of {mm:?} is mapped outside its areas")]
    I5 {
        /// Process with the wrong entry.
        mm: MmId,
        /// Virtual page of the entry.
        vpn: Vpn,
    },
    /// A tree and the folio table disagree on a folio.
    #[error("I6: file {file:?} at index {index}: the tree and the folio table disagree")]
    I6 {
        /// The file.
        file: MappingId,
        /// First page of the folio.
        index: PageIndex,
    },
    /// Pages are allocated and unused, or used and not allocated.
    #[error("I7: {allocated} pages are allocated, but {used} are used")]
    I7 {
        /// Pages allocated.
        allocated: u64,
        /// Pages of folios, zero page and pinned pages.
        used: u64,
    },
    /// A miss counter exceeds its limit.
    #[error("I8: the miss counter of {open:?} is out of range: {mmap_miss}")]
    I8 {
        /// The open file.
        open: OpenId,
        /// Its miss counter, at most 1000 if valid.
        mmap_miss: u32,
    },
    /// A store would reach a page that other processes see.
    #[error("I9: page {vpn} of {mm:?} is writable but not exclusive to it")]
    I9 {
        /// Process with the wrong entry.
        mm: MmId,
        /// Virtual page of the entry.
        vpn: Vpn,
    },
    /// An area is not marked as having anonymous pages.
    #[error("I10: the area of page {vpn} of {mm:?} maps an anonymous page but is not marked so")]
    I10 {
        /// Process with the wrong entry.
        mm: MmId,
        /// Virtual page of the entry.
        vpn: Vpn,
    },
    /// A folio's count disagrees with the page tables.
    #[error("I11: {what} of folio {folio:?} is {counted}, but the page tables have {found}")]
    I11 {
        /// The folio.
        folio: FolioId,
        /// Name of the count.
        what: &'static str,
        /// Stored value.
        counted: u64,
        /// Value in the tables.
        found: u64,
    },
    /// Owner tracking makes a false claim.
    #[error("I12: owner tracking of folio {folio:?}: {what}")]
    I12 {
        /// The folio.
        folio: FolioId,
        /// The claim.
        what: &'static str,
    },
    /// A queue or counter disagrees with the folios.
    #[error("I13: {what} is {counted}, but the folios add up to {found}")]
    I13 {
        /// The queue or counter.
        what: &'static str,
        /// Stored value.
        counted: u64,
        /// Value from the folios.
        found: u64,
    },
    /// A gate disagrees with opens, processes or folios.
    #[error("I14: {what} of file {file:?} is {counted}, but should be {found}")]
    I14 {
        /// The file.
        file: MappingId,
        /// Name of the count.
        what: &'static str,
        /// Stored value.
        counted: i64,
        /// Value from opens, processes or folios.
        found: i64,
    },
    /// LRU lists disagree with the folios.
    #[error("I15: folio {folio:?}: {what}")]
    I15 {
        /// The folio, if one is involved.
        folio: Option<FolioId>,
        /// Text of the broken rule.
        what: &'static str,
    },
    /// Swap space disagrees with the swapped pages.
    #[error("I16: {what}")]
    I16 {
        /// Text of the broken rule.
        what: &'static str,
    },
    /// Counts of mapped pages disagree with the page tables.
    #[error("I17: the machine counts {counted:?}, but the page tables have {found:?}")]
    I17 {
        /// Stored counts.
        counted: MappedCounters,
        /// Counts in the tables.
        found: MappedCounters,
    },
    /// Huge pages or their reservations do not add up.
    #[error("I18: {what} in the pool of {order} is {counted}, but should be {found}")]
    I18 {
        /// Order of the pool's pages.
        order: Order,
        /// Name of the count.
        what: &'static str,
        /// Stored value.
        counted: u64,
        /// Value from entries and files.
        found: u64,
    },
    /// A frame names a folio that does not contain it.
    #[error("folio table: pfn {0} names the wrong folio")]
    Folios(Pfn),
    /// Areas overlap or were not merged.
    #[error("the areas of {0:?} are inconsistent at page {1}")]
    Areas(MmId, Vpn),
    /// The allocator's own invariants.
    #[error(transparent)]
    Buddy(#[from] buddy::Violation),
    /// A folio's counts contradict themselves.
    #[error("folio {0:?}: {1}")]
    Mapcount(FolioId, rmap::mapcount::Violation),
    /// A page table's own invariants.
    #[error(transparent)]
    Table(#[from] pgtable::Violation),
    /// A mapping's own invariants.
    #[error(transparent)]
    Mapping(#[from] mapping::Violation),
}

struct LeafPart<'a> {
    mm: MmId,
    vma: &'a Vma,
    leaf: Leaf,
    vpn: Vpn,
    end: Vpn,
}

impl Memory {
    /// Checks every invariant; the cost grows with memory and page tables.
    ///
    /// # Errors
    /// Returns the first broken invariant found.
    pub fn validate(&self) -> Result<(), Violation> {
        self.core.buddy.validate()?;
        self.core.folios.validate().map_err(Violation::Folios)?;
        let mut entries = EntryCounts::default();
        for (mm, space) in self.all_spaces() {
            space.table.validate()?;
            space.vmas.validate().map_err(|vpn| Violation::Areas(mm, vpn))?;
            self.check_space(mm, space, &mut entries)?;
        }
        self.check_folios(&entries)?;
        self.check_mapped(&entries)?;
        self.check_sizes()?;
        self.check_reclaim()?;
        self.check_huge_pages()?;
        self.check_trees()?;
        self.check_gates()?;
        self.check_opens()
    }

    fn check_space(
        &self,
        mm: MmId,
        space: &Space,
        entries: &mut EntryCounts,
    ) -> Result<(), Violation> {
        for leaf in space.table.leaves(Vpn(0), PageTable::VPN_END.0) {
            let mut vpn = leaf.first_vpn;
            while vpn < leaf.end_vpn() {
                let vma = space.vmas.find(vpn).ok_or(Violation::I5 { mm, vpn })?;
                let end = vma.end.min(leaf.end_vpn());
                if leaf.kind == LeafKind::Pmd && end < leaf.end_vpn() {
                    return Err(Violation::I5 { mm, vpn: end });
                }
                self.check_part(&LeafPart { mm, vma, leaf, vpn, end }, entries)?;
                vpn = end;
            }
        }
        Ok(())
    }

    fn check_part(&self, part: &LeafPart<'_>, entries: &mut EntryCounts) -> Result<(), Violation> {
        let LeafPart { mm, leaf, vpn, end, .. } = *part;
        let pfn = leaf.pfn_of(vpn);
        let Some(id) = self.core.folios.of_pfn(pfn) else {
            let zeroes = if leaf.kind == LeafKind::Pmd {
                self.huge_zero.map(|first| first.plus(vpn.0 - leaf.first_vpn.0))
            } else {
                Some(self.zero_pfn)
            };
            let is_zero = zeroes == Some(pfn) && leaf.flags.contains(PteFlags::SPECIAL);
            return if is_zero { Ok(()) } else { Err(Violation::I3 { mm, vpn, pfn }) };
        };
        let nr = end.0 - vpn.0;
        if self.core.folios.of_pfn(pfn.plus(nr - 1)) != Some(id) {
            return Err(Violation::I3 { mm, vpn: Vpn(end.0 - 1), pfn: pfn.plus(nr - 1) });
        }
        if leaf.kind == LeafKind::Pmd {
            entries.add_pmd(id, mm, self.core.pmd_refs(id));
        } else {
            entries.add_ptes(id, mm, (pfn, nr));
        }
        self.check_owner(part, id)
    }

    /// An entry's page belongs to its area (I4), is writable only if exclusive (I9), and its area
    /// is marked as having anonymous pages (I10).
    fn check_owner(&self, part: &LeafPart<'_>, id: FolioId) -> Result<(), Violation> {
        let LeafPart { mm, vma, leaf, vpn, .. } = *part;
        let folio = self.core.folios.get(id);
        let pfn = leaf.pfn_of(vpn);
        if leaf.flags.contains(PteFlags::WRITABLE) && !vma.prot.can_write {
            return Err(Violation::I9 { mm, vpn });
        }
        // A PMD entry is exclusive by its head page, a folded block page by page.
        let leaf_pfn = if leaf.kind == LeafKind::Pmd { leaf.pfn } else { pfn };
        let is_own = leaf.flags.contains(PteFlags::WRITABLE) && vma.sharing == Sharing::Private;
        match folio.owner {
            Owner::File { .. } if !self.is_page_of(part, pfn) => {
                Err(Violation::I4 { mm, vpn, pfn })
            }
            Owner::File { .. } if is_own => Err(Violation::I9 { mm, vpn }),
            Owner::Anon { .. } if is_own && !self.core.folios.is_exclusive(leaf_pfn) => {
                Err(Violation::I9 { mm, vpn })
            }
            Owner::Anon { .. } if !vma.has_anon() => Err(Violation::I10 { mm, vpn }),
            Owner::Anon { index } => {
                let expected = vma.index_of(vpn);
                let found = index.0 + (pfn.0 - folio.pfn.0);
                let folio = id;
                let what = "index";
                if expected == found {
                    Ok(())
                } else {
                    Err(Violation::I11 { folio, what, counted: found, found: expected })
                }
            }
            Owner::Detached => Err(Violation::I3 { mm, vpn, pfn }),
            Owner::File { .. } => Ok(()),
        }
    }

    fn is_page_of(&self, part: &LeafPart<'_>, pfn: Pfn) -> bool {
        let Backing::File { open, .. } = part.vma.backing else { return false };
        let file = self.open_file(open).mapping;
        let nr_file_pages = self.core.mapping(file).nr_file_pages(self.rules.page);
        let index = PageIndex(part.vma.index_of(part.vpn));
        // A block of shared memory is collapsed and mapped whole, even if the file ends inside it.
        // A folio that stayed when its file shrank is mapped whole by a kernel without the
        // end-of-file test, and by `MADV_COLLAPSE`: only faults make that test (B.6.2).
        let is_inside = self.core.mapping(file).is_shmem
            || part.leaf.kind == LeafKind::Pmd
            || self.rules.fault.eof_guard != EofGuard::Refuse
            || part.vma.index_of(part.end) <= nr_file_pages;
        let entry = self.core.find(file, index);
        is_inside
            && entry.is_some_and(|entry| self.core.folios.get(entry.folio).pfn_at(index) == pfn)
    }

    fn check_folios(&self, entries: &EntryCounts) -> Result<(), Violation> {
        let mut used = self.nr_pinned + 1 + self.core.pressure.zswap.nr_pages();
        used += self.huge_zero.map_or(0, |_| self.rules.page.pmd_order().nr_pages());
        for (folio, data) in self.core.folios.iter() {
            let (refs, maps, pins) = (data.refs, data.maps(), data.pins);
            if refs != maps + pins + data.cache_refs() || refs == 0 {
                return Err(Violation::I1 { folio, refs, maps, pins });
            }
            let nr_found = entries.nr_maps(folio);
            if nr_found != maps {
                return Err(Violation::I2 { folio, maps, found: nr_found });
            }
            self.check_counts(folio, entries)?;
            self.check_owners(folio, entries)?;
            used += data.order.nr_pages();
        }
        let allocated = self.core.buddy.nr_allocated_pages();
        if used == allocated { Ok(()) } else { Err(Violation::I7 { allocated, used }) }
    }

    fn check_trees(&self) -> Result<(), Violation> {
        for (file, mapping) in self.core.mappings() {
            mapping.validate()?;
            for entry in mapping.tree.iter() {
                let folio = self.core.folios.get(entry.folio);
                let owner = Owner::File { mapping: file, index: entry.index };
                if folio.owner != owner || folio.order != entry.order {
                    return Err(Violation::I6 { file, index: entry.index });
                }
            }
        }
        for (id, folio) in self.core.folios.iter() {
            let Owner::File { mapping: file, index } = folio.owner else { continue };
            if self.core.find(file, index).is_none_or(|entry| entry.folio != id) {
                return Err(Violation::I6 { file, index });
            }
        }
        Ok(())
    }

    fn check_opens(&self) -> Result<(), Violation> {
        for (open, file) in self.opens() {
            let mmap_miss = file.state.mmap_miss();
            if mmap_miss > MISS_LIMIT {
                return Err(Violation::I8 { open, mmap_miss });
            }
        }
        Ok(())
    }
}
