//! Captures the end of a command's output, to search for numbers, and the start of its error
//! output.
//!
//! Owns a pipe and the thread that empties it. Memory is limited to twice `TAIL_BYTES_MAX`,
//! regardless of the amount of output.

use std::io::{self, PipeReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(crate) const TAIL_BYTES_MAX: usize = 1 << 20;
/// Bytes kept of the first errors: the cause comes before its consequences.
const FIRST_BYTES_MAX: usize = 400;
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    Discarded,
    Shown,
}

pub(crate) struct Capture {
    tail: Arc<Mutex<Vec<u8>>>,
    first_errors: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
    readers: Vec<JoinHandle<()>>,
}

impl Capture {
    pub(crate) fn of(command: &mut Command, output: Output) -> io::Result<Self> {
        let ((stdout, to_stdout), (stderr, to_stderr)) = (io::pipe()?, io::pipe()?);
        command.stdout(Stdio::from(to_stdout)).stderr(Stdio::from(to_stderr));
        let (tail, first_errors) = (Arc::default(), Arc::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let mut captured = Self { tail, first_errors, is_over, readers: Vec::new() };
        for (from, is_error) in [(stdout, false), (stderr, true)] {
            let to = To {
                tail: Arc::clone(&captured.tail),
                first: is_error.then(|| Arc::clone(&captured.first_errors)),
                is_over: Arc::clone(&captured.is_over),
                output,
            };
            let reader = thread::Builder::new().name("output".to_owned());
            captured.readers.push(reader.spawn(move || read(from, &to))?);
        }
        Ok(captured)
    }

    pub(crate) fn first_errors(&self) -> Vec<u8> {
        self.first_errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tail(&self) -> Vec<u8> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the end of the output after the last writer has ended.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.stop();
        self.tail()
    }

    pub(crate) fn stop(&mut self) {
        self.is_over.store(true, Relaxed);
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
    }
}

struct To {
    tail: Arc<Mutex<Vec<u8>>>,
    first: Option<Arc<Mutex<Vec<u8>>>>,
    is_over: Arc<AtomicBool>,
    output: Output,
}

impl To {
    fn take(&self, piece: &[u8]) {
        if self.output == Output::Shown {
            let _ = io::stderr().write_all(piece);
        }
        if let Some(first) = &self.first {
            let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
            let room = FIRST_BYTES_MAX.saturating_sub(first.len());
            first.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(piece);
        if tail.len() > 2 * TAIL_BYTES_MAX {
            let first = tail.len() - TAIL_BYTES_MAX;
            tail.drain(..first);
        }
    }
}

/// Reads to the end, or until the command has ended and no more output arrives.
fn read(mut from: PipeReader, to: &To) {
    let mut piece = vec![0; 64 << 10];
    loop {
        let mut waiting = [PollFd::new(&from, PollFlags::IN)];
        let was_over = to.is_over.load(Relaxed);
        match poll(&mut waiting, Some(&TICK)) {
            Ok(0) if was_over => return,
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        let Ok(nr) = from.read(&mut piece) else { return };
        if nr == 0 {
            return;
        }
        to.take(&piece[..nr]);
    }
}
