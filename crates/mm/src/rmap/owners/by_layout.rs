//! Owners in the layout chosen by the kernel's rules.

use serde::{Deserialize, Serialize};

use super::{MapcountOverflow, MmOwnerId, Narrow, NotExclusive, Owners, State, Violation, Wide};

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
pub(crate) enum LayoutOwners {
    Wide(Owners<Wide>),
    Narrow(Owners<Narrow>),
}

macro_rules! of_either {
    ($owners:expr, $it:ident => $call:expr) => {
        match $owners {
            LayoutOwners::Wide($it) => $call,
            LayoutOwners::Narrow($it) => $call,
        }
    };
}

impl LayoutOwners {
    pub(crate) fn new(layout: OwnerLayout, stop_above: Option<u32>) -> Self {
        match layout {
            OwnerLayout::Bits64 => Self::Wide(Owners::new(stop_above)),
            OwnerLayout::Bits32 => Self::Narrow(Owners::new(stop_above)),
        }
    }

    /// Only a counter: its layout does not matter.
    pub(crate) fn untracked() -> Self {
        Self::Wide(Owners::untracked())
    }

    pub(crate) fn add(&mut self, mm: MmOwnerId, nr: u32) -> Result<u32, MapcountOverflow> {
        of_either!(self, it => it.add_mut(mm, nr))
    }

    pub(crate) fn remove(&mut self, mm: MmOwnerId, nr: u32) -> u32 {
        of_either!(self, it => it.remove_mut(mm, nr))
    }

    pub(crate) fn is_tracking(&self) -> bool {
        of_either!(self, it => it.is_tracking())
    }

    pub(crate) fn mapcount(&self) -> u32 {
        of_either!(self, it => it.mapcount())
    }

    pub(crate) fn maybe_mapped_shared(&self) -> bool {
        of_either!(self, it => it.maybe_mapped_shared())
    }

    pub(crate) fn try_exclusive(&self, mm: MmOwnerId, references: u64) -> Result<(), NotExclusive> {
        of_either!(self, it => it.try_exclusive(mm, || references))
    }

    pub(crate) fn snapshot(&self) -> State {
        of_either!(self, it => it.snapshot())
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        of_either!(self, it => it.validate())
    }
}
