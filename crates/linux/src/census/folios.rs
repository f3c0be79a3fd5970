//! Bytes by folio size and kind.
//!
//! Owns the [`Tally`] of a mapping, a process or the system. Predictions use the same terms: a
//! folio is *aligned* if all of it is mapped at an address congruent to its file offset or PFN,
//! *unaligned* if all of it is mapped at another address, and *partial* if only part of it is
//! mapped.
//!
//! ```text
//!   mapped = aligned + unaligned + partial;   pmd and contpte are parts of it
//! ```
//!
//! A thousand processes have twenty thousand tallies, most of which have one cell, so tallies are
//! short sorted lists.

use serde::{Deserialize, Serialize};

use super::kpageflags::NR_ORDERS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Executable memory: files, tmpfs, memfd, and code from a just-in-time compiler.
    Text,
    File,
    Anon,
    /// tmpfs, memfd and shared anonymous memory, not executable.
    Shmem,
    /// hugetlb pages: reserved, not folios of this census.
    Hugetlb,
    /// Device memory, the zero page, and memory that changed during the census.
    Other,
}

impl MemoryKind {
    pub const ALL: [Self; 6] =
        [Self::Text, Self::File, Self::Anon, Self::Shmem, Self::Hugetlb, Self::Other];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::File => "file",
            Self::Anon => "anon",
            Self::Shmem => "shmem",
            Self::Hugetlb => "hugetlb",
            Self::Other => "other",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Size {
    /// Unknown, because reading it needs PFNs.
    Unknown,
    /// `2^order` base pages.
    Order(u32),
}

impl Size {
    #[must_use]
    pub const fn bytes(self, page_bytes: u64) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Order(order) => page_bytes.checked_shl(order),
        }
    }
}

/// Memory in folios of one kind and size, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// In folios mapped whole and naturally aligned; includes all base pages.
    pub aligned_bytes: u64,
    /// In folios mapped whole at another address.
    pub unaligned_bytes: u64,
    pub partial_bytes: u64,
    /// In contpte blocks: naturally aligned, mapped whole from one folio.
    pub contpte_bytes: u64,
    pub pmd_bytes: u64,
}

impl Cell {
    #[must_use]
    pub const fn mapped_bytes(&self) -> u64 {
        self.aligned_bytes + self.unaligned_bytes + self.partial_bytes
    }

    pub const fn add(&mut self, other: &Self) {
        self.aligned_bytes += other.aligned_bytes;
        self.unaligned_bytes += other.unaligned_bytes;
        self.partial_bytes += other.partial_bytes;
        self.contpte_bytes += other.contpte_bytes;
        self.pmd_bytes += other.pmd_bytes;
    }

    const fn is_empty(&self) -> bool {
        self.mapped_bytes() == 0 && self.pmd_bytes == 0
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    cells: Vec<((MemoryKind, Size), Cell)>,
}

impl Tally {
    pub fn add(&mut self, kind: MemoryKind, size: Size, cell: &Cell) {
        if !cell.is_empty() {
            self.cell_mut(kind, size).add(cell);
        }
    }

    pub fn add_all(&mut self, other: &Self) {
        for ((kind, size), cell) in &other.cells {
            self.add(*kind, *size, cell);
        }
    }

    pub fn cells(&self) -> impl Iterator<Item = (MemoryKind, Size, &Cell)> {
        self.cells.iter().map(|((kind, size), cell)| (*kind, *size, cell))
    }

    #[must_use]
    pub fn sum(&self, mut is_in: impl FnMut(MemoryKind, Size) -> bool) -> Cell {
        let mut sum = Cell::default();
        let inside = self.cells().filter(|(kind, size, _)| is_in(*kind, *size));
        inside.for_each(|(_, _, cell)| sum.add(cell));
        sum
    }

    /// Sums all mapped memory, including memory outside folios.
    #[must_use]
    pub fn all(&self) -> Cell {
        self.sum(|_, _| true)
    }

    #[must_use]
    pub fn of(&self, kind: MemoryKind) -> Cell {
        self.sum(|other, _| other == kind)
    }

    pub(super) fn cell_mut(&mut self, kind: MemoryKind, size: Size) -> &mut Cell {
        let slot = self.cells.binary_search_by_key(&(kind, size), |(key, _)| *key);
        let at = slot.unwrap_or_else(|at| {
            if self.cells.is_empty() {
                self.cells.reserve_exact(1);
            }
            self.cells.insert(at, ((kind, size), Cell::default()));
            at
        });
        &mut self.cells[at].1
    }
}

/// Counts without searches, because a mapping has thousands of pieces. Reused for each mapping.
pub(super) struct Counter {
    cells: [[Cell; NR_ORDERS]; MemoryKind::ALL.len()],
    /// The orders in use for each kind, as bits.
    used: [u16; MemoryKind::ALL.len()],
}

const _: () = assert!(NR_ORDERS <= u16::BITS as usize);

impl Counter {
    pub(super) fn new() -> Self {
        Self {
            cells: [[Cell::default(); NR_ORDERS]; MemoryKind::ALL.len()],
            used: [0; MemoryKind::ALL.len()],
        }
    }

    pub(super) fn cell(&mut self, kind: MemoryKind, order: u32) -> &mut Cell {
        let order = (order as usize).min(NR_ORDERS - 1);
        self.used[kind as usize] |= 1 << order;
        &mut self.cells[kind as usize][order]
    }

    pub(super) fn take(&mut self) -> Tally {
        let mut tally = Tally::default();
        for (kind, (cells, used)) in
            MemoryKind::ALL.into_iter().zip(self.cells.iter_mut().zip(&mut self.used))
        {
            while *used != 0 {
                let order = used.trailing_zeros();
                *used &= *used - 1;
                tally.add(kind, Size::Order(order), &std::mem::take(&mut cells[order as usize]));
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_over_kinds_and_sizes() {
        let mut tally = Tally::default();
        let cell = |bytes| Cell { aligned_bytes: bytes, ..Cell::default() };
        tally.add(MemoryKind::Text, Size::Order(0), &cell(4096));
        tally.add(MemoryKind::Text, Size::Order(4), &cell(65536));
        tally.add(MemoryKind::Anon, Size::Unknown, &Cell { partial_bytes: 4096, ..cell(0) });
        tally.add(MemoryKind::Shmem, Size::Order(1), &cell(0));
        assert_eq!(tally.cells().count(), 3);
        assert_eq!(tally.of(MemoryKind::Text).mapped_bytes(), 69632);
        assert_eq!(tally.all().mapped_bytes(), 73728);
        assert_eq!(Size::Order(4).bytes(4096), Some(65536));
    }
}
