//! From the messages of many processes to one order of events.
//!
//! Owns the processes and threads of the recording and the meaning of each message. Invariants:
//! - L1: a thread's rows and events come in the order it sent them.
//! - L2: a fork event comes before anything of the new thread or process: packets of threads not
//!   yet announced are parked, connections of such processes are not read (by the session).
//! - L3: a process has one exit event, after its last rows.
//! - L4: an execve event comes after the rows of the program before, and before those of the new one.
//! - L5: a process that lends its memory (vfork) is not read until the borrower has executed a
//!   program or ended; what it sends waits, as it would itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY};
use largefolio_trace::{Event, ExitKind, Image, Op, Run, ThreadId, TraceError};

use super::packet::{Packet, decode_rows};
use super::process::{self, Execve, Phase, RecordedProcess, Thread, Voice, sentence};
use super::tails;
use super::wire::{self, FILE_PATH_OFFSET, Header, Kind, WireEvent};
use crate::proc::maps;
use crate::record::book::Book;
use crate::record::layout;
use crate::record::outcome::Ended;

/// Packets parked for a thread that nobody announces; it is adopted then.
const PARKED_MAX: usize = 256;

/// How long a process that is silent keeps others from being read: a borrower of memory its lender,
/// a parent the child that it has not announced.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(2);

const GRACE_EXPIRED: &str = "A thread did not pause within 10 ms when another one changed the \
                             address space, so references around that moment may be out of order; \
                             record on a less busy machine.";

/// The recording as the messages tell it.
pub(crate) struct Ledger<'book, 'sink> {
    pub(crate) book: &'book mut Book<'sink>,
    directory: PathBuf,
    program: PathBuf,
    processes: BTreeMap<u32, RecordedProcess>,
    /// The first process.
    top: Option<u32>,
    /// Rows of the message at hand.
    runs: Vec<Run>,
}

impl<'book, 'sink> Ledger<'book, 'sink> {
    /// A recording of `program` whose tails are in `directory`.
    pub(crate) fn new(book: &'book mut Book<'sink>, directory: PathBuf, program: PathBuf) -> Self {
        let processes = BTreeMap::new();
        Self { book, directory, program, processes, top: None, runs: Vec::new() }
    }

    /// The first process connected.
    pub(crate) fn start(&mut self, pid: u32) {
        if self.top.is_none() {
            self.top = Some(pid);
            let first = self.add_process(pid);
            debug_assert_eq!(first, 0, "I1 of the book");
        }
    }

    fn add_process(&mut self, pid: u32) -> ThreadId {
        let first = self.book.add_thread();
        self.book.nr_processes += 1;
        self.processes.insert(pid, RecordedProcess::new(pid, first));
        first
    }

    /// Whether messages of `pid` may be read: its fork is in the trace.
    pub(crate) fn is_announced(&self, pid: u32) -> bool {
        self.voice(pid) != Voice::Over
    }

    /// Whether `pid` says something.
    pub(crate) fn voice(&self, pid: u32) -> Voice {
        self.processes.get(&pid).map_or(Voice::Over, |process| process.phase.voice())
    }

    /// Notes that `pid`, which is announced, connected.
    pub(crate) fn connected(&mut self, pid: u32, generation: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.phase, process.generation) = (Phase::Connected, generation);
        }
    }

    /// Whether a process is between two programs.
    pub(crate) fn has_executing(&self) -> bool {
        self.processes.values().any(|process| process.phase == Phase::Executing)
    }

    /// Notes that `pid` connected as a new program.
    pub(crate) fn executed(&mut self, pid: u32, generation: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.executed(pid, generation);
        }
    }

    /// Whether `pid` waits for a borrower of its memory (L5).
    pub(crate) fn is_lending(&self, pid: u32) -> bool {
        self.borrower_of(pid).is_some()
    }

    /// The process that has the memory of `pid` and speaks, or was silent for a moment only.
    pub(crate) fn borrower_of(&self, pid: u32) -> Option<u32> {
        let child = self.processes.get(&pid)?.borrower?;
        let is_heard = match self.voice(child) {
            Voice::Speaks => true,
            Voice::Silent => self.processes.get(&child)?.silent_since.elapsed() < SILENCE_MAX,
            Voice::Over => false,
        };
        is_heard.then_some(child)
    }

    /// `child` has memory of its own, or none any more.
    fn gives_back(&mut self, child: u32) {
        for process in self.processes.values_mut() {
            if process.borrower == Some(child) {
                process.borrower = None;
            }
        }
    }

    /// A child whose parent cannot announce it any more, or is silent.
    pub(crate) fn adopt(&mut self, pid: u32, parent: u32) -> Result<(), TraceError> {
        let first = self.processes.get(&parent).map_or(0, |process| process.first);
        let child = self.add_process(pid);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.adopted_from = Some(parent);
        }
        self.book.push_fork(first, child, 0)
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let Some(packet) = Packet::decode(bytes) else {
            self.book.warn("A message from the recorder could not be read and was left out.");
            return Ok(());
        };
        let header = packet.header;
        let Some(process) =
            self.processes.get_mut(&header.pid).filter(|found| found.phase != Phase::Over)
        else {
            self.warn_late();
            return Ok(());
        };
        if process.threads.contains_key(&header.tid)
            || matches!(header.kind, Kind::Layout | Kind::Unseen)
        {
            return self.apply(&packet);
        }
        process.parked.push(bytes.to_vec());
        if process.parked.len() > PARKED_MAX {
            let parent = process.first;
            self.add_thread(header.pid, header.tid, parent)?;
        }
        Ok(())
    }

    /// Notes that a process spoke whose exit is in the trace.
    pub(crate) fn warn_late(&mut self) {
        self.book.warn("Messages from a process that had already ended were left out.");
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
        decode_rows(rows, &mut self.runs);
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
            }
            return Ok(());
        };
        self.gives_back(pid);
        let image = Image { layout: initial.layout, brk: initial.brk };
        if !self.book.push_execve(first, command, image)? {
            let path = path.to_string_lossy();
            self.book.warn(format!(
                "Too many programs were executed; {path} is shown in the memory of the one before."
            ));
        }
        Ok(())
    }

    fn take_file(&mut self, body: &[u8]) {
        if let (Some(key), Some(size_bytes), Some(path)) =
            (wire::u64_at(body, 0), wire::u64_at(body, 8), body.get(FILE_PATH_OFFSET..))
        {
            self.book.files.announce(key, size_bytes, path);
        }
    }

    fn take_event(&mut self, header: &Header, wire: &WireEvent) -> Result<(), TraceError> {
        let Some(thread) = self.thread(header.pid, header.tid).map(|thread| thread.id) else {
            return Ok(());
        };
        let op = u8::try_from(wire.op).ok().and_then(Op::from_number);
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
                // PROT_* fit four bits.
                let prot = (wire.aux & 0xf) as u32;
                self.book.push_mmap(event, prot, wire.flags)
            }
            // A file without page cache has no id, and its transfers say nothing.
            Op::Open | Op::Pread | Op::Pwrite | Op::Truncate | Op::Fadvise
                if event.file.is_none() =>
            {
                Ok(())
            }
            _ => self.book.push(event),
        }
    }

    /// The first brk of a program asks where its heap is.
    fn take_brk(&mut self, pid: u32, event: &Event) -> Result<(), TraceError> {
        if event.addr != 0 {
            return self.book.push(Event { aux: 0, ..*event });
        }
        let is_first = self.top == Some(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        if event.aux == 0 {
            process.brk = event.pos;
            // The footer has that of the program that began, not of what it executed.
            if is_first && process.generation == 0 {
                self.book.brk = event.pos;
            }
            return Ok(());
        }
        self.book.push(Event { addr: process.brk, aux: 0, ..*event })
    }

    fn take_fork(
        &mut self,
        header: &Header,
        wire: &WireEvent,
        parent: ThreadId,
    ) -> Result<(), TraceError> {
        let Ok(number) = u32::try_from(wire.aux) else { return Ok(()) };
        if wire.flags & wire::NEW_PROCESS == 0 {
            return self.add_thread(header.pid, number, parent);
        }
        if self.is_late(number, header.pid) {
            return Ok(());
        }
        let child = self.add_process(number);
        let flags = wire.flags & wire::BORROWS_MEMORY;
        if flags != 0
            && let Some(process) = self.processes.get_mut(&header.pid)
        {
            process.borrower = Some(number);
        }
        debug_assert_eq!(wire::BORROWS_MEMORY, BORROWS_MEMORY, "as in the trace");
        self.book.push_fork(parent, child, flags)
    }

    /// Whether `child`, which `parent` announces, was adopted because that took too long.
    fn is_late(&mut self, child: u32, parent: u32) -> bool {
        let child = self.processes.get_mut(&child).filter(|child| child.phase != Phase::Over);
        child.is_some_and(|child| child.adopted_from.take_if(|from| *from == parent).is_some())
    }

    /// Announces thread `tid` of `pid` and applies what it sent before.
    fn add_thread(&mut self, pid: u32, tid: u32, parent: ThreadId) -> Result<(), TraceError> {
        let id = self.book.add_thread();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        process.threads.insert(tid, Thread { id, last_seq: None });
        let is_its =
            |bytes: &Vec<u8>| Packet::decode(bytes).is_some_and(|packet| packet.header.tid == tid);
        let (its, others) = std::mem::take(&mut process.parked).into_iter().partition(is_its);
        process.parked = others;
        self.book.push_fork(parent, id, SHARES_MEMORY)?;
        let its: Vec<Vec<u8>> = its;
        for bytes in &its {
            if let Some(packet) = Packet::decode(bytes) {
                self.apply(&packet)?;
            }
        }
        Ok(())
    }

    /// Adds the threads of `pid` that sent something and that nobody can announce any more: the one
    /// that made them was ended by the execve or exit of one of them.
    fn adopt_parked(&mut self, pid: u32) -> Result<(), TraceError> {
        while let Some(process) = self.processes.get(&pid)
            && process.phase != Phase::Away
            && let Some(packet) = process.parked.first().and_then(|bytes| Packet::decode(bytes))
        {
            let (tid, parent) = (packet.header.tid, process.first);
            self.add_thread(pid, tid, parent)?;
        }
        Ok(())
    }

    fn take_thread_exit(
        &mut self,
        header: &Header,
        thread: ThreadId,
        status: u64,
    ) -> Result<(), TraceError> {
        if let Some(process) = self.processes.get_mut(&header.pid) {
            process.threads.remove(&header.tid);
            // Whoever is left ends the process.
            if process.last == thread
                && let Some(left) = process.threads.values().next()
            {
                process.last = left.id;
            }
        }
        self.book.push_exit(thread, ExitKind::Thread, status)
    }

    fn take_ending(&mut self, header: &Header, body: &[u8]) {
        let Some(process) = self.processes.get_mut(&header.pid) else { return };
        if let Some(thread) = process.threads.get(&header.tid) {
            process.last = thread.id;
        }
        match header.kind {
            Kind::Execve => process.execve = Some(Execve::recorded(body, process.last)),
            Kind::ExecveUnrecorded => process.execve = Some(Execve::unrecorded(body)),
            Kind::ExecveFailed => process.execve = None,
            Kind::Ending => process.status = wire::u64_at(body, 0),
            _ => (process.phase, process.silent_since) = (Phase::Away, Instant::now()),
        }
    }

    /// The connection of `pid` closed. A first process that said nothing about its end waits for
    /// [`Ledger::end_all`], which knows its signal.
    pub(crate) fn closed(&mut self, pid: u32) -> Result<(), TraceError> {
        self.adopt_parked(pid)?;
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        let is_told = process.status.is_some() || process.execve.is_some();
        if process.phase == Phase::Away || Some(pid) == self.top && !is_told {
            return Ok(());
        }
        if !matches!(process.execve, Some(Execve::Recorded { .. })) {
            return self.end(pid, None);
        }
        self.drain_tails(pid)?;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.phase = Phase::Executing;
        }
        Ok(())
    }

    /// Ends every process that has no exit yet; `ended` is how the first one did.
    pub(crate) fn end_all(&mut self, ended: Ended) -> Result<(), TraceError> {
        let open: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| process.phase != Phase::Over)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in open {
            if Some(pid) != self.top {
                self.warn_left_behind(pid);
            }
            self.end(pid, (Some(pid) == self.top).then_some(ended))?;
        }
        Ok(())
    }

    fn warn_left_behind(&mut self, pid: u32) {
        let phase = self.processes.get(&pid).map(|process| process.phase);
        self.book.warn(match phase {
            Some(Phase::Announced) => {
                "A child process could not be recorded, because it changed its root directory or \
                 user before it began; record it by itself."
            }
            Some(Phase::Away | Phase::Executing) => return,
            _ => {
                "A child process was still running when the program ended, so its later references \
                 are missing; record a command that waits for it."
            }
        });
    }

    fn end(&mut self, pid: u32, ended: Option<Ended>) -> Result<(), TraceError> {
        self.drain_tails(pid)?;
        let Some(process) = self.processes.get_mut(&pid).filter(|found| found.phase != Phase::Over)
        else {
            return Ok(());
        };
        process.phase = Phase::Over;
        let last = process.last;
        let (kind, status) = match (&process.execve, process.status, ended) {
            (Some(Execve::Unrecorded { path, why }), ..) => {
                self.book.warn(sentence(path, *why));
                (ExitKind::Execve, 0)
            }
            // Killed before the new program spoke.
            (Some(Execve::Recorded { .. }), _, Some(Ended::Signal(signal))) => {
                (ExitKind::Signal, signal.into())
            }
            (Some(Execve::Recorded { path, .. }), ..) => {
                let path = path.to_string_lossy();
                self.book.warn(sentence(&path, wire::Unrecorded::NoRecorder));
                (ExitKind::Execve, 0)
            }
            (None, Some(status), _) => (ExitKind::Process, status),
            (None, None, Some(Ended::Code(code))) => (ExitKind::Process, code.into()),
            (None, None, Some(Ended::Signal(signal))) => (ExitKind::Signal, signal.into()),
            (None, None, None) => (ExitKind::Signal, 0),
        };
        self.gives_back(pid);
        self.book.push_exit(last, kind, status)
    }

    fn drain_tails(&mut self, pid: u32) -> Result<(), TraceError> {
        let generation = self.processes.get(&pid).map_or(0, |process| process.generation);
        for tail in tails::take(&self.directory, pid, generation) {
            for _ in 0..tail.nr_grace_expired {
                self.book.warn(GRACE_EXPIRED);
            }
            let thread = self.thread(pid, tail.tid).copied();
            let is_received = thread.and_then(|thread| thread.last_seq);
            if tail.rows().is_empty() || is_received.is_some_and(|last| tail.seq <= last) {
                continue;
            }
            let id = match thread {
                Some(thread) => thread.id,
                None => self.adopt_thread(pid, tail.tid)?,
            };
            self.push_rows(tail.rows(), id)?;
        }
        Ok(())
    }

    fn adopt_thread(&mut self, pid: u32, tid: u32) -> Result<ThreadId, TraceError> {
        let parent = self.processes.get(&pid).map_or(0, |process| process.first);
        self.add_thread(pid, tid, parent)?;
        Ok(self.thread(pid, tid).map_or(parent, |thread| thread.id))
    }

    /// How the recording ended, for the footer.
    pub(crate) fn ended_text(&self, ended: Ended) -> String {
        let top = self.top.and_then(|pid| self.processes.get(&pid));
        match top.and_then(|process| process.execve.as_ref()) {
            Some(Execve::Unrecorded { path, .. }) => format!("execve {path}"),
            Some(Execve::Recorded { path, .. }) if matches!(ended, Ended::Code(_)) => {
                format!("execve {}", path.display())
            }
            Some(Execve::Recorded { .. }) | None => ended.to_string(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
