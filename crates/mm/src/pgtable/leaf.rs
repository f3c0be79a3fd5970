//! Lookups: which leaf maps a page, and how large a hardware-coalesced entry could be.

use crate::units::{Order, Pfn, Vpn};

use super::PageTable;
use super::directory::PmdSlot;
use super::pte::{Pte, PteFlags};

/// A leaf's level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LeafKind {
    /// One ordinary PTE.
    Pte,
    /// A folded contpte block.
    Contpte,
    /// A PMD entry.
    Pmd,
}

/// The unit that a TLB sees without coalescing: one PTE, one contpte block or one PMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its level.
    pub kind: LeafKind,
    /// First virtual page; a multiple of `2^order`.
    pub first_vpn: Vpn,
    /// Number of pages as an order: 0, the contpte order or the PMD order.
    pub order: Order,
    /// First page frame; a multiple of `2^order`.
    pub pfn: Pfn,
    /// Flags. In a folded block, accessed and dirty are the OR of all PTEs.
    pub flags: PteFlags,
}

impl Leaf {
    pub(super) const fn new(kind: LeafKind, order: Order, first_vpn: Vpn, first: Pte) -> Self {
        Self { kind, first_vpn, order, pfn: first.pfn(), flags: first.flags() }
    }

    /// The page frame of `vpn`, a page of this leaf.
    #[must_use]
    pub const fn pfn_of(&self, vpn: Vpn) -> Pfn {
        debug_assert!(
            vpn.0 >= self.first_vpn.0 && vpn.0 - self.first_vpn.0 < self.order.nr_pages()
        );
        Pfn(self.pfn.0 + (vpn.0 - self.first_vpn.0))
    }

    /// The page after the leaf.
    #[must_use]
    pub const fn end_vpn(&self) -> Vpn {
        Vpn(self.first_vpn.0 + self.order.nr_pages())
    }
}

/// Whether entries coalesce only if their accessed and dirty bits are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessBits {
    /// They must be equal (docs/behaviour C.3, Zen).
    Equal,
    /// They may differ.
    Any,
}

impl PageTable {
    /// The leaf that maps `vpn`.
    #[inline]
    #[must_use]
    pub fn leaf(&self, vpn: Vpn) -> Option<Leaf> {
        match self.slot(vpn) {
            PmdSlot::Empty => None,
            PmdSlot::Leaf(pte) => Some(Leaf::new(
                LeafKind::Pmd,
                self.pmd_order,
                Vpn(self.pmd_order.round_down(vpn.0)),
                pte,
            )),
            PmdSlot::Table(id) => {
                let pte = self.tables.pte(id, self.position(vpn));
                pte.is_present().then(|| self.pte_leaf(vpn, pte))
            }
        }
    }

    /// The PTE of `vpn`, or [`Pte::NONE`]; in a PMD leaf, the PTE it would have after a split.
    #[inline]
    #[must_use]
    pub fn pte(&self, vpn: Vpn) -> Pte {
        let position = self.position(vpn);
        match self.slot(vpn) {
            PmdSlot::Empty => Pte::NONE,
            PmdSlot::Leaf(pte) => pte.advanced(position as u64),
            PmdSlot::Table(id) => self.tables.pte(id, position),
        }
    }

    /// Order of the largest naturally aligned group (VA and PFN) around `vpn` with consecutive page
    /// frames and equal flags, at most `cap`. Returns `None` if `vpn` is not mapped.
    ///
    /// Hardware can merge such a group into one TLB entry without a software bit: HPA and Zen
    /// coalescing, with a cap of 2 for four pages (docs/behaviour C.2, C.3).
    #[must_use]
    pub fn contiguous_run(&self, vpn: Vpn, cap: Order, bits: AccessBits) -> Option<Order> {
        match self.slot(vpn) {
            PmdSlot::Empty => None,
            PmdSlot::Leaf(_) => Some(self.pmd_order.min(cap)),
            PmdSlot::Table(id) => {
                let position = self.position(vpn);
                let pte = self.tables.pte(id, position);
                pte.is_present().then(|| {
                    run_around(self.tables.ptes(id), position, cap.min(self.pmd_order), bits)
                })
            }
        }
    }

    #[inline]
    pub(super) fn pte_leaf(&self, vpn: Vpn, pte: Pte) -> Leaf {
        match self.contpte_order {
            Some(order) if pte.is_contpte() => {
                let first_vpn = Vpn(order.round_down(vpn.0));
                let first = pte.retreated(vpn.0 - first_vpn.0);
                Leaf::new(LeafKind::Contpte, order, first_vpn, first)
            }
            _ => Leaf::new(LeafKind::Pte, Order::ZERO, vpn, pte),
        }
    }
}

fn run_around(ptes: &[Pte], position: usize, cap: Order, bits: AccessBits) -> Order {
    let ignored = match bits {
        AccessBits::Equal => PteFlags::NONE,
        AccessBits::Any => PteFlags::ACCESSED_DIRTY,
    };
    let pte = ptes[position];
    let is_congruent = |order: u8| (position as u64 ^ pte.pfn().0) & ((1 << order) - 1) == 0;
    let mut order = 0;
    while order < cap.get() && is_congruent(order + 1) {
        let half = 1 << order;
        let other = (position & !(half - 1)) ^ half;
        let first = if other > position {
            pte.advanced((other - position) as u64)
        } else {
            pte.retreated((position - other) as u64)
        };
        let alike = |(by, pte): (u64, &Pte)| pte.key(ignored) == first.advanced(by).key(ignored);
        if !(0..).zip(&ptes[other..other + half]).all(alike) {
            break;
        }
        order += 1;
    }
    Order::new(order)
}
