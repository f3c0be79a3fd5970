//! The mapped pages of all of a program's processes at one moment.

use std::collections::BTreeMap;

use super::range::{NR_SLOTS, PageRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum MappedPage {
    #[default]
    Absent,
    Swapped,
    Zero,
    HugeZero {
        index: u32,
    },
    Folio {
        /// Identifies the folio while it is mapped.
        label: u64,
        order: u8,
        index: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct PageState {
    pub(super) page: MappedPage,
    /// The page has no other mapping (bit 56 of its pagemap entry).
    pub(super) is_exclusive: bool,
    pub(super) is_pmd: bool,
    pub(super) is_file: bool,
    /// Sum of the page's 32-bit words, if known.
    pub(super) sum: Option<u32>,
    /// The page's node; 0 if not recorded.
    pub(super) node: u8,
    /// The page's mapcount (`kpagecount`); 0 if not recorded.
    pub(super) mapcount: u32,
}

impl PageState {
    /// Returns the state of the page `by` pages further in the same folio. Pages that one step
    /// stored to have consecutive numbers.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[expect(clippy::struct_field_names, reason = "counts of pages")]
pub(super) struct PoolState {
    pub(super) nr_free: u64,
    /// Pages reserved for mappings; wraps below 0.
    pub(super) nr_reserved: u64,
    pub(super) nr_surplus: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct World {
    /// Pages by slot; all absent if the slot has no process.
    pub(super) slots: [Vec<PageState>; NR_SLOTS],
    pub(super) pool: Option<PoolState>,
    /// For hugetlb: map counts by label, from kpagecount.
    pub(super) counts: BTreeMap<u64, u32>,
}

impl World {
    pub(super) fn new(nr_pages: u64) -> Self {
        let empty = vec![PageState::default(); nr_pages as usize];
        let slots = std::array::from_fn(|_| empty.clone());
        Self { slots, pool: None, counts: BTreeMap::new() }
    }

    pub(super) fn set(&mut self, slot: usize, pages: PageRange, state: PageState) {
        for by in 0..pages.nr {
            let page = &mut self.slots[slot][(pages.first + by) as usize];
            // Recordings have mapcounts on separate lines, which come first.
            let is_folio = matches!(state.page, MappedPage::Folio { .. });
            let mapcount = if is_folio { page.mapcount } else { 0 };
            *page = PageState { mapcount, ..state.advanced(by) };
        }
    }

    pub(super) fn set_mapcount(&mut self, slot: usize, pages: PageRange, mapcount: u32) {
        for page in pages.first..pages.end() {
            self.slots[slot][page as usize].mapcount = mapcount;
        }
    }
}
