//! What a filesystem does that a page cache shows, as 6.18.44 showed it (docs/differences.md, "where a
//! file ends").
//!
//! Owns the traits and which filesystem has which: nothing else knows a filesystem by its name but
//! the rules, for folio sizes ([`crate::rules::Rules::order_range`]). A file carries its own
//! ([`super::Mapping::disk`]).

use crate::folio::Folio;

/// Traits of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Whether it places mappings for huge pages (B.6.3).
    pub places_aligned: bool,
    /// What it does with the block in which a file ended that gets longer.
    pub old_end: OldEnd,
    /// What it does with the block in which a file ends that got shorter.
    pub new_end: NewEnd,
    /// Which dirty folios cannot be split: it keeps data with them that it does not release.
    pub keeps_whole: KeepsWhole,
    /// Whether zeroing a block reads that block alone, so that the folio is not up to date.
    pub zeroes_one_block: bool,
    /// Whether a write takes away the readahead marker of a folio.
    pub write_unmarks: bool,
}

/// Zeroes behind the old end of a file that gets longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldEnd {
    /// None: the file was not examined.
    Untouched,
    /// Before the first folio of the write that jumps over it.
    ZeroedFirst,
    /// After the first folio of that write.
    ZeroedAfterFolio,
}

/// Zeroes behind the new end of a file that gets shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewEnd {
    /// It leaves that block alone.
    Untouched,
    /// Before anything is dropped: the folio with the end is dirty then, and stays whole.
    ZeroedFirst,
    /// After everything is dropped: a folio that was clean has been split.
    ZeroedLast,
}

/// Dirty folios that cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepsWhole {
    /// Every dirty folio can be split.
    Nothing,
    /// No dirty folio can be split.
    Dirty,
    /// Those that one write did not make as a whole.
    DirtyInParts,
}

impl Disk {
    /// Not examined: nothing.
    pub const OTHER: Self = Self {
        places_aligned: false,
        old_end: OldEnd::Untouched,
        new_end: NewEnd::Untouched,
        keeps_whole: KeepsWhole::Nothing,
        zeroes_one_block: false,
        write_unmarks: false,
    };
    /// ext4 with its default features.
    pub const EXT4: Self = Self {
        places_aligned: true,
        old_end: OldEnd::ZeroedAfterFolio,
        new_end: NewEnd::ZeroedLast,
        keeps_whole: KeepsWhole::Dirty,
        zeroes_one_block: true,
        write_unmarks: false,
    };
    /// XFS: it also reserves space ahead of writes ([`super::reserve`]).
    pub const XFS: Self = Self {
        places_aligned: true,
        old_end: OldEnd::ZeroedFirst,
        new_end: NewEnd::ZeroedFirst,
        keeps_whole: KeepsWhole::DirtyInParts,
        zeroes_one_block: false,
        write_unmarks: false,
    };
    /// btrfs without its experimental options.
    pub const BTRFS: Self = Self {
        places_aligned: true,
        old_end: OldEnd::ZeroedFirst,
        new_end: NewEnd::Untouched,
        keeps_whole: KeepsWhole::Nothing,
        zeroes_one_block: false,
        write_unmarks: true,
    };

    /// Of filesystem `name`, as recordings and traces write it; `ext4-..` is a variant of ext4 that
    /// was not seen to place mappings.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "xfs" => Self::XFS,
            "btrfs" => Self::BTRFS,
            "ext4" => Self::EXT4,
            _ if name.starts_with("ext4") => Self { places_aligned: false, ..Self::EXT4 },
            _ => Self::OTHER,
        }
    }

    /// Whether it keeps data with `folio` that it does not release, so that the folio stays whole.
    #[must_use]
    pub const fn keeps_whole(self, folio: &Folio) -> bool {
        match self.keeps_whole {
            KeepsWhole::Nothing => false,
            KeepsWhole::Dirty => folio.is_dirty,
            KeepsWhole::DirtyInParts => folio.is_dirty && !folio.is_written_whole,
        }
    }
}
