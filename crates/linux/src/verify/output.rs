//! The end of what a command writes, for numbers that are searched in it.
//!
//! Owns a pipe and the thread that empties it. Memory is bounded by `TAIL_BYTES_MAX` twice, however
//! much comes.

use std::io::{self, PipeReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What is kept of the output.
pub(super) const TAIL_BYTES_MAX: usize = 1 << 20;
/// Between two looks whether the command has ended.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Where the output of a command goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// To nobody.
    #[default]
    Discarded,
    /// To standard error.
    Shown,
}

/// Output that is read as it comes.
pub(super) struct Capture {
    tail: Arc<Mutex<Vec<u8>>>,
    is_over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Capture {
    /// Of stdout and stderr of `command`.
    pub(super) fn of(command: &mut Command, output: Output) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        command.stdout(Stdio::from(writer.try_clone()?)).stderr(Stdio::from(writer));
        let tail = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (to, over) = (Arc::clone(&tail), Arc::clone(&is_over));
        let reader = thread::Builder::new()
            .name("output".to_owned())
            .spawn(move || read(reader, &to, &over, output))?;
        Ok(Self { tail, is_over, reader: Some(reader) })
    }

    /// What was written last, so far.
    pub(super) fn tail(&self) -> Vec<u8> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same when nobody writes any more.
    pub(super) fn end(mut self) -> Vec<u8> {
        self.stop();
        self.tail()
    }

    fn stop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Reads to the end, or until nothing comes any more after the command's end.
fn read(mut from: PipeReader, tail: &Mutex<Vec<u8>>, is_over: &AtomicBool, output: Output) {
    let mut piece = vec![0; 64 << 10];
    loop {
        let mut waiting = [PollFd::new(&from, PollFlags::IN)];
        let was_over = is_over.load(Relaxed);
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
        if output == Output::Shown {
            let _ = io::stderr().write_all(&piece[..nr]);
        }
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(&piece[..nr]);
        if tail.len() > 2 * TAIL_BYTES_MAX {
            let first = tail.len() - TAIL_BYTES_MAX;
            tail.drain(..first);
        }
    }
}
