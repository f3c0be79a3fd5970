//! Long work beside the interpreter.
//!
//! ```text
//!   caller's thread   waits 50 ms -> lock -> signals? tell(done) -> waits ..      stop = true
//!   other thread      work ---- now and then: done = n, stop? -----------------------> result
//! ```
//!
//! Only the caller's thread, which may be Python's main thread, can see Ctrl-C.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::{Failure, guarded};

/// How long Ctrl-C may go unnoticed.
const LOOK: Duration = Duration::from_millis(50);

/// Whether work must end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// What the two threads tell each other.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    nr_done: AtomicU64,
    stop: Stop,
}

impl Shared {
    /// For others that have to know as well.
    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// How much is done; whether to continue.
    pub(crate) fn done(&self, nr_done: u64) -> ControlFlow<()> {
        self.nr_done.store(nr_done, Relaxed);
        if self.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Whether the work must end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }
}

/// Runs `work` on its own thread; called without the interpreter's lock. `tell` hears the progress.
/// A signal or an exception of `tell` ends the work and is returned.
pub(crate) fn run<T: Send>(
    work: impl FnOnce(&Shared) -> Result<T, Failure> + Send,
    tell: &dyn Fn(Python<'_>, u64) -> PyResult<()>,
) -> Result<T, Failure> {
    let shared = Shared::default();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let shared = &shared;
        thread::Builder::new()
            .name("largefolio".to_owned())
            .spawn_scoped(scope, move || drop(sender.send(guarded(|| work(shared)))))?;
        watch(&receiver, shared, tell)
    })
}

fn watch<T>(
    receiver: &Receiver<Result<T, Failure>>,
    shared: &Shared,
    tell: &dyn Fn(Python<'_>, u64) -> PyResult<()>,
) -> Result<T, Failure> {
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Panic("the work ended without a result".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {
                let looked = Python::attach(|py| {
                    py.check_signals()?;
                    tell(py, shared.nr_done.load(Relaxed))
                });
                if let Err(error) = looked {
                    shared.stop.0.store(true, Relaxed);
                    // What the work came to in the meantime does not matter any more.
                    drop(receiver.recv());
                    return Err(Failure::Python(error));
                }
            }
        }
    }
}
