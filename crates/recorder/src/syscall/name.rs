//! Calls that take a file's last name: unlink, and rename over it.
//!
//! The file is identified before the call. Only regular files with one name count, because a file
//! with more names keeps its page cache.

use std::os::fd::RawFd;

use super::sysno::Sysno;
use super::{Call, guest, op};
use crate::sys;
use crate::wire::WireEvent;

const RENAME_EXCHANGE: u64 = libc::RENAME_EXCHANGE as u64;

pub(super) fn before(call: &Call) {
    let [a1, a2, _, a4, a5, _] = call.args;
    let here = libc::AT_FDCWD;
    let named = |directory: RawFd, path: u64| key_of(directory, &guest::string_at(path));
    let renamed = |from: (RawFd, u64), to: (RawFd, u64)| {
        // Two names of one file: the call does nothing.
        named(to.0, to.1).filter(|key| named(from.0, from.1) != Some(*key))
    };
    let key = match call.sysno {
        Sysno::Unlink => named(here, a1),
        Sysno::Unlinkat => named(call.descriptor(0), a2),
        Sysno::Rename => renamed((here, a1), (here, a2)),
        Sysno::Renameat2 if a5 & RENAME_EXCHANGE != 0 => None,
        Sysno::Renameat | Sysno::Renameat2 => {
            renamed((call.descriptor(0), a2), (call.descriptor(2), a4))
        }
        _ => return,
    };
    call.thread.nameless.set(key.unwrap_or(0));
}

pub(super) fn after(call: &Call) {
    let is_taken = matches!(
        call.sysno,
        Sysno::Unlink | Sysno::Unlinkat | Sysno::Rename | Sysno::Renameat | Sysno::Renameat2
    );
    let file = if is_taken { call.thread.nameless.take() } else { 0 };
    if file != 0 {
        call.send(&WireEvent { op: op::UNLINK, file, ..WireEvent::default() });
    }
}

/// Returns the key of the regular file at a path that is its only name. It may be a file that the
/// program never used, which was not announced.
fn key_of(directory: RawFd, path: &[u8]) -> Option<u64> {
    let identity = sys::identity_at(directory, path)?;
    (identity.is_regular() && identity.nr_names == 1).then(|| identity.key())
}
