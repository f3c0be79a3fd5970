//! Rules for NUMA balancing (docs/behaviour R.6).
//!
//! Corresponds to: `task_numa_work`, `change_pte_range`, `do_numa_page`, `do_huge_pmd_numa_page`.
//!
//! Owns the values. `numa/{mark,hint}.rs` follow them.

use serde::{Deserialize, Serialize};

/// All differences between kernels for NUMA balancing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NumaRules {
    /// Which pages of private areas get hints.
    pub marks: Marks,
    /// Which PMD entries get hints.
    pub huge_marks: HugeMarks,
    /// Whether areas of shared memory and of files in memory get hints.
    pub memory_files: MemoryFiles,
    /// Whether a hint moves a PMD folio that several processes map.
    pub shared_huge: SharedHuge,
    /// How much becomes accessible if a hint moves nothing.
    pub reopened: Reopened,
    /// Whether a reference by a device uses a mark up.
    pub pins: MarkedPins,
}

/// R.6.2: pages of private areas that get hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Marks {
    /// \[6.1\] if the folio has one reference, so PTEs of no large folio.
    #[default]
    OneReference,
    /// \[6.12+\] if several processes do not share the folio (F.2.2, F.2.3).
    NotShared,
}

/// R.6.2: PMD entries that get hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HugeMarks {
    /// \[..6.18\] all, even on the CPU's node.
    #[default]
    All,
    /// \[6.19+\] as PTEs.
    AsPtes,
}

/// R.6.1: areas of shared memory, and private ones of a file in memory, without a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryFiles {
    /// \[6.1, 6.16 .. 7.1\] no hints.
    #[default]
    Unmarked,
    /// \[6.12.117, 7.2+\] hints.
    Marked,
}

/// R.6.4: PMD folios that several processes map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharedHuge {
    /// \[6.1\] they stay.
    #[default]
    Stay,
    /// \[6.12+\] they move.
    Move,
}

/// R.6.5: entries that become accessible when a hint moves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reopened {
    /// \[6.1\] the touched one.
    #[default]
    Page,
    /// \[6.12+\] all of the folio in the area.
    Folio,
}

/// R.6.2: a device or a pipe takes a reference to a marked page, without a store (`pin.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MarkedPins {
    /// \[6.1\] a hinting fault.
    #[default]
    Fault,
    /// \[6.12+\] no fault; the mark stays.
    Kept,
}

impl NumaRules {
    /// Linux 6.18.
    #[must_use]
    pub const fn stock() -> Self {
        Self {
            marks: Marks::NotShared,
            huge_marks: HugeMarks::All,
            memory_files: MemoryFiles::Unmarked,
            shared_huge: SharedHuge::Move,
            reopened: Reopened::Folio,
            pins: MarkedPins::Kept,
        }
    }
}
