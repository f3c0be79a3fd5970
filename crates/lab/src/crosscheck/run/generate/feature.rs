//! Groups of random scripts, each about one feature, and the settings that make it matter.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The feature that a group of scripts tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// A little of everything, mostly files.
    #[default]
    Mixed,
    /// Shared memory in large folios.
    Shared,
    /// mlock, mlockall, mlock on fault.
    Locks,
    /// Pages that a pipe or a direct transfer holds.
    Pins,
    /// `PR_SET_THP_DISABLE`.
    Thp,
    /// `MADV_COLLAPSE` of private, shared and file memory.
    Collapse,
    /// Fork and copy-on-write.
    Processes,
    /// mremap.
    Moves,
    /// madvise.
    Advice,
    /// Memory that KSM may merge, while it does not run.
    Merging,
    /// `set_mempolicy` and mbind on one node.
    Policy,
    /// Settings that change during the run.
    Changes,
}

impl Feature {
    pub const ALL: [Self; 12] = [
        Self::Mixed,
        Self::Shared,
        Self::Locks,
        Self::Pins,
        Self::Thp,
        Self::Collapse,
        Self::Processes,
        Self::Moves,
        Self::Advice,
        Self::Merging,
        Self::Policy,
        Self::Changes,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Shared => "shared",
            Self::Locks => "locks",
            Self::Pins => "pins",
            Self::Thp => "thp",
            Self::Collapse => "collapse",
            Self::Processes => "processes",
            Self::Moves => "moves",
            Self::Advice => "advice",
            Self::Merging => "merging",
            Self::Policy => "policy",
            Self::Changes => "changes",
        }
    }

    /// The settings of the group's scripts, as for `--setting`.
    pub(super) const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Mixed => &MIXED,
            Self::Shared | Self::Collapse => &SHARED,
            _ => &PRIVATE,
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Feature {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name);
        let nth = known.iter().position(|name| *name == text);
        nth.map(|nth| Self::ALL[nth]).ok_or_else(|| format!("known: {}", known.join(", ")))
    }
}

const MIXED: [&str; 6] = [
    "madvise",
    "madvise",
    "always",
    "madvise,64K=madvise",
    "always,64K=always,16K=always",
    "never",
];

/// Private memory, with shared memory as it is or in large folios.
const PRIVATE: [&str; 8] = [
    "madvise",
    "always",
    "always,64K=always",
    "madvise,64K=madvise,16K=always",
    "always,32K=inherit,256K=always",
    "never,64K=always",
    "always,shmem=advise",
    "madvise,shmem=always,64K=madvise,64K.shmem=always",
];

const SHARED: [&str; 12] = [
    "madvise,shmem=never",
    "madvise,shmem=advise",
    "madvise,shmem=within_size,tmpfs=within_size",
    "always,shmem=always,tmpfs=always",
    "madvise,shmem=deny,tmpfs=always",
    "always,shmem=never,64K.shmem=always",
    "madvise,shmem=advise,64K.shmem=inherit,16K.shmem=inherit,tmpfs=advise",
    "never,shmem=never,32K.shmem=within_size,256K.shmem=always",
    "madvise,64K=madvise,shmem=never,64K.shmem=advise,2M.shmem=advise,tmpfs=always",
    "always,64K=always,shmem=within_size,1M.shmem=within_size",
    "madvise,shmem=always,2M.shmem=never,128K.shmem=inherit",
    "madvise,shmem=advise,tmpfs=within_size",
];
