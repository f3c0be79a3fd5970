//! TLB misses over the number of entries, of a cell: see [`crate::tlb::curve`].
//!
//! Kept only where [`super::CellSpec::detail_runs_max`] asks for pictures. Owns when the stacks of a
//! thread are asked and filled; decides nothing about the TLB.

use largefolio_mm::units::{PageSize, Vpn};

use super::cell::{Cell, Kind, walk_of};
use crate::tlb::curve::{Curve, Distances, LruStack, NR_ENTRIES_MAX, OwnSizes, Then};
use crate::tlb::{Lookup, Side, TlbConfig, Translation};

/// The stacks of a thread.
pub(super) struct Stacks([LruStack; 2]);

impl Stacks {
    /// Empty ones.
    pub(super) fn new(page: PageSize) -> Self {
        Self([LruStack::new(page, NR_ENTRIES_MAX), LruStack::new(page, NR_ENTRIES_MAX)])
    }

    /// That of a side.
    #[inline]
    pub(super) const fn of(&self, side: Side) -> &LruStack {
        &self.0[side as usize]
    }

    /// That of a side.
    pub(super) const fn of_mut(&mut self, side: Side) -> &mut LruStack {
        &mut self.0[side as usize]
    }

    /// Changed translations leave both.
    pub(super) fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        self.0.iter_mut().for_each(|stack| stack.invalidate(first, nr_pages));
    }
}

/// What the stacks of all threads found.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// By side.
    distances: [Distances; 2],
    /// By side; bit `k`: a walk found an entry of order `k`.
    orders: [u32; 2],
}

impl Measured {
    pub(super) fn curve(&self, config: &TlbConfig, page: PageSize) -> Curve {
        let [instruction, data] = self.orders.map(|orders| OwnSizes::new(config, page, orders));
        let own = OwnSizes {
            l2_instruction: instruction.l2_instruction,
            l1_instruction: instruction.l1_instruction,
            ..data
        };
        Curve::new(&self.distances, own)
    }
}

impl Cell {
    /// What a walk found, for the stack as well.
    pub(super) fn fill_stack(&mut self, nr: usize, side: Side, walked: &Translation) {
        let Some(thread) = &mut self.hardware[nr] else { return };
        if let (Some(stacks), Some(keeper)) = (&mut thread.stacks, &mut self.detail) {
            stacks.of_mut(side).fill(walked);
            keeper.measured.orders[side as usize] |= 1 << walked.order.get();
        }
    }

    /// A reference that the entry on top of its stack does not serve; `found` is what the TLB said.
    /// Where that walks, the walk fills the stack as well.
    #[inline(never)]
    pub(super) fn measure(&mut self, nr: usize, kind: Kind, vpn: Vpn, found: Lookup) {
        let Some(thread) = &mut self.hardware[nr] else { return };
        let Some(stacks) = &mut thread.stacks else { return };
        let then = if found.needs_walk() { Then::Fill } else { Then::Use };
        let measured = stacks.of_mut(kind.side).lookup(vpn, kind.tlb, then);
        if let Some(keeper) = &mut self.detail {
            keeper.measured.distances[kind.side as usize].count(measured);
        }
        if !measured.needs_walk() || found.needs_walk() {
            return;
        }
        let table = &self.memory.space(self.processes[thread.process].mm).table;
        let coalescing = thread.tlb.coalescing();
        if let Some(leaf) = table.leaf(vpn) {
            let walk = walk_of(table, &leaf, vpn, coalescing);
            self.fill_stack(nr, kind.side, &coalescing.entry(&walk));
        }
    }
}
