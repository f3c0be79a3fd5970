//! Collapses, and refusals named after the kernel's `scan_result`.

/// Collapse counts, with vmstat's names where vmstat has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollapseCounters {
    /// Folios of the PMD size allocated for a collapse.
    pub thp_collapse_alloc: u64,
    /// PMD-sized folios that could not be allocated.
    pub thp_collapse_alloc_failed: u64,
    /// `khugepaged/pages_collapsed`: folios that khugepaged made.
    pub pages_collapsed: u64,
    /// `khugepaged/full_scans`: complete passes over all processes.
    pub full_scans: u64,
    /// Folios made by `MADV_COLLAPSE`.
    pub nr_advised: u64,
    /// Refused ranges, by [`CollapseRefusal`].
    pub refused: [u64; CollapseRefusal::ALL.len()],
}

/// How a collapse succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It made a folio.
    Collapsed,
    /// The range already was one folio, or one entry.
    Already,
}

/// Why a range was not collapsed. Omits refusals that cannot happen here: write-protected
/// userfaultfd ranges, memory of other nodes, pages without a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum CollapseRefusal {
    /// Any other failure (`SCAN_FAIL`).
    #[error("the range could not be collapsed")]
    Fail,
    /// The PMD slot is empty: no page was touched.
    #[error("nothing is mapped in the range")]
    NoPteTable,
    /// The range has more empty pages than the limit.
    #[error("too many pages in the range are empty")]
    ExceedNonePte,
    /// More pages are in swap space, or evicted, than the limit.
    #[error("too many pages in the range are swapped out or evicted")]
    ExceedSwapPte,
    /// More pages may be shared with other processes than the limit.
    #[error("too many pages in the range are shared")]
    ExceedSharedPte,
    /// A page is in swap space where no swapped page is allowed.
    #[error("a page in the range is swapped out")]
    PteNonPresent,
    /// No page is writable.
    #[error("no page in the range is writable")]
    PageRo,
    /// No page was accessed recently.
    #[error("no page in the range was accessed")]
    LackReferencedPage,
    /// A page has a reference that no mapping explains: a pin.
    #[error("a page in the range is pinned")]
    PageCount,
    /// A page is on no LRU list.
    #[error("a page in the range is not on an LRU list")]
    PageLru,
    /// A page is locked.
    #[error("a page in the range is locked")]
    PageLock,
    /// A large folio is in the range.
    #[error("a folio in the range is already large")]
    PageCompound,
    /// The program offered a page with `MADV_FREE`.
    #[error("a page in the range is lazy-free")]
    PageLazyfree,
    /// The process has ended.
    #[error("the process has ended")]
    AnyProcess,
    /// Nothing is mapped at the address.
    #[error("there is no mapping at the address")]
    VmaNull,
    /// The area may not be collapsed.
    #[error("the mapping may not be collapsed")]
    VmaCheck,
    /// The block is not inside the area.
    #[error("the block does not fit in the mapping")]
    AddressRange,
    /// A page could not be taken from its LRU list.
    #[error("a page could not be isolated from its LRU list")]
    DelPageLru,
    /// No free block of that order exists.
    #[error("there is no free block of that size")]
    AllocHugePageFail,
    /// The memory cgroup is full.
    #[error("the memory cgroup is at its limit")]
    CgroupChargeFail,
    /// The pages left the file, or it had none.
    #[error("the file has no pages there")]
    Truncated,
    /// The filesystem keeps data with a page.
    #[error("the filesystem keeps private data with a page")]
    PageHasPrivate,
    /// A page could not be read.
    #[error("memory error while copying")]
    CopyMc,
    /// The new folio could not be stored in the page cache.
    #[error("the page cache could not store the folio")]
    StoreFailed,
    /// A page of a file is dirty or under writeback.
    #[error("a page in the range is dirty or under writeback")]
    PageDirtyOrWriteback,
    /// A hole was filled meanwhile.
    #[error("a hole in the range was filled in the meantime")]
    PageFilled,
    /// The page cache already has the large folio.
    #[error("the file already has a large folio there")]
    PteMappedHugepage,
}

impl CollapseRefusal {
    /// Every refusal, in the order of [`CollapseCounters::refused`].
    pub const ALL: [Self; 27] = [
        Self::Fail,
        Self::NoPteTable,
        Self::ExceedNonePte,
        Self::ExceedSwapPte,
        Self::ExceedSharedPte,
        Self::PteNonPresent,
        Self::PageRo,
        Self::LackReferencedPage,
        Self::PageCount,
        Self::PageLru,
        Self::PageLock,
        Self::PageCompound,
        Self::PageLazyfree,
        Self::AnyProcess,
        Self::VmaNull,
        Self::VmaCheck,
        Self::AddressRange,
        Self::DelPageLru,
        Self::AllocHugePageFail,
        Self::CgroupChargeFail,
        Self::Truncated,
        Self::PageHasPrivate,
        Self::CopyMc,
        Self::StoreFailed,
        Self::PageDirtyOrWriteback,
        Self::PageFilled,
        Self::PteMappedHugepage,
    ];

    /// Name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::NoPteTable => "no_pte_table",
            Self::ExceedNonePte => "exceed_none_pte",
            Self::ExceedSwapPte => "exceed_swap_pte",
            Self::ExceedSharedPte => "exceed_shared_pte",
            Self::PteNonPresent => "pte_non_present",
            Self::PageRo => "page_ro",
            Self::LackReferencedPage => "lack_referenced_page",
            Self::PageCount => "page_count",
            Self::PageLru => "page_lru",
            Self::PageLock => "page_lock",
            Self::PageCompound => "page_compound",
            Self::PageLazyfree => "page_lazyfree",
            Self::AnyProcess => "any_process",
            Self::VmaNull => "vma_null",
            Self::VmaCheck => "vma_check",
            Self::AddressRange => "address_range",
            Self::DelPageLru => "del_page_lru",
            Self::AllocHugePageFail => "alloc_huge_page_fail",
            Self::CgroupChargeFail => "cgroup_charge_fail",
            Self::Truncated => "truncated",
            Self::PageHasPrivate => "page_has_private",
            Self::CopyMc => "copy_mc",
            Self::StoreFailed => "store_failed",
            Self::PageDirtyOrWriteback => "page_dirty_or_writeback",
            Self::PageFilled => "page_filled",
            Self::PteMappedHugepage => "pte_mapped_hugepage",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_place_and_a_name_of_its_own() {
        for (place, refusal) in CollapseRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, place);
            let same = CollapseRefusal::ALL.iter().filter(|other| other.name() == refusal.name());
            assert_eq!(same.count(), 1, "{}", refusal.name());
        }
    }
}
