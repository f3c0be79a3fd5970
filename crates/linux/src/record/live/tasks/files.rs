//! Calls on files: reads, writes, syncs and fallocate.

use largefolio_trace::event::io;
use largefolio_trace::validate::CALL_BYTES_MAX;
use largefolio_trace::{Event, FileId, Op, TraceError};

use super::{Tasks, Thread, low};
use crate::geometry::page_bytes;
use crate::record::live::kernel_event::{Call, FileRange, KernelEvent};

const NO_READER: &str = "A file that was read or written no longer had a name when folio looked it \
                         up, so these calls on it are missing.";

impl Tasks<'_, '_> {
    /// Handles an event about a file; ignores all others.
    pub(super) fn file_event(
        &mut self,
        tid: u32,
        thread: Thread,
        event: &KernelEvent,
    ) -> Result<(), TraceError> {
        match *event {
            KernelEvent::FileRead { inode, device, first, end } => {
                self.file_read(tid, (device, inode), first, end)
            }
            KernelEvent::FileWrite(written) => self.file_written(tid, written),
            KernelEvent::DirectBegins(begun) => {
                self.set_direct(tid, Some(begun));
                Ok(())
            }
            KernelEvent::DirectGoes { inode, is_write } => {
                let direct = thread.direct.filter(|begun| begun.inode == inode);
                let Some(direct) = direct else { return Ok(()) };
                self.set_direct(tid, None);
                let op = if is_write { Op::Pwrite } else { Op::Pread };
                self.file_moved(thread, op, io::DIRECT, direct)
            }
            // An msync has its own row.
            KernelEvent::Synced { .. } if matches!(thread.call, Some((Call::Msync, _))) => Ok(()),
            KernelEvent::Synced { inode, device } => {
                let all = Event { len: u64::MAX, ..Event::new(thread.id, Op::Sync) };
                self.push_about(thread, (device, inode), all)
            }
            KernelEvent::Allocates { range: FileRange { inode, device, pos, len }, mode } => {
                let event = Event { pos, len, aux: mode, ..Event::new(thread.id, Op::Fallocate) };
                self.push_about(thread, (device, inode), event)
            }
            _ => Ok(()),
        }
    }

    fn push_about(
        &mut self,
        thread: Thread,
        of: (u64, u64),
        event: Event,
    ) -> Result<(), TraceError> {
        let Some(file) = self.file_of(thread.pid, of) else { return Ok(()) };
        self.book.push(Event { file: Some(file), ..event })
    }

    fn set_direct(&mut self, tid: u32, direct: Option<FileRange>) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.direct = direct;
        }
    }

    fn file_read(
        &mut self,
        tid: u32,
        (device, inode): (u64, u64),
        first: u64,
        end: u64,
    ) -> Result<(), TraceError> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        // The kernel reads a few folios at a time; the events of one read have the same end.
        let is_same = thread.read.is_some_and(|(of, earlier, its_end)| {
            of == inode && its_end == end && first >= earlier
        });
        thread.read = Some((inode, first, end));
        if is_same {
            return Ok(());
        }
        let thread = *thread;
        let Some(file) = self.file_of(thread.pid, (device, inode)) else { return Ok(()) };
        // The kernel counts in its own page size.
        let page_bytes = page_bytes() as u64;
        let (Some(pos), Some(end)) = (first.checked_mul(page_bytes), end.checked_mul(page_bytes))
        else {
            return Ok(());
        };
        let grown = self.ends.get(&file).copied().unwrap_or(0);
        let size_bytes = self.book.files.size_bytes(file).max(grown);
        let len = end.min(size_bytes.max(pos)).saturating_sub(pos);
        if len == 0 {
            return Ok(());
        }
        let len = len.min(CALL_BYTES_MAX);
        // The event does not name the descriptor: use one per file.
        let event = Event {
            pos,
            len,
            aux: u64::from(file) + 3,
            file: Some(file),
            ..Event::new(thread.id, Op::Pread)
        };
        self.book.push(event)
    }

    /// Returns a file by inode and the kernel's device number.
    fn file_of(&mut self, pid: u32, (device, inode): (u64, u64)) -> Option<FileId> {
        let of = (device_of(device), inode);
        let file = self.inodes.of_descriptor(&mut self.book.files, pid, of);
        if file.is_none() && self.inodes.is_unknown(of) {
            self.book.warn(NO_READER);
        }
        file
    }

    fn file_written(&mut self, tid: u32, written: FileRange) -> Result<(), TraceError> {
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let earlier = thread.written.replace(written);
        // ext4 reports the rest of a write with each folio.
        let is_same = earlier.is_some_and(|earlier| {
            earlier.inode == written.inode
                && earlier.end() == written.end()
                && written.pos > earlier.pos
        });
        let thread = *thread;
        if is_same { Ok(()) } else { self.file_moved(thread, Op::Pwrite, 0, written) }
    }

    fn file_moved(
        &mut self,
        thread: Thread,
        op: Op,
        flags: u32,
        moved: FileRange,
    ) -> Result<(), TraceError> {
        let FileRange { inode, device, pos, len } = moved;
        if len == 0 {
            return Ok(());
        }
        let Some(file) = self.file_of(thread.pid, (device, inode)) else { return Ok(()) };
        if op == Op::Pwrite {
            let known = self.ends.entry(file).or_default();
            *known = moved.end().max(*known);
        }
        let len = len.min(CALL_BYTES_MAX);
        let aux = u64::from(file) + 3;
        let event = Event { pos, len, aux, flags, ..Event::new(thread.id, op) };
        self.book.push(Event { file: Some(file), ..event })
    }
}

/// Converts an event's device number to `libc::makedev`'s form.
fn device_of(number: u64) -> u64 {
    libc::makedev(low(number >> 20), low(number & ((1 << 20) - 1)))
}
