//! Which processes map a large folio: two slots and a "shared" flag (BEHAVIOUR.md F.4).
//!
//! Owns the slots of one folio. Does not own the folio's own mapping count, which it is told.
//!
//! Invariants (L.6):
//! - I1: a slot counts at most what its process maps.
//! - I2: without the flag at most one process maps the folio.
//! - I3: a free slot counts nothing.

use crate::space::MmId;

/// The slots of one folio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    slots: [Slot; 2],
    is_shared: bool,
}

/// A process and the mappings it was seen to make; a count of 0 is a free slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    mm: u32,
    maps: u64,
}

impl Owners {
    /// Nobody.
    pub const NONE: Self = Self { slots: [Slot { mm: 0, maps: 0 }; 2], is_shared: false };

    /// A new folio with `maps` mappings of `mm`.
    #[must_use]
    pub fn of(mm: MmId, maps: u64) -> Self {
        let mut owners = Self::NONE;
        owners.slots[0] = Slot { mm: mm.0, maps };
        owners
    }

    /// `nr` mappings by `mm` were added, `maps` are all there are now.
    pub fn add(&mut self, mm: MmId, nr: u64, maps: u64) {
        if let Some(slot) = self.slot_of(mm) {
            self.slots[slot].maps += nr;
        } else if self.slots[0].maps == 0 {
            self.slots[0] = Slot { mm: mm.0, maps: nr };
            self.is_shared |= maps != nr;
        } else if self.slots[1].maps == 0 {
            self.slots[1] = Slot { mm: mm.0, maps: nr };
            self.is_shared = true;
        }
    }

    /// `nr` mappings by `mm` were removed, `maps` are left.
    pub fn remove(&mut self, mm: MmId, nr: u64, maps: u64) {
        if let Some(slot) = self.slot_of(mm) {
            let slot = &mut self.slots[slot];
            slot.maps = slot.maps.saturating_sub(nr);
            if slot.maps > 0 {
                return;
            }
            *slot = Slot::default();
        }
        if self.slots.iter().any(|slot| slot.maps == maps) {
            self.is_shared = false;
        }
    }

    /// The flag.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// What the slots count, by process.
    pub(crate) fn tracked(&self) -> impl Iterator<Item = (MmId, u64)> {
        let used = self.slots.into_iter().filter(|slot| slot.maps > 0);
        used.map(|slot| (MmId(slot.mm), slot.maps))
    }

    fn slot_of(&self, mm: MmId) -> Option<usize> {
        self.slots.iter().position(|slot| slot.maps > 0 && slot.mm == mm.0)
    }
}
