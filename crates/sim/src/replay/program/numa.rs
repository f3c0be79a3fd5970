//! Memory policies: the one with which the program starts, and those that it sets (docs/behaviour R.2).
//!
//! On a machine with one node, a policy decides nothing, but an area with its own policy does not
//! merge with others, so mbind splits areas there too.

use largefolio_mm::mempolicy::{MemPolicy, PolicyMode};
use largefolio_mm::numa::BoundPages;
use largefolio_mm::units::{MmId, NodeId, NodeSet};
use largefolio_trace::event::mempolicy;
use largefolio_trace::{Event, ThreadId};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::ProcessNr;
use crate::replay::program::place::page_end;
use crate::replay::program::space::SpaceNr;
use crate::replay::request::numa::NumaEvent;

fn policy_of(event: &Event) -> Result<Option<MemPolicy>, Invalid> {
    let nodes = (0..NodeId::LIMIT).filter(|node| event.aux >> node & 1 == 1).map(NodeId);
    let nodes = NodeSet::of(nodes);
    let mode = match event.flags & mempolicy::MODE_MASK {
        0 if event.aux == 0 => return Ok(None),
        1 => PolicyMode::Preferred,
        2 => PolicyMode::Bind,
        3 => PolicyMode::Interleave,
        4 => PolicyMode::Local,
        5 => PolicyMode::PreferredMany,
        6 => PolicyMode::WeightedInterleave,
        _ => return Err(Invalid),
    };
    MemPolicy::new(mode, nodes).map(Some).ok_or(Invalid)
}

/// The kernel refuses the call (`EINVAL`).
struct Invalid;

impl Cell {
    /// Runs the first program as numactl does; its children inherit both.
    pub(crate) fn place_on_node(&mut self, space: SpaceNr) -> Result<(), CellError> {
        let Some(numa) = self.spec.numa else { return Ok(()) };
        let mm = self.program.spaces[space].mm;
        Ok(self.change(|memory| memory.set_node_place(mm, numa.place))?)
    }

    /// Moves all processes to another node, or lets NUMA balancing mark the pages of all.
    pub(crate) fn follow_numa(&mut self, event: NumaEvent) {
        let mms: Vec<MmId> = self.program.spaces.iter().map(|(_, space)| space.mm).collect();
        for mm in mms {
            match event {
                // The request was checked: the machine has the node.
                NumaEvent::Run(node) => {
                    let _ = self.change(|memory| memory.run_on(mm, node));
                }
                NumaEvent::Balance => {
                    self.change(|memory| memory.mark_for_balancing(mm));
                }
            }
        }
        if let NumaEvent::Run(node) = event {
            self.program.policies.run_on(node);
        }
    }

    /// Replays `set_mempolicy` or mbind. A call that the kernel refuses changes nothing.
    pub(crate) fn set_policy(&mut self, process: ProcessNr, event: &Event) {
        let Ok(policy) = policy_of(event) else { return };
        if event.len > 0 {
            self.bind(process, event, policy);
            return;
        }
        if self.spec.machine.nodes.len() <= 1 {
            return;
        }
        let mm = self.program.space(process).mm;
        let now = self.memory.task(mm);
        self.program.policies.begin(now);
        self.follow_thread(mm, event.thread);
        let _ = self.change(|memory| memory.set_mempolicy(mm, policy));
    }

    fn bind(&mut self, process: ProcessNr, event: &Event, policy: Option<MemPolicy>) {
        let mm = self.program.space(process).mm;
        let pages = match event.flags {
            flags if flags & mempolicy::MOVE_ALL != 0 => BoundPages::MoveAll,
            flags if flags & mempolicy::MOVE != 0 => BoundPages::Move,
            _ => BoundPages::Stay,
        };
        let parts = self.parts(process, event.addr, event.addr.saturating_add(event.len));
        let nr_mapped_bytes: u64 = parts.iter().map(|part| page_end(part.end) - part.start).sum();
        if nr_mapped_bytes < event.len {
            return;
        }
        let inner: Vec<_> = parts.iter().filter_map(|part| self.inner(part)).collect();
        for range in inner {
            if self.change(|memory| memory.mbind(mm, range, policy, pages)).is_err() {
                return;
            }
        }
    }

    /// Gives an address space the policy of the thread that is about to run in it.
    #[cold]
    #[inline(never)]
    pub(crate) fn follow_thread(&mut self, mm: MmId, thread: ThreadId) {
        let now = self.memory.task(mm);
        if let Some(task) = self.program.policies.switch(mm, thread, now) {
            self.change(|memory| memory.set_task(mm, task));
        }
    }
}
