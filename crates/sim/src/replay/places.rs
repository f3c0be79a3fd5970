//! Places of recorded pages, found without a search.
//!
//! A direct-mapped table in front of the segments of all processes: what it does not hold is looked
//! up in them. Owns the table alone; [`super::place`] owns the segments.

use largefolio_mm::units::Vpn;

use super::place::RECORDED_SHIFT;
use super::program::ProcessNr;

/// Slots of the table; a line of memory is used for two pages that the program works on.
const NR_PLACES: usize = 1 << 12;
/// A recorded page number no trace contains.
const NO_PAGE: u64 = u64::MAX;
const NO_PLACE: Place = Place { page: NO_PAGE, process: 0, vpn: Vpn(0), epoch: 0 };

/// Place of one recorded page for one process.
#[derive(Clone, Copy)]
struct Place {
    page: u64,
    process: ProcessNr,
    vpn: Vpn,
    /// When it was looked up; known only while that lasts.
    epoch: u64,
}

/// The table.
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
    /// The page of the modelled process for a recorded address, if it is in the table.
    #[inline]
    pub(super) fn find(&self, process: ProcessNr, addr: u64) -> Option<Vpn> {
        let page = addr >> RECORDED_SHIFT;
        let place = self.slots[Self::slot(process, page)];
        let is_known = place.page == page && place.process == process && place.epoch == self.epoch;
        is_known.then_some(place.vpn)
    }

    /// Remembers the page of a recorded address.
    pub(super) fn insert(&mut self, process: ProcessNr, addr: u64, vpn: Vpn) {
        let (page, epoch) = (addr >> RECORDED_SHIFT, self.epoch);
        self.slots[Self::slot(process, page)] = Place { page, process, vpn, epoch };
    }

    /// Segments changed: every place is looked up again.
    pub(super) fn clear(&mut self) {
        self.epoch += 1;
    }

    /// How often all places were looked up again: no place changes within an epoch.
    #[inline]
    pub(super) const fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "twelve bits are left of it")]
    fn slot(process: ProcessNr, page: u64) -> usize {
        ((page ^ ((process as u64) << 7)) & (NR_PLACES as u64 - 1)) as usize
    }
}
