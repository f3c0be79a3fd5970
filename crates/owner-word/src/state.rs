//! The decoded owner words, with their invariants.
//!
//! Does not own the transitions, which work on the words (`words.rs`).

use std::num::NonZeroU32;

/// An mm's id in owner words: `1 ..= 2^31 - 1` (`2^15 - 1` in the narrow layout). Unique among live
/// mms only. 0 is the dummy id: `None` in an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MmOwnerId(NonZeroU32);

impl MmOwnerId {
    /// The id; `None` for the dummy 0.
    #[must_use]
    pub const fn new(id: u32) -> Option<Self> {
        match NonZeroU32::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The id as stored in the owner word.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// One of the two owners that a folio remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The owner; `None` = free.
    pub owner: Option<MmOwnerId>,
    /// Recorded mappings of the owner, minus one; at most its actual mappings. -1 = free.
    pub mapcount: i32,
}

impl Slot {
    /// A free slot.
    pub const FREE: Self = Self { owner: None, mapcount: -1 };
}

/// Large mapcount and owners of one large folio. Counts are minus one, as in F.1.
///
/// Invariants ([`State::validate`]; `T`, `c0`, `c1`, `S` as in F.4):
/// - I1: `T >= -1`. A slot is free, or has an owner and a count of at least 0. Two used slots have
///   different owners.
/// - I2: `(c0 + 1) + (c1 + 1) <= T + 1`: mappings are never over-counted (F.4.1).
/// - I3: if S is clear and `T >= 0`, one slot has a count of `T`, so its owner has all mappings.
/// - I4: if `T == -1`, S is clear and both slots are free.
/// - I5: if tracking has stopped, both slots are free and S is set, whatever `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// `T`: mappings of the folio, minus one.
    pub large_mapcount: i32,
    /// `c0` and `c1` with their owners.
    pub slots: [Slot; 2],
    /// `S`: whether more than one mm may map the folio.
    pub is_shared: bool,
    /// Whether tracking has stopped (K.5.2): shared until the folio is freed.
    pub is_stopped: bool,
}

/// A broken invariant of a [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("owner tracking violates {invariant}: {state:?}")]
pub struct Violation {
    /// The invariant: `"I1"` to `"I5"` of [`State`].
    pub invariant: &'static str,
    /// The state.
    pub state: State,
}

impl State {
    /// No mappings.
    pub const UNMAPPED: Self =
        Self { large_mapcount: -1, slots: [Slot::FREE; 2], is_shared: false, is_stopped: false };

    /// A counter without owners.
    #[must_use]
    pub const fn stopped(large_mapcount: i32) -> Self {
        Self { large_mapcount, slots: [Slot::FREE; 2], is_shared: true, is_stopped: true }
    }

    /// Mappings of the folio.
    #[must_use]
    pub const fn mapcount(&self) -> u32 {
        self.large_mapcount.wrapping_add(1).cast_unsigned()
    }

    /// The slot held by `owner`; for `None`, the first free slot.
    #[must_use]
    pub fn slot_of(&self, owner: Option<MmOwnerId>) -> Option<usize> {
        self.slots.iter().position(|slot| slot.owner == owner)
    }

    /// Checks I1 .. I5.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        let [slot0, slot1] = self.slots;
        let is_sound = |slot: Slot| (slot.mapcount >= 0) == slot.owner.is_some();
        let is_free = slot0 == Slot::FREE && slot1 == Slot::FREE;
        let recorded = i64::from(slot0.mapcount) + i64::from(slot1.mapcount) + 2;
        let has_all = |slot: Slot| slot.mapcount == self.large_mapcount;
        let is_unmapped = self.large_mapcount == -1;
        let all = [
            ("I1", self.large_mapcount >= -1),
            ("I1", self.slots.into_iter().all(|slot| is_sound(slot) && slot.mapcount >= -1)),
            ("I1", slot0.owner.is_none() || slot0.owner != slot1.owner),
            ("I2", recorded <= i64::from(self.mapcount())),
            ("I3", self.is_shared || is_unmapped || has_all(slot0) || has_all(slot1)),
            ("I4", !is_unmapped || self.is_stopped || (is_free && !self.is_shared)),
            ("I5", !self.is_stopped || (is_free && self.is_shared)),
        ];
        match all.into_iter().find(|(_, holds)| !holds) {
            Some((invariant, _)) => Err(Violation { invariant, state: *self }),
            None => Ok(()),
        }
    }
}
