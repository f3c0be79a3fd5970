//! A naive model of the buddy allocator, written from docs/behaviour I alone: free lists are plain
//! vectors, and every query is a scan. Types are 0 movable, 1 unmovable, 2 reclaimable.

use std::collections::BTreeSet;

const MOVABLE: usize = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Free,
    Used(usize),
}

#[derive(Clone, Debug)]
pub struct NaiveBuddy {
    pages: Vec<Page>,
    /// `lists[order][type]`: first page frames, head first.
    lists: Vec<[Vec<u64>; 3]>,
    pageblocks: Vec<usize>,
    max_order: u8,
    pageblock_order: u8,
}

impl NaiveBuddy {
    #[must_use]
    pub fn new(nr_pages: usize, max_order: u8, pageblock_order: u8) -> Self {
        let mut zone = Self {
            pages: vec![Page::Free; nr_pages],
            lists: vec![Default::default(); usize::from(max_order) + 1],
            pageblocks: vec![MOVABLE; nr_pages.div_ceil(1 << pageblock_order)],
            max_order,
            pageblock_order,
        };
        let mut pfn = 0;
        while pfn < nr_pages as u64 {
            let fits = |&order: &u8| {
                pfn.is_multiple_of(1 << order) && pfn + (1 << order) <= nr_pages as u64
            };
            let Some(order) = (0..=max_order).rev().find(fits) else {
                unreachable!("order 0 fits")
            };
            zone.lists[usize::from(order)][MOVABLE].push(pfn);
            pfn += 1 << order;
        }
        zone
    }

    #[must_use]
    pub fn nr_free(&self) -> u64 {
        self.pages.iter().filter(|&&page| page == Page::Free).count() as u64
    }

    #[must_use]
    pub fn list(&self, order: u8, of: usize) -> Vec<u64> {
        self.lists[usize::from(order)][of].clone()
    }

    /// Allocates `2^order` pages for `of`.
    ///
    /// # Panics
    /// Panics if the model itself allocates a page twice.
    pub fn alloc(&mut self, order: u8, of: usize) -> Option<u64> {
        let pfn = self.find(order, of)?;
        for page in &mut self.pages[range(pfn, order)] {
            assert_eq!(*page, Page::Free);
            *page = Page::Used(of);
        }
        Some(pfn)
    }

    fn find(&mut self, order: u8, of: usize) -> Option<u64> {
        if let Some(pfn) = self.take_own(order, of) {
            return Some(pfn);
        }
        for donor_order in (order..=self.max_order).rev() {
            let Some(donor) = self.donor(donor_order, of) else { continue };
            let is_allowed = donor_order >= self.pageblock_order
                || donor_order >= self.pageblock_order / 2
                || of != MOVABLE;
            if !is_allowed {
                break;
            }
            if self.claim(donor_order, donor, of) {
                return self.take_own(order, of);
            }
        }
        for donor_order in order..=self.max_order {
            if let Some(donor) = self.donor(donor_order, of) {
                return Some(self.take_head(donor_order, order, donor));
            }
        }
        None
    }

    fn take_own(&mut self, order: u8, of: usize) -> Option<u64> {
        let is_filled = |&k: &u8| !self.lists[usize::from(k)][of].is_empty();
        let order_of_block = (order..=self.max_order).find(is_filled)?;
        Some(self.take_head(order_of_block, order, of))
    }

    fn take_head(&mut self, order_of_block: u8, order: u8, of: usize) -> u64 {
        let pfn = self.lists[usize::from(order_of_block)][of].remove(0);
        let mut k = order_of_block;
        while k > order {
            k -= 1;
            self.lists[usize::from(k)][of].insert(0, pfn + (1 << k));
        }
        pfn
    }

    fn donor(&self, order: u8, of: usize) -> Option<usize> {
        let donors = [[2, 1], [2, 0], [1, 0]][of];
        donors.into_iter().find(|&donor| !self.lists[usize::from(order)][donor].is_empty())
    }

    fn claim(&mut self, donor_order: u8, donor: usize, of: usize) -> bool {
        let head = self.lists[usize::from(donor_order)][donor][0];
        if donor_order >= self.pageblock_order {
            self.lists[usize::from(donor_order)][donor].remove(0);
            self.lists[usize::from(donor_order)][of].insert(0, head);
            self.set_types(head, donor_order, of);
            return true;
        }
        let size = 1_u64 << self.pageblock_order;
        let base = head / size * size;
        let Some(pages) = self.pages.get(range(base, self.pageblock_order)) else { return false };
        let is_alike = |page: &Page| match *page {
            Page::Free => true,
            Page::Used(used) => {
                (of == MOVABLE && used == MOVABLE)
                    || (of != MOVABLE && donor == MOVABLE && used != MOVABLE)
            }
        };
        if (pages.iter().filter(|page| is_alike(page)).count() as u64) < size / 2 {
            return false;
        }
        let mut moved = BTreeSet::new();
        for (order, lists) in self.lists.iter_mut().enumerate() {
            let inside = |pfn: &u64| (base..base + size).contains(pfn);
            moved.extend(lists[donor].iter().filter(|pfn| inside(pfn)).map(|&pfn| (pfn, order)));
            lists[donor].retain(|pfn| !inside(pfn));
        }
        for (pfn, order) in moved {
            self.lists[order][of].push(pfn);
        }
        self.set_types(base, self.pageblock_order, of);
        true
    }

    fn set_types(&mut self, pfn: u64, order: u8, of: usize) {
        for nr in range(pfn, order) {
            self.pageblocks[nr >> self.pageblock_order] = of;
        }
    }

    /// Frees `2^order` pages.
    ///
    /// # Panics
    /// Panics if one of them is already free.
    pub fn free(&mut self, pfn: u64, order: u8) {
        for page in &mut self.pages[range(pfn, order)] {
            assert_ne!(*page, Page::Free);
            *page = Page::Free;
        }
        let (mut pfn, mut order) = (pfn, order);
        let of = self.pageblocks[range(pfn, 0).start >> self.pageblock_order];
        while order < self.max_order {
            let buddy = pfn ^ (1 << order);
            let lists = &mut self.lists[usize::from(order)];
            let Some(from) = lists.iter().position(|list| list.contains(&buddy)) else { break };
            lists[from].retain(|&other| other != buddy);
            pfn = pfn.min(buddy);
            order += 1;
            if order > self.pageblock_order {
                self.set_types(pfn, order, of);
            }
        }
        self.lists[usize::from(order)][of].insert(0, pfn);
    }

    #[must_use]
    pub fn fragmentation_index(&self, order: u8) -> i32 {
        let blocks = self.blocks();
        if blocks.iter().any(|&of| of >= order) {
            return -1000;
        }
        if blocks.is_empty() {
            return 0;
        }
        let free: u64 = blocks.iter().map(|&of| 1 << of).sum();
        let requests = (1000 + free * 1000 / (1 << order)) / blocks.len() as u64;
        i32::try_from(requests).map_or(i32::MIN, |requests| 1000 - requests)
    }

    #[must_use]
    pub fn unusable_index(&self, order: u8) -> u32 {
        let blocks = self.blocks();
        let free: u32 = blocks.iter().map(|&of| 1 << of).sum();
        let unusable: u32 = blocks.iter().filter(|&&of| of < order).map(|&of| 1 << of).sum();
        (unusable * 1000).checked_div(free).unwrap_or(1000)
    }

    fn blocks(&self) -> Vec<u8> {
        let orders = (0..=self.max_order).zip(&self.lists);
        orders.flat_map(|(order, lists)| lists.iter().flatten().map(move |_| order)).collect()
    }
}

fn range(pfn: u64, order: u8) -> std::ops::Range<usize> {
    let Ok(first) = usize::try_from(pfn) else { panic!("pfn {pfn} does not fit") };
    first..first + (1 << order)
}
