//! What the library and its launcher say to each other: variables, refusals, records.
//!
//! Both crates compile this one file (`largefolio-linux` has a link to it, because a cdylib
//! cannot be a dependency). Everything here works without allocation.
//!
//! A record is one line, written by one `write` to a file opened for appending:
//!
//! ```text
//!   P 4711 812 0                                     process: pid, microseconds, refusal
//!   T 4711 640 2 0 63963136 62914560 62914560 0 cc1  text: pid, microseconds, how, refusal,
//!                                                    bytes of text, in whole blocks, mapped large,
//!                                                    shift, name
//! ```

use core::ffi::CStr;

/// Names the directory of shared copies; without it the library does nothing.
pub(crate) const STORE_VARIABLE: &CStr = c"LARGEFOLIO_REMAP";
/// Names the file in that directory to which records are appended.
pub(crate) const REPORT_VARIABLE: &CStr = c"LARGEFOLIO_REMAP_REPORT";
/// Seccomp filters the launcher ran under; a process with as many may make the launcher's calls.
pub(crate) const FILTERS_VARIABLE: &CStr = c"LARGEFOLIO_REMAP_FILTERS";
/// Most bytes one new copy may take: the room in the launcher's memory cgroup.
pub(crate) const BUDGET_VARIABLE: &CStr = c"LARGEFOLIO_REMAP_BUDGET";
/// `1`: the library says on stderr what it does.
pub(crate) const VERBOSE_VARIABLE: &CStr = c"LARGEFOLIO_VERBOSE";

/// Base pages that the block is known for: 4 KiB (x86-64, arm64), 16 KiB and 64 KiB (arm64).
pub(crate) const PAGES_BYTES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Bytes of a block with base pages of `page_bytes`: what one PMD entry maps, a table of entries of 8
/// bytes. `MADV_COLLAPSE` makes no other folios.
pub(crate) const fn block_bytes(page_bytes: usize) -> usize {
    page_bytes / 8 * page_bytes
}

/// Where `/sys/dev/block/MAJOR:MINOR` has the sequence number of the disk: of a partition it stands
/// above.
pub(crate) const DISK_SEQUENCES: [&str; 2] = ["/diskseq", "/../diskseq"];
/// Suffix of the link that takes a copy's place once nobody needs the copy: tools that look for
/// symbols after the program's end find the file itself.
pub(crate) const LINK_SUFFIX: &[u8] = b".src";
/// A report that has grown to this size takes no more records.
pub(crate) const REPORT_BYTES_MAX: u64 = 8 << 20;
/// Longest record in bytes, the newline included.
pub(crate) const RECORD_BYTES_MAX: usize = 512;

/// Without a block in it; arm64 has three sizes of blocks.
const TINY: &str = if cfg!(target_arch = "aarch64") {
    "no text contains a whole aligned block of a PMD entry (2 MiB with 4K pages, 32 MiB with 16K, \
     512 MiB with 64K); link with -Wl,-z,max-page-size=0x200000"
} else {
    "no text contains a whole aligned 2 MiB block; link with -Wl,-z,max-page-size=0x200000"
};
const NO_LARGE_FOLIO: &str = if cfg!(target_arch = "aarch64") {
    "the kernel had no free folios of a PMD entry: memory is fragmented"
} else {
    "the kernel had no free 2 MiB folios: memory is fragmented"
};

/// What became of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum How {
    /// It stays as it was.
    Plain = 0,
    /// It was moved onto a copy that was there already.
    Shared = 1,
    /// It was moved onto a copy this process made.
    Made = 2,
    /// It was moved onto a copy that only this process and its forks have: its load address differs
    /// from process to process by less than a block.
    Private = 3,
}

impl How {
    /// The variant numbered `code`.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        let all = [Self::Plain, Self::Shared, Self::Made, Self::Private];
        all.into_iter().find(|how| *how as u32 == code)
    }
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal: $text:expr,)*) => {
        /// Why a text stays where it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $name = $code,)*
        }

        impl Refusal {
            /// Every one.
            #[must_use]
            pub const fn all() -> &'static [Self] {
                &[$(Self::$name,)*]
            }

            /// Cause and remedy.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

refusals! {
    /// `AT_SECURE`.
    Secure = 1: "the program runs with the privileges of its file (set-id or capabilities): left \
                 alone",
    /// A seccomp filter that the launcher did not have.
    Seccomp = 2: "a seccomp filter watches the process; a system call that it does not know might \
                  kill the process",
    /// Address, thread or memory sanitizer.
    Sanitizer = 3: "built with a sanitizer, which tracks the address space: left alone",
    /// `PR_SET_THP_DISABLE`.
    ThpDisabled = 4: "the process has large folios disabled (PR_SET_THP_DISABLE)",
    /// Another base page.
    PageSize = 5: "base pages are not of 4, 16 or 64 KiB: what a PMD entry maps is not known",
    /// `/proc` is not mounted or hidden.
    NoProc = 6: "/proc/self cannot be read: mount /proc to let the library see what is mapped",
    /// The store is not there.
    StoreMissing = 7: "the directory of shared copies is gone or not on a tmpfs",
    /// The store is not ours.
    StoreUntrusted = 8: "the directory of shared copies is a link, the directory of another user, \
                         or open to others",
    /// No object has a whole block.
    Tiny = 9: TINY,
    /// Text relocations, breakpoints, patches.
    Modified = 10: "the text was modified after it was mapped (text relocations, a breakpoint)",
    /// The path names another file now.
    FileChanged = 11: "the file was replaced or changed after it was mapped",
    /// Nothing to gain.
    AlreadyLarge = 13: "the page cache already maps it with PMD entries",
    /// Memory.
    LowMemory = 14: "too little memory is free for a copy (memory, the size of the tmpfs or the \
                     cgroup's limit)",
    /// Another process copies.
    Busy = 15: "another process was still making a copy when the wait ended",
    /// No large folio.
    NoLargeFolio = 16: NO_LARGE_FOLIO,
    /// Before Linux 6.1, or without shared memory THP.
    OldKernel = 17: "the kernel cannot collapse shared memory (MADV_COLLAPSE, Linux 6.1 with THP)",
    /// `noexec`.
    NoExec = 18: "the store's file system is mounted noexec; name another tmpfs",
    /// A security module.
    Denied = 19: "the system denies executable mappings of the store (SELinux or another W^X policy)",
    /// A copy with wrong owner, mode or size.
    BadCopy = 20: "a file of the store has the wrong owner, mode or size and is not used",
    /// The program's file cannot be read.
    Unreadable = 21: "the file cannot be opened for reading",
    /// `RLIMIT_FSIZE`.
    FileLimit = 22: "the limit on file sizes (ulimit -f) is below the size of the copy",
    /// Any other failure.
    Os = 23: "a system call failed for another reason",
    /// No loader, so nothing is preloaded.
    Static = 24: "a static program: no loader, so no library can be preloaded",
    /// Another class or architecture than the library.
    Foreign = 25: "a program of another architecture or word size than the library",
    /// The library is nowhere.
    NoLibrary = 26: "the library liblargefolio_preload.so was not found beside folio, in ../lib/largefolio or in LARGEFOLIO_PRELOAD",
    /// Others could have put the library where it is.
    LibraryOpen = 28: "other users could have put the library there, so it is not loaded; move \
                       folio and its library, or name the library in LARGEFOLIO_PRELOAD",
    /// The library's path cannot stand in `LD_PRELOAD`.
    LibraryPath = 27: "the library's path has a space or a colon, which separate the entries of \
                       LD_PRELOAD",
}

impl Refusal {
    /// The variant numbered `code`; 0 is none.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::all().iter().copied().find(|refusal| *refusal as u32 == code)
    }
}
