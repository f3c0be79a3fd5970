//! Filesystem behaviour that affects the page cache, as observed on 6.18.44 (docs/differences.md).
//!
//! Owns the traits of each filesystem. Only the rules for folio sizes also check a filesystem's
//! name ([`crate::rules::Rules::order_range`]). Each file carries its own traits
//! ([`super::Mapping::disk`]).

use crate::folio::Folio;

/// A filesystem's traits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a trait that filesystems have or lack")]
pub struct Disk {
    /// Whether it aligns mappings for huge pages (B.6.3).
    pub places_aligned: bool,
    /// How it zeroes the block at the old end of a file that grows.
    pub old_end: OldEnd,
    /// How it zeroes the block at the new end of a file that shrinks.
    pub new_end: NewEnd,
    /// Dirty folios that cannot be split, because it does not release their private data.
    pub keeps_whole: KeepsWhole,
    /// Whether zeroing a block reads only that block, so that the folio is not up to date.
    pub zeroes_one_block: bool,
    /// Whether it looks for the block to zero in the page's folio: an end in a hole adds a folio too.
    pub zeroes_holes: bool,
    /// Whether a write clears a folio's readahead marker.
    pub write_unmarks: bool,
    /// Whether a write that lacks source pages tries smaller copies (A.7.5).
    pub copies_short: bool,
    /// Whether a write that covers a block in part reads all blocks that it covers in the folio
    /// (A.7.6).
    pub reads_around: bool,
    /// Whether a new length makes it write back data beyond the length in storage.
    pub writes_new_length: bool,
    /// Whether `copy_file_range` shares blocks instead of copying them (reflink).
    pub shares_blocks: bool,
    /// Whether moving extents also drops the block before them.
    pub shifts_from_before: bool,
}

/// Zeroing after the old end of a file that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldEnd {
    /// None: not examined.
    Untouched,
    /// Before the first folio of the write beyond it.
    ZeroedFirst,
    /// After the first folio of that write, if the kernel does not zero it first (A.7.7).
    ZeroedAfterFolio,
}

/// Zeroing after the new end of a file that shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewEnd {
    /// None.
    Untouched,
    /// Before anything is dropped: the folio at the end becomes dirty and stays whole.
    ZeroedFirst,
    /// After everything is dropped: a clean folio has then been split.
    ZeroedLast,
}

/// Dirty folios that cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepsWhole {
    /// None: every dirty folio can be split.
    Nothing,
    /// All dirty folios.
    Dirty,
    /// Dirty folios that were not written as a whole by one write, or were written back before: the
    /// filesystem then keeps the state of each block.
    DirtyInParts,
}

impl Disk {
    /// A filesystem that was not examined: no traits.
    pub const OTHER: Self = Self {
        places_aligned: false,
        old_end: OldEnd::Untouched,
        new_end: NewEnd::Untouched,
        keeps_whole: KeepsWhole::Nothing,
        zeroes_one_block: false,
        zeroes_holes: false,
        write_unmarks: false,
        copies_short: false,
        reads_around: false,
        writes_new_length: false,
        shares_blocks: false,
        shifts_from_before: false,
    };
    /// ext4 with its default features.
    pub const EXT4: Self = Self {
        places_aligned: true,
        old_end: OldEnd::ZeroedAfterFolio,
        new_end: NewEnd::ZeroedLast,
        keeps_whole: KeepsWhole::Dirty,
        zeroes_one_block: true,
        zeroes_holes: true,
        write_unmarks: false,
        copies_short: true,
        reads_around: false,
        writes_new_length: false,
        shares_blocks: false,
        shifts_from_before: false,
    };
    /// XFS. It also reserves space ahead of writes ([`super::reserve`]).
    pub const XFS: Self = Self {
        places_aligned: true,
        old_end: OldEnd::ZeroedFirst,
        new_end: NewEnd::ZeroedFirst,
        keeps_whole: KeepsWhole::DirtyInParts,
        zeroes_one_block: false,
        zeroes_holes: false,
        write_unmarks: false,
        copies_short: false,
        reads_around: true,
        writes_new_length: true,
        shares_blocks: true,
        shifts_from_before: true,
    };
    /// btrfs without its experimental options.
    pub const BTRFS: Self = Self {
        places_aligned: true,
        old_end: OldEnd::ZeroedFirst,
        new_end: NewEnd::Untouched,
        keeps_whole: KeepsWhole::Nothing,
        zeroes_one_block: false,
        zeroes_holes: true,
        write_unmarks: true,
        copies_short: false,
        reads_around: false,
        writes_new_length: false,
        shares_blocks: true,
        shifts_from_before: false,
    };

    /// EROFS, which nothing writes to.
    pub const EROFS: Self = Self { places_aligned: true, ..Self::OTHER };

    /// The traits of filesystem `name`, as written in recordings and traces. Any other
    /// `ext4-..` is a variant of ext4 that was not seen to align mappings.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "xfs" => Self::XFS,
            "btrfs" | "btrfs-compressed" => Self::BTRFS,
            // The driver of ext4 also mounts its predecessors.
            "ext4" | "ext4-journal" | "ext3" | "ext2" => Self::EXT4,
            "erofs" | "erofs-compressed" => Self::EROFS,
            _ if name.starts_with("ext4") => Self { places_aligned: false, ..Self::EXT4 },
            _ => Self::OTHER,
        }
    }

    /// Whether the filesystem keeps private data of `folio`, so that it stays whole.
    #[must_use]
    pub const fn keeps_whole(self, folio: &Folio) -> bool {
        match self.keeps_whole {
            KeepsWhole::Nothing => false,
            KeepsWhole::Dirty => folio.is_dirty,
            KeepsWhole::DirtyInParts => folio.is_dirty && !folio.is_written_whole,
        }
    }
}
