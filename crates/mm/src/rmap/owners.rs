//! A large folio's mapcount and its two owners, for one thread (docs/behaviour F.4).
//!
//! Owns the choice of layout. `largefolio-owner-word` contains the transitions, the type that
//! threads can share, and its proof.

use largefolio_owner_word::words::Words;
pub use largefolio_owner_word::{
    IdsExhausted, MapcountOverflow, MmOwnerId, Narrow, NotExclusive, OwnerIds, Slot, State,
    Violation, Wide,
};
use serde::{Deserialize, Serialize};

/// The owner layout of a kernel (F.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerLayout {
    /// [`Wide`]: 31-bit ids, 32-bit counts.
    #[default]
    #[serde(rename = "64-bit")]
    Bits64,
    /// [`Narrow`]: 15-bit ids, 16-bit counts.
    #[serde(rename = "32-bit")]
    Bits32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owners {
    words: Words,
    layout: OwnerLayout,
    /// Tracking stops above this many mappings (K.5.2); `u32::MAX` = never.
    stop_above: u32,
}

impl Owners {
    pub(crate) fn new(layout: OwnerLayout, stop_above: Option<u32>) -> Self {
        let words = match layout {
            OwnerLayout::Bits64 => Words::unmapped::<Wide>(),
            OwnerLayout::Bits32 => Words::unmapped::<Narrow>(),
        };
        Self { words, layout, stop_above: stop_above.unwrap_or(u32::MAX) }
    }

    /// Only a counter: its layout does not matter.
    pub(crate) fn untracked() -> Self {
        Self { words: Words::stopped::<Wide>(-1), layout: OwnerLayout::Bits64, stop_above: 0 }
    }

    /// Adds `nr` mappings by `mm`. Returns the mapcount.
    ///
    /// # Errors
    /// If they cannot be counted. Nothing changes.
    pub(crate) fn add(&mut self, mm: MmOwnerId, nr: u32) -> Result<u32, MapcountOverflow> {
        self.words = match self.layout {
            OwnerLayout::Bits64 => self.words.add::<Wide>(mm, nr, self.stop_above),
            OwnerLayout::Bits32 => self.words.add::<Narrow>(mm, nr, self.stop_above),
        }?;
        Ok(self.mapcount())
    }

    /// Removes `nr` mappings by `mm`. Returns the mapcount.
    pub(crate) fn remove(&mut self, mm: MmOwnerId, nr: u32) -> u32 {
        self.words = match self.layout {
            OwnerLayout::Bits64 => self.words.remove::<Wide>(mm, nr),
            OwnerLayout::Bits32 => self.words.remove::<Narrow>(mm, nr),
        };
        self.mapcount()
    }

    pub(crate) fn mapcount(&self) -> u32 {
        self.words.mapcount()
    }

    pub(crate) fn state(&self) -> State {
        match self.layout {
            OwnerLayout::Bits64 => self.words.state::<Wide>(),
            OwnerLayout::Bits32 => self.words.state::<Narrow>(),
        }
    }

    /// Whether a change takes the lock. An untracked folio is only a counter.
    pub(crate) fn is_tracking(&self) -> bool {
        !self.state().is_stopped
    }

    pub(crate) fn maybe_mapped_shared(&self) -> bool {
        self.mapcount() > 1 && self.state().is_shared
    }

    /// Whether `mm`, which maps the folio, is its only user: steps 1, 2, 4 and 5 of E.3.3.
    ///
    /// # Errors
    /// The reason from the first step that fails.
    pub(crate) fn try_exclusive(&self, mm: MmOwnerId, references: u64) -> Result<(), NotExclusive> {
        let state = self.state();
        match state.mapcount() {
            0 | 1 => Err(NotExclusive::LastMapping),
            _ if state.is_shared => Err(NotExclusive::Shared),
            mapcount if u64::from(mapcount) != references => Err(NotExclusive::Referenced),
            // I3 of `State`: with S clear, the mm that maps the folio has a slot.
            _ if state.slot_of(Some(mm)).is_none() => Err(NotExclusive::Shared),
            _ => Ok(()),
        }
    }
}
