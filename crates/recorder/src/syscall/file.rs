//! Calls that use the page cache through a descriptor.
//!
//! Only regular files count: pipes, sockets and terminals have no page cache. A file's key combines
//! device, inode and birth time, so a reused inode counts as another file.

use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use super::position::{self, At};
use super::sysno::Sysno;
use super::{Call, guest, low, op};
use crate::wire::{self, Kind, WireEvent};
use crate::{send, sys};

const WILLNEED: u64 = libc::POSIX_FADV_WILLNEED as u64;

/// Announcements a thread remembers. Beyond that it repeats some, which is harmless.
const ANNOUNCED_MAX: usize = 64;

pub(super) fn after(call: &Call, result: u64) {
    match call.sysno {
        Sysno::Open | Sysno::Openat | Sysno::Creat | Sysno::Openat2 => {
            opened(call, result);
        }
        Sysno::Close => closed(call),
        Sysno::Ftruncate => truncated(call, call.descriptor(0)),
        Sysno::Truncate => truncated_by_path(call),
        Sysno::Fadvise64 => advised(call, call.args[3]),
        Sysno::Readahead => advised(call, WILLNEED),
        _ if result > 0 => {
            for transfer in position::transfers(call, result).into_iter().flatten() {
                moved(call, transfer.op, transfer.fd, transfer.at, result);
            }
        }
        _ => {}
    }
}

fn moved(call: &Call, op: u32, fd: RawFd, at: At, bytes: u64) {
    let file = announce(call, fd);
    if file == 0 {
        return;
    }
    let pos = match at {
        At::Position(pos) => Some(pos),
        At::Descriptor => sys::position(fd).map(|end| end.saturating_sub(bytes)),
    };
    let aux = u64::from(fd.cast_unsigned());
    // Where the data of a write is. Its pages fault during the call, so their rows follow.
    let addr = if super::is_write(call.sysno) { call.args[1] } else { 0 };
    let (len, pos) = (bytes, pos.unwrap_or(0));
    call.send(&WireEvent { op, addr, len, pos, aux, file, ..WireEvent::default() });
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
}

/// Sends every close, because the descriptor's file can no longer be checked.
fn closed(call: &Call) {
    let pos = u64::from(low(call.args[0]));
    call.send(&WireEvent { op: op::CLOSE, pos, ..WireEvent::default() });
}

fn truncated(call: &Call, fd: RawFd) {
    let file = announce(call, fd);
    if file != 0 {
        let len = call.args[1];
        call.send(&WireEvent { op: op::TRUNCATE, len, file, ..WireEvent::default() });
    }
}

fn truncated_by_path(call: &Call) {
    let path = guest::string_at(call.args[0]);
    // O_PATH does not open the file. It could be a FIFO by now and block.
    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_PATH);
    let opened = options.open(std::ffi::OsStr::from_bytes(&path));
    if let Ok(file) = opened {
        truncated(call, std::os::fd::AsRawFd::as_raw_fd(&file));
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
    let Some(identity) = sys::identity(fd) else { return 0 };
    if identity.mode & libc::S_IFMT != libc::S_IFREG {
        return 0;
    }
    let key = wire::file_key(identity.device, identity.inode, sys::birth_ns(fd));
    let mut announced = call.thread.announced.borrow_mut();
    if announced.contains(&key) {
        return key;
    }
    if announced.len() >= ANNOUNCED_MAX {
        announced.clear();
    }
    announced.push(key);
    drop(announced);
    let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let mut head = [0; 16];
    head[..8].copy_from_slice(&key.to_le_bytes());
    head[8..].copy_from_slice(&identity.size_bytes.to_le_bytes());
    send::send(call.tail, Kind::File, [&head, path.as_os_str().as_bytes()]);
    key
}
