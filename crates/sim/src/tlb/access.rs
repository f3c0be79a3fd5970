//! A reference as a TLB sees it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Which half of level 1 a reference uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Instruction fetch.
    Instruction,
    /// Load or store.
    Data,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instruction => "instruction",
            Self::Data => "data",
        })
    }
}

/// What a reference wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Fetch or load.
    Read,
    /// Store: needs a writable entry.
    Write,
}
