//! The sockets of a recording, and the processes connected to them.
//!
//! Owns the kernel's facts about a connected process. The session handles its messages.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::wire::{Header, Hello, Kind};

/// Connections waiting in the queue; further ones wait in connect.
pub(super) const BACKLOG: u16 = 1024;

#[derive(Debug)]
pub(super) struct Connection {
    fd: OwnedFd,
    /// Its pid, from the kernel.
    peer: Option<u32>,
    /// The user it runs as, from the kernel.
    pub(super) user: Option<u32>,
    /// Whether this user owns it.
    pub(super) is_ours: bool,
    /// The pid it reported.
    pub(super) pid: Option<u32>,
    /// Its first message, while its fork is not announced or its earlier connection is unread.
    pub(super) waits: Option<Hello>,
    pub(super) accepted: Instant,
    pub(super) is_closed: bool,
    /// Received, but not handled yet.
    queue: VecDeque<Message>,
    /// The socket may hold more than the queue.
    has_more: bool,
    /// When a message was sent that no other one follows.
    ending_ns: Option<u64>,
}

/// A received message, or the end of the connection, which has no bytes.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) sent_ns: u64,
    pub(super) bytes: Vec<u8>,
}

impl Connection {
    pub(super) fn accept(listener: &OwnedFd) -> Result<Self, Errno> {
        let fd = rustix::net::accept_with(listener, SocketFlags::CLOEXEC)?;
        let peer = rustix::net::sockopt::socket_peercred(&fd).ok();
        let user = peer.map(|peer| peer.uid.as_raw());
        let is_ours = user == Some(rustix::process::geteuid().as_raw());
        let peer = peer.and_then(|peer| u32::try_from(peer.pid.as_raw_nonzero().get()).ok());
        let (pid, waits, accepted, is_closed) = (None, None, Instant::now(), false);
        Ok(Self {
            fd,
            peer,
            user,
            is_ours,
            pid,
            waits,
            accepted,
            is_closed,
            queue: VecDeque::new(),
            has_more: true,
            ending_ns: None,
        })
    }

    pub(super) fn is_of(&self, pid: u32) -> bool {
        self.peer == Some(pid)
    }

    pub(super) fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.fd, PollFlags::IN)
    }

    /// Receives messages without waiting, until `nr_max` are queued. Returns whether any came.
    pub(super) fn fill(&mut self, nr_max: usize, buffer: &mut [u8]) -> bool {
        let nr_before = self.queue.len();
        let has_ended = |last: &Message| last.bytes.is_empty();
        self.has_more = !self.queue.back().is_some_and(has_ended);
        while self.has_more && self.queue.len() < nr_max {
            let received = rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT);
            let nr_bytes = match received {
                Ok((nr_bytes, _)) => nr_bytes,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    self.has_more = false;
                    break;
                }
                Err(_) => 0,
            };
            self.has_more = nr_bytes > 0;
            let bytes = buffer.get(..nr_bytes).unwrap_or_default().to_vec();
            // A program could claim a later time.
            let latest = now_ns();
            let header = Header::decode(&bytes);
            let sent_ns = match header {
                Some(header) => header.sent_ns.min(latest),
                None => self.ending_ns.unwrap_or(latest),
            };
            self.ending_ns = header.filter(|header| is_last(header.kind)).map(|_| sent_ns);
            self.queue.push_back(Message { sent_ns, bytes });
        }
        self.queue.len() > nr_before
    }

    /// When the first message in the queue was sent.
    pub(super) fn first_ns(&self) -> Option<u64> {
        self.queue.front().map(|message| message.sent_ns)
    }

    /// Takes the first message out of the queue. Also returns whether the socket may hold the next.
    pub(super) fn take(&mut self) -> Option<(Message, bool)> {
        let message = self.queue.pop_front()?;
        Some((message, self.has_more && self.queue.is_empty()))
    }

    /// Whether the other side has closed. Earlier messages may still be unread.
    pub(super) fn has_hung_up(&self) -> bool {
        is_now(self.fd.as_fd(), PollFlags::empty(), PollFlags::HUP)
    }

    pub(super) fn has_input(&self) -> bool {
        !self.queue.is_empty() || is_now(self.fd.as_fd(), PollFlags::IN, PollFlags::IN)
    }
}

const fn is_last(kind: Kind) -> bool {
    matches!(kind, Kind::Ending | Kind::Leaving | Kind::Execve | Kind::ExecveUnrecorded)
}

/// The clock of [`Header::sent_ns`].
pub(super) fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Polls `fd` for `asked` without waiting; returns whether `wanted` is set.
fn is_now(fd: BorrowedFd<'_>, requested: PollFlags, wanted: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, requested)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(wanted)
}

/// Listens on a socket at `path`. The path appears only then: [`is_refused`] must not see it.
pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let fd = packet_socket()?;
    let unready = path.with_extension("new");
    rustix::net::bind(&fd, &SocketAddrUnix::new(&unready)?)?;
    rustix::net::listen(&fd, BACKLOG.into())?;
    std::fs::rename(unready, path)?;
    Ok(fd)
}

/// Whether a socket exists at `path` without a listener.
pub(super) fn is_refused(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    packet_socket().is_ok_and(|fd| rustix::net::connect(&fd, &address) == Err(Errno::CONNREFUSED))
}

pub(super) fn packet_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
