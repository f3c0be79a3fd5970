//! The file position of a read or write.
//!
//! Owns the table of transfer calls: the descriptor, and whether the position is an argument, in
//! program memory (updated by the call) or the descriptor's own.

use std::os::fd::RawFd;

use super::sysno::Sysno;
use super::{Call, guest, op};

#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Position(u64),
    Descriptor,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) op: u32,
    pub(super) fd: RawFd,
    pub(super) at: At,
}

/// Returns the sides of a call that transferred `bytes`, none for other calls.
pub(super) fn transfers(call: &Call, bytes: u64) -> [Option<Transfer>; 2] {
    let [_, a2, a3, a4, ..] = call.args;
    let side = |op, fd, at| Some(Transfer { op, fd: call.descriptor(fd), at });
    match call.sysno {
        Sysno::Read | Sysno::Readv => [side(op::PREAD, 0, At::Descriptor), None],
        Sysno::Write | Sysno::Writev => [side(op::PWRITE, 0, At::Descriptor), None],
        Sysno::Pread64 | Sysno::Preadv => [side(op::PREAD, 0, At::Position(a4)), None],
        Sysno::Pwrite64 | Sysno::Pwritev => [side(op::PWRITE, 0, At::Position(a4)), None],
        Sysno::Preadv2 => [side(op::PREAD, 0, position_or_own(a4)), None],
        Sysno::Pwritev2 => [side(op::PWRITE, 0, position_or_own(a4)), None],
        Sysno::Sendfile => {
            [side(op::PREAD, 1, before(a3, bytes)), side(op::PWRITE, 0, At::Descriptor)]
        }
        Sysno::CopyFileRange | Sysno::Splice => {
            [side(op::PREAD, 0, before(a2, bytes)), side(op::PWRITE, 2, before(a4, bytes))]
        }
        _ => [None, None],
    }
}

/// In preadv2 and pwritev2, -1 means the descriptor's own position.
fn position_or_own(pos: u64) -> At {
    if pos == u64::MAX { At::Descriptor } else { At::Position(pos) }
}

/// The call advanced the word at `pointer` by `bytes`. A null pointer means the descriptor's own
/// position.
fn before(pointer: u64, bytes: u64) -> At {
    match guest::word_at(pointer) {
        Some(end) if pointer != 0 => At::Position(end.saturating_sub(bytes)),
        _ => At::Descriptor,
    }
}
