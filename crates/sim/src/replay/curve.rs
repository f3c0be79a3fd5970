//! TLB misses over the number of entries, of a cell: see [`crate::tlb::curve`].
//!
//! Kept only where [`super::CellSpec::detail_runs_max`] asks for pictures. Owns when the stacks of a
//! CPU are asked and filled; decides nothing about the TLB.

use largefolio_mm::units::{PageSize, Vpn};

use crate::tlb::curve::{Curve, Distances, LruStack, NR_ENTRIES_MAX, OwnSizes};
use crate::tlb::{Side, TlbConfig};

/// The stacks of a CPU; pages have the tags of its TLB.
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

/// What the stacks of all CPUs found.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// By side.
    pub(super) distances: [Distances; 2],
    /// By side; bit `k`: a walk found an entry of order `k`.
    pub(super) orders: [u32; 2],
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
