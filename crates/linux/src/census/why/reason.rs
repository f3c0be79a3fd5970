//! What can stand in the way of larger folios, and what is told of a mapping.

use serde::Serialize;

use crate::census::block::Obstacle;
use crate::census::remedy::Remedy;
use crate::census::remedy::verbs::Verbs;
use crate::system::System;

/// Why a mapping is not larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// It holds no whole block of the smallest size that one TLB entry may hold.
    TooSmall,
    /// Address and position differ mod the size.
    Incongruent,
    /// The file is in the page cache in smaller folios.
    CachedSmall,
    /// The filesystem has no folios of the size.
    Filesystem,
    /// The file is open for writing.
    OpenForWrite,
    /// Pages of a private file mapping that were written to: copies, in base pages.
    PrivateCopy,
    /// `MADV_NOHUGEPAGE`, which the kernel assumes for stacks of threads too.
    NoHugeAdvice,
    /// `PR_SET_THP_DISABLE`, by the process or its starter.
    Disabled,
    /// The same, except for memory with `MADV_HUGEPAGE`.
    DisabledExceptAdvised,
    /// A guard page lies in the block.
    GuardPage,
    /// KSM merged some of its pages.
    Merged,
    /// userfaultfd watches the block.
    Userfaultfd,
    /// Pages of the block, or of the process, are pinned.
    Pinned,
    /// Memory of a device.
    Device,
    /// The setting is never.
    SettingOff,
    /// The setting asks for `MADV_HUGEPAGE`, which was not given.
    NotAdvised,
    /// The `huge=` of the mount decides, which cannot be seen.
    MountUnseen,
    /// Memory was touched in smaller folios: before the setting or advice, or none was free.
    FilledSmall,
    /// Large folios, of which parts are mapped.
    PartlyMapped,
    /// Large folios mapped whole, but by one entry a page.
    MappedByPages,
    /// In swap space.
    SwappedOut,
    /// Nothing is mapped there yet.
    NotTouched,
    /// Sizes are not available without root.
    SizeUnknown,
}

impl Refusal {
    /// Those that no remedy is for.
    pub const ASIDE: [Self; 3] = [Self::NotTouched, Self::SwappedOut, Self::TooSmall];

    /// Whether it is one of them.
    #[must_use]
    pub fn is_aside(self) -> bool {
        Self::ASIDE.contains(&self)
    }

    /// Name in exports.
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

    /// What it means, for people.
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
            Self::MountUnseen => "on a tmpfs whose mount, which decides, cannot be seen",
            Self::FilledSmall => "touched in small folios",
            Self::PartlyMapped => "only parts of the folios are mapped",
            Self::MappedByPages => "whole large folios, mapped page by page",
            Self::NotTouched => "not touched yet",
            Self::SizeUnknown => "sizes need root",
        }
    }
}

impl Refusal {
    /// That of an obstacle; `None` where another reason says it better.
    pub(super) const fn of(obstacle: Obstacle) -> Option<Self> {
        match obstacle {
            Obstacle::Guard => Some(Self::GuardPage),
            Obstacle::Merged => Some(Self::Merged),
            Obstacle::Userfaultfd => Some(Self::Userfaultfd),
            Obstacle::Pinned => Some(Self::Pinned),
            Obstacle::Device => Some(Self::Device),
            // The first four are counted page by page; the others, by the setting that they
            // override.
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

/// One reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What prevents it.
    pub refusal: Refusal,
    /// Bytes it concerns.
    pub bytes: u64,
}

/// A mapping compared with the largest size it could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its process, as an index into `Census::processes`.
    pub process: usize,
    /// The mapping, as an index into the process's.
    pub mapping: usize,
    /// The size, in bytes.
    pub target_bytes: u64,
    /// Mapped so.
    pub large_bytes: u64,
    /// Whole blocks that are not.
    pub missing_bytes: u64,
    /// Why, most bytes first.
    pub reasons: Vec<Reason>,
    /// What helps: at most one that the running program needs no restart for, and one that does. One
    /// that says why nothing works where there are none.
    pub remedies: Vec<Remedy>,
}

/// The largest folio of a filesystem in bytes by its name, where known: 0 for none above the base
/// page.
pub type FolioLimit<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// What of a census is judged.
pub struct Question<'a> {
    /// Where it was taken.
    pub system: &'a dyn System,
    /// What filesystems allow.
    pub limit: FolioLimit<'a>,
    /// What the verbs say before one of them is recommended.
    pub verbs: &'a dyn Verbs,
    /// Mappings at most, those with most memory missing first.
    pub nr_max: usize,
}
