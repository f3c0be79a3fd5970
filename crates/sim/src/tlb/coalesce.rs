//! How many pages one TLB entry covers: contpte blocks, and hardware aggregation.
//!
//! ```text
//!  PTEs    │ 8 │ 9 │10 │11 │12 │13 │14 │15 │   PFNs 40..47, same attributes, not folded
//!  none      e   e   e   e   e   e   e   e     8 entries
//!  hpa       └─────e─────┘   └─────e─────┘     up to 4 pages, aligned in VA and PA
//!  zen-32K   └─────────────e─────────────┘     8 pages, else 4
//!  contpte   one entry for a block the kernel folded (16, 128 or 32 pages)
//! ```
//!
//! Sources: docs/behaviour C.1.4 (contpte), C.2 (HPA), C.3 (Zen), C.4 (PMD).

pub use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::units::{Order, Pfn, Vpn};
use serde::{Deserialize, Serialize};

use super::entry::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    pub vpn: Vpn,
    pub pfn: Pfn,
    pub is_writable: bool,
    pub leaf: LeafKind,
    /// Order of the leaf (PTE, folded contpte block or PMD), naturally aligned in VA and PA.
    pub order: Order,
    /// Order of the largest group around the page that is naturally aligned in VA and PA, fully
    /// mapped to contiguous page frames, and has the same attributes. Can be capped at
    /// [`Coalescing::run_cap`]; ignored for a PMD leaf.
    pub run: Order,
    /// Order of the folio that holds the page.
    pub folio: Order,
    /// Rows from the load of the address to this reference, on the same thread; 0 = unknown.
    pub link: u32,
    pub is_written: bool,
}

impl Walk {
    #[must_use]
    pub const fn page(vpn: Vpn, pfn: Pfn, is_writable: bool) -> Self {
        Self {
            vpn,
            pfn,
            is_writable,
            leaf: LeafKind::Pte,
            order: Order::ZERO,
            run: Order::ZERO,
            folio: Order::ZERO,
            link: 0,
            is_written: false,
        }
    }
}

/// The range that one TLB entry can cover after a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// First page covered; a multiple of `2^order`.
    pub first_vpn: Vpn,
    pub order: Order,
    pub pfn: Pfn,
    pub is_writable: bool,
    pub leaf: LeafKind,
}

impl Translation {
    pub(super) const fn entry(&self) -> Entry {
        Entry {
            first_vpn: self.first_vpn,
            order: self.order,
            pfn: self.pfn,
            is_writable: self.is_writable,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoalescingMode {
    #[serde(rename = "contpte")]
    Contpte,
    /// Arm hardware page aggregation: up to four pages.
    #[serde(rename = "hpa")]
    Hpa,
    /// AMD Zen: four 4 KiB pages, 16 KiB.
    #[serde(rename = "zen")]
    Zen,
    /// AMD Zen: eight 4 KiB pages, else four.
    #[serde(rename = "zen-32K")]
    Zen32K,
}

/// Aggregation by the hardware alone, without a bit in the page table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aggregation {
    #[default]
    None,
    Hpa,
    Zen,
    Zen32K,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// Whether the TLB uses the contiguous bit of a PTE.
    pub has_contpte: bool,
    pub aggregation: Aggregation,
}

impl Coalescing {
    /// Returns the largest useful order of [`Walk::run`]. A walk need not check further.
    #[must_use]
    pub const fn run_cap(self) -> Order {
        match self.aggregation {
            Aggregation::None => Order::ZERO,
            Aggregation::Hpa | Aggregation::Zen => Order::new(2),
            Aggregation::Zen32K => Order::new(3),
        }
    }

    /// Returns the range that one entry can cover after `walk`.
    ///
    /// ```
    /// # use largefolio_mm::units::{Order, Pfn, Vpn};
    /// # use largefolio_sim::tlb::{Aggregation, Coalescing, Walk};
    /// let hpa = Coalescing { has_contpte: true, aggregation: Aggregation::Hpa };
    /// let walk = Walk { run: Order::new(5), ..Walk::page(Vpn(103), Pfn(7), true) };
    /// let translation = hpa.entry(&walk);
    /// assert_eq!((translation.first_vpn, translation.pfn), (Vpn(100), Pfn(4)));
    /// assert_eq!(translation.order, Order::new(2));
    /// ```
    #[must_use]
    pub fn entry(self, walk: &Walk) -> Translation {
        let order = match walk.leaf {
            LeafKind::Pmd => walk.order,
            LeafKind::Contpte if self.has_contpte => walk.order.max(self.aggregated(walk.run)),
            LeafKind::Contpte | LeafKind::Pte => self.aggregated(walk.run),
        };
        let first_vpn = Vpn(order.round_down(walk.vpn.0));
        Translation {
            first_vpn,
            order,
            pfn: Pfn(walk.pfn.0.wrapping_sub(walk.vpn.0 - first_vpn.0)),
            is_writable: walk.is_writable,
            leaf: walk.leaf,
        }
    }

    fn aggregated(self, run: Order) -> Order {
        match (self.aggregation, run.get()) {
            (Aggregation::Hpa, 1..) => run.min(Order::new(2)),
            (Aggregation::Zen32K, 3..) => Order::new(3),
            (Aggregation::Zen | Aggregation::Zen32K, 2..) => Order::new(2),
            _ => Order::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(coalescing: Coalescing, leaf: LeafKind, order: u8) -> Vec<u8> {
        let walk = |run| Walk {
            leaf,
            order: Order::new(order),
            run: Order::new(run),
            ..Walk::page(Vpn(0x1_2345), Pfn(0x5_4345), true)
        };
        (0..=4).map(|run| coalescing.entry(&walk(run)).order.get()).collect()
    }

    #[test]
    fn each_mode_covers_what_its_hardware_does() {
        let of = |has_contpte, aggregation| Coalescing { has_contpte, aggregation };
        assert_eq!(orders(of(true, Aggregation::None), LeafKind::Pte, 0), [0, 0, 0, 0, 0]);
        assert_eq!(orders(of(true, Aggregation::None), LeafKind::Contpte, 4), [4, 4, 4, 4, 4]);
        assert_eq!(orders(of(false, Aggregation::None), LeafKind::Contpte, 4), [0, 0, 0, 0, 0]);
        assert_eq!(orders(of(false, Aggregation::Hpa), LeafKind::Contpte, 4), [0, 1, 2, 2, 2]);
        assert_eq!(orders(of(false, Aggregation::Zen), LeafKind::Pte, 0), [0, 0, 2, 2, 2]);
        assert_eq!(orders(of(false, Aggregation::Zen32K), LeafKind::Pte, 0), [0, 0, 2, 3, 3]);
        assert_eq!(orders(of(true, Aggregation::Hpa), LeafKind::Pmd, 9), [9, 9, 9, 9, 9]);
    }

    #[test]
    fn the_first_page_and_its_frame_are_those_of_the_aligned_range() {
        let walk = Walk {
            leaf: LeafKind::Pmd,
            order: Order::new(9),
            ..Walk::page(Vpn(0x1_2345), Pfn(0x5_4345), false)
        };
        let translation = Coalescing::default().entry(&walk);
        assert_eq!((translation.first_vpn, translation.pfn), (Vpn(0x1_2200), Pfn(0x5_4200)));
    }
}
