//! What all processes of a program have mapped at one moment.

use std::collections::BTreeMap;

use super::range::{NR_SLOTS, PageRange};

/// What one page of a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum MappedPage {
    /// Nothing.
    #[default]
    Absent,
    /// Nothing: it is in swap space.
    Swapped,
    /// The shared zero page.
    Zero,
    /// A page of the huge zero folio.
    HugeZero { index: u32 },
    /// A page of a folio.
    Folio {
        /// Names the folio as long as it is mapped.
        label: u64,
        order: u8,
        /// Which page of it.
        index: u32,
    },
}

/// One page of a process, and how it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct PageState {
    /// What is mapped.
    pub(super) page: MappedPage,
    /// Nothing else maps the page (bit 56 of its pagemap entry).
    pub(super) is_exclusive: bool,
    pub(super) is_pmd: bool,
    /// A page of the file's cache.
    pub(super) is_file: bool,
    /// Sum of its 32-bit words, where known.
    pub(super) sum: Option<u32>,
    /// Mappings of the page (`kpagecount`); 0 where they are not told.
    pub(super) mapcount: u32,
}

impl PageState {
    /// The same state `by` pages further in the same folio: pages that one step stored to hold
    /// consecutive numbers.
    pub(super) fn advanced(self, by: u64) -> Self {
        let by = by as u32;
        let page = match self.page {
            MappedPage::Folio { label, order, index } => {
                MappedPage::Folio { label, order, index: index + by }
            }
            MappedPage::HugeZero { index } => MappedPage::HugeZero { index: index + by },
            page => page,
        };
        let sum = self.sum.map(|sum| if sum == 0 { 0 } else { sum.wrapping_add(by) });
        Self { page, sum, ..self }
    }
}

/// The numbers of the pool of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(clippy::struct_field_names, reason = "counts of pages")]
pub(super) struct PoolState {
    pub(super) nr_free: u64,
    /// Of them promised to mappings; wraps below 0.
    pub(super) nr_reserved: u64,
    pub(super) nr_surplus: u64,
}

/// The windows of all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    /// Pages by slot; all absent where no process lives.
    pub(super) slots: [Vec<PageState>; NR_SLOTS],
    /// In programs about hugetlb.
    pub(super) pool: Option<PoolState>,
    /// There: mappings of a page by label, as kpagecount shows them.
    pub(super) counts: BTreeMap<u64, u32>,
}

impl World {
    /// Nothing mapped.
    pub(super) fn new(nr_pages: u64) -> Self {
        let empty = vec![PageState::default(); nr_pages as usize];
        let slots = std::array::from_fn(|_| empty.clone());
        Self { slots, pool: None, counts: BTreeMap::new() }
    }

    /// Sets a run of pages to consecutive pages of one folio, or to the same state.
    pub(super) fn set(&mut self, slot: usize, pages: PageRange, state: PageState) {
        for by in 0..pages.nr {
            let page = &mut self.slots[slot][(pages.first + by) as usize];
            // Map counts are told apart from the rest, and first.
            let is_folio = matches!(state.page, MappedPage::Folio { .. });
            let mapcount = if is_folio { page.mapcount } else { 0 };
            *page = PageState { mapcount, ..state.advanced(by) };
        }
    }

    /// Sets the map count of a run of pages.
    pub(super) fn set_mapcount(&mut self, slot: usize, pages: PageRange, mapcount: u32) {
        for page in pages.first..pages.end() {
            self.slots[slot][page as usize].mapcount = mapcount;
        }
    }
}
