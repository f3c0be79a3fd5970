//! Calls that change or wait for a file's storage: sync and fallocate.

use super::sysno::Sysno;
use super::{Call, file, memory, op};
use crate::wire::WireEvent;

const MS_SYNC: u64 = libc::MS_SYNC as u64;
const SYNC_FILE_RANGE_WRITE: u64 = libc::SYNC_FILE_RANGE_WRITE as u64;

pub(super) fn after(call: &Call) {
    let [a1, a2, a3, a4, ..] = call.args;
    match call.sysno {
        Sysno::Fsync | Sysno::Fdatasync => synced(call, 0, 0),
        Sysno::SyncFileRange if a4 & SYNC_FILE_RANGE_WRITE != 0 => synced(call, a2, a3),
        // Without MS_SYNC, the call does nothing.
        Sysno::Msync if a3 & MS_SYNC != 0 && a2 > 0 => call.send(&memory::event(op::SYNC, a1, a2)),
        Sysno::Sync | Sysno::Syncfs => call.send(&memory::event(op::SYNC, 0, 0)),
        Sysno::Fallocate => allocated(call),
        _ => {}
    }
}

/// Sends a sync of a range of the call's file. 0 bytes reach to the end of any file.
fn synced(call: &Call, pos: u64, len: u64) {
    let file = file::announce(call, call.descriptor(0));
    if file != 0 {
        let len = if len == 0 { u64::MAX - pos } else { len };
        call.send(&WireEvent { op: op::SYNC, len, pos, file, ..WireEvent::default() });
    }
}

fn allocated(call: &Call) {
    let [_, mode, pos, len, ..] = call.args;
    let file = file::announce(call, call.descriptor(0));
    if file != 0 {
        let aux = mode & u64::from(u32::MAX);
        call.send(&WireEvent { op: op::FALLOCATE, len, pos, aux, file, ..WireEvent::default() });
    }
}
