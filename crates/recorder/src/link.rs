//! The connection to `folio record`.
//!
//! Protects the descriptor from the program that shares it, and ends recording when the parent
//! dies.
//!
//! Invariants:
//! - L1: a packet goes only to a descriptor with our socket's inode. The program can close any
//!   number and get it back for a file of its own.
//! - L2: we close the descriptor only while no thread is sending.
//! - L3: once the parent is gone ([`is_stopped`]), nothing is sent and the program continues.
//! - L4: every wait here is finite: it waits for a sender, for another thread's connect, or for the
//!   parent. If the parent dies, the send fails with EPIPE.
//! - L5: [`stop`] and [`step_aside`] shut the connection down, so it ends for the parent even if
//!   other processes hold the descriptor. The child of a fork only closes it.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::time::Duration;

use crate::arguments::Arguments;
use crate::spin::Spin;
use crate::sys;
use crate::wire::{HELLO_BYTES, Header, Hello, Kind, Reason, SOCKET_NAME};

/// Bytes the kernel may queue for the parent while it pauses to compress.
const SEND_BUFFER_BYTES: i32 = 4 << 20;

/// Lowest number for our descriptor. Programs use low ones and close up to a few hundred.
const DESCRIPTOR_WANTED: u64 = 1000;

const TRIES_MAX: u32 = 64;

static FD: AtomicI32 = AtomicI32::new(-1);
static INODE: AtomicU64 = AtomicU64::new(0);
static NR_SENDING: AtomicU32 = AtomicU32::new(0);
static CONNECTING: Spin = Spin::new();
static STOPPED: AtomicBool = AtomicBool::new(false);

pub(crate) fn start(arguments: &Arguments) -> io::Result<()> {
    let reason = if arguments.generation > 0 { Reason::Execve } else { Reason::Start };
    open(reason, 0).inspect_err(|_| stop())
}

pub(crate) fn directory() -> Option<&'static Path> {
    Arguments::kept().map(|arguments| arguments.directory.as_path())
}

pub(crate) fn is_stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// Stops recording this process, so the parent does not wait for more.
pub(crate) fn stop() {
    STOPPED.store(true, Relaxed);
    shut_down(FD.load(Acquire));
}

fn shut_down(fd: RawFd) {
    if is_ours(fd) {
        sys::shut_down(fd);
    }
}

/// Sends one message. An unrecoverable failure stops the recording (L3).
pub(crate) fn send(header: &Header, rows: &[u8], body: [&[u8]; 2]) {
    let head = header.encode();
    let parts = [&head[..], rows, body[0], body[1]];
    for _ in 0..TRIES_MAX {
        if is_stopped() {
            return;
        }
        match send_once(&parts) {
            Ok(()) => return,
            Err(error) => recover(&error),
        }
    }
    stop();
}

fn send_once(parts: &[&[u8]]) -> io::Result<()> {
    NR_SENDING.fetch_add(1, SeqCst);
    let fd = FD.load(SeqCst);
    let result = if is_ours(fd) {
        sys::send_packet(fd, parts)
    } else {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    };
    NR_SENDING.fetch_sub(1, Release);
    result
}

fn recover(error: &io::Error) {
    match error.raw_os_error() {
        Some(libc::EINTR) => {}
        Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(libc::EPIPE | libc::ECONNRESET) => stop(),
        _ => reconnect(),
    }
}

fn reconnect() {
    CONNECTING.lock(|| ());
    let is_open = is_ours(FD.load(Acquire));
    if !is_open && open(Reason::Again, 0).is_err() {
        stop();
    }
    CONNECTING.unlock();
}

fn open(reason: Reason, parent: u32) -> io::Result<()> {
    let Some(arguments) = Arguments::kept() else { return Err(io::ErrorKind::NotFound.into()) };
    let hello = Hello { reason, parent, generation: arguments.generation };
    let fd = sys::connect(&arguments.directory.join(SOCKET_NAME))?;
    let highest = sys::descriptor_limit().min(DESCRIPTOR_WANTED + 16).saturating_sub(16);
    let fd = sys::move_descriptor(fd, highest as RawFd)?;
    sys::set_send_buffer(&fd, SEND_BUFFER_BYTES);
    let fd = fd.into_raw_fd();
    let inode = sys::identity(fd).map_or(0, |identity| identity.inode);
    INODE.store(inode, Relaxed);
    FD.store(fd, SeqCst);
    let header = header(Kind::Hello, sys::thread_number(), HELLO_BYTES);
    loop {
        match sys::send_packet(fd, &[&header.encode(), &hello.encode()]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

pub(crate) fn header(kind: Kind, tid: u32, nr_body: usize) -> Header {
    let nr_body = u32::try_from(nr_body).unwrap_or(u32::MAX);
    let sent_ns = sys::monotonic_ns();
    Header { kind, pid: std::process::id(), tid, nr_rows: 0, nr_body, seq: 0, sent_ns }
}

fn is_ours(fd: RawFd) -> bool {
    fd >= 0 && sys::identity(fd).is_some_and(|found| found.inode == INODE.load(Relaxed))
}

/// Prepares for a call that closes or replaces the descriptors `first..=last`. If ours is among
/// them, closes it first, because it would not exist in a native run. Returns `true` then, and the
/// caller must call [`allow_reopen`] after the program's call.
pub(crate) fn step_aside(tid: u32, first: u64, last: u64) -> bool {
    let fd = FD.load(Acquire);
    let is_hit = u64::try_from(fd).is_ok_and(|fd| (first..=last).contains(&fd));
    if !is_hit || !is_ours(fd) {
        return false;
    }
    send(&header(Kind::Leaving, tid, 0), &[], [&[], &[]]);
    CONNECTING.lock(|| ());
    shut_down(fd);
    close_ours();
    true
}

/// Ends what [`step_aside`] began: the next message may reconnect.
pub(crate) fn allow_reopen() {
    CONNECTING.unlock();
}

fn close_ours() {
    let fd = FD.swap(-1, SeqCst);
    while NR_SENDING.load(Acquire) > 0 {
        std::thread::yield_now();
    }
    if is_ours(fd) {
        // SAFETY: L1: the descriptor is the socket that `open` gave away with into_raw_fd, and
        // after the swap nothing else can close it.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// Starts over in the child of a fork: frees the locks and opens a new connection.
pub(crate) fn restart_in_child(parent: u32) {
    CONNECTING.reset();
    NR_SENDING.store(0, SeqCst);
    close_ours();
    if !is_stopped() && open(Reason::Fork, parent).is_err() {
        stop();
    }
}
