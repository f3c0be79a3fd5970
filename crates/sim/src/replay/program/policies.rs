//! The memory policies of threads. Each thread has one, and an address space follows the thread that
//! runs in it.

use std::collections::BTreeMap;

use largefolio_mm::nodes::Task;
use largefolio_mm::units::{MmId, NodeId};
use largefolio_trace::ThreadId;

/// In use from the first `set_mempolicy` on. Until then, all threads have the policy of the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadPolicies {
    at_start: Option<Task>,
    by_thread: BTreeMap<ThreadId, Task>,
    /// The thread that each address space follows.
    running: BTreeMap<MmId, ThreadId>,
}

impl ThreadPolicies {
    #[inline]
    pub(crate) const fn is_used(&self) -> bool {
        self.at_start.is_some()
    }

    /// Begins to keep threads apart; `task` is what all have so far.
    pub(crate) fn begin(&mut self, task: Task) {
        self.at_start.get_or_insert(task);
    }

    /// All threads run on a node's CPUs.
    pub(crate) fn run_on(&mut self, node: NodeId) {
        self.by_thread.values_mut().chain(&mut self.at_start).for_each(|task| task.run_on(node));
    }

    /// A new thread or process has the policy of the thread that started it.
    pub(crate) fn inherit(&mut self, parent: ThreadId, child: ThreadId, task: Task) {
        self.by_thread.insert(parent, task);
        self.by_thread.insert(child, task);
    }

    /// Lets a thread run in an address space that has `now`. Returns the task that replaces it.
    pub(crate) fn switch(&mut self, mm: MmId, thread: ThreadId, now: Task) -> Option<Task> {
        let at_start = self.at_start?;
        match self.running.insert(mm, thread) {
            Some(before) if before == thread => return None,
            Some(before) => {
                self.by_thread.insert(before, now);
            }
            None => {}
        }
        Some(self.by_thread.get(&thread).copied().unwrap_or(at_start))
    }
}
