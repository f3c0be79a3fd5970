//! The life cycle of processes and threads: announced, adopted, lending memory, executing and
//! ended.
//!
//! Owns the table of live processes, and what to drop if the recording is full. A process leaves
//! the table once its exit is in the trace.

use std::time::Instant;

use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY};
use largefolio_trace::validate::{NR_PROCESSES_MAX, NR_THREADS_MAX};
use largefolio_trace::{ExitKind, ThreadId, TraceError};

use super::{Ledger, SILENCE_MAX};
use crate::record::outcome::RecordEnd;
use crate::record::qemu::packet::Packet;
use crate::record::qemu::process::{
    Execve, Phase, Reachability, RecordedProcess, Thread, sentence,
};
use crate::record::qemu::tails;
use crate::record::qemu::wire::{self, Header, Kind, WireEvent};

const GRACE_EXPIRED: &str = "A thread did not pause within 10 ms when another thread changed the \
                             address space, so references around that time may be out of order; \
                             record on a less busy machine.";

impl Ledger<'_, '_> {
    pub(crate) fn start(&mut self, pid: u32) {
        if self.top.is_none() {
            self.top = Some(pid);
            let first = self.add_process(pid);
            debug_assert_eq!(first, Some(0), "I1 of the book");
        }
    }

    fn add_process(&mut self, pid: u32) -> Option<ThreadId> {
        if self.processes.len() >= NR_PROCESSES_MAX || !self.has_room() {
            self.fill();
            return None;
        }
        let first = self.book.add_thread();
        self.book.nr_processes += 1;
        self.processes.insert(pid, RecordedProcess::new(pid, first));
        Some(first)
    }

    fn has_room(&self) -> bool {
        // Ids fit in usize.
        !self.is_full && (self.book.nr_threads() as usize) < NR_THREADS_MAX
    }

    /// Stops adding processes and threads. A process that was left out is never announced.
    fn fill(&mut self) {
        if !std::mem::replace(&mut self.is_full, true) {
            self.book.warn(format!(
                "A trace has at most {NR_THREADS_MAX} threads, and {NR_PROCESSES_MAX} processes \
                    at a time; later ones are missing."
            ));
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether the fork of `pid` is in the trace, so its messages may be read.
    pub(crate) fn is_announced(&self, pid: u32) -> bool {
        self.reachability(pid) != Reachability::Over
    }

    pub(crate) fn reachability(&self, pid: u32) -> Reachability {
        self.processes.get(&pid).map_or(Reachability::Over, |process| process.phase.reachability())
    }

    pub(crate) fn connected(&mut self, pid: u32, generation: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.phase, process.generation) = (Phase::Connected, generation);
        }
    }

    pub(crate) fn has_executing(&self) -> bool {
        self.processes.values().any(|process| process.phase == Phase::Executing)
    }

    pub(crate) fn executed(&mut self, pid: u32, generation: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.executed(pid, generation);
        }
    }

    pub(crate) fn is_lending(&self, pid: u32) -> bool {
        self.borrower_of(pid).is_some()
    }

    /// Returns the process that has the memory of `pid`, unless it was silent for too long.
    pub(crate) fn borrower_of(&self, pid: u32) -> Option<u32> {
        let child = self.processes.get(&pid)?.borrower?;
        let is_heard = match self.reachability(child) {
            Reachability::Speaks => true,
            Reachability::Silent => {
                self.processes.get(&child)?.silent_since.elapsed() < SILENCE_MAX
            }
            Reachability::Over => false,
        };
        is_heard.then_some(child)
    }

    fn lend(&mut self, lender: u32, child: u32) {
        if let Some(process) = self.processes.get_mut(&child) {
            process.lender = Some(lender);
        }
        if let Some(process) = self.processes.get_mut(&lender) {
            process.borrower = Some(child);
        }
    }

    /// `child` now has its own memory, or has ended.
    pub(super) fn gives_back(&mut self, child: u32) {
        let lender = self.processes.get_mut(&child).and_then(|process| process.lender.take());
        let lender = lender.and_then(|lender| self.processes.get_mut(&lender));
        if let Some(lender) = lender.filter(|lender| lender.borrower == Some(child)) {
            lender.borrower = None;
        }
    }

    /// Adopts a child that its parent can no longer announce. In the trace it belongs to its parent
    /// or, if that has ended, to the first process. Returns false if the recording has no place for
    /// it.
    pub(crate) fn adopt(&mut self, pid: u32, parent: u32) -> Result<bool, TraceError> {
        let thread_of = |pid: u32| {
            let process = self.processes.get(&pid).filter(|process| process.phase != Phase::Over);
            process.map(|process| process.last)
        };
        let from = thread_of(parent).or_else(|| self.top.and_then(thread_of));
        let Some(from) = from else { return Ok(false) };
        let Some(child) = self.add_process(pid) else { return Ok(false) };
        if let Some(process) = self.processes.get_mut(&pid) {
            process.adopted_from = Some(parent);
        }
        self.book.push_fork(from, child, 0)?;
        Ok(true)
    }

    pub(super) fn take_fork(
        &mut self,
        header: &Header,
        wire: &WireEvent,
        parent: ThreadId,
    ) -> Result<(), TraceError> {
        let Ok(number) = u32::try_from(wire.aux) else { return Ok(()) };
        if wire.flags & wire::NEW_PROCESS == 0 {
            return self.add_thread(header.pid, number, parent);
        }
        // No process is its own child, and the first process has no parent.
        if number == header.pid || Some(number) == self.top || self.is_late(number, header.pid) {
            return Ok(());
        }
        // The earlier process with this pid has ended.
        self.end(number, None)?;
        let Some(child) = self.add_process(number) else { return Ok(()) };
        let flags = wire.flags & wire::BORROWS_MEMORY;
        if flags != 0 {
            self.lend(header.pid, number);
        }
        debug_assert_eq!(wire::BORROWS_MEMORY, BORROWS_MEMORY, "as in the trace");
        self.book.push_fork(parent, child, flags)
    }

    /// Whether `child` was already adopted because `parent` announced it too late.
    fn is_late(&mut self, child: u32, parent: u32) -> bool {
        let child = self.processes.get_mut(&child).filter(|child| child.phase != Phase::Over);
        child.is_some_and(|child| child.adopted_from.take_if(|from| *from == parent).is_some())
    }

    /// Announces thread `tid` of `pid` and applies its parked packets; drops them if the thread
    /// does not fit.
    pub(super) fn add_thread(
        &mut self,
        pid: u32,
        tid: u32,
        parent: ThreadId,
    ) -> Result<(), TraceError> {
        let has_room = self.has_room();
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let is_its =
            |bytes: &Vec<u8>| Packet::decode(bytes).is_some_and(|packet| packet.header.tid == tid);
        let (its, others) = std::mem::take(&mut process.parked).into_iter().partition(is_its);
        process.parked = others;
        if !has_room {
            self.fill();
            return Ok(());
        }
        let id = self.book.add_thread();
        process.threads.insert(tid, Thread { id, last_seq: None });
        self.book.push_fork(parent, id, SHARES_MEMORY)?;
        let its: Vec<Vec<u8>> = its;
        for bytes in &its {
            if let Some(packet) = Packet::decode(bytes) {
                self.apply(&packet)?;
            }
        }
        Ok(())
    }

    /// Adds threads of `pid` that have parked packets but can no longer be announced: an execve or
    /// exit of another thread ended their creator.
    fn adopt_parked(&mut self, pid: u32) -> Result<(), TraceError> {
        while let Some(process) = self.processes.get(&pid)
            && process.phase != Phase::Away
            && let Some(packet) = process.parked.first().and_then(|bytes| Packet::decode(bytes))
        {
            let (tid, parent) = (packet.header.tid, process.last);
            self.add_thread(pid, tid, parent)?;
        }
        Ok(())
    }

    pub(super) fn take_thread_exit(
        &mut self,
        header: &Header,
        thread: ThreadId,
        status: u64,
    ) -> Result<(), TraceError> {
        if let Some(process) = self.processes.get_mut(&header.pid) {
            process.threads.remove(&header.tid);
            // Any remaining thread ends the process.
            if process.last == thread
                && let Some(left) = process.threads.values().next()
            {
                process.last = left.id;
            }
        }
        self.book.push_exit(thread, ExitKind::Thread, status)
    }

    pub(super) fn take_ending(&mut self, header: &Header, body: &[u8]) {
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

    /// The connection of `pid` closed. If the first process did not report its end,
    /// [`Ledger::end_all`] handles it, because it knows the signal.
    pub(crate) fn closed(&mut self, pid: u32) -> Result<(), TraceError> {
        self.adopt_parked(pid)?;
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        let is_reported = process.status.is_some() || process.execve.is_some();
        if process.phase == Phase::Away || Some(pid) == self.top && !is_reported {
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

    /// Ends all processes without an exit; `ended` applies to the first one.
    pub(crate) fn end_all(&mut self, ended: RecordEnd) -> Result<(), TraceError> {
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
                 user before it began; record it separately."
            }
            Some(Phase::Away | Phase::Executing) => return,
            _ => {
                "A child process was still running when the program ended, so its later references \
                 are missing; record a command that waits for it."
            }
        });
    }

    fn end(&mut self, pid: u32, ended: Option<RecordEnd>) -> Result<(), TraceError> {
        self.drain_tails(pid)?;
        let Some(process) =
            self.processes.get_mut(&pid).filter(|process| process.phase != Phase::Over)
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
            // Killed before the new program sent anything.
            (Some(Execve::Recorded { .. }), _, Some(RecordEnd::Signal(signal))) => {
                (ExitKind::Signal, signal.into())
            }
            (Some(Execve::Recorded { path, .. }), ..) => {
                let path = path.to_string_lossy();
                self.book.warn(sentence(&path, wire::Unrecorded::NoRecorder));
                (ExitKind::Execve, 0)
            }
            (None, Some(status), _) => (ExitKind::Process, status),
            (None, None, Some(RecordEnd::Code(code))) => (ExitKind::Process, code.into()),
            (None, None, Some(RecordEnd::Signal(signal))) => (ExitKind::Signal, signal.into()),
            (None, None, None) => (ExitKind::Signal, 0),
        };
        self.gives_back(pid);
        // The end of the first process is known only when the recording ends.
        if Some(pid) != self.top {
            self.processes.remove(&pid);
        }
        self.book.push_exit(last, kind, status)
    }

    fn drain_tails(&mut self, pid: u32) -> Result<(), TraceError> {
        // The tail of an unannounced child may already exist, and the child may still write it.
        let Some(process) = self.processes.get(&pid) else { return Ok(()) };
        let generation = process.generation;
        for tail in tails::take(&self.directory, pid, generation, &self.users) {
            self.book.warn_times(GRACE_EXPIRED, tail.nr_grace_expired.into());
            let thread = self.thread(pid, tail.tid).copied();
            let is_received = thread.and_then(|thread| thread.last_seq);
            if tail.rows().is_empty() || is_received.is_some_and(|last| tail.seq <= last) {
                continue;
            }
            let thread = match thread {
                Some(thread) => Some(thread),
                None => self.adopt_thread(pid, tail.tid)?,
            };
            if let Some(thread) = thread {
                self.push_rows(tail.rows(), thread.id)?;
            }
        }
        Ok(())
    }

    fn adopt_thread(&mut self, pid: u32, tid: u32) -> Result<Option<Thread>, TraceError> {
        let Some(parent) = self.processes.get(&pid).map(|process| process.last) else {
            return Ok(None);
        };
        self.add_thread(pid, tid, parent)?;
        Ok(self.thread(pid, tid).copied())
    }

    pub(crate) fn ended_text(&self, ended: RecordEnd) -> String {
        if self.is_emulators_end(ended) {
            return format!("{ended} of QEMU");
        }
        let top = self.top.and_then(|pid| self.processes.get(&pid));
        match top.and_then(|process| process.execve.as_ref()) {
            Some(Execve::Unrecorded { path, .. }) => format!("execve {path}"),
            Some(Execve::Recorded { path, .. }) if matches!(ended, RecordEnd::Code(_)) => {
                format!("execve {}", path.display())
            }
            Some(Execve::Recorded { .. }) | None => ended.to_string(),
        }
    }

    /// Returns whether the emulator itself failed with this code, because the first program did not
    /// announce it. A program's last threads may exit together with 0 without announcing it.
    pub(crate) fn is_emulators_end(&self, ended: RecordEnd) -> bool {
        let top = self.top.and_then(|pid| self.processes.get(&pid));
        let is_silent =
            |process: &RecordedProcess| process.execve.is_none() && process.status.is_none();
        matches!(ended, RecordEnd::Code(1..)) && top.is_some_and(is_silent)
    }
}
