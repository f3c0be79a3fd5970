//! The main loop of a recording: sockets, the program's end, signals and progress.
//!
//! Owns which connections are read, and when. Invariants:
//! - S1: messages take effect in the order in which they were sent, by W4 of [`super::wire`]. A
//!   process's later connection is read only after its earlier ones were read to their end. Its
//!   first message is read immediately, but takes effect only then.
//! - S2: a connection is not read until a fork event announces its process; the sender waits. The
//!   same applies to a process that lends its memory (vfork).
//! - S3: after the program ended, the loop ends when all connections are closed. Messages sent
//!   before a process's end are read completely, however long that takes, unless a signal arrives.
//!   The loop listens to surviving processes until nothing arrives for [`LINGER`], or for at most
//!   [`LINGER_MAX`], and then stops accepting.
//! - S4: a connection can send only for the process that the kernel sees at its other end. This
//!   must be the started program, a process announced by a recorded one, or a process of this user
//!   that names its parent. There are at most [`NR_STRANGERS_MAX`] other connections. A stranger
//!   that sends nothing for [`SILENCE_MAX`] is closed, because its pid may by then belong to a
//!   recorded process.
//! - S5: waiting for a silent process (it ended or cannot reach the socket) takes at most
//!   [`SILENCE_MAX`]. If nothing arrives for [`STANDSTILL`] while messages are unread, the progress
//!   and the trace report which process waits for which.

use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use largefolio_trace::TraceError;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Pid;

use super::connection::{BACKLOG, Connection, now_ns};
use super::ledger::{Ledger, SILENCE_MAX};
use super::packet::Packet;
use super::process::Reachability;
use super::wire::{Hello, Kind, MESSAGE_MAX, Reason};
use crate::record::child::pass_on;
use crate::record::error::RecordError;
use crate::record::outcome::{Awaited, Progress, Standstill};
use crate::signals::Signals;

/// The interval of progress calls, and the longest delay of a forwarded signal.
const TICK: Duration = Duration::from_millis(100);

/// How long to wait for messages of children that outlive the program.
const LINGER: Duration = Duration::from_millis(300);

/// The longest wait for them.
const LINGER_MAX: Duration = Duration::from_secs(2);

/// A waiting connection is reported after this time without messages.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Messages that wait in memory, and how many of them may be of one connection.
const NR_QUEUED_MAX: usize = 1024;
const TURN_MAX: usize = 64;

/// Connections accepted per turn: all that wait, however fast others arrive.
const NR_ACCEPTED_MAX: usize = 2 * BACKLOG as usize;

/// Connections of other users' processes that no recorded process has announced.
const NR_STRANGERS_MAX: usize = 1024;

const CUT_SHORT: &str = "A signal ended the recording before all messages from processes were \
                         read; the end of the trace is missing.";

pub(crate) struct Session<'ledger, 'book, 'sink> {
    ledger: &'ledger mut Ledger<'book, 'sink>,
    listener: OwnedFd,
    program: u32,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    started: Instant,
    last_message: Instant,
    ended: Option<Instant>,
    has_accepted_last: bool,
    nr_packets: u64,
    has_hello: bool,
    standstill: Option<Standstill>,
}

impl<'ledger, 'book, 'sink> Session<'ledger, 'book, 'sink> {
    pub(crate) fn new(
        ledger: &'ledger mut Ledger<'book, 'sink>,
        listener: OwnedFd,
        program: u32,
    ) -> Self {
        let started = Instant::now();
        Self {
            ledger,
            listener,
            program,
            connections: Vec::new(),
            buffer: vec![0; MESSAGE_MAX],
            started,
            last_message: started,
            ended: None,
            has_accepted_last: false,
            nr_packets: 0,
            has_hello: false,
            standstill: None,
        }
    }

    pub(crate) fn has_started(&self) -> bool {
        self.has_hello
    }

    pub(crate) fn is_misunderstood(&self) -> bool {
        self.nr_packets > 0 && !self.has_hello
    }

    /// Records until `child` has ended and all messages of it and its children were read.
    pub(crate) fn run(
        &mut self,
        child: &mut Child,
        signals: &Signals,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<ExitStatus, RecordError> {
        let pid = Pid::from_child(child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
        let mut next_tick = self.started + TICK;
        let mut status = None;
        loop {
            self.wait(pidfd.as_ref().filter(|_| status.is_none()), status.is_some())?;
            // A process that connects later sends later messages.
            let until_ns = now_ns();
            // The last time, for processes that connected before the program's end.
            let is_last = self.is_overdue();
            if !std::mem::replace(&mut self.has_accepted_last, is_last) {
                self.accept()?;
            }
            self.read_all(until_ns)?;
            // After it was reaped, its pid may belong to another process.
            if status.is_none() {
                pass_on(child, signals);
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK;
                self.check_standstill();
                progress(self.progress());
            }
            if status.is_none() {
                status = child.try_wait().map_err(RecordError::os("wait for the program"))?;
                self.ended = status.map(|_| Instant::now());
            } else if let Some(status) = status
                && (self.is_finished() || self.is_cut_short(signals))
            {
                progress(self.progress());
                return Ok(status);
            }
        }
    }

    fn is_overdue(&self) -> bool {
        self.ended.is_some_and(|ended| ended.elapsed() > LINGER_MAX)
    }

    /// Whether a signal arrived after the program's end, and not together with it.
    fn is_cut_short(&mut self, signals: &Signals) -> bool {
        let is_interrupted = signals.take().is_some();
        let is_cut = is_interrupted && self.ended.is_some_and(|ended| ended.elapsed() > LINGER);
        if is_cut {
            self.ledger.book.warn(CUT_SHORT);
        }
        is_cut
    }

    fn is_finished(&mut self) -> bool {
        if self.last_message.elapsed() <= LINGER && !self.is_overdue() {
            return self.connections.is_empty() && !self.ledger.has_executing();
        }
        self.connections.retain(Connection::has_hung_up);
        // A child of a surviving process waits in vain to be announced.
        !(0..self.connections.len()).any(|index| self.may_read(index))
    }

    fn progress(&self) -> Progress {
        let book = &self.ledger.book;
        Progress {
            nr_before: 0,
            nr_references: book.nr_references(),
            trace_bytes: book.trace_bytes(),
            nr_threads: book.nr_threads(),
            nr_processes: book.nr_processes,
            elapsed: self.started.elapsed(),
            standstill: self.standstill,
            unrecorded: None,
        }
    }

    fn check_standstill(&mut self) {
        if self.last_message.elapsed() < STANDSTILL {
            self.standstill = None;
        } else if self.standstill.is_none() {
            self.standstill = (0..self.connections.len()).find_map(|index| self.awaited(index));
            if let Some(standstill) = self.standstill {
                self.ledger.book.warn(standstill.to_string());
            }
        }
    }

    fn awaited(&self, index: usize) -> Option<Standstill> {
        let connection = &self.connections[index];
        let pid = connection.pid.filter(|_| !self.may_read(index))?;
        if !connection.has_input() {
            return None;
        }
        let awaited = match connection.waits {
            Some(Hello { reason: Reason::Fork, parent, .. }) => Awaited::Announcement(parent),
            Some(_) => Awaited::EarlierConnection,
            None => Awaited::Borrower(self.ledger.borrower_of(pid)?),
        };
        Some(Standstill { pid, awaited, silent: STANDSTILL })
    }

    fn wait(&self, pidfd: Option<&OwnedFd>, is_ending: bool) -> Result<(), RecordError> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(pidfd.map(|fd| PollFd::new(fd, PollFlags::IN)));
        let readable = (0..self.connections.len()).filter(|index| self.may_read(*index));
        fds.extend(readable.map(|index| self.connections[index].poll_fd()));
        let has_waiting =
            |index: usize| self.connections[index].first_ns().is_some() && self.may_read(index);
        let tick = match is_ending {
            _ if (0..self.connections.len()).any(has_waiting) => Duration::ZERO,
            true => TICK / 10,
            false => TICK,
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: tick.subsec_nanos().into() };
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(RecordError::os("wait for the recorder")(error)),
        }
    }

    fn may_read(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        let Some(pid) = connection.pid else { return true };
        match connection.waits {
            Some(Hello { reason: Reason::Fork, parent, .. }) => {
                self.ledger.is_announced(pid)
                    || self.ledger.is_full()
                    || !self.may_announce(parent, connection.accepted)
            }
            Some(_) => !self.is_preceded(index, pid),
            None => !self.ledger.is_lending(pid),
        }
    }

    /// Whether `parent` can still announce a child: it is connected, or waits for its own
    /// announcement.
    fn may_announce(&self, parent: u32, since: Instant) -> bool {
        let waits =
            |connection: &Connection| connection.pid == Some(parent) && connection.waits.is_some();
        match self.ledger.reachability(parent) {
            Reachability::Speaks => true,
            Reachability::Silent if since.elapsed() < SILENCE_MAX => true,
            Reachability::Silent | Reachability::Over => self.connections.iter().any(waits),
        }
    }

    /// Whether an earlier connection of `pid` has unread messages.
    fn is_preceded(&self, index: usize, pid: u32) -> bool {
        let is_earlier = |earlier: &Connection| earlier.pid == Some(pid) && !earlier.is_closed;
        self.connections[..index].iter().any(is_earlier)
    }

    fn accept(&mut self) -> Result<(), RecordError> {
        for _ in 0..NR_ACCEPTED_MAX {
            match Connection::accept(&self.listener) {
                Ok(connection) => self.connections.push(connection),
                // At the descriptor limit, the others wait in the queue.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::MFILE) => break,
                Err(error) => return Err(RecordError::os("accept a process")(error)),
            }
        }
        self.limit_strangers(NR_STRANGERS_MAX);
        Ok(())
    }

    /// Closes connections of other users' processes that no recorded process started: the silent
    /// ones, and the oldest beyond `nr_max`. This keeps descriptors free for recorded processes.
    fn limit_strangers(&mut self, nr_max: usize) {
        let ledger = &*self.ledger;
        let is_stranger = |connection: &Connection| {
            !connection.is_ours && !connection.pid.is_some_and(|pid| ledger.is_announced(pid))
        };
        let is_silent = |connection: &Connection| {
            connection.pid.is_none() && connection.accepted.elapsed() > SILENCE_MAX
        };
        self.connections.retain(|connection| connection.is_ours || !is_silent(connection));
        let nr_strangers = self.connections.iter().filter(|known| is_stranger(known)).count();
        let mut nr_surplus = nr_strangers.saturating_sub(nr_max);
        self.connections.retain(|connection| {
            let is_surplus = nr_surplus > 0 && is_stranger(connection);
            nr_surplus -= usize::from(is_surplus);
            !is_surplus
        });
    }

    /// Handles the messages that were sent until a time, in order.
    fn read_all(&mut self, until_ns: u64) -> Result<(), TraceError> {
        let nr_max = (NR_QUEUED_MAX / self.connections.len().max(1)).clamp(2, TURN_MAX);
        for connection in &mut self.connections {
            if connection.fill(nr_max, &mut self.buffer) {
                self.last_message = Instant::now();
            }
        }
        while let Some(index) = self.next(until_ns) {
            self.settle(index)?;
            let Some((message, has_more)) = self.connections[index].take() else { break };
            self.handle(index, &message.bytes)?;
            if has_more {
                break;
            }
        }
        self.connections.retain(|connection| !connection.is_closed);
        Ok(())
    }

    /// Returns the connection with the oldest message that was sent until a time and may be read.
    fn next(&self, until_ns: u64) -> Option<usize> {
        let mut next: Option<(u64, usize)> = None;
        for (index, connection) in self.connections.iter().enumerate() {
            let Some(sent_ns) = connection.first_ns().filter(|_| !connection.is_closed) else {
                continue;
            };
            let is_older = sent_ns <= until_ns && next.is_none_or(|(oldest, _)| sent_ns < oldest);
            if is_older && self.may_read(index) {
                next = Some((sent_ns, index));
            }
        }
        next.map(|(_, index)| index)
    }

    fn settle(&mut self, index: usize) -> Result<(), TraceError> {
        let connection = &mut self.connections[index];
        let (Some(hello), Some(pid)) = (connection.waits.take(), connection.pid) else {
            return Ok(());
        };
        let is_known = self.ledger.is_announced(pid);
        let is_recorded = match hello.reason {
            Reason::Start if pid == self.program => {
                self.ledger.start(pid);
                true
            }
            // The parent may have ended before it announced the child. Another user's child is then
            // rejected.
            Reason::Fork if !is_known => {
                connection.is_ours && self.ledger.adopt(pid, hello.parent)?
            }
            _ => is_known,
        };
        if !is_recorded {
            self.ledger.warn_stray();
            self.connections[index].is_closed = true;
            return Ok(());
        }
        self.ledger.users.extend(self.connections[index].user);
        if hello.reason == Reason::Execve {
            self.ledger.executed(pid, hello.generation);
        } else {
            self.ledger.connected(pid, hello.generation);
        }
        Ok(())
    }

    /// Handles a message. Without bytes, the connection has ended.
    fn handle(&mut self, index: usize, bytes: &[u8]) -> Result<(), TraceError> {
        let connection = &mut self.connections[index];
        if connection.is_closed {
            return Ok(());
        }
        if bytes.is_empty() {
            connection.is_closed = true;
            return connection.pid.map_or(Ok(()), |pid| self.ledger.closed(pid));
        }
        self.nr_packets += 1;
        if let Some(pid) = connection.pid {
            return self.ledger.receive(pid, bytes);
        }
        let Some(packet) = Packet::decode(bytes).filter(|packet| packet.header.kind == Kind::Hello)
        else {
            connection.is_closed = true;
            return Ok(());
        };
        let pid = packet.header.pid;
        let Some(hello) = Hello::decode(packet.body).filter(|_| connection.is_of(pid)) else {
            connection.is_closed = true;
            return Ok(());
        };
        self.has_hello = true;
        (connection.pid, connection.waits) = (Some(pid), Some(hello));
        if self.may_read(index) { self.settle(index) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
