//! Converts kernel events to trace events.
//!
//! Owns the followed threads and processes, and each event's effect on them. Invariants:
//! - T1: a fork precedes all other events of the new thread or process. A process has one exit.
//! - T2: events before a process's `since_ns` are ignored, because its first description includes
//!   them.
//! - T3: a process with unknown memory (`is_blind`) reports only its exit.
//! - T4: the pages that an execve itself touches in the new address space come after the execve.

mod faults;
mod files;

use std::collections::BTreeMap;

use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY, abi, lock, thp_disable};
use largefolio_trace::{Event, ExitKind, FileId, Image, Op, ThreadId, TraceError};

use super::files::Inodes;
use super::image;
use super::kernel_event::{Call, FileRange, KernelEvent, Mapped, Timed};
use crate::record::book::Book;
use crate::record::layout::PAGE_BYTES;

const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
/// `MAP_POPULATE`, and the limit of pages recorded for it.
const MAP_POPULATE: u32 = 0x8000;
const NR_POPULATED_MAX: u64 = 1 << 20;
/// Results from this to -1 are errors.
const ERROR_MIN: i64 = -4095;
/// Mappings remembered per process: those of unfinished calls, and an execve's.
const NR_MAPPED_MAX: usize = 1024;
/// Faults kept per execve: it copies arguments and clears the ends of segments.
const NR_FAULTS_MAX: usize = 16 * 1024;

const MS_SYNC: u64 = libc::MS_SYNC as u64;
const MLOCK_ONFAULT: u64 = libc::MLOCK_ONFAULT as u64;
const PR_SET_THP_DISABLE: u64 = libc::PR_SET_THP_DISABLE as u64;

const NO_NAME: &str = "The name of a mapped file could not be found, so its memory counts as \
                       anonymous.";

#[derive(Clone, Copy, Debug)]
struct Thread {
    id: ThreadId,
    pid: u32,
    call: Option<(Call, [u64; 6])>,
    /// Inode and pages of its last read: a long read comes in several events.
    read: Option<(u64, u64, u64)>,
    /// Its last write.
    written: Option<FileRange>,
    /// A direct call that is not known to read or to write yet.
    direct: Option<FileRange>,
    /// Page and code of a fault that was tried under the VMA lock and may be retried.
    tried: Option<(u64, u64)>,
}

impl Thread {
    fn new(id: ThreadId, pid: u32) -> Self {
        Self { id, pid, call: None, read: None, written: None, direct: None, tried: None }
    }
}

#[derive(Debug)]
pub(super) struct Process {
    /// The first thread's id. The caller of an execve becomes the first thread.
    pub(super) first: ThreadId,
    nr_threads: usize,
    /// The heap's end, 0 while unknown.
    pub(super) brk: u64,
    /// Its row in the images; `None` for the footer's image.
    image: Option<usize>,
    mapped: Vec<Mapped>,
    pub(super) since_ns: u64,
    pub(super) is_blind: bool,
    has_stack: bool,
    /// Faults in the memory of a program that an execve is about to start (T4).
    executing: Option<Vec<(u64, u64)>>,
}

pub(super) struct Tasks<'book, 'sink> {
    pub(super) book: &'book mut Book<'sink>,
    pub(super) inodes: Inodes,
    threads: BTreeMap<u32, Thread>,
    processes: BTreeMap<u32, Process>,
    command: Option<u32>,
    /// Ends of files that writes have moved.
    ends: BTreeMap<FileId, u64>,
    /// Stores to pages that were mapped read-only.
    pub(super) nr_protected: u64,
}

impl<'book, 'sink> Tasks<'book, 'sink> {
    pub(super) fn new(book: &'book mut Book<'sink>) -> Self {
        Self {
            book,
            inodes: Inodes::default(),
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            command: None,
            ends: BTreeMap::new(),
            nr_protected: 0,
        }
    }

    /// Follows a command before its execve; the trace starts at the execve.
    pub(super) fn start_command(&mut self, pid: u32) {
        self.command = Some(pid);
        self.add_process(pid, 0);
    }

    /// Follows a process. It is blind until its memory is described.
    pub(super) fn add_process(&mut self, pid: u32, brk: u64) -> ThreadId {
        let id = self.book.add_thread();
        self.book.nr_processes += 1;
        let process = Process {
            first: id,
            nr_threads: 1,
            brk,
            image: None,
            mapped: Vec::new(),
            since_ns: 0,
            is_blind: true,
            has_stack: true,
            executing: None,
        };
        self.processes.insert(pid, process);
        self.threads.insert(pid, Thread::new(id, pid));
        id
    }

    pub(super) fn add_thread(&mut self, pid: u32, tid: u32) -> Result<(), TraceError> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if self.threads.contains_key(&tid) {
            return Ok(());
        }
        process.nr_threads += 1;
        let (parent, id) = (process.first, self.book.add_thread());
        self.threads.insert(tid, Thread::new(id, pid));
        self.book.push_fork(parent, id, SHARES_MEMORY)
    }

    pub(super) fn process_mut(&mut self, pid: u32) -> Option<&mut Process> {
        self.processes.get_mut(&pid)
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    pub(super) fn nr_alive(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn has_begun(&self) -> bool {
        let pid = self.command.and_then(|pid| self.processes.get(&pid));
        pid.is_none_or(|process| !process.is_blind)
    }

    pub(super) fn take(&mut self, event: Timed) -> Result<(), TraceError> {
        let Timed { time_ns, tid, event: kernel_event } = event;
        if let KernelEvent::Mapped(mapped) = kernel_event {
            self.mapped(*mapped);
            return Ok(());
        }
        let (tid, kernel_event) = match kernel_event {
            KernelEvent::Executes { process, earlier } => {
                self.rename(earlier, process);
                (process, kernel_event)
            }
            kernel_event => (tid, kernel_event),
        };
        // In an execve, the thread gets the process's pid before `Executes` arrives.
        let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if time_ns < process.since_ns
            && !matches!(kernel_event, KernelEvent::Birth { .. } | KernelEvent::Ends)
        {
            return Ok(());
        }
        let is_blind = process.is_blind;
        match (&kernel_event, &mut process.executing) {
            (KernelEvent::Clears, executing) => {
                process.mapped.clear();
                *executing = Some(Vec::new());
                return Ok(());
            }
            (&KernelEvent::Fault { address, code }, Some(faults)) => {
                if faults.len() < NR_FAULTS_MAX {
                    faults.push((address, code));
                }
                return Ok(());
            }
            _ => {}
        }
        let Some(thread) = self.threads.get(&tid).copied() else { return Ok(()) };
        match kernel_event {
            KernelEvent::Executes { .. } => return self.executes(tid, thread),
            KernelEvent::Birth { child, flags } => return self.birth(thread, child, flags),
            KernelEvent::Ends => return self.ends(tid),
            _ if is_blind => {}
            KernelEvent::Fault { address, code } => {
                return self.fault(tid, thread, (address, code));
            }
            KernelEvent::Enter { call, arguments } => self.set_call(tid, Some((call, arguments))),
            KernelEvent::Exit { result } => {
                self.set_call(tid, None);
                if let Some((call, arguments)) = thread.call
                    && !(ERROR_MIN..0).contains(&result)
                {
                    return self.called(thread, call, arguments, result.cast_unsigned());
                }
            }
            KernelEvent::Clears | KernelEvent::Mapped(_) => {}
            _ => return self.file_event(tid, thread, &kernel_event),
        }
        Ok(())
    }

    fn set_call(&mut self, tid: u32, call: Option<(Call, [u64; 6])>) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.call = call;
        }
    }

    fn mapped(&mut self, mapped: Mapped) {
        let Some(process) = self.processes.get_mut(&mapped.pid) else { return };
        if process.mapped.len() >= NR_MAPPED_MAX {
            process.mapped.drain(..NR_MAPPED_MAX / 2);
        }
        process.mapped.push(mapped);
    }

    /// Renames a thread that called execve: it takes the first thread's id.
    fn rename(&mut self, earlier: u32, process: u32) {
        if earlier != process
            && let Some(thread) = self.threads.remove(&earlier)
        {
            self.threads.insert(process, thread);
        }
    }

    fn birth(&mut self, parent: Thread, child: u32, clone: u64) -> Result<(), TraceError> {
        if self.threads.contains_key(&child) {
            return Ok(());
        }
        let is_vfork = clone & CLONE_VFORK != 0;
        if clone & CLONE_VM != 0 && !is_vfork {
            let Some(process) = self.processes.get_mut(&parent.pid) else { return Ok(()) };
            process.nr_threads += 1;
            let id = self.book.add_thread();
            self.threads.insert(child, Thread::new(id, parent.pid));
            return self.book.push_fork(parent.id, id, SHARES_MEMORY);
        }
        let Some(process) = self.processes.get(&parent.pid) else { return Ok(()) };
        let Process { brk, image, is_blind, has_stack, .. } = *process;
        let id = self.add_process(child, brk);
        if let Some(process) = self.processes.get_mut(&child) {
            process.image = image;
            process.is_blind = is_blind;
            process.has_stack = has_stack;
        }
        self.book.push_fork(parent.id, id, if is_vfork { BORROWS_MEMORY } else { 0 })
    }

    fn ends(&mut self, tid: u32) -> Result<(), TraceError> {
        let Some(thread) = self.threads.remove(&tid) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&thread.pid) else { return Ok(()) };
        process.nr_threads = process.nr_threads.saturating_sub(1);
        if process.nr_threads > 0 {
            return self.book.push_exit(thread.id, ExitKind::Thread, 0);
        }
        // The command's exit status is known only after waiting for it.
        if self.command == Some(thread.pid) {
            return Ok(());
        }
        let is_blind = process.is_blind;
        self.processes.remove(&thread.pid);
        let kind = if is_blind { ExitKind::Execve } else { ExitKind::Unknown };
        self.book.push_exit(thread.id, kind, 0)
    }

    pub(super) fn end_command(&mut self, kind: ExitKind, status: u64) -> Result<(), TraceError> {
        let Some(process) = self.command.and_then(|pid| self.processes.remove(&pid)) else {
            return Ok(());
        };
        self.book.push_exit(process.first, kind, status)
    }

    fn executes(&mut self, tid: u32, thread: Thread) -> Result<(), TraceError> {
        let pid = thread.pid;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.brk = 0;
        process.first = thread.id;
        let faults = process.executing.take().unwrap_or_default();
        let mapped = std::mem::take(&mut process.mapped);
        let is_first = self.command == Some(pid) && process.is_blind;
        let image = image::of_execve(pid, &mapped, self.book, &mut self.inodes);
        let Some((command, image)) = image else {
            process.is_blind = true;
            let path = mapped.first().map(|mapped| mapped.path.display().to_string());
            let path = path.unwrap_or_else(|| "a program".to_owned());
            self.book.warn(format!(
                "A process became {path} (execve) and ended before its memory could be read; its \
                 later accesses are missing."
            ));
            return Ok(());
        };
        process.is_blind = false;
        process.image = None;
        process.has_stack = false;
        if is_first {
            self.book.layout = image.layout;
        } else {
            self.execve(pid, thread.id, command, image)?;
        }
        if self.processes.get(&pid).is_none_or(|process| process.is_blind) {
            return Ok(());
        }
        for fault in faults {
            self.fault(tid, thread, fault)?;
        }
        Ok(())
    }

    pub(super) fn execve(
        &mut self,
        pid: u32,
        thread: ThreadId,
        command: Vec<String>,
        image: Image,
    ) -> Result<(), TraceError> {
        let made = image.clone();
        let has_room = self.book.push_execve(thread, command, image)?;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.is_blind = !has_room;
        process.image = self.book.executions.images.iter().rposition(|image| *image == made);
        if !has_room {
            self.book
                .warn("More programs were executed than a trace can hold; later ones are missing.");
        }
        Ok(())
    }

    fn called(
        &mut self,
        thread: Thread,
        call: Call,
        arguments: [u64; 6],
        result: u64,
    ) -> Result<(), TraceError> {
        let [first, second, third, fourth, ..] = arguments;
        let page_end = |bytes: u64| bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes);
        let event = |op| Event { addr: first, len: page_end(second), ..Event::new(thread.id, op) };
        match call {
            Call::Mmap => self.mmap(thread, arguments, result),
            Call::Munmap => self.book.push(event(Op::Munmap)),
            Call::Mprotect => {
                self.book.push(Event { flags: low(third) & 7, ..event(Op::Mprotect) })
            }
            Call::Mremap => self.book.push(Event {
                pos: result,
                aux: page_end(third),
                flags: low(fourth),
                ..event(Op::Mremap)
            }),
            Call::Madvise => self.book.push(Event { aux: third, ..event(Op::Madvise) }),
            Call::Brk => self.brk(thread, first, result),
            // Without MS_SYNC, the call does nothing.
            Call::Msync if third & MS_SYNC == 0 || second == 0 => Ok(()),
            Call::Msync => self.book.push(event(Op::Sync)),
            Call::SyncAll => self.book.push(Event::new(thread.id, Op::Sync)),
            // In an mlock row, a length of 0 means all memory.
            Call::Mlock | Call::Mlock2 | Call::Munlock if second == 0 => Ok(()),
            Call::Munlock => self.book.push(event(Op::Mlock)),
            Call::Mlock | Call::Mlock2 => {
                let is_on_fault = call == Call::Mlock2 && third & MLOCK_ONFAULT != 0;
                let flags = if is_on_fault { lock::ON_FAULT } else { lock::CURRENT };
                self.book.push(Event { flags, ..event(Op::Mlock) })
            }
            Call::Mlockall => {
                let all = Event::new(thread.id, Op::Mlock);
                self.book.push(Event { flags: low(first), ..all })
            }
            Call::Munlockall => self.book.push(Event::new(thread.id, Op::Mlock)),
            Call::Prctl if first != PR_SET_THP_DISABLE => Ok(()),
            Call::Prctl => {
                let kind = thp_disable::ALL | third & thp_disable::EXCEPT_ADVISED;
                let aux = if second == 0 { 0 } else { kind };
                self.book.push(Event { aux, ..Event::new(thread.id, Op::ThpDisable) })
            }
        }
    }

    fn mmap(&mut self, thread: Thread, arguments: [u64; 6], result: u64) -> Result<(), TraceError> {
        let [_, len, prot, flags, fd, pos] = arguments;
        let (prot, map) = (low(prot) & 0xf, low(flags));
        let mut file = None;
        if map & (abi::MAP_ANONYMOUS | abi::MAP_HUGETLB) == 0 {
            let mapped = self.processes.get(&thread.pid).and_then(|process| {
                let is_it = |mapped: &&Mapped| result.wrapping_sub(mapped.addr) < mapped.len;
                process.mapped.iter().rev().find(is_it)
            });
            match mapped {
                Some(mapped) => file = self.inodes.of_mapping(&mut self.book.files, mapped),
                None if fd < 1 << 31 => self.book.warn(NO_NAME),
                None => {}
            }
        }
        let len = len.checked_next_multiple_of(PAGE_BYTES).unwrap_or(len);
        let pos = if file.is_some() { pos } else { 0 };
        let event = Event { addr: result, len, pos, file, ..Event::new(thread.id, Op::Mmap) };
        self.book.push_mmap(event, prot, map)?;
        let is_populated = map & MAP_POPULATE != 0 && prot & abi::PROT_WRITE != 0;
        if is_populated && map & abi::MAP_PRIVATE != 0 {
            self.populate(thread, result, len)?;
        }
        Ok(())
    }

    /// Adds pages that the kernel populated without a fault.
    fn populate(&mut self, thread: Thread, addr: u64, len: u64) -> Result<(), TraceError> {
        let nr_pages = (len / PAGE_BYTES).min(NR_POPULATED_MAX);
        if nr_pages < len / PAGE_BYTES {
            self.book.warn(
                "A populated mapping is larger than 4 GiB: the trace has only its \
                            first 4 GiB.",
            );
        }
        for nr in 0..nr_pages {
            let addr = addr.wrapping_add(nr * PAGE_BYTES);
            self.book.push_references(&[Event::references(thread.id, Op::Write, addr, 1)])?;
        }
        Ok(())
    }

    fn brk(&mut self, thread: Thread, requested: u64, result: u64) -> Result<(), TraceError> {
        let Some(process) = self.processes.get_mut(&thread.pid) else { return Ok(()) };
        let old = std::mem::replace(&mut process.brk, result);
        if old == 0 && requested == 0 {
            // The first brk call queries the heap's start.
            match process.image.and_then(|image| self.book.executions.images.get_mut(image)) {
                Some(image) => image.brk = result,
                None => self.book.brk = result,
            }
            return Ok(());
        }
        if old == 0 || old == result {
            return Ok(());
        }
        self.book.push(Event { addr: old, pos: result, ..Event::new(thread.id, Op::Brk) })
    }
}

/// Returns the low 32 bits: flags and device number parts use no others.
fn low(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
