//! TLB misses over the number of entries, for one cell: see [`crate::tlb::curve`].
//!
//! Kept only if [`super::CellSpec::detail_runs_max`] enables pictures. Decides when a CPU's stacks
//! are read and filled. The TLB does not depend on it.

use largefolio_mm::units::{PageSize, Vpn};

use crate::tlb::curve::{Curve, Distances, LruStack, NR_ENTRIES_MAX, OwnSizes};
use crate::tlb::{Side, TlbConfig};

/// A CPU's stacks. Their pages carry the TLB's tags.
pub(super) struct Stacks([LruStack; 2]);

impl Stacks {
    pub(super) fn new(page: PageSize) -> Self {
        Self([LruStack::new(page, NR_ENTRIES_MAX), LruStack::new(page, NR_ENTRIES_MAX)])
    }

    #[inline]
    pub(super) const fn of(&self, side: Side) -> &LruStack {
        &self.0[side as usize]
    }

    pub(super) const fn of_mut(&mut self, side: Side) -> &mut LruStack {
        &mut self.0[side as usize]
    }

    pub(super) fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        self.0.iter_mut().for_each(|stack| stack.invalidate(first, nr_pages));
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
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
