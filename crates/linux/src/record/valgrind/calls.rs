//! System calls in lackey's log.
//!
//! Owns the calls that began and did not end, the program's descriptors with their positions, and
//! the end of the heap: what the log tells only in pieces. Invariant C1: only a call that succeeded
//! becomes an event. `thread` of the events made here is valgrind's number.

use std::collections::BTreeMap;
use std::path::PathBuf;

use largefolio_trace::event::abi::MAP_ANONYMOUS;
use largefolio_trace::event::mmap_flags;
use largefolio_trace::import::lackey::{Outcome, Syscall};
use largefolio_trace::{Event, ExitKind, FileId, Op};

use crate::proc::fd;
use crate::record::files::Files;

/// `AT_FDCWD` as valgrind prints it.
const AT_FDCWD: u64 = 4_294_967_196;

const POSIX_FADV_WILLNEED: u64 = 3;

/// A call whose result has not come.
#[derive(Clone, Debug)]
struct Begun {
    thread: u32,
    number: u32,
    args: [u64; 6],
    path: Option<PathBuf>,
}

/// An open file of the program.
#[derive(Clone, Copy, Debug)]
struct Opened {
    file: FileId,
    pos: u64,
}

/// What an `open` or `openat` was given, and gave.
struct Opening {
    directory: u64,
    flags: u64,
    fd: u64,
}

/// The program's calls so far.
#[derive(Debug)]
pub(super) struct Calls {
    pid: u32,
    begun: BTreeMap<u32, Begun>,
    /// Thread of the last call begun, for a result on a line of its own.
    last: u32,
    open: BTreeMap<u64, Opened>,
    brk: u64,
    heap_start: Option<u64>,
    execve: Option<String>,
}

impl Calls {
    /// The calls of process `pid`.
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            begun: BTreeMap::new(),
            last: 0,
            open: BTreeMap::new(),
            brk: 0,
            heap_start: None,
            execve: None,
        }
    }

    /// Takes a call or the end of one.
    pub(super) fn take(&mut self, call: &Syscall<'_>, files: &mut Files) -> Option<Event> {
        if call.pid != self.pid {
            return None;
        }
        self.last = call.thread;
        if !call.is_resumed() {
            let mut args = [0; 6];
            let mut path = None;
            for (slot, arg) in args.iter_mut().zip(call.args()) {
                *slot = arg.number.unwrap_or(0);
                path = path.or(arg.string.map(PathBuf::from));
            }
            let (thread, number) = (call.thread, call.number);
            self.begun.insert(thread, Begun { thread, number, args, path });
        }
        self.before(call.thread);
        match call.outcome {
            Some(outcome) => self.take_result(outcome, files),
            None => None,
        }
    }

    /// Notes an execve, whose success has no line.
    fn before(&mut self, thread: u32) {
        if let Some(begun) = self.begun.get(&thread)
            && matches!(begun.number, 59 | 322)
        {
            self.execve = begun.path.as_ref().map(|path| path.display().to_string());
        }
    }

    /// Takes the result of the last call.
    pub(super) fn take_result(&mut self, outcome: Outcome, files: &mut Files) -> Option<Event> {
        let begun = self.begun.remove(&self.last)?;
        match outcome {
            Outcome::Success(result) => self.succeeded(&begun, result, files),
            Outcome::Failure(_) => {
                if matches!(begun.number, 59 | 322) {
                    self.execve = None;
                }
                None
            }
        }
    }

    /// First address of the heap, once, when the program asked for it.
    pub(super) fn take_heap_start(&mut self) -> Option<u64> {
        self.heap_start.take()
    }

    /// Path of an execve that did not fail.
    pub(super) fn execve(&self) -> Option<&str> {
        self.execve.as_deref()
    }

    fn succeeded(&mut self, begun: &Begun, result: u64, files: &mut Files) -> Option<Event> {
        let [a1, a2, a3, a4, _, _] = begun.args;
        let event = |op| Event::new(begun.thread, op);
        let range = |op| Event { addr: a1, len: a2, ..event(op) };
        let status = Event { pos: a1 & 0xff, ..event(Op::Exit) };
        match begun.number {
            9 => Some(self.map(begun, result)),
            10 => Some(Event { flags: low(a3), ..range(Op::Mprotect) }),
            11 => Some(range(Op::Munmap)),
            12 => self.set_brk(begun.thread, a1, result),
            25 => Some(Event { pos: result, aux: a3, flags: low(a4), ..range(Op::Mremap) }),
            28 => Some(Event { aux: a3, ..range(Op::Madvise) }),
            // exit; that of the last thread is told by the process's end.
            60 if begun.thread != 1 => Some(Event { flags: ExitKind::Thread as u32, ..status }),
            _ => self.file_call(begun, result, files),
        }
    }

    fn map(&self, begun: &Begun, address: u64) -> Event {
        let [_, len, prot, map, fd, pos] = begun.args;
        let is_anonymous = map & u64::from(MAP_ANONYMOUS) != 0;
        let file = self.open.get(&fd).filter(|_| !is_anonymous).map(|opened| opened.file);
        Event {
            addr: address,
            len,
            pos: if is_anonymous { 0 } else { pos },
            flags: mmap_flags(low(prot), low(map)),
            file,
            ..Event::new(begun.thread, Op::Mmap)
        }
    }

    fn set_brk(&mut self, thread: u32, asked: u64, end: u64) -> Option<Event> {
        let old = std::mem::replace(&mut self.brk, end);
        if old == 0 && asked == 0 {
            self.heap_start = Some(end);
        }
        (old != 0 && old != end).then(|| Event {
            addr: old,
            pos: end,
            ..Event::new(thread, Op::Brk)
        })
    }

    fn file_call(&mut self, begun: &Begun, result: u64, files: &mut Files) -> Option<Event> {
        let [fd, len, pos, a4, ..] = begun.args;
        let thread = begun.thread;
        match begun.number {
            2 => {
                self.opened(begun, &Opening { directory: AT_FDCWD, flags: len, fd: result }, files)
            }
            257 => self.opened(begun, &Opening { directory: fd, flags: pos, fd: result }, files),
            3 => {
                self.open.remove(&fd)?;
                Some(Event { pos: fd, ..Event::new(thread, Op::Close) })
            }
            8 => {
                self.open.get_mut(&fd)?.pos = result;
                None
            }
            0 | 1 => {
                let opened = self.open.get_mut(&fd)?;
                let op = if begun.number == 0 { Op::Pread } else { Op::Pwrite };
                let from = opened.pos;
                opened.pos = from.saturating_add(result);
                transfer(Transfer { thread, op, fd, file: opened.file, pos: from, bytes: result })
            }
            17 | 18 => {
                let op = if begun.number == 17 { Op::Pread } else { Op::Pwrite };
                let file = self.open.get(&fd)?.file;
                transfer(Transfer { thread, op, fd, file, pos: a4, bytes: result })
            }
            77 => {
                let file = Some(self.open.get(&fd)?.file);
                Some(Event { len, file, ..Event::new(thread, Op::Truncate) })
            }
            187 | 221 => {
                let file = Some(self.open.get(&fd)?.file);
                let advice = if begun.number == 221 { a4 } else { POSIX_FADV_WILLNEED };
                let (start, bytes) = (len, pos);
                let event = Event::new(thread, Op::Fadvise);
                Some(Event { pos: start, len: bytes, aux: advice, file, ..event })
            }
            _ => None,
        }
    }

    fn opened(
        &mut self,
        begun: &Begun,
        &Opening { directory, flags, fd }: &Opening,
        files: &mut Files,
    ) -> Option<Event> {
        self.open.remove(&fd);
        let path = begun.path.as_ref()?;
        let is_cwd = directory == AT_FDCWD;
        let base =
            if is_cwd { fd::working_directory(self.pid) } else { fd::link(self.pid, directory) };
        // An absolute path replaces the base.
        let path = base.join(path);
        let path = path.canonicalize().ok().filter(|path| path.is_file())?;
        let file = files.add_path(&path)?;
        self.open.insert(fd, Opened { file, pos: 0 });
        Some(Event {
            pos: fd,
            flags: low(flags),
            file: Some(file),
            ..Event::new(begun.thread, Op::Open)
        })
    }
}

/// A read or write that was made.
#[derive(Clone, Copy)]
struct Transfer {
    thread: u32,
    op: Op,
    fd: u64,
    file: FileId,
    pos: u64,
    bytes: u64,
}

fn transfer(made: Transfer) -> Option<Event> {
    let Transfer { thread, op, fd, file, pos, bytes } = made;
    let event = Event { len: bytes, pos, aux: fd, file: Some(file), ..Event::new(thread, op) };
    (bytes > 0).then_some(event)
}

/// Flags are 32-bit numbers.
fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
