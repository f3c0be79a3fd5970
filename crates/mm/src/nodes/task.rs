//! Where each process runs, its policy, and the route of its next allocation (docs/behaviour R.2).
//!
//! Corresponds to: `get_task_policy`.

use super::{Nodes, Zone};
use crate::mempolicy::{MemPolicy, Reach, Route};
use crate::units::{MmId, NodeId, NodeSet};

/// Where a process or one of its threads runs, and its memory policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    pub(crate) node: NodeId,
    pub(crate) policy: Option<MemPolicy>,
    /// Allocations without an area that an interleaving policy has placed.
    nr_turns: u64,
}

impl Task {
    /// Runs it on a CPU of `node`.
    pub fn run_on(&mut self, node: NodeId) {
        self.node = node;
    }
}

/// Processes and their policies.
impl Nodes {
    pub(crate) fn add_task(&mut self, mm: MmId, like: Option<MmId>) {
        if self.is_single() {
            return;
        }
        let task = like.map_or(Task::default(), |mm| self.task(mm));
        *self.task_mut(mm) = task;
    }

    pub(crate) fn task(&self, mm: MmId) -> Task {
        self.tasks.get(mm.0 as usize).copied().unwrap_or_default()
    }

    fn task_mut(&mut self, mm: MmId) -> &mut Task {
        let nr = mm.0 as usize;
        if self.tasks.len() <= nr {
            self.tasks.resize(nr + 1, Task::default());
        }
        &mut self.tasks[nr]
    }

    pub(crate) fn run_on(&mut self, mm: MmId, node: NodeId) {
        self.task_mut(mm).node = node;
    }

    pub(crate) fn set_policy(&mut self, mm: MmId, policy: Option<MemPolicy>) {
        let task = self.task_mut(mm);
        (task.policy, task.nr_turns) = (policy, 0);
    }

    pub(crate) fn set_task(&mut self, mm: MmId, task: Task) {
        *self.task_mut(mm) = task;
    }

    #[inline]
    pub(crate) fn enter(&mut self, mm: MmId) {
        if !self.is_single() {
            self.current = mm.0 as usize;
        }
    }

    pub(crate) fn weight(&self, node: NodeId) -> u64 {
        self.zones.get(usize::from(node.0)).map_or(1, |zone| zone.weight)
    }

    /// The route of allocation number `nth` under a policy, by a CPU of `local`.
    pub(crate) fn route_of(&self, policy: Option<MemPolicy>, local: NodeId, nth: u64) -> Route {
        let Some(policy) = policy else { return Route::to(local, NodeSet::ALL) };
        let turn = if policy.is_interleaved() {
            policy.interleaved(nth, |node| self.weight(node))
        } else {
            local
        };
        policy.route(local, turn)
    }

    /// Takes `route` for all allocations until the next call. Returns the one before.
    pub(crate) fn take_route(&mut self, route: Option<Route>) -> Option<Route> {
        std::mem::replace(&mut self.area, route)
    }

    /// The route of allocation number `nth` of a file with its own policy, by the current process.
    pub(crate) fn route_of_current(&self, policy: Option<MemPolicy>, nth: u64) -> Route {
        let task = self.current_task();
        self.route_of(policy.or(task.policy), task.node, nth)
    }

    pub(super) fn current_task(&self) -> Task {
        self.tasks.get(self.current).copied().unwrap_or_default()
    }

    /// The route of the next allocation.
    pub(crate) fn route(&self) -> Route {
        self.area.unwrap_or_else(|| self.route_of_current(None, self.current_task().nr_turns))
    }

    pub(super) fn count_turn(&mut self) {
        if self.area.is_none()
            && let Some(task) = self.tasks.get_mut(self.current)
        {
            task.nr_turns += 1;
        }
    }

    /// The nodes of a route, in the order in which it tries them.
    pub(super) fn walk(&self, route: Route) -> Vec<usize> {
        let nearest = &self.zones[usize::from(route.first.0)].nearest;
        let nearest = nearest.iter().copied();
        let is_allowed = |node: &NodeId| route.allowed.contains(*node);
        let nodes: Vec<NodeId> = match route.reach {
            Reach::FirstOnly => vec![route.first],
            Reach::Allowed => nearest.filter(is_allowed).collect(),
            Reach::AllowedThenAll => nearest
                .clone()
                .filter(is_allowed)
                .chain(nearest.filter(|one| !is_allowed(one)))
                .collect(),
        };
        nodes.into_iter().map(|node| usize::from(node.0)).collect()
    }

    /// The part of a watermark that a node keeps.
    pub(crate) fn part_of(&self, node: NodeId, mark: u64) -> u64 {
        self.part(&self.zones[usize::from(node.0)], mark)
    }

    pub(super) fn part(&self, zone: &Zone, mark: u64) -> u64 {
        (u128::from(mark) * u128::from(zone.buddy.nr_pages()) / u128::from(self.nr_pages)) as u64
    }
}
