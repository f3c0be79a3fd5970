//! Finds the places of recorded pages without a search.
//!
//! A direct-mapped table in front of the segments of all address spaces; a miss searches the
//! segments. Owns only the table. [`super::place`] owns the segments.

use largefolio_mm::units::Vpn;

use super::place::RECORDED_SHIFT;

/// Slots of the table. Two pages in use share a cache line.
const NR_PLACES: usize = 1 << 12;
/// A recorded page number that no trace contains.
const NO_PAGE: u64 = u64::MAX;
const NO_PLACE: Place = Place { page: NO_PAGE, vpn: Vpn(0), epoch: 0 };

#[derive(Clone, Copy)]
struct Place {
    page: u64,
    vpn: Vpn,
    /// The epoch of the lookup. The entry is valid only in that epoch.
    epoch: u64,
}

pub(super) struct Places {
    slots: Vec<Place>,
    epoch: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self { slots: vec![NO_PLACE; NR_PLACES], epoch: 0 }
    }
}

impl Places {
    #[inline]
    pub(super) fn find(&self, epoch: u64, addr: u64) -> Option<Vpn> {
        let page = addr >> RECORDED_SHIFT;
        let place = self.slots[Self::slot(epoch, page)];
        (place.page == page && place.epoch == epoch).then_some(place.vpn)
    }

    pub(super) fn insert(&mut self, epoch: u64, addr: u64, vpn: Vpn) {
        let page = addr >> RECORDED_SHIFT;
        self.slots[Self::slot(epoch, page)] = Place { page, vpn, epoch };
    }

    /// Returns a new epoch, for a new address space or changed segments.
    pub(super) const fn next(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "twelve bits are left of it")]
    fn slot(epoch: u64, page: u64) -> usize {
        ((page ^ (epoch << 7)) & (NR_PLACES as u64 - 1)) as usize
    }
}
