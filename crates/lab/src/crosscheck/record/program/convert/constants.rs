//! System call constants as recordings write them.

use std::borrow::Cow;

pub(super) fn prot(prot: u64) -> &'static str {
    match prot & 7 {
        0 => "-",
        1 => "r",
        2 | 3 => "rw",
        4 => "x",
        5 => "rx",
        _ => "rwx",
    }
}

pub(super) enum Advice {
    /// The replay does it.
    Known(&'static str),
    /// It changes folios or their mappings in a way that the model does not cover.
    Aside(&'static str),
}

/// `MADV_*` values that affect files.
pub(super) fn advice(advice: u64) -> Option<Advice> {
    use Advice::{Aside, Known};
    Some(match i32::try_from(advice).ok()? {
        libc::MADV_NORMAL => Known("normal"),
        libc::MADV_RANDOM => Known("random"),
        libc::MADV_SEQUENTIAL => Known("seq"),
        libc::MADV_WILLNEED => Known("willneed"),
        libc::MADV_DONTNEED => Known("dontneed"),
        libc::MADV_HUGEPAGE => Known("huge"),
        libc::MADV_NOHUGEPAGE => Known("nohuge"),
        libc::MADV_COLD => Known("cold"),
        libc::MADV_POPULATE_READ => Known("populate"),
        libc::MADV_POPULATE_WRITE => Aside("MADV_POPULATE_WRITE"),
        libc::MADV_PAGEOUT => Aside("MADV_PAGEOUT"),
        libc::MADV_REMOVE => Aside("MADV_REMOVE"),
        MADV_COLLAPSE => Aside("MADV_COLLAPSE"),
        MADV_GUARD_INSTALL => Aside("MADV_GUARD_INSTALL"),
        _ => return None,
    })
}

/// `MADV_COLLAPSE` of Linux 6.1, `MADV_GUARD_INSTALL` of 6.13.
const MADV_COLLAPSE: i32 = 25;
const MADV_GUARD_INSTALL: i32 = 102;

pub(super) fn file_advice(advice: u64) -> Option<&'static str> {
    Some(match i32::try_from(advice).ok()? {
        libc::POSIX_FADV_NORMAL => "normal",
        libc::POSIX_FADV_RANDOM => "random",
        libc::POSIX_FADV_SEQUENTIAL => "seq",
        libc::POSIX_FADV_WILLNEED => "willneed",
        libc::POSIX_FADV_DONTNEED => "dontneed",
        _ => return None,
    })
}

pub(super) fn call(nr: i64) -> Cow<'static, str> {
    Cow::Borrowed(match nr {
        libc::SYS_mmap => "mmap",
        libc::SYS_mprotect => "mprotect",
        libc::SYS_mremap => "mremap",
        libc::SYS_madvise => "madvise",
        libc::SYS_process_madvise => "process_madvise",
        libc::SYS_mlock => "mlock",
        libc::SYS_mlock2 => "mlock2",
        libc::SYS_mlockall => "mlockall",
        libc::SYS_read => "read",
        libc::SYS_write => "write",
        libc::SYS_readv => "readv",
        libc::SYS_writev => "writev",
        libc::SYS_preadv2 => "preadv2",
        libc::SYS_pwritev2 => "pwritev2",
        libc::SYS_sendfile => "sendfile",
        libc::SYS_splice => "splice",
        libc::SYS_vmsplice => "vmsplice",
        libc::SYS_copy_file_range => "copy_file_range",
        libc::SYS_io_submit => "io_submit",
        libc::SYS_io_uring_enter => "io_uring_enter",
        libc::SYS_process_vm_readv => "process_vm_readv",
        libc::SYS_process_vm_writev => "process_vm_writev",
        libc::SYS_ptrace => "ptrace",
        libc::SYS_futex => "futex",
        libc::SYS_fallocate => "fallocate",
        libc::SYS_ftruncate => "ftruncate",
        libc::SYS_truncate => "truncate",
        libc::SYS_sync_file_range => "sync_file_range",
        libc::SYS_mbind => "mbind",
        libc::SYS_move_pages => "move_pages",
        libc::SYS_migrate_pages => "migrate_pages",
        libc::SYS_openat | libc::SYS_openat2 => "openat",
        libc::SYS_exit | libc::SYS_exit_group => "exit",
        nr => return Cow::Owned(format!("system call {nr}")),
    })
}
