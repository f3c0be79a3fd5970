//! Merges the messages of many processes into one order of events.
//!
//! Owns each message's meaning; `lives` owns the processes and threads. Invariants:
//! - L1: a thread's rows and events come in the order in which it sent them.
//! - L2: a fork event comes before anything of the new thread or process. Packets from threads not
//!   yet announced are parked, and the session does not read connections of unannounced processes.
//! - L3: a process has one exit event, after its last rows.
//! - L4: an execve event comes after the old program's rows and before the new program's.
//! - L5: a process that lends its memory (vfork) is not read until the borrower has executed a
//!   program or ended. The lender itself is suspended for the same time.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzed;
mod life_cycle;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use largefolio_trace::{Event, Image, Op, Run, ThreadId, TraceError};

use super::packet::{Packet, decode_rows};
use super::process::{self, Phase, RecordedProcess, Thread};
use super::wire::{self, Header, Kind, LINK_MAX, WireEvent, WireFile};
use crate::proc::maps;
use crate::record::book::Book;
use crate::record::layout;

/// Packets parked for an unannounced thread; beyond that, it is adopted.
const PARKED_MAX: usize = 256;

/// How long a silent process can block the reading of others: a borrower blocks its lender, a
/// parent blocks a child it has not announced.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct Ledger<'book, 'sink> {
    pub(crate) book: &'book mut Book<'sink>,
    directory: PathBuf,
    program: PathBuf,
    processes: BTreeMap<u32, RecordedProcess>,
    /// The users of recorded processes. Tails of these users are read.
    pub(crate) users: BTreeSet<u32>,
    top: Option<u32>,
    /// Whether new processes and threads no longer fit.
    is_full: bool,
    runs: Vec<Run>,
}

impl<'book, 'sink> Ledger<'book, 'sink> {
    pub(crate) fn new(book: &'book mut Book<'sink>, directory: PathBuf, program: PathBuf) -> Self {
        let processes = BTreeMap::new();
        let users = BTreeSet::from([rustix::process::geteuid().as_raw()]);
        let (top, is_full, runs) = (None, false, Vec::new());
        Self { book, directory, program, processes, users, top, is_full, runs }
    }

    pub(crate) fn receive(&mut self, pid: u32, bytes: &[u8]) -> Result<(), TraceError> {
        let Some(packet) = Packet::decode(bytes).filter(|packet| packet.header.pid == pid) else {
            self.book.warn("A message from the recorder could not be read and was omitted.");
            return Ok(());
        };
        let header = packet.header;
        let Some(process) =
            self.processes.get_mut(&pid).filter(|process| process.phase != Phase::Over)
        else {
            self.warn_stray();
            return Ok(());
        };
        if process.threads.contains_key(&header.tid)
            || matches!(header.kind, Kind::Layout | Kind::Unseen)
        {
            return self.apply(&packet);
        }
        if self.is_full {
            return Ok(());
        }
        process.parked.push(bytes.to_vec());
        if process.parked.len() > PARKED_MAX {
            let parent = process.last;
            self.add_thread(pid, header.tid, parent)?;
        }
        Ok(())
    }

    /// Warns of a message from a process that already ended or was never recorded.
    pub(crate) fn warn_stray(&mut self) {
        self.book.warn(
            "Messages from a process that had already ended, or that no recorded process had \
                started, were omitted.",
        );
    }

    fn apply(&mut self, packet: &Packet<'_>) -> Result<(), TraceError> {
        self.take_rows(&packet.header, packet.rows)?;
        let header = &packet.header;
        match header.kind {
            Kind::Layout => return self.take_layout(header.pid, packet.body),
            Kind::Event => {
                if let Some(event) = WireEvent::decode(packet.body) {
                    self.take_event(header, &event)?;
                }
            }
            Kind::Hello | Kind::Rows => {}
            Kind::Unseen => self.book.warn(process::unseen(packet.body)),
            Kind::Refused => self.book.warn(process::refused(packet.body)),
            Kind::File => self.take_file(packet.body),
            Kind::ExecveUnrecorded
            | Kind::Execve
            | Kind::ExecveFailed
            | Kind::Ending
            | Kind::Leaving => self.take_ending(header, packet.body),
        }
        Ok(())
    }

    fn thread(&mut self, pid: u32, tid: u32) -> Option<&mut Thread> {
        self.processes.get_mut(&pid)?.threads.get_mut(&tid)
    }

    fn take_rows(&mut self, header: &Header, rows: &[u8]) -> Result<(), TraceError> {
        let Some(thread) = self.thread(header.pid, header.tid) else { return Ok(()) };
        if rows.is_empty() {
            return Ok(());
        }
        thread.last_seq = Some(header.seq);
        let id = thread.id;
        self.push_rows(rows, id)
    }

    fn push_rows(&mut self, rows: &[u8], thread: ThreadId) -> Result<(), TraceError> {
        self.runs.clear();
        // Either all of a trace has links or none of it; the footer says which.
        let link_max = if self.book.has_links { LINK_MAX } else { 0 };
        decode_rows(rows, link_max, &mut self.runs);
        self.book.push_runs(thread, &self.runs)
    }

    fn take_layout(&mut self, pid: u32, body: &[u8]) -> Result<(), TraceError> {
        let Some(guest_base) = wire::u64_at(body, 0) else { return Ok(()) };
        let texts = body.get(16..).unwrap_or_default();
        let nr_before = wire::u64_at(body, 8).and_then(|nr| usize::try_from(nr).ok());
        let Some((before, now)) = texts.split_at_checked(nr_before.unwrap_or(0)) else {
            return Ok(());
        };
        let vmas = |text| maps::parse(text, layout::PAGE_BYTES).vmas;
        let new = layout::since(&vmas(before), &vmas(now));
        let process = self.processes.get_mut(&pid);
        let first = process.as_ref().map_or(0, |process| process.first);
        let executed = process.and_then(|process| process.executed.take());
        let program = executed.as_ref().map_or(&self.program, |(path, _)| path);
        let initial = layout::of_qemu(&new, guest_base, program, &mut self.book.files);
        self.book.has_links |= wire::is_base(guest_base);
        let Some((path, command)) = executed else {
            if self.top == Some(pid) {
                (self.book.layout, self.book.brk) = (initial.layout, initial.brk);
                self.book.push_scripts(first)?;
                return self.book.push_stores(first, &initial.zeroed);
            }
            return Ok(());
        };
        self.gives_back(pid);
        let image = Image { layout: initial.layout, brk: initial.brk };
        if !self.book.push_execve(first, command, image)? {
            let path = path.to_string_lossy();
            self.book.warn(format!(
                "Too many programs were executed; {path} is recorded as part of the previous \
                 program's memory."
            ));
            return Ok(());
        }
        self.book.push_stores(first, &initial.zeroed)
    }

    fn take_file(&mut self, body: &[u8]) {
        if let Some(file) = WireFile::decode(body) {
            self.book.files.announce(file);
        }
    }

    fn take_event(&mut self, header: &Header, wire: &WireEvent) -> Result<(), TraceError> {
        let Some(thread) = self.thread(header.pid, header.tid).map(|thread| thread.id) else {
            return Ok(());
        };
        // References arrive as rows, and the ledger makes execve events itself.
        let is_call = |op: &Op| !op.is_reference() && *op != Op::Execve;
        let op = u8::try_from(wire.op).ok().and_then(Op::from_number).filter(is_call);
        let Some(op) = op else { return Ok(()) };
        let event = Event {
            addr: wire.addr,
            len: wire.len,
            pos: wire.pos,
            aux: wire.aux,
            flags: wire.flags,
            file: self.book.files.id(wire.file),
            ..Event::new(thread, op)
        };
        match op {
            Op::Fork => self.take_fork(header, wire, thread),
            Op::Exit => self.take_thread_exit(header, thread, wire.pos),
            Op::Brk => self.take_brk(header.pid, &event),
            Op::Mmap => {
                // PROT_* fit in four bits.
                let prot = (wire.aux & 0xf) as u32;
                self.book.push_mmap(event, prot, wire.flags)
            }
            // A file without a page cache has no id, and its transfers do not matter.
            Op::Open
            | Op::Pread
            | Op::Pwrite
            | Op::Truncate
            | Op::Fadvise
            | Op::Fallocate
            | Op::Unlink
                if event.file.is_none() =>
            {
                Ok(())
            }
            Op::Sync if event.file.is_none() && wire.file != 0 => Ok(()),
            _ => self.book.push(event),
        }
    }

    /// A program's first brk queries the heap's start.
    fn take_brk(&mut self, pid: u32, event: &Event) -> Result<(), TraceError> {
        if event.addr != 0 {
            return self.book.push(Event { aux: 0, ..*event });
        }
        let is_first = self.top == Some(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if event.aux == 0 {
            process.brk = event.pos;
            // The footer has the heap of the first program, not of programs it executed.
            if is_first && process.generation == 0 {
                self.book.brk = event.pos;
            }
            return Ok(());
        }
        self.book.push(Event { addr: process.brk, aux: 0, ..*event })
    }
}

#[cfg(test)]
pub(super) mod tests;
