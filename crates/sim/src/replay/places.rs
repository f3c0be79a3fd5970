//! Places of recorded pages, found without a search.
//!
//! A direct-mapped table in front of the segments of all address spaces: what it does not hold is
//! looked up in them. Owns the table alone; [`super::place`] owns the segments.

use largefolio_mm::units::Vpn;

use super::place::RECORDED_SHIFT;

/// Slots of the table; a line of memory is used for two pages that the program works on.
const NR_PLACES: usize = 1 << 12;
/// A recorded page number no trace contains.
const NO_PAGE: u64 = u64::MAX;
const NO_PLACE: Place = Place { page: NO_PAGE, vpn: Vpn(0), epoch: 0 };

/// Place of one recorded page in one address space.
#[derive(Clone, Copy)]
struct Place {
    page: u64,
    vpn: Vpn,
    /// When it was looked up, and for whom: known only while that lasts.
    epoch: u64,
}

/// The table.
pub(super) struct Places {
    slots: Vec<Place>,
    /// The last one.
    epoch: u64,
}

impl Default for Places {
    fn default() -> Self {
        Self { slots: vec![NO_PLACE; NR_PLACES], epoch: 0 }
    }
}

impl Places {
    /// The page of the modelled process for a recorded address, if it is in the table.
    #[inline]
    pub(super) fn find(&self, epoch: u64, addr: u64) -> Option<Vpn> {
        let page = addr >> RECORDED_SHIFT;
        let place = self.slots[Self::slot(epoch, page)];
        (place.page == page && place.epoch == epoch).then_some(place.vpn)
    }

    /// Remembers the page of a recorded address.
    pub(super) fn insert(&mut self, epoch: u64, addr: u64, vpn: Vpn) {
        let page = addr >> RECORDED_SHIFT;
        self.slots[Self::slot(epoch, page)] = Place { page, vpn, epoch };
    }

    /// A new epoch, for an address space that begins or whose segments changed: its places are
    /// looked up again. No place changes within an epoch.
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
