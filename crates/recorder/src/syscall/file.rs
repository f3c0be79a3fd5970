//! Calls that use the page cache through a descriptor.
//!
//! Only regular files count: pipes, sockets and terminals have no page cache. A file's key combines
//! device, inode and birth time, so a reused inode counts as another file.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::position::{self, At, Side};
use super::sysno::Sysno;
use super::{Call, buffers, guest, low, op};
use crate::sys::Identity;
use crate::wire::{Kind, WireEvent, WireFile};
use crate::{send, sys};

const WILLNEED: u64 = libc::POSIX_FADV_WILLNEED as u64;

/// How a call moves data, as in `largefolio_trace::event::io`.
const DIRECT: u32 = 1;
const PIPE: u32 = 2;
const COPY: u32 = 4;
const SYNC: u32 = 8;

const RWF_DSYNC: u64 = libc::RWF_DSYNC as u64;
const RWF_SYNC: u64 = libc::RWF_SYNC as u64;
const RWF_APPEND: u64 = libc::RWF_APPEND as u64;

/// The commands of fcntl that duplicate a descriptor.
const DUPLICATES: [c_int; 2] = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC];

/// An execve reads this much of a script.
const SCRIPT_HEAD_BYTES: u64 = 256;

/// `O_TMPFILE`: the file has no name.
const TMPFILE: u32 = libc::O_TMPFILE.cast_unsigned();

/// Announcements a thread remembers. Beyond that it repeats some, which is harmless.
const ANNOUNCED_MAX: usize = 64;

/// Announces a file before the call changes its size.
pub(super) fn before(call: &Call) {
    let fd = match call.sysno {
        Sysno::Ftruncate
        | Sysno::Fallocate
        | Sysno::Write
        | Sysno::Writev
        | Sysno::Pwrite64
        | Sysno::Pwritev
        | Sysno::Pwritev2
        | Sysno::Sendfile => call.descriptor(0),
        Sysno::CopyFileRange | Sysno::Splice => call.descriptor(2),
        Sysno::Truncate => return with_path(call.args[0], |fd| _ = announce(call, fd)),
        _ => return,
    };
    announce(call, fd);
}

pub(super) fn after(call: &Call, result: u64) {
    match call.sysno {
        Sysno::MemfdCreate => memory_file(call, result),
        Sysno::Open | Sysno::Openat | Sysno::Creat | Sysno::Openat2 => {
            opened(call, result);
        }
        Sysno::Close => closed(call, call.args[0]),
        Sysno::Dup | Sysno::Dup2 | Sysno::Dup3 => duplicated(call, result),
        Sysno::Fcntl if DUPLICATES.contains(&low(call.args[1]).cast_signed()) => {
            duplicated(call, result);
        }
        Sysno::Ftruncate => truncated(call, call.descriptor(0)),
        Sysno::Truncate => with_path(call.args[0], |fd| truncated(call, fd)),
        Sysno::Fadvise64 => advised(call, call.args[3]),
        Sysno::Readahead => advised(call, WILLNEED),
        _ if result > 0 => transferred(call, result),
        _ => {}
    }
}

/// A side of a transfer that is a regular file.
#[derive(Clone, Copy)]
struct Regular {
    fd: RawFd,
    at: At,
    identity: Identity,
    pos: u64,
    /// Its `O_*` flags.
    flags: c_int,
}

fn transferred(call: &Call, bytes: u64) {
    let transfer = position::transfer(call, bytes);
    let from = transfer.from.and_then(|side| regular(call, side, bytes));
    let to = transfer.to.and_then(|side| regular(call, side, bytes));
    let to = to.map(|side| appended(side, transfer.flags, bytes));
    let between = match (from, to) {
        _ if transfer.from.is_none() || transfer.to.is_none() => 0,
        (Some(from), Some(to)) if is_copy(call, from, to) => COPY,
        _ => PIPE,
    };
    let pos_of = |side: Option<Regular>| side.map_or(0, |side| side.pos);
    if let Some(side) = from {
        let flags = between | direct(side);
        let addr = if between == COPY { pos_of(to) } else { 0 };
        call.send(&WireEvent { op: op::PREAD, flags, addr, ..event(side, bytes) });
    }
    if let Some(side) = to {
        let is_synced = side.flags & (libc::O_DSYNC | libc::O_SYNC) != 0
            || transfer.flags & (RWF_DSYNC | RWF_SYNC) != 0;
        let flags = between | direct(side) | if is_synced { SYNC } else { 0 };
        let addr = match between {
            // The data's pages fault during the call, so their rows follow.
            0 => buffers::data_at(call).unwrap_or(0),
            _ => pos_of(from),
        };
        call.send(&WireEvent { op: op::PWRITE, flags, addr, ..event(side, bytes) });
    }
}

/// Whether the filesystem, which holds both files, does the copy itself.
fn is_copy(call: &Call, from: Regular, to: Regular) -> bool {
    call.sysno == Sysno::CopyFileRange && from.identity.device == to.identity.device
}

fn regular(call: &Call, side: Side, bytes: u64) -> Option<Regular> {
    let (fd, at) = (side.fd, side.at);
    let identity = announced(call, fd)?;
    let pos = match at {
        At::Position(pos) => Some(pos),
        At::Descriptor => sys::position(fd).map(|end| end.saturating_sub(bytes)),
    };
    let (pos, flags) = (pos.unwrap_or(0), sys::status_flags(fd));
    Some(Regular { fd, at, identity, pos, flags })
}

/// Writes with `O_APPEND` go to the end of the file, whatever position the call names.
fn appended(side: Regular, flags: u64, bytes: u64) -> Regular {
    let appends = side.flags & libc::O_APPEND != 0 || flags & RWF_APPEND != 0;
    match side.at {
        At::Position(_) if appends => {
            Regular { pos: side.identity.size_bytes.saturating_sub(bytes), ..side }
        }
        _ => side,
    }
}

fn direct(side: Regular) -> u32 {
    if side.flags & libc::O_DIRECT != 0 { DIRECT } else { 0 }
}

fn event(side: Regular, bytes: u64) -> WireEvent {
    let aux = u64::from(side.fd.cast_unsigned());
    WireEvent { len: bytes, pos: side.pos, aux, file: side.identity.key(), ..WireEvent::default() }
}

/// Sends the read of a script's head, which an execve makes.
pub(super) fn head_read(call: &Call, script: &Path) {
    let Some(found) = sys::find(libc::AT_FDCWD, script.as_os_str().as_bytes()) else { return };
    if let Some(identity) = announced(call, found.as_raw_fd()) {
        let (file, len) = (identity.key(), identity.size_bytes.min(SCRIPT_HEAD_BYTES));
        // No descriptor reads it.
        call.send(&WireEvent { op: op::PREAD, len, aux: u64::MAX, file, ..WireEvent::default() });
    }
}

/// A memfd never has a name.
fn memory_file(call: &Call, result: u64) {
    let fd = low(result).cast_signed();
    let file = announce(call, fd);
    if file != 0 {
        let is_closed = call.args[1] & u64::from(libc::MFD_CLOEXEC) != 0;
        let closes = if is_closed { libc::O_CLOEXEC.cast_unsigned() } else { 0 };
        let (flags, pos) = (libc::O_RDWR.cast_unsigned() | closes, u64::from(fd.cast_unsigned()));
        call.send(&WireEvent { op: op::OPEN, pos, flags, file, ..WireEvent::default() });
        call.send(&WireEvent { op: op::UNLINK, file, ..WireEvent::default() });
    }
}

fn opened(call: &Call, result: u64) {
    let fd = low(result).cast_signed();
    let file = announce(call, fd);
    if file == 0 {
        return;
    }
    let flags = match call.sysno {
        Sysno::Open => low(call.args[1]),
        Sysno::Openat => low(call.args[2]),
        Sysno::Creat => (libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC).cast_unsigned(),
        // open_how starts with its 64-bit flags.
        _ => low(guest::word_at(call.args[2]).unwrap_or(0)),
    };
    let pos = u64::from(fd.cast_unsigned());
    call.send(&WireEvent { op: op::OPEN, pos, flags, file, ..WireEvent::default() });
    if flags & TMPFILE == TMPFILE {
        call.send(&WireEvent { op: op::UNLINK, file, ..WireEvent::default() });
    }
}

/// Sends every close, because the descriptor's file can no longer be checked.
fn closed(call: &Call, descriptor: u64) {
    let pos = u64::from(low(descriptor));
    call.send(&WireEvent { op: op::CLOSE, pos, ..WireEvent::default() });
}

/// Sends the new descriptor of an open file. It may have replaced another file's.
fn duplicated(call: &Call, result: u64) {
    let (old, new) = (low(call.args[0]), low(result));
    if old == new {
        return;
    }
    let file = announce(call, new.cast_signed());
    if file == 0 {
        return closed(call, result);
    }
    let flags = match call.sysno {
        Sysno::Dup3 => low(call.args[2]),
        Sysno::Fcntl if low(call.args[1]).cast_signed() == libc::F_DUPFD_CLOEXEC => {
            libc::O_CLOEXEC.cast_unsigned()
        }
        _ => 0,
    };
    let (pos, aux) = (new.into(), u64::from(old) + 1);
    call.send(&WireEvent { op: op::OPEN, pos, aux, flags, file, ..WireEvent::default() });
}

fn truncated(call: &Call, fd: RawFd) {
    let file = announce(call, fd);
    if file != 0 {
        let len = call.args[1];
        call.send(&WireEvent { op: op::TRUNCATE, len, file, ..WireEvent::default() });
    }
}

/// Finds the file at a path in program memory.
fn with_path(path: u64, then: impl FnOnce(RawFd)) {
    let path = guest::string_at(path);
    // O_PATH does not open the file. It could be a FIFO by now and block.
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_PATH);
    if let Ok(file) = options.open(std::ffi::OsStr::from_bytes(&path)) {
        then(file.as_raw_fd());
    }
}

fn advised(call: &Call, advice: u64) {
    let file = announce(call, call.descriptor(0));
    let [_, pos, len, ..] = call.args;
    if file != 0 {
        let event =
            WireEvent { op: op::FADVISE, len, pos, aux: advice, file, ..WireEvent::default() };
        call.send(&event);
    }
}

/// Announces the regular file at `fd` to the parent and returns its key, 0 if it is not a regular
/// file.
pub(super) fn announce(call: &Call, fd: RawFd) -> u64 {
    announced(call, fd).map_or(0, |identity| identity.key())
}

/// Announces the regular file at `fd`, before the call changes it.
fn announced(call: &Call, fd: RawFd) -> Option<Identity> {
    let identity = sys::identity(fd).filter(Identity::is_regular)?;
    let key = identity.key();
    let mut announced = call.thread.announced.borrow_mut();
    if announced.contains(&key) {
        return Some(identity);
    }
    if announced.len() >= ANNOUNCED_MAX {
        announced.clear();
    }
    announced.push(key);
    drop(announced);
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let size_bytes = identity.size_bytes;
    let holes = if identity.may_have_holes() { sys::holes(fd, size_bytes) } else { Vec::new() };
    let file = WireFile { key, size_bytes, holes, path: path.as_os_str().as_bytes() };
    send::send(call.tail, Kind::File, [&file.encode(), &[]]);
    Some(identity)
}
