//! File mappings of one address space, as far as a fault's address must be given its page.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes of a base page.
const PAGE: u64 = 4096;

/// A part of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    /// Mapping of the recording.
    pub(crate) id: u32,
    /// First byte.
    pub(crate) start: u64,
    /// Byte after the last.
    pub(crate) end: u64,
    /// File page of the first byte.
    pub(crate) first: u64,
    /// Number of the file.
    pub(crate) file: u32,
}

/// All of an address space, by start. Areas do not overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Areas {
    areas: BTreeMap<u64, Area>,
}

impl Areas {
    /// Mapping and file page of an address.
    pub(crate) fn find(&self, addr: u64) -> Option<(u32, u64)> {
        let (_, area) = self.areas.range(..=addr).next_back()?;
        (addr < area.end).then(|| (area.id, area.first + (addr - area.start) / PAGE))
    }

    /// Whether some byte of the range is mapped.
    pub(crate) fn overlaps(&self, bytes: &Range<u64>) -> bool {
        self.areas.range(..bytes.end).next_back().is_some_and(|(_, area)| area.end > bytes.start)
    }

    /// Files of which some byte of the range is mapped.
    pub(crate) fn files(&self, bytes: &Range<u64>) -> BTreeSet<u32> {
        let inside = self.areas.range(..bytes.end).map(|(_, area)| area);
        inside.filter(|area| area.end > bytes.start).map(|area| area.file).collect()
    }

    /// Adds an area over free addresses.
    pub(crate) fn insert(&mut self, area: Area) {
        self.areas.insert(area.start, area);
    }

    /// Unmaps the pages of a range; whether something was mapped there.
    pub(crate) fn remove(&mut self, bytes: &Range<u64>) -> bool {
        let Range { start: addr, end } = whole_pages(bytes);
        let mut found = false;
        while let Some((_, &area)) = self.areas.range(..end).next_back()
            && area.end > addr
        {
            found = true;
            self.areas.remove(&area.start);
            if area.start < addr {
                self.areas.insert(area.start, Area { end: addr, ..area });
            }
            if area.end > end {
                let first = area.first + (end - area.start) / PAGE;
                self.areas.insert(end, Area { start: end, first, ..area });
            }
            if area.start < addr {
                break;
            }
        }
        found
    }

    /// Moves or resizes a mapping, which gets the number `id`; whether it is one of a file.
    pub(crate) fn remap(&mut self, from: &Range<u64>, to: &Range<u64>, id: u32) -> bool {
        let Some((_, first)) = self.find(from.start) else { return false };
        let Some((_, &Area { file, .. })) = self.areas.range(..=from.start).next_back() else {
            return false;
        };
        self.remove(from);
        self.remove(to);
        let Range { start, end } = whole_pages(to);
        self.insert(Area { id, start, end, first, file });
        true
    }
}

/// `len` bytes from an address on; those past the end of all addresses are none.
pub(crate) fn bytes(addr: u64, len: u64) -> Range<u64> {
    addr..addr.saturating_add(len)
}

/// A range that starts with a page, to the end of its last page.
fn whole_pages(bytes: &Range<u64>) -> Range<u64> {
    let len = bytes.end - bytes.start;
    bytes.start..bytes.start.saturating_add(len.checked_next_multiple_of(PAGE).unwrap_or(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas() -> Areas {
        let mut areas = Areas::default();
        areas.insert(Area { id: 3, start: 0x10000, end: 0x14000, first: 8, file: 0 });
        areas
    }

    #[test]
    fn a_hole_leaves_both_sides_their_pages() {
        let mut areas = areas();
        assert!(areas.remove(&(0x11000..0x12000)) && !areas.remove(&(0x11000..0x12000)));
        let found = [0x10fff, 0x11000, 0x12000, 0x13fff, 0x14000].map(|addr| areas.find(addr));
        assert_eq!(found, [Some((3, 8)), None, Some((3, 10)), Some((3, 11)), None]);
    }

    #[test]
    fn a_moved_mapping_keeps_its_pages_and_gets_a_number() {
        let mut areas = areas();
        assert!(areas.remap(&(0x11000..0x14000), &(0x40000..0x44000), 7));
        assert_eq!(areas.find(0x41000), Some((7, 10)));
        assert_eq!((areas.find(0x11000), areas.find(0x10000)), (None, Some((3, 8))));
        assert!(!areas.remap(&(0x90000..0x91000), &(0xa0000..0xa1000), 8));
    }
}
