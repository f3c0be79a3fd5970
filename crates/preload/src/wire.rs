//! The interface between the library and its launcher: variables, refusals and records.
//!
//! `largefolio-linux` compiles this file too, through a symbolic link: a cdylib cannot be a
//! dependency. Nothing here allocates.
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

/// The directory of shared copies. Without it the library does nothing.
pub(crate) const STORE_VARIABLE: &CStr = c"LARGEFOLIO_REMAP";
/// The file in that directory to which records are appended.
pub(crate) const REPORT_VARIABLE: &CStr = c"LARGEFOLIO_REMAP_REPORT";
/// The number of seccomp filters the launcher ran under. A process with as many allows the
/// launcher's calls.
pub(crate) const FILTERS_VARIABLE: &CStr = c"LARGEFOLIO_REMAP_FILTERS";
/// Size limit of one new copy in bytes: the room in the launcher's memory cgroup.
pub(crate) const BUDGET_VARIABLE: &CStr = c"LARGEFOLIO_REMAP_BUDGET";
/// With `1`, the library reports on stderr.
pub(crate) const VERBOSE_VARIABLE: &CStr = c"LARGEFOLIO_VERBOSE";

/// Base page sizes with a known block size: 4 KiB (x86-64, arm64), 16 KiB and 64 KiB (arm64).
pub(crate) const PAGES_BYTES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Where `/sys/dev/block/MAJOR:MINOR` has the disk's sequence number. A partition has it one level
/// up.
pub(crate) const DISK_SEQUENCES: [&str; 2] = ["/diskseq", "/../diskseq"];
/// Suffix of the link that replaces an unused copy. Through it, tools find the original file's
/// symbols after the program's end.
pub(crate) const LINK_SUFFIX: &[u8] = b".src";
/// A report of this size takes no further records.
pub(crate) const REPORT_BYTES_MAX: u64 = 8 << 20;
pub(crate) const RECORD_BYTES_MAX: usize = 512;

/// The texts contain no whole block. arm64 has three block sizes.
const TINY: &str = if cfg!(target_arch = "aarch64") {
    "no text contains a whole aligned PMD-sized block (2 MiB with 4K pages, 32 MiB with 16K, 512 \
     MiB with 64K); link with -Wl,-z,max-page-size=0x200000"
} else {
    "no text contains a whole aligned 2 MiB block; link with -Wl,-z,max-page-size=0x200000"
};
const NO_LARGE_FOLIO: &str = if cfg!(target_arch = "aarch64") {
    "the kernel had no free PMD-sized folios: memory is fragmented"
} else {
    "the kernel had no free 2 MiB folios: memory is fragmented"
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum How {
    Plain = 0,
    Shared = 1,
    Made = 2,
    /// It was moved onto a copy that only this process and its forks use: the load address differs
    /// between processes by less than a block.
    Private = 3,
}

impl How {
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        let all = [Self::Plain, Self::Shared, Self::Made, Self::Private];
        all.into_iter().find(|how| *how as u32 == code)
    }
}

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $code:literal: $text:expr,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $name = $code,)*
        }

        impl Refusal {
            #[must_use]
            pub const fn all() -> &'static [Self] {
                &[$(Self::$name,)*]
            }

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
    Secure = 1: "the program runs with the privileges of its file (set-id or capabilities), so it \
        is left unchanged",
    Seccomp = 2: "a seccomp filter is active, and a system call that it does not allow could kill \
                  the process",
    Sanitizer = 3: "the program is built with a sanitizer, which tracks the address space, so it \
        is left unchanged",
    ThpDisabled = 4: "the process has large folios disabled (PR_SET_THP_DISABLE)",
    PageSize = 5: "the base page size is not 4, 16 or 64 KiB, so the PMD size is not known",
    NoProc = 6: "/proc/self cannot be read: mount /proc so that the library can find the mappings",
    StoreMissing = 7: "the directory for shared copies is gone or not on a tmpfs",
    StoreUntrusted = 8: "the directory for shared copies is a link, belongs to another user or is \
                         accessible to other users",
    Tiny = 9: TINY,
    Modified = 10: "the text was modified after it was mapped (text relocations, a breakpoint)",
    FileChanged = 11: "the file was replaced or changed after it was mapped",
    AlreadyLarge = 13: "its page cache is already mapped by PMD entries",
    LowMemory = 14: "too little memory is free for a copy (memory, the tmpfs size or the cgroup's \
                     limit)",
    Busy = 15: "another process was still making a copy when the wait ended",
    NoLargeFolio = 16: NO_LARGE_FOLIO,
    OldKernel = 17: "the kernel cannot collapse shared memory (MADV_COLLAPSE, Linux 6.1 with THP)",
    NoExec = 18: "the store's filesystem is mounted noexec; name another tmpfs",
    Denied = 19: "the system denies executable mappings of the store (SELinux or another W^X policy)",
    BadCopy = 20: "a file in the store has the wrong owner, mode or size and is not used",
    Unreadable = 21: "the file cannot be opened for reading",
    FileLimit = 22: "the limit on file sizes (ulimit -f) is below the copy's size",
    Os = 23: "a system call failed for another reason",
    Static = 24: "the program is static and has no loader, so no library can be preloaded",
    Foreign = 25: "the program's architecture or word size differs from the library's",
    NoLibrary = 26: "the library liblargefolio_preload.so was not found in folio's directory, in \
                     ../lib/largefolio or in LARGEFOLIO_PRELOAD",
    LibraryOpen = 28: "other users can write to the library's directory, so it is not loaded; move \
                       folio and its library, or name the library in LARGEFOLIO_PRELOAD",
    LibraryPath = 27: "the library's path contains a space or a colon, which separate the entries \
                       of LD_PRELOAD",
}

impl Refusal {
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::all().iter().copied().find(|refusal| *refusal as u32 == code)
    }
}
