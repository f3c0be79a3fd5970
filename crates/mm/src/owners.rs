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

#[cfg(test)]
mod tests {
    use super::*;

    const A: MmId = MmId(1);
    const B: MmId = MmId(2);
    const C: MmId = MmId(3);

    /// A folio that counts its mappings beside its owners.
    struct Folio {
        owners: Owners,
        maps: u64,
    }

    impl Folio {
        fn step(&mut self, mm: MmId, by: i64) -> String {
            let nr = by.unsigned_abs();
            if by > 0 {
                self.maps += nr;
                self.owners.add(mm, nr, self.maps);
            } else {
                self.maps -= nr;
                self.owners.remove(mm, nr, self.maps);
            }
            let slot = |slot: &Slot| match (slot.maps, slot.mm) {
                (0, _) => "-".to_owned(),
                (maps, mm) => format!("{}:{}", ["", "A", "B", "C"][mm as usize], maps - 1),
            };
            let [first, second] = self.owners.slots.each_ref().map(slot);
            let total = i128::from(self.maps) - 1;
            format!("{first} {second} {total} {}", u8::from(self.owners.is_shared))
        }
    }

    #[test]
    fn the_slot_machine_follows_l_21() {
        let mut folio = Folio { owners: Owners::of(A, 4), maps: 4 };
        let rows = [
            (B, 4, "A:3 B:3 7 1"),
            (B, -1, "A:3 B:2 6 1"),
            (B, -3, "A:3 - 3 0"),
            (B, 1, "A:3 B:0 4 1"),
            (C, 2, "A:3 B:0 6 1"),
            (A, -4, "- B:0 2 1"),
            (C, 1, "C:0 B:0 3 1"),
            (B, -1, "C:0 - 2 1"),
            (C, -1, "- - 1 1"),
            (C, -1, "- - 0 1"),
            (C, -1, "- - -1 0"),
        ];
        for (number, (mm, by, expected)) in rows.into_iter().enumerate() {
            assert_eq!(folio.step(mm, by), expected, "row {}", number + 2);
        }
    }

    #[test]
    fn an_untracked_survivor_stays_shared_and_a_tracked_one_does_not_f_4_2() {
        let mut folio = Folio { owners: Owners::of(A, 4), maps: 4 };
        for (mm, by) in [(B, 4), (C, 4), (A, -4), (B, -4)] {
            folio.step(mm, by);
        }
        assert!(folio.owners.is_shared(), "C is alone and untracked");
        let mut folio = Folio { owners: Owners::of(A, 4), maps: 4 };
        for (mm, by) in [(B, 4), (C, 4), (B, -4), (C, -4)] {
            folio.step(mm, by);
        }
        assert!(!folio.owners.is_shared(), "A is alone and tracked");
    }
}
