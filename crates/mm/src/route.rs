//! The nodes that an area's folios may come from (docs/behaviour R.2, R.3).
//!
//! Corresponds to: `get_vma_policy`, `vma_alloc_folio`, `alloc_pages_mpol`.

use crate::folio::FolioId;
use crate::memory::Memory;
use crate::mempolicy::{MemPolicy, PolicyMode, Route};
use crate::rules::anon::Effort;
use crate::units::{MappingId, MmId, NodeSet, Order, PageIndex, Vpn};
use crate::vma::{Backing, Vma};

/// The place of a folio in a process.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) mm: MmId,
    pub(crate) vma: &'a Vma,
    /// The folio's first page.
    pub(crate) first: Vpn,
}

impl Place<'_> {
    /// The folio's number in its area, for an interleaving policy: the kernel rounds the area's
    /// offset and the distance from its start down, each on its own (R.2.4).
    pub(crate) fn nth(&self, order: Order) -> u64 {
        let offset = self.vma.index_of(self.vma.start) >> order.get();
        offset.wrapping_add((self.first.0 - self.vma.start.0) >> order.get())
    }
}

impl Memory {
    /// Allocates an anonymous folio by the area's or the process's policy.
    #[inline]
    pub(crate) fn alloc_in_area(
        &mut self,
        place: Place<'_>,
        order: Order,
        effort: Effort,
    ) -> Option<FolioId> {
        let index = PageIndex(place.vma.index_of(place.first));
        if self.core.buddy.is_single() {
            return self.alloc_anon(order, effort, index);
        }
        let route = self.route_in(place, order);
        self.alloc_on_route(route, order, effort, |memory, effort| {
            memory.alloc_anon(order, effort, index)
        })
    }

    /// Allocates with `alloc` on a route. A PMD folio comes from the first node if compaction is
    /// enough for that. Only an allocation that may reclaim then tries other nodes (R.3.2).
    pub(crate) fn alloc_on_route<R>(
        &mut self,
        route: Route,
        order: Order,
        effort: Effort,
        alloc: impl Fn(&mut Self, Effort) -> Option<R>,
    ) -> Option<R> {
        if order == self.rules.page.pmd_order() && route.keeps_huge_near {
            let may_reclaim = matches!(effort, Effort::Direct | Effort::Once);
            let near = if may_reclaim { Effort::Once } else { effort };
            let found = self.on_route(Some(route.first_only()), |memory| alloc(memory, near));
            if found.is_some() || !may_reclaim {
                return found;
            }
        }
        self.on_route(Some(route), |memory| alloc(memory, effort))
    }

    /// Runs `alloc` with allocations on `route`; without one, on the current route.
    #[inline]
    pub(crate) fn on_route<R>(
        &mut self,
        route: Option<Route>,
        alloc: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if route.is_none() {
            return alloc(self);
        }
        let before = self.core.buddy.take_route(route);
        let done = alloc(self);
        self.core.buddy.take_route(before);
        done
    }

    /// The route of a folio of an area.
    pub(crate) fn route_in(&self, place: Place<'_>, order: Order) -> Route {
        let task = self.core.buddy.task(place.mm);
        let policy = self.policy_at(place).or(task.policy);
        self.core.buddy.route_of(policy, task.node, place.nth(order))
    }

    /// The policy of the area; shared memory has its own, which all its mappings follow (R.2.5).
    pub(crate) fn policy_at(&self, Place { vma, first, .. }: Place<'_>) -> Option<MemPolicy> {
        match vma.backing {
            Backing::File { open, .. }
                if self.core.mapping(self.open_file(open).mapping).is_shmem =>
            {
                let mapping = self.core.mapping(self.open_file(open).mapping);
                mapping.policies.at(vma.index_of(first))
            }
            _ => vma.advice.policy,
        }
    }

    /// The route of a folio of shared memory.
    pub(crate) fn shmem_route(
        &self,
        file: MappingId,
        index: PageIndex,
        order: Order,
    ) -> Option<Route> {
        if self.core.buddy.is_single() {
            return None;
        }
        let policy = self.core.mapping(file).policies.at(index.0);
        Some(self.core.buddy.route_of_current(policy, index.0 >> order.get()))
    }

    /// The policy's mode and nodes, without those that the machine lacks.
    pub(crate) fn existing(&self, policy: MemPolicy) -> Option<MemPolicy> {
        let nr = self.core.buddy.nr_nodes();
        let nodes = policy.nodes().iter().filter(|node| usize::from(node.0) < nr);
        let nodes = NodeSet::of(nodes);
        let is_local = policy.mode() == PolicyMode::Local;
        (is_local || !nodes.is_empty()).then(|| MemPolicy::new(policy.mode(), nodes)).flatten()
    }
}
