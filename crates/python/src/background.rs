//! Long work in a thread outside the interpreter.
//!
//! ```text
//!   caller's thread   waits 50 ms -> lock -> signals? report(done) -> waits ..      stop = true
//!   other thread      work ---- now and then: done = n, stop? -----------------------> result
//! ```
//!
//! Only the caller's thread, which may be Python's main thread, can see Ctrl-C. If the work is
//! inside Python at that time, it gets the exception too, because it might never return otherwise.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::errors::{Failure, catch_panics};

/// Longest delay before Ctrl-C takes effect.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Whether work must end, and which of its threads are inside Python.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop {
    is_requested: Arc<AtomicBool>,
    inside: Arc<Mutex<Vec<u64>>>,
}

impl Stop {
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested.load(Relaxed)
    }

    /// Makes a call that may never return. [`run`] raises `KeyboardInterrupt` in it once the work
    /// must end.
    pub(crate) fn interruptible<T>(
        &self,
        py: Python<'_>,
        call: impl FnOnce() -> PyResult<T>,
    ) -> PyResult<T> {
        let thread = this_thread(py)?;
        self.inside().push(thread);
        let result = call();
        let mut inside = self.inside();
        if let Some(at) = inside.iter().position(|&other| other == thread) {
            inside.swap_remove(at);
        }
        result
    }

    fn inside(&self) -> MutexGuard<'_, Vec<u64>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        let threads = self.inside().clone();
        let ctypes = py.import("ctypes")?;
        let raise = ctypes.getattr("pythonapi")?.getattr("PyThreadState_SetAsyncExc")?;
        let error = ctypes.call_method1("py_object", (py.get_type::<PyKeyboardInterrupt>(),))?;
        for thread in threads {
            raise.call1((ctypes.call_method1("c_ulong", (thread,))?, &error))?;
        }
        Ok(())
    }
}

/// Returns Python's number of this thread.
fn this_thread(py: Python<'_>) -> PyResult<u64> {
    thread_local!(static IDENT: Cell<Option<u64>> = const { Cell::new(None) });
    if let Some(ident) = IDENT.get() {
        return Ok(ident);
    }
    let ident = py.import("threading")?.call_method0("get_ident")?.extract()?;
    IDENT.set(Some(ident));
    Ok(ident)
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    nr_done: AtomicU64,
    stop: Stop,
}

impl Shared {
    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Reports progress and returns whether to continue.
    pub(crate) fn done(&self, nr_done: u64) -> ControlFlow<()> {
        self.nr_done.store(nr_done, Relaxed);
        if self.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_requested()
    }
}

/// Runs `work` on its own thread, without the interpreter's lock. Calls `report` with the progress.
/// A signal or an exception of `report` ends the work and is returned.
pub(crate) fn run<T: Send>(
    work: impl FnOnce(&Shared) -> Result<T, Failure> + Send,
    report: &dyn Fn(Python<'_>, u64) -> PyResult<()>,
) -> Result<T, Failure> {
    let shared = Shared::default();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        let shared = &shared;
        thread::Builder::new()
            .name("largefolio".to_owned())
            .spawn_scoped(scope, move || drop(sender.send(catch_panics(|| work(shared)))))?;
        watch(&receiver, shared, report)
    })
}

fn watch<T>(
    receiver: &Receiver<Result<T, Failure>>,
    shared: &Shared,
    report: &dyn Fn(Python<'_>, u64) -> PyResult<()>,
) -> Result<T, Failure> {
    loop {
        match receiver.recv_timeout(POLL_INTERVAL) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Panic("the worker ended without a result".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {
                let polled = Python::attach(|py| {
                    py.check_signals()?;
                    report(py, shared.nr_done.load(Relaxed))
                });
                if let Err(error) = polled {
                    shared.stop.is_requested.store(true, Relaxed);
                    end(receiver, &shared.stop);
                    return Err(Failure::Python(error));
                }
            }
        }
    }
}

/// Waits for stopped work and ignores its result.
fn end<T>(receiver: &Receiver<T>, stop: &Stop) {
    while let Err(RecvTimeoutError::Timeout) = receiver.recv_timeout(POLL_INTERVAL) {
        // Without ctypes, it ends only when its own call returns.
        let _ = Python::attach(|py| stop.interrupt(py));
    }
}
