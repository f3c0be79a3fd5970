//! For pictures, tracks what caused each private folio; the folio's first frame identifies it.
//!
//! Owns no decision: `watch` compares the counters around a fault and reads the page table after a
//! collapse.
//!
//! `Differs`: faults that a call takes on behalf of the program (populate), and moves of a folio to
//! other frames, are not observed. Those folios become [`Origin::Remade`].

use std::collections::BTreeMap;

use largefolio_mm::counters::Counters;
use largefolio_mm::units::{MmId, Order, Pfn};

use crate::replay::observers::detail::Origin;

/// Largest order of a folio that can be split.
const ORDER_MAX: u8 = 13;

#[derive(Clone, Copy, Debug)]
struct Known {
    order: Order,
    origin: Origin,
    /// The first user; another process has the folio from a fork.
    first: User,
}

/// An address space: its number, and how many spaces used that number before.
type User = (MmId, u64);

#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    known: BTreeMap<u64, Known>,
    nr_before: BTreeMap<MmId, u64>,
}

impl Causes {
    pub(crate) fn note(&mut self, pfn: Pfn, order: Order, origin: Origin, mm: MmId) {
        let first = order.round_down(pfn.0);
        let stale: Vec<u64> =
            self.known.range(first..first + order.nr_pages()).map(|(&pfn, _)| pfn).collect();
        for pfn in stale {
            self.known.remove(&pfn);
        }
        self.known.insert(first, Known { order, origin, first: self.user(mm) });
    }

    pub(crate) fn end(&mut self, mm: MmId) {
        *self.nr_before.entry(mm).or_default() += 1;
    }

    fn user(&self, mm: MmId) -> User {
        (mm, self.nr_before.get(&mm).copied().unwrap_or(0))
    }

    /// Returns the cause of the folio of `order` around `pfn`, as `mm` sees it.
    pub(crate) fn of(&self, pfn: Pfn, order: Order, mm: MmId) -> Origin {
        let at = |order: Order| {
            let known = self.known.get(&order.round_down(pfn.0));
            known.filter(|known| known.order == order)
        };
        match at(order) {
            Some(known) if known.first == self.user(mm) => known.origin,
            Some(_) => Origin::Inherited,
            None => {
                let is_part = (order.get() + 1..=ORDER_MAX).any(|k| at(Order::new(k)).is_some());
                if is_part { Origin::Split } else { Origin::Remade }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "all are counts, named as the counters are")]
pub(crate) struct FaultMark {
    nr_anon_faults: u64,
    nr_cow: u64,
    nr_wp_reuse: u64,
    nr_fallbacks: u64,
    nr_swapped_in: u64,
}

impl FaultMark {
    pub(crate) fn of(now: &Counters) -> Self {
        Self {
            nr_anon_faults: now.nr_anon_faults,
            nr_cow: now.nr_cow,
            nr_wp_reuse: now.nr_wp_reuse,
            nr_fallbacks: now.sizes.iter().map(|size| size.anon_fault_fallback).sum(),
            nr_swapped_in: now.reclaim.nr_paged_in(),
        }
    }

    pub(crate) fn origin(&self, now: &Self) -> Option<Origin> {
        if now.nr_cow > self.nr_cow {
            Some(Origin::Copy)
        } else if now.nr_swapped_in > self.nr_swapped_in {
            Some(Origin::SwapIn)
        } else if now.nr_anon_faults == self.nr_anon_faults {
            None
        } else if now.nr_fallbacks > self.nr_fallbacks {
            Some(Origin::Fallback)
        } else {
            Some(Origin::Touch)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_tells_the_last_folio_that_was_noted_there() {
        let (one, other) = (MmId(0), MmId(1));
        let mut causes = Causes::default();
        causes.note(Pfn(21), Order::ZERO, Origin::Copy, one);
        causes.note(Pfn(18), Order::new(4), Origin::Touch, one);
        assert_eq!(causes.of(Pfn(31), Order::new(4), one), Origin::Touch);
        assert_eq!(causes.of(Pfn(31), Order::new(4), other), Origin::Inherited);
        assert_eq!(causes.of(Pfn(21), Order::ZERO, one), Origin::Split, "the copy is long gone");
        assert_eq!(causes.of(Pfn(20), Order::new(2), other), Origin::Split);
        assert_eq!(causes.of(Pfn(32), Order::ZERO, one), Origin::Remade);
        causes.note(Pfn(21), Order::ZERO, Origin::SwapIn, other);
        assert_eq!(causes.of(Pfn(21), Order::ZERO, other), Origin::SwapIn);
        assert_eq!(causes.of(Pfn(22), Order::ZERO, other), Origin::Split);
        causes.end(other);
        assert_eq!(
            causes.of(Pfn(21), Order::ZERO, other),
            Origin::Inherited,
            "a number used again"
        );
    }
}
