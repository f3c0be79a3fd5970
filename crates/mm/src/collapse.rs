//! Collapse: many small folios become one large one (docs/behaviour H).
//!
//! ```text
//!   khugepaged (clock)      madvise(MADV_COLLAPSE)     to any size (no kernel has it)
//!         \                      |                      /
//!          eligible: may this area at all?  (H.1)
//!                 |
//!      anonymous: scan PTEs (H.6.1)          file: scan the cache (H.4)
//!                 |                                   |
//!      copy into a new folio (H.6.2)         gather, copy, replace (H.5)
//!                 |                                   |
//!      one PMD entry, or PTEs                tables of all areas retracted
//! ```
//!
//! Reading order: `eligible`, `scan`, `anon`, `sizes`, `file`, `retract`, `advise`, `any_size`,
//! `khugepaged`. The refusals are in [`crate::counters::collapse`].
//!
//! Invariants:
//! - I1: a refused collapse changes no contents and no folio. File pages may have lost their
//!   page-table entries and fault again; swapped-out pages may have been swapped in.
//! - I2: every refusal is counted once, by name
//!   ([`crate::counters::collapse::CollapseCounters::refused`]).

mod advise;
mod anon;
mod any_size;
mod eligible;
mod file;
mod khugepaged;
mod node;
mod scan;
mod sizes;

pub use advise::{CollapseError, Errno};

use crate::core::inject::FailAfter;
use crate::counters::collapse::{CollapseRefusal, Done};
use crate::memory::Memory;
use crate::rules::anon::Effort;
use crate::units::{MmId, Order, Vpn};
use crate::vma::Vma;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Initiator {
    Khugepaged,
    /// `MADV_COLLAPSE`: no limits, and reclaims if needed (D.5.1).
    Advice,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CollapseTarget {
    pub(crate) mm: MmId,
    pub(crate) vma: Vma,
    pub(crate) first: Vpn,
    pub(crate) order: Order,
    pub(crate) initiator: Initiator,
}

impl CollapseTarget {
    pub(crate) const fn nr_pages(&self) -> u64 {
        self.order.nr_pages()
    }
}

impl Memory {
    /// Makes a step of later collapses fail, to test how the collapse cleans up.
    pub fn fail_collapse(&mut self, fail: FailAfter) {
        self.fail_collapse = fail;
    }

    /// Steps that collapses took since [`Memory::fail_collapse`]; each of them can be made to fail.
    #[must_use]
    pub const fn nr_collapse_steps(&self) -> u64 {
        self.fail_collapse.nr_steps()
    }

    pub(crate) fn step(&mut self, refusal: CollapseRefusal) -> Result<(), CollapseRefusal> {
        self.fail_collapse.step(refusal)
    }

    pub(crate) fn count_outcome(
        &mut self,
        initiator: Initiator,
        outcome: Result<Done, CollapseRefusal>,
    ) {
        self.core.work.add(1);
        let counters = &mut self.core.counters.collapse;
        match (outcome, initiator) {
            (Ok(Done::Already), _) => {}
            (Ok(Done::Collapsed), Initiator::Khugepaged) => counters.pages_collapsed += 1,
            (Ok(Done::Collapsed), Initiator::Advice) => counters.nr_advised += 1,
            (Err(refusal), _) => counters.refused[refusal as usize] += 1,
        }
    }

    pub(crate) fn count_refused(&mut self, refusal: CollapseRefusal, nr: u64) {
        self.core.counters.collapse.refused[refusal as usize] += nr;
    }

    pub(crate) fn count_alloc(&mut self, order: Order, outcome: Result<(), CollapseRefusal>) {
        let counters = &mut self.core.counters.collapse;
        match outcome {
            _ if order != self.rules.page.pmd_order() => {}
            Ok(()) => counters.thp_collapse_alloc += 1,
            Err(_) => counters.thp_collapse_alloc_failed += 1,
        }
    }

    pub(crate) fn collapse_effort(&self, initiator: Initiator) -> Effort {
        match initiator {
            Initiator::Advice => Effort::Direct,
            Initiator::Khugepaged if self.rules.collapse.defrag => Effort::Direct,
            Initiator::Khugepaged => Effort::None,
        }
    }
}
