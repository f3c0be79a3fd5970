//! Turns each page fault in a followed thread into exactly one reference.

use largefolio_trace::{Event, Op, ThreadId, TraceError};

use super::{Tasks, Thread};
use crate::fault_probe::{FETCH, LOCKED, STORE};
use crate::record::layout::PAGE_BYTES;
use crate::record::live::image;

/// In a fault's code on x86-64: the page was mapped, but not for this access.
const PRESENT: u64 = 1;
/// Kernel addresses start here.
const USER_END: u64 = 1 << 56;

impl Tasks<'_, '_> {
    pub(super) fn fault(
        &mut self,
        tid: u32,
        thread: Thread,
        (address, code): (u64, u64),
    ) -> Result<(), TraceError> {
        if address >= USER_END {
            return Ok(());
        }
        if self.processes.get(&thread.pid).is_some_and(|process| !process.has_stack) {
            self.find_stack(thread.pid, address);
        }
        if self.came_again(tid, address, code) {
            return Ok(());
        }
        self.nr_protected += u64::from(code & PRESENT != 0 && code & STORE != 0);
        self.book.push_references(&[fault_row(thread.id, address, code)])
    }

    /// Whether this fault repeats the previous one, now under the mmap lock.
    fn came_again(&mut self, tid: u32, address: u64, code: u64) -> bool {
        let Some(thread) = self.threads.get_mut(&tid) else { return false };
        let (this, is_try) = ((address & !(PAGE_BYTES - 1), code & !LOCKED), code & LOCKED != 0);
        let before = if is_try { thread.tried.replace(this) } else { thread.tried.take() };
        !is_try && before == Some(this)
    }

    fn find_stack(&mut self, pid: u32, address: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let layout =
            match process.image.and_then(|image| self.book.executions.images.get_mut(image)) {
                Some(image) => &mut image.layout,
                None => &mut self.book.layout,
            };
        process.has_stack = image::add_stack(layout, address);
    }
}

fn fault_row(thread: ThreadId, address: u64, code: u64) -> Event {
    let op = match code {
        code if code & FETCH != 0 => Op::Exec,
        code if code & STORE != 0 => Op::Write,
        _ => Op::Read,
    };
    Event::references(thread, op, address & !(PAGE_BYTES - 1), 1)
}
