//! The file mappings in an address space, which translate a fault's address to a file page.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// The recording's mapping number.
    pub(crate) id: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// File position of the first byte.
    pub(crate) pos: u64,
    pub(crate) file: u32,
}

/// The areas of an address space, by start. They do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Areas {
    areas: BTreeMap<u64, Area>,
}

impl Areas {
    pub(crate) fn find(&self, addr: u64) -> Option<(u32, u64)> {
        let (_, area) = self.areas.range(..=addr).next_back()?;
        (addr < area.end).then(|| (area.id, area.pos + (addr - area.start)))
    }

    pub(crate) fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.areas.range(..bytes.end).next_back().is_some_and(|(_, area)| area.end > bytes.start)
    }

    pub(crate) fn files(&self, bytes: &Range<u64>) -> BTreeSet<u32> {
        let inside = self.areas.range(..bytes.end).map(|(_, area)| area);
        inside.filter(|area| area.end > bytes.start).map(|area| area.file).collect()
    }

    pub(crate) fn insert(&mut self, area: Area) {
        self.areas.insert(area.start, area);
    }

    /// Unmaps whole pages; returns whether any was mapped.
    pub(crate) fn remove(&mut self, bytes: &Range<u64>) -> bool {
        let Range { start: addr, end } = *bytes;
        let mut is_found = false;
        while let Some((_, &area)) = self.areas.range(..end).next_back()
            && area.end > addr
        {
            is_found = true;
            self.areas.remove(&area.start);
            if area.start < addr {
                self.areas.insert(area.start, Area { end: addr, ..area });
            }
            if area.end > end {
                let pos = area.pos + (end - area.start);
                self.areas.insert(end, Area { start: end, pos, ..area });
            }
            if area.start < addr {
                break;
            }
        }
        is_found
    }

    pub(crate) fn remap(&mut self, from: &Range<u64>, to: &Range<u64>, id: u32) -> bool {
        let Some((_, pos)) = self.find(from.start) else { return false };
        let Some((_, &Area { file, .. })) = self.areas.range(..=from.start).next_back() else {
            return false;
        };
        self.remove(from);
        self.remove(to);
        let Range { start, end } = *to;
        self.insert(Area { id, start, end, pos, file });
        true
    }
}

/// Rounds `len` bytes at an address up to whole pages; cuts at the end of the address space.
pub(crate) fn whole_pages(addr: u64, len: u64, page: u64) -> Range<u64> {
    addr..addr.saturating_add(len.checked_next_multiple_of(page).unwrap_or(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas() -> Areas {
        let mut areas = Areas::default();
        areas.insert(Area { id: 3, start: 0x10000, end: 0x14000, pos: 0x8000, file: 0 });
        areas
    }

    #[test]
    fn a_hole_leaves_both_sides_their_pages() {
        let mut areas = areas();
        assert!(areas.remove(&(0x11000..0x12000)) && !areas.remove(&(0x11000..0x12000)));
        let places = [0x10fff, 0x11000, 0x12000, 0x13fff, 0x14000].map(|addr| areas.find(addr));
        let places = places.map(|places| places.map(|(id, pos)| (id, pos >> 12)));
        assert_eq!(places, [Some((3, 8)), None, Some((3, 10)), Some((3, 11)), None]);
    }

    #[test]
    fn a_range_ends_with_a_page_of_the_machine() {
        assert_eq!(whole_pages(0x10000, 0x1001, 0x1000), 0x10000..0x12000);
        assert_eq!(whole_pages(0x10000, 0x1001, 0x4000), 0x10000..0x14000);
        assert_eq!(whole_pages(0x10000, u64::MAX, 0x1_0000), 0x10000..u64::MAX);
    }

    #[test]
    fn a_moved_mapping_keeps_its_pages_and_gets_a_number() {
        let mut areas = areas();
        assert!(areas.remap(&(0x11000..0x14000), &(0x40000..0x44000), 7));
        assert_eq!(areas.find(0x41000), Some((7, 0xa000)));
        assert_eq!((areas.find(0x11000), areas.find(0x10000)), (None, Some((3, 0x8000))));
        assert!(!areas.remap(&(0x90000..0x91000), &(0xa0000..0xa1000), 8));
    }
}
