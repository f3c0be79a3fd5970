//! One thread's pending rows, which were not sent yet.
//!
//! Owns the collapse of references into rows, and the rows' memory: a file that both sides map, so
//! `folio record` still gets the rows of a process that died suddenly. [`crate::thread`] owns
//! sending.
//!
//! ```text
//! page 0: Head            | 8 empty rows | row | row | row | ..            |
//!                                         ^ FIRST      ^ end
//!                           `-- WINDOW last rows ------'  are searched
//! ```
//!
//! Invariants:
//! - T1: `FIRST <= end <= rows.len()`; rows before `FIRST` are 0.
//! - T2: rows in `FIRST..end` are in the order of their first reference.
//! - T3: only the owner changes rows, `end`, `last`, `named` and `seq`. Another thread can change
//!   them while it holds the owner's state at `STEALING` ([`crate::grace`]).

use std::fs::{self, OpenOptions};
use std::mem::{offset_of, size_of};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::indexed::{Indexed, is_index};
use crate::named::Named;
use crate::sys;
use crate::wire::{self, COUNT_BITS, LINK_BITS, PAGE_SHIFT, Row, TAIL_ROWS, WINDOW, tail_offset};

pub(crate) const COUNT_MAX: u64 = 4096;

/// Limit for a row minus its key (the same row without references and link). Below it, the row can
/// take `COUNT_MAX` more, regardless of its link.
const COUNT_LIMIT: u64 = ((1 << COUNT_BITS) - COUNT_MAX) << LINK_BITS;

/// Op whose rows have no link.
const EXEC: u32 = 0;
const READ: usize = 1;

const FIRST: u32 = 8;
const _: () = assert!(FIRST as usize == WINDOW);

#[repr(C, align(4096))]
struct Head {
    magic: AtomicU64,
    pid: AtomicU32,
    tid: AtomicU32,
    seq: AtomicU64,
    end: AtomicU32,
    nr_grace_expired: AtomicU32,
    epoch: AtomicU32,
    /// The access right to the tail, a state of [`crate::grace`].
    state: AtomicU32,
    last: [AtomicU32; 3],
    named: Named,
    indexed: Indexed,
}

#[repr(C)]
pub(crate) struct Tail {
    head: Head,
    rows: [AtomicU64; WINDOW + TAIL_ROWS],
}

const _: () = assert!(offset_of!(Tail, rows) == wire::TAIL_ROWS_OFFSET);
const _: () = assert!(size_of::<Tail>() >= wire::TAIL_BYTES);
const _: () = assert!(offset_of!(Head, magic) == tail_offset::MAGIC);
const _: () = assert!(offset_of!(Head, pid) == tail_offset::PID);
const _: () = assert!(offset_of!(Head, tid) == tail_offset::TID);
const _: () = assert!(offset_of!(Head, seq) == tail_offset::SEQ);
const _: () = assert!(offset_of!(Head, end) == tail_offset::END);
const _: () = assert!(offset_of!(Head, nr_grace_expired) == tail_offset::NR_GRACE_EXPIRED);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Room {
    Left,
    Full,
}

impl Tail {
    /// Creates a tail in a new file at `path`. If that fails, it uses plain memory, and a sudden
    /// death loses the last rows. Returns `None` if there is no memory either.
    pub(crate) fn create(path: &Path, pid: u32, tid: u32) -> Option<NonNull<Self>> {
        let memory = map_file(path).or_else(|| sys::map(size_of::<Self>(), None))?;
        let tail = NonNull::new(memory)?.cast::<Self>();
        // SAFETY: the mapping has the size of a Tail, is page-aligned and zero-filled, and all
        // fields are atomics, for which zero is valid.
        let head = unsafe { &(*tail.as_ptr()).head };
        head.pid.store(pid, Relaxed);
        head.tid.store(tid, Relaxed);
        head.end.store(FIRST, Relaxed);
        head.magic.store(wire::TAIL_MAGIC, Release);
        Some(tail)
    }

    /// Unmaps the tail.
    ///
    /// # Safety
    /// `tail` came from [`Tail::create`] and is no longer in use.
    pub(crate) unsafe fn release(tail: NonNull<Self>) {
        // SAFETY: by the caller's promise this mapping is ours and unused.
        unsafe { sys::unmap(tail.as_ptr().cast(), size_of::<Self>()) };
    }

    /// Adds `count` (at most [`COUNT_MAX`]) references of op `op` (0..3) to the page of `addr`, by
    /// the instruction at `pc`, or 0.
    #[inline]
    pub(crate) fn touch(&self, op: u32, addr: u64, count: u64, pc: u64) -> Room {
        let key = Row { op, addr, count: 0, link: 0 }.encode();
        let end = self.head.end.load(Relaxed);
        let slot = self.head.last.get(op as usize).map_or(0, |last| last.load(Relaxed));
        if let Some(cell) = self.rows.get(slot as usize) {
            let row = cell.load(Relaxed);
            if row.wrapping_sub(key) < COUNT_LIMIT && slot + FIRST >= end {
                cell.store(row + (count << LINK_BITS), Relaxed);
                return Room::Left;
            }
        }
        self.touch_window(key, op, count, (pc, addr))
    }

    #[inline(never)]
    fn touch_window(&self, key: u64, op: u32, count: u64, at: (u64, u64)) -> Room {
        let end = self.head.end.load(Relaxed);
        let window = self.rows.get((end - FIRST) as usize..end as usize).unwrap_or_default();
        let found =
            window.iter().rposition(|cell| cell.load(Relaxed).wrapping_sub(key) < COUNT_LIMIT);
        if let Some(index) = found
            && let Some(cell) = window.get(index)
        {
            cell.store(cell.load(Relaxed) + (count << LINK_BITS), Relaxed);
            // `index` is below WINDOW.
            self.remember(op, end - FIRST + u32::try_from(index).unwrap_or(0));
            return Room::Left;
        }
        let Some(cell) = self.rows.get(end as usize) else { return Room::Full };
        let link = if op == EXEC { 0 } else { self.link(key >> PAGE_SHIFT, at, end) };
        cell.store(key + (count << LINK_BITS) + link, Relaxed);
        self.head.end.store(end + 1, Release);
        self.remember(op, end);
        if end as usize + 1 == self.rows.len() { Room::Full } else { Room::Left }
    }

    /// Returns how many rows the load of the address is before the row about to be added.
    fn link(&self, page: u64, (pc, addr): (u64, u64), end: u32) -> u64 {
        let indexed = if pc == 0 { 0 } else { self.head.indexed.link(pc, addr, end) };
        match self.head.named.link(page, end) {
            0 if self.page_before(end, indexed) == Some(page) => 0,
            0 => indexed,
            named => named,
        }
    }

    /// Returns which page the row `distance` before `end` refers to.
    fn page_before(&self, end: u32, distance: u64) -> Option<u64> {
        let row = u64::from(end).checked_sub(distance)?;
        let row = self.rows.get(usize::try_from(row).ok()?)?.load(Relaxed);
        Some(row >> PAGE_SHIFT)
    }

    /// Notes the value of the load at `addr`, which was just touched.
    #[inline]
    pub(crate) fn loaded(&self, addr: u64, value: u64) {
        let slot = self.head.last.get(READ).map_or(0, |last| last.load(Relaxed));
        // Slot 0: the touch filled the tail and its row was sent.
        if slot != 0 {
            self.head.named.note(addr, value, slot, self.head.end.load(Relaxed));
            self.head.indexed.note(value, slot);
        }
    }

    /// The same for a load that is too short for an address.
    #[inline]
    pub(crate) fn loaded_number(&self, value: u64) {
        if !is_index(value) {
            return;
        }
        let slot = self.head.last.get(READ).map_or(0, |last| last.load(Relaxed));
        if slot != 0 {
            self.head.indexed.note(value, slot);
        }
    }

    /// Returns a mark that changes with every load and store of the owner.
    pub(crate) fn data_mark(&self) -> [u64; 2] {
        let [_, reads, writes] = &self.head.last;
        [reads, writes].map(|last| {
            let row = self.rows.get(last.load(Relaxed) as usize);
            row.map_or(0, |row| row.load(Relaxed))
        })
    }

    fn remember(&self, op: u32, slot: u32) {
        if let Some(last) = self.head.last.get(op as usize) {
            last.store(slot, Relaxed);
        }
    }

    pub(crate) fn pending(&self) -> &[u8] {
        let end = self.head.end.load(Relaxed) as usize;
        let rows = self.rows.get(FIRST as usize..end).unwrap_or_default();
        let bytes = size_of_val(rows);
        // SAFETY: the atomics are 8 initialised bytes each, and nothing writes them during the
        // borrow (T3: the caller owns the tail or holds it at STEALING).
        unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), bytes) }
    }

    pub(crate) fn nr_pending(&self) -> u32 {
        self.head.end.load(Relaxed).saturating_sub(FIRST)
    }

    pub(crate) fn seq(&self) -> u64 {
        self.head.seq.load(Relaxed)
    }

    /// Removes the pending rows after they were sent. The order of the stores keeps W3 even if the
    /// process dies here.
    pub(crate) fn clear(&self) {
        for last in &self.head.last {
            last.store(0, Relaxed);
        }
        self.head.named.clear();
        self.head.indexed.clear();
        self.head.end.store(FIRST, Release);
        self.head.seq.store(self.seq() + 1, Release);
    }

    pub(crate) fn tid(&self) -> u32 {
        self.head.tid.load(Relaxed)
    }

    pub(crate) fn state(&self) -> &AtomicU32 {
        &self.head.state
    }

    pub(crate) fn epoch(&self) -> &AtomicU32 {
        &self.head.epoch
    }

    pub(crate) fn count_grace_expired(&self, nr: u32) {
        self.head.nr_grace_expired.fetch_add(nr, Relaxed);
    }

    /// Returns that count and resets it, for a tail that stays.
    pub(crate) fn take_grace_expired(&self) -> u32 {
        self.head.nr_grace_expired.swap(0, Relaxed)
    }
}

/// Maps a new file at `path`. The program shares our descriptors and can close one at any moment.
/// The file's size is therefore set by path, and the mapping is kept only if the descriptor is
/// still ours.
fn map_file(path: &Path) -> Option<*mut u8> {
    let length = size_of::<Tail>();
    if sys::file_size_limit() < length as u64 {
        return None;
    }
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path).ok()?;
    let named = fs::metadata(path).ok()?;
    let is_ours = || {
        sys::identity(file.as_raw_fd())
            .is_some_and(|found| found.inode == named.ino() && found.device == named.dev())
    };
    let is_sized =
        is_ours() && sys::reserve(&file, length).is_ok() && sys::truncate(path, length).is_ok();
    let memory = if is_sized { sys::map(length, Some(&file)) } else { None };
    match memory {
        Some(memory) if is_ours() => return Some(memory),
        // SAFETY: the mapping was made just above and was not handed out.
        Some(memory) => unsafe { sys::unmap(memory, length) },
        None => {}
    }
    // Nothing writes this tail, so the parent must not read it.
    let _ = fs::remove_file(path);
    None
}

#[cfg(test)]
mod tests;
