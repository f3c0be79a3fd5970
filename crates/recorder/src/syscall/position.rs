//! The file position of a read or write.
//!
//! Owns the table of transfer calls: the descriptor, and whether the position is an argument, in
//! program memory (updated by the call) or the descriptor's own.

use std::os::fd::RawFd;

use super::sysno::Sysno;
use super::{Call, guest};

#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Position(u64),
    Descriptor,
}

/// One side of a call that moves data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) fd: RawFd,
    pub(super) at: At,
}

/// The files that a call reads and writes. A call with both moves data between them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transfer {
    pub(super) from: Option<Side>,
    pub(super) to: Option<Side>,
    /// `RWF_*` flags.
    pub(super) flags: u64,
}

/// Returns the sides of a call that transferred `bytes`, none for other calls.
pub(super) fn transfer(call: &Call, bytes: u64) -> Transfer {
    let [_, a2, a3, a4, _, a6] = call.args;
    let side = |fd, at| Some(Side { fd: call.descriptor(fd), at });
    let read = |from| Transfer { from, ..Transfer::default() };
    let write = |to| Transfer { to, ..Transfer::default() };
    match call.sysno {
        Sysno::Read | Sysno::Readv => read(side(0, At::Descriptor)),
        Sysno::Write | Sysno::Writev => write(side(0, At::Descriptor)),
        Sysno::Pread64 | Sysno::Preadv => read(side(0, At::Position(a4))),
        Sysno::Pwrite64 | Sysno::Pwritev => write(side(0, At::Position(a4))),
        Sysno::Preadv2 => Transfer { flags: a6, ..read(side(0, position_or_own(a4))) },
        Sysno::Pwritev2 => Transfer { flags: a6, ..write(side(0, position_or_own(a4))) },
        Sysno::Sendfile => Transfer {
            from: side(1, before(a3, bytes)),
            to: side(0, At::Descriptor),
            ..Transfer::default()
        },
        Sysno::CopyFileRange | Sysno::Splice => Transfer {
            from: side(0, before(a2, bytes)),
            to: side(2, before(a4, bytes)),
            ..Transfer::default()
        },
        _ => Transfer::default(),
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
