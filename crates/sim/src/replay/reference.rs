//! Translates a reference for the TLB and the memory manager, and a page-table walk for the TLB.

use largefolio_mm::fault;
use largefolio_mm::pgtable::{AccessBits, Leaf, PageTable, PteFlags};
use largefolio_mm::units::{Order, Vpn};

use crate::tlb::{self, Aggregation, Coalescing, Side, Walk};

#[derive(Clone, Copy)]
pub(super) struct Reference {
    pub(super) side: Side,
    pub(super) tlb: tlb::Access,
    pub(super) mm: fault::Access,
}

impl Reference {
    pub(super) const EXEC: Self =
        Self { side: Side::Instruction, tlb: tlb::Access::Read, mm: fault::Access::Exec };
    pub(super) const READ: Self =
        Self { side: Side::Data, tlb: tlb::Access::Read, mm: fault::Access::Read };
    pub(super) const WRITE: Self =
        Self { side: Side::Data, tlb: tlb::Access::Write, mm: fault::Access::Write };
}

pub(super) fn walk_of(table: &PageTable, leaf: &Leaf, vpn: Vpn, coalescing: Coalescing) -> Walk {
    let bits = match coalescing.aggregation {
        Aggregation::Zen | Aggregation::Zen32K => AccessBits::Equal,
        Aggregation::None | Aggregation::Hpa => AccessBits::Any,
    };
    let run = match coalescing.run_cap() {
        Order::ZERO => Order::ZERO,
        cap => table.contiguous_run(vpn, cap, bits).unwrap_or(Order::ZERO),
    };
    Walk {
        leaf: leaf.kind,
        order: leaf.order,
        run,
        ..Walk::page(vpn, leaf.pfn_of(vpn), leaf.flags.contains(PteFlags::WRITABLE))
    }
}
