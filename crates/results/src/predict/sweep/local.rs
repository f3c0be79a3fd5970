//! Runs all tasks of a sweep on this host.
//!
//! Each replay runs its cells in parallel, and several replays overlap to keep all processors busy.
//! One thread collects their results and does all the writing.
//!
//! Owns the workers and their thread pool, which ends with the sweep: a process-wide pool would be
//! lost in a forked child. If a task panics, its cells fail.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::error::{SweepError, TaskError};
use super::task::{Task, TaskResult};
use super::{Counts, IsStopped, NR_CELLS_OF_A_TASK, RunEnding, Sweep};

pub struct Callbacks<'a> {
    pub progress: &'a mut dyn FnMut(Counts),
    pub is_stopped: IsStopped<'a>,
}

enum Handed {
    Result(TaskResult),
    Failed(String),
}

struct Pool<'a> {
    threads: ThreadPool,
    /// Local copies of traces that are not at the path they are named by.
    copies: BTreeMap<PathBuf, PathBuf>,
    tasks: Mutex<VecDeque<Task>>,
    broken: Mutex<BTreeMap<String, String>>,
    has_ended: AtomicBool,
    is_stopped: IsStopped<'a>,
}

/// Replays everything that is missing.
///
/// # Errors
/// The first error of the sweep itself, such as a full disk. Finished cells are kept.
pub fn run(sweep: &mut Sweep, callbacks: Callbacks<'_>) -> Result<RunEnding, SweepError> {
    let Callbacks { progress, is_stopped } = callbacks;
    let tasks = sweep.missing(NR_CELLS_OF_A_TASK);
    let nr_workers = nr_workers(&tasks);
    let work = Pool {
        threads: ThreadPoolBuilder::new().build()?,
        copies: sweep.copies.clone(),
        tasks: Mutex::new(tasks.into()),
        broken: Mutex::default(),
        has_ended: AtomicBool::new(false),
        is_stopped,
    };
    progress(sweep.counts());
    let taken = thread::scope(|scope| {
        let (sender, receiver) = sync_channel(nr_workers);
        for _ in 0..nr_workers {
            let (sender, work) = (sender.clone(), &work);
            scope.spawn(move || work.work(&sender));
        }
        drop(sender);
        let mut taken = Ok(());
        for (task, handed) in receiver {
            if taken.is_err() {
                continue;
            }
            taken = take(sweep, &task, handed, is_stopped);
            if taken.is_err() {
                work.has_ended.store(true, Ordering::Relaxed);
            }
            progress(sweep.counts());
        }
        taken
    });
    taken?;
    Ok(if is_stopped() { RunEnding::Interrupted } else { RunEnding::Done })
}

fn take(
    sweep: &mut Sweep,
    task: &Task,
    handed: Handed,
    is_stopped: IsStopped<'_>,
) -> Result<(), SweepError> {
    match handed {
        Handed::Result(result) => sweep.take(task, result, is_stopped),
        Handed::Failed(error) => {
            sweep.fail(task, &error);
            Ok(())
        }
    }
}

/// Returns the number of concurrent tasks: enough cells for all processors, plus one task.
fn nr_workers(tasks: &[Task]) -> usize {
    let nr_processors = thread::available_parallelism().map_or(1, usize::from);
    let nr_cells: usize = tasks.iter().map(|task| task.cells.len()).sum();
    let nr_of_a_task = nr_cells.div_ceil(tasks.len().max(1)).max(1);
    (nr_processors.div_ceil(nr_of_a_task) + 1).min(tasks.len())
}

impl Pool<'_> {
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) || (self.is_stopped)()
    }

    fn work(&self, sender: &SyncSender<(Task, Handed)>) {
        while !self.is_over()
            && let Some(task) = lock(&self.tasks).pop_front()
        {
            let Some(handed) = self.replay(&task) else { return };
            // The receiver outlives all senders.
            let _ = sender.send((task, handed));
        }
    }

    fn replay(&self, task: &Task) -> Option<Handed> {
        if let Some(error) = lock(&self.broken).get(&task.digest) {
            return Some(Handed::Failed(error.clone()));
        }
        let mut on_progress = |_| {
            if self.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let name = task.path();
        let place = self.copies.get(&name).unwrap_or(&name);
        let run = || self.threads.install(|| task.run(place, &mut on_progress));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(result)) => Some(Handed::Result(result)),
            Ok(Err(error)) if error.is_stopped() => None,
            Ok(Err(error)) => Some(Handed::Failed(self.note(task, &error))),
            Err(panic) => Some(Handed::Failed(panic_message(panic.as_ref()))),
        }
    }

    /// Records an unreadable trace, so that its other tasks do not try it.
    fn note(&self, task: &Task, error: &TaskError) -> String {
        let text = error.to_string();
        if error.is_of_the_trace() {
            lock(&self.broken).insert(task.digest.clone(), text.clone());
        }
        text
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    format!("internal error; please report it with the trace: {text}")
}

/// A worker that panics holds no lock: tasks run without one.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
