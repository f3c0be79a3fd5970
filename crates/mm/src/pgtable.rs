//! The page table of one process, for any base page size.
//!
//! Owns the mapping of virtual pages to page frames: flags, level (PTE, contpte block, PMD leaf)
//! and the contiguous bit of arm64 (docs/behaviour C.1). Does not own folios, reference counts,
//! VMAs or TLBs; if a rule needs a page's folio, the caller passes the folio.
//!
//! ```text
//!  vpn  = slot number << pmd_order | position in the table
//!
//!  PMD slots    .. | Empty | Table ----------. | Leaf pfn | Empty | ..   Directory (sparse)
//!                                             v
//!  PTE table             | pte | pte | .. | c c c c c c c c | .. |        Tables (one arena)
//!                                           contpte block: C PTEs, aligned in VA and PFN
//! ```
//! Reading order: `pte`, `directory`, `table`, `map`, `contpte`, `leaf`, `walk`, `change`, `copy`,
//! `pmd`, `validate`.
//!
//! Invariants:
//! - I1: the contiguous bit is only set on whole blocks: C PTEs, aligned in VA and PFN, with
//!   consecutive page frames.
//! - I2: all PTEs of a folded block have equal flags. Hardware can set the accessed and dirty flags
//!   in any entry of a block, and the OR of each flag is reported for all entries (C.1.3). This
//!   table keeps the OR in each entry.
//! - I3: a PMD leaf is aligned to the PMD order in VA and PFN.
//! - I4: the counters agree with the entries.
//! - I5: each PTE table in use is in exactly one PMD slot.
//!
//! As in Linux, clearing a table's last PTE leaves the table in its slot; only munmap and collapse
//! remove it. A used slot can therefore map nothing: see [`PageTable::pmd`] and
//! [`PageTable::free_empty_tables`].

#![expect(
    clippy::cast_possible_truncation,
    reason = "positions inside a table and table ids are bounded by the PMD order and by memory"
)]

mod change;
mod contpte;
mod copy;
mod directory;
mod leaf;
mod map;
mod pmd;
mod pte;
mod table;
mod validate;
mod walk;

#[cfg(test)]
mod tests;

pub use change::{Cleared, Protection, Zap};
pub use copy::{Copied, CopiedPmd, Copier};
pub use leaf::{AccessBits, Leaf, LeafKind};
pub use pmd::{DetachedTable, PmdState};
pub use pte::{FolioSpan, Pte, PteFlags};
pub use validate::Violation;
pub use walk::{Batch, Leaves};

use crate::units::{Order, PageSize, Vpn};
use directory::{Directory, PmdSlot};
use table::Tables;

/// Whether the machine can fold PTEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contpte {
    /// No contiguous bit (x86-64, arm64 before 6.9).
    None,
    /// arm64 since 6.9: blocks of 16, 128 or 32 PTEs (docs/behaviour C.1).
    Arm64,
}

/// A page table's counters. `I4` ties the first four to the entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Present PTEs, including folded ones.
    pub nr_ptes: u64,
    /// PMD entries that map a folio.
    pub nr_pmd_leaves: u64,
    /// Folded contpte blocks.
    pub nr_contpte_blocks: u64,
    /// PTE tables in use, including empty ones.
    pub nr_tables: u64,
    /// Times a block got the contiguous bit.
    pub nr_folds: u64,
    /// Times a block lost the bit but kept its PTEs (C.1.3).
    pub nr_unfolds: u64,
}

/// A process's page table.
#[derive(Clone, Debug)]
pub struct PageTable {
    directory: Directory,
    tables: Tables,
    /// PTEs per table and pages per PMD leaf: `2^pmd_order`.
    pmd_order: Order,
    contpte_order: Option<Order>,
    /// `nr_tables` stays 0 here: [`PageTable::stats`] reads it from `tables`.
    stats: Stats,
}

impl PageTable {
    /// First virtual page number beyond any address space: 57 address bits and 4 KiB pages.
    pub const VPN_END: Vpn = Vpn(1 << 45);

    /// An empty page table.
    ///
    /// ```
    /// use largefolio_mm::pgtable::{Batch, Contpte, FolioSpan, LeafKind, PageTable, PteFlags};
    /// use largefolio_mm::units::{Order, PageSize, Pfn, Vpn};
    ///
    /// let mut table = PageTable::new(PageSize::K4, Contpte::Arm64);
    /// let folio = FolioSpan::new(Pfn(64), Order::new(6));
    /// // 40 pages from the start of the folio: two whole blocks of 16 fold, 8 PTEs do not.
    /// let (vpn, pfn, flags) = (Vpn(0x1000), Pfn(64), PteFlags::YOUNG);
    /// table.map_ptes(Batch { vpn, pfn, nr: 40, flags }, folio);
    /// assert_eq!(table.stats().nr_contpte_blocks, 2);
    /// let leaf = table.leaf(Vpn(0x1013)).unwrap();
    /// assert_eq!((leaf.kind, leaf.first_vpn, leaf.pfn), (LeafKind::Contpte, Vpn(0x1010), Pfn(80)));
    /// ```
    #[must_use]
    pub fn new(page: PageSize, contpte: Contpte) -> Self {
        Self {
            directory: Directory::default(),
            tables: Tables::new(page.pmd_order()),
            pmd_order: page.pmd_order(),
            contpte_order: match contpte {
                Contpte::None => None,
                Contpte::Arm64 => Some(page.contpte_order()),
            },
            stats: Stats::default(),
        }
    }

    /// Order of a PMD leaf.
    #[must_use]
    pub const fn pmd_order(&self) -> Order {
        self.pmd_order
    }

    /// Order of a contpte block; `None` if the machine has none.
    #[must_use]
    pub const fn contpte_order(&self) -> Option<Order> {
        self.contpte_order
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        Stats { nr_tables: self.tables.nr_used() as u64, ..self.stats }
    }

    pub(crate) const fn nr_slots(&self) -> u64 {
        self.stats.nr_pmd_leaves + self.tables.nr_used() as u64
    }

    /// Existing regions, and PTEs in all tables, used or free.
    pub(crate) fn nr_held(&self) -> (u64, u64) {
        (self.directory.nr_regions() as u64, self.tables.nr_held() as u64)
    }

    const fn slot_nr(&self, vpn: Vpn) -> u64 {
        vpn.0 >> self.pmd_order.get()
    }

    const fn slot_vpn(&self, slot_nr: u64) -> Vpn {
        Vpn(slot_nr << self.pmd_order.get())
    }

    const fn position(&self, vpn: Vpn) -> usize {
        vpn.0 as usize & (self.pmd_order.nr_pages() as usize - 1)
    }

    #[inline]
    fn slot(&self, vpn: Vpn) -> PmdSlot {
        self.directory.get(self.slot_nr(vpn))
    }
}

fn end_of(vpn: Vpn, nr: u64) -> Vpn {
    let end = vpn.plus(nr);
    assert!(end <= PageTable::VPN_END, "virtual page {end} beyond any address space");
    end
}
