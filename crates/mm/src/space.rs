//! One process's address space: its areas, its page table, its heap.

use crate::folio::MappingId;
use crate::pgtable::PageTable;
use crate::reclaim::swap::Swapped;
use crate::units::Vpn;
use crate::vma::VmaTree;

/// Address space in the memory manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MmId(pub u32);

/// The address space of a process.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts about a process: independent of each other"
)]
pub struct Space {
    /// What is mapped where.
    pub vmas: VmaTree,
    /// Present pages.
    pub table: PageTable,
    /// Pages in swap space.
    pub swapped: Swapped,
    /// Whether the process has ended; its id is not used again.
    pub is_dead: bool,
    /// Whether a page of it was ever pinned (E.1.2).
    pub has_pinned: bool,
    /// Whether it holds a reference to the huge zero folio (D.3.1).
    pub uses_huge_zero: bool,
    /// The program it runs: nobody opens that for write (H.2.1).
    pub exe: Option<MappingId>,
    /// Whether khugepaged looks at it (D.2.9).
    pub is_scanned: bool,
    /// Bytes of it when it was last measured ([`crate::work`]).
    pub(crate) measured_bytes: u64,
}

/// Translations of one address space that must leave the TLBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Whose.
    pub mm: MmId,
    /// First page.
    pub first: Vpn,
    /// Pages.
    pub nr_pages: u64,
}
