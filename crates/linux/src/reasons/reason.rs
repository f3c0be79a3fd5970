//! The reasons against larger folios, and the findings about a mapping.

use serde::Serialize;

use crate::census::block::Obstacle;
use crate::remedies::Remedy;
use crate::remedies::verbs::Verbs;
use crate::system::System;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It holds no whole block of the smallest size that one TLB entry can cover.
    TooSmall,
    /// The address and the file offset differ modulo the size.
    Incongruent,
    /// The page cache holds the file in smaller folios.
    CachedSmall,
    Filesystem,
    OpenForWrite,
    /// Written pages of a private file mapping: copies, in base pages.
    PrivateCopy,
    /// `MADV_NOHUGEPAGE`, which the kernel also implies for thread stacks.
    NoHugeAdvice,
    /// `PR_SET_THP_DISABLE`, by the process or its parent.
    Disabled,
    /// Like `Disabled`, except for memory with `MADV_HUGEPAGE`.
    DisabledExceptAdvised,
    GuardPage,
    Merged,
    /// userfaultfd is registered on the block.
    Userfaultfd,
    Pinned,
    Device,
    SettingOff,
    /// The setting requires `MADV_HUGEPAGE`, and the program did not call it.
    NotAdvised,
    /// The mount's `huge=` option decides, and `folio` cannot see the mount.
    MountUnseen,
    /// Touched in smaller folios: before the setting or advice, or no large folio was free.
    FilledSmall,
    PartlyMapped,
    /// Large folios mapped whole, but by one PTE per page.
    MappedByPages,
    SwappedOut,
    NotTouched,
    SizeUnknown,
}

impl Refusal {
    /// The reasons without a remedy.
    pub const WITHOUT_REMEDY: [Self; 3] = [Self::NotTouched, Self::SwappedOut, Self::TooSmall];

    #[must_use]
    pub fn has_no_remedy(self) -> bool {
        Self::WITHOUT_REMEDY.contains(&self)
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooSmall => "too_small",
            Self::Incongruent => "incongruent",
            Self::CachedSmall => "cached_small",
            Self::Filesystem => "filesystem",
            Self::OpenForWrite => "open_for_write",
            Self::PrivateCopy => "private_copy",
            Self::NoHugeAdvice => "no_huge_advice",
            Self::Disabled => "disabled",
            Self::DisabledExceptAdvised => "disabled_except_advised",
            Self::GuardPage => Obstacle::Guard.name(),
            Self::Merged => Obstacle::Merged.name(),
            Self::Userfaultfd => Obstacle::Userfaultfd.name(),
            Self::Pinned => Obstacle::Pinned.name(),
            Self::Device => Obstacle::Device.name(),
            Self::SwappedOut => Obstacle::SwappedOut.name(),
            Self::SettingOff => "setting_off",
            Self::NotAdvised => "not_advised",
            Self::MountUnseen => "mount_unseen",
            Self::FilledSmall => "filled_small",
            Self::PartlyMapped => "partly_mapped",
            Self::MappedByPages => "mapped_by_pages",
            Self::NotTouched => "not_touched",
            Self::SizeUnknown => "size_unknown",
        }
    }

    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::TooSmall => Obstacle::Short.meaning(),
            Self::Incongruent => Obstacle::Incongruent.meaning(),
            Self::CachedSmall => "in the page cache in small folios",
            Self::Filesystem => "the filesystem has no folios of this size",
            Self::OpenForWrite => "open for writing",
            Self::PrivateCopy => "written to: private copies of file pages",
            Self::NoHugeAdvice => Obstacle::NoHugeAdvice.meaning(),
            Self::Disabled => Obstacle::Disabled.meaning(),
            Self::DisabledExceptAdvised => {
                "THP is disabled for the process except for advised memory (such as by MemoryTHP=madvise)"
            }
            Self::GuardPage => Obstacle::Guard.meaning(),
            Self::Merged => Obstacle::Merged.meaning(),
            Self::Userfaultfd => Obstacle::Userfaultfd.meaning(),
            Self::Pinned => Obstacle::Pinned.meaning(),
            Self::Device => Obstacle::Device.meaning(),
            Self::SwappedOut => Obstacle::SwappedOut.meaning(),
            Self::SettingOff => "the setting is never",
            Self::NotAdvised => "the setting requires MADV_HUGEPAGE",
            Self::MountUnseen => {
                "on a tmpfs whose mount options determine this, but folio cannot see that mount"
            }
            Self::FilledSmall => "touched in small folios",
            Self::PartlyMapped => "only parts of the folios are mapped",
            Self::MappedByPages => "whole large folios, mapped page by page",
            Self::NotTouched => "not touched yet",
            Self::SizeUnknown => "sizes need root",
        }
    }
}

impl Refusal {
    /// Converts an obstacle; `None` if another reason describes it better.
    pub(super) const fn of(obstacle: Obstacle) -> Option<Self> {
        match obstacle {
            Obstacle::Guard => Some(Self::GuardPage),
            Obstacle::Merged => Some(Self::Merged),
            Obstacle::Userfaultfd => Some(Self::Userfaultfd),
            Obstacle::Pinned => Some(Self::Pinned),
            Obstacle::Device => Some(Self::Device),
            // The page counts cover the first four. The others override a setting and are judged
            // with it.
            Obstacle::Large
            | Obstacle::Empty
            | Obstacle::SwappedOut
            | Obstacle::Copied
            | Obstacle::Disabled
            | Obstacle::NoHugeAdvice
            | Obstacle::Hugetlb
            | Obstacle::Incongruent
            | Obstacle::Short => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub refusal: Refusal,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The index into `Census::processes`.
    pub process: usize,
    pub mapping: usize,
    pub target_bytes: u64,
    /// Bytes mapped at that size.
    pub large_bytes: u64,
    /// Bytes of whole blocks below that size.
    pub missing_bytes: u64,
    /// Most bytes first.
    pub reasons: Vec<Reason>,
    /// At most one for the running program and one that needs a restart, or one that says why not.
    pub remedies: Vec<Remedy>,
}

/// Returns a filesystem's largest folio in bytes; 0 for base pages only, `None` if unknown.
pub type FolioLimit<'a> = &'a dyn Fn(&str) -> Option<u64>;

pub struct CensusQuestion<'a> {
    pub system: &'a dyn System,
    pub limit: FolioLimit<'a>,
    pub verbs: &'a dyn Verbs,
    /// At most this many mappings, those with most missing memory first.
    pub nr_max: usize,
}
