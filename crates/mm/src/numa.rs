//! NUMA: where processes run, their memory policies, and pages that move between nodes
//! (docs/behaviour R.2, R.4, R.6).
//!
//! Corresponds to: `set_mempolicy`, `mbind`, `move_pages`, `migrate_pages` (the call),
//! `queue_pages_range`, `migrate_folio_add`, `alloc_migration_target_by_mpol`.
//!
//! Reading order: `route`, this file, `migrate`, `mark`, `hint`. Free memory by node is in [`crate::nodes`].

mod hint;
mod mark;
mod migrate;

use std::collections::BTreeSet;

use thiserror::Error;

use crate::map::MapError;
use crate::memory::Memory;
use crate::mempolicy::{MemPolicy, PolicyMode};
use crate::nodes::Task;
use crate::pgtable::{PageTable, PteFlags};
use crate::rules::anon::WeightedPolicy;
use crate::units::{MmId, NodeId, NodeSet, Vaddr, Vpn, VpnRange};
use crate::vma::Backing;
use migrate::{Sharers, Target};

/// Why a call about nodes failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NumaError {
    /// The machine has none of the nodes (`EINVAL`).
    #[error("the machine has none of these nodes; it has nodes 0 to {}", nr_nodes - 1)]
    NoSuchNode {
        /// Nodes of the machine.
        nr_nodes: usize,
    },
    /// The kernel has no `MPOL_WEIGHTED_INTERLEAVE` (`EINVAL`).
    #[error("weighted interleaving needs Linux 6.9 or later; use interleave")]
    NoWeights,
    /// Part of the range is not mapped (`EFAULT`).
    #[error("part of the range at {0:#x} is not mapped")]
    Hole(u64),
    /// The range is invalid.
    #[error(transparent)]
    Range(#[from] MapError),
}

/// Where a process runs and allocates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePlace {
    /// The node of its CPU.
    pub node: NodeId,
    /// Its memory policy; `None` is the default.
    pub policy: Option<MemPolicy>,
}

/// Whether mbind moves pages that are already there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BoundPages {
    /// They stay.
    #[default]
    Stay,
    /// Those on other nodes move, except pages of several processes (`MPOL_MF_MOVE`).
    Move,
    /// Those on other nodes move (`MPOL_MF_MOVE_ALL`).
    MoveAll,
}

impl BoundPages {
    fn sharers(self) -> Sharers {
        if self == Self::MoveAll { Sharers::Any } else { Sharers::One }
    }
}

impl Memory {
    /// Runs a process on a CPU of `node`.
    ///
    /// # Errors
    /// The machine has no such node.
    pub fn run_on(&mut self, mm: MmId, node: NodeId) -> Result<(), NumaError> {
        self.check_node(node)?;
        self.core.buddy.run_on(mm, node);
        Ok(())
    }

    /// Sets a process's policy (`set_mempolicy`); `None` is the default.
    ///
    /// # Errors
    /// The machine has none of its nodes.
    pub fn set_mempolicy(&mut self, mm: MmId, policy: Option<MemPolicy>) -> Result<(), NumaError> {
        let policy = policy.map(|one| self.checked(one)).transpose()?;
        self.core.buddy.set_policy(mm, policy);
        Ok(())
    }

    /// Returns the node and the policy of a process.
    #[must_use]
    pub fn node_place(&self, mm: MmId) -> NodePlace {
        let task = self.core.buddy.task(mm);
        NodePlace { node: task.node, policy: task.policy }
    }

    /// Returns the process's node and policy with its turn, to give them back later: the process
    /// follows the thread that runs.
    #[must_use]
    pub fn task(&self, mm: MmId) -> Task {
        self.core.buddy.task(mm)
    }

    /// Gives a process what [`Memory::task`] returned.
    pub fn set_task(&mut self, mm: MmId, task: Task) {
        self.core.buddy.set_task(mm, task);
    }

    /// Gives a process a node and a policy; its children inherit both.
    ///
    /// # Errors
    /// As [`Memory::run_on`] and [`Memory::set_mempolicy`].
    pub fn set_node_place(&mut self, mm: MmId, place: NodePlace) -> Result<(), NumaError> {
        self.run_on(mm, place.node)?;
        self.set_mempolicy(mm, place.policy)
    }

    /// Sets the policy of a range (`mbind`).
    ///
    /// # Errors
    /// The machine has none of its nodes, or part of the range is not mapped. Nothing changes then.
    pub fn mbind(
        &mut self,
        mm: MmId,
        (addr, len_bytes): (Vaddr, u64),
        policy: Option<MemPolicy>,
        pages: BoundPages,
    ) -> Result<(), NumaError> {
        let range = self.checked_range(addr, len_bytes)?;
        let policy = policy.map(|one| self.checked(one)).transpose()?;
        if !self.is_whole(mm, range) {
            return Err(NumaError::Hole(addr.0));
        }
        let wanted = policy.map_or(NodeSet::EMPTY, MemPolicy::nodes);
        let queue = (pages != BoundPages::Stay).then(|| {
            self.drain_batches();
            self.queue_range(mm, range, pages.sharers(), |node| !wanted.contains(node))
        });
        self.bind_files(mm, range, policy);
        self.change_areas(mm, range, |vma| vma.advice.policy = policy);
        if let Some(queue) = queue {
            let target = self.target_in(mm, range, &queue);
            self.move_folios(&queue, target);
        }
        Ok(())
    }

    /// Moves the folios of single pages to a node (`move_pages` with one node). Stops like the
    /// kernel after folios that cannot be moved.
    ///
    /// # Errors
    /// The machine has no such node.
    pub fn move_pages(
        &mut self,
        mm: MmId,
        addrs: impl IntoIterator<Item = Vaddr>,
        node: NodeId,
        pages: BoundPages,
    ) -> Result<(), NumaError> {
        self.check_node(node)?;
        self.drain_batches();
        let mut queue = Vec::new();
        for addr in addrs {
            let vpn = addr.vpn(self.rules.page);
            match self.misplaced(mm, vpn, pages.sharers(), &|of| of != node) {
                Some(id) if !queue.contains(&id) => queue.push(id),
                _ if !self.move_folios(&queue, Target::Node(node)) => return Ok(()),
                _ => queue.clear(),
            }
        }
        self.move_folios(&queue, Target::Node(node));
        Ok(())
    }

    /// Moves a process's pages from one node to another (`migrate_pages`): all if the caller has
    /// `CAP_SYS_NICE`, else those that only it maps.
    ///
    /// # Errors
    /// The machine lacks one of the nodes.
    pub fn migrate_pages(
        &mut self,
        mm: MmId,
        [from, to]: [NodeId; 2],
        pages: BoundPages,
    ) -> Result<(), NumaError> {
        self.check_node(from)?;
        self.check_node(to)?;
        self.drain_batches();
        let areas: Vec<VpnRange> = self
            .space(mm)
            .vmas
            .iter()
            .map(|vma| VpnRange { start: vma.start, end: vma.end })
            .collect();
        let mut queue = Vec::new();
        for range in areas {
            queue.extend(self.queue_range(mm, range, pages.sharers(), |node| node == from));
        }
        let mut seen = BTreeSet::new();
        queue.retain(|id| seen.insert(*id));
        self.move_folios(&queue, Target::Node(to));
        Ok(())
    }

    /// Node of the page at an address, if a folio is mapped there.
    #[must_use]
    pub fn node_at(&self, mm: MmId, addr: Vaddr) -> Option<NodeId> {
        self.page_at(mm, addr)
            .filter(|view| view.owner.is_some())
            .map(|view| self.core.buddy.node_of(view.pfn))
    }

    /// Pages that a process maps on the node of its CPU, and on other nodes (`numa_maps`).
    #[must_use]
    pub fn mapped_near_and_far(&self, mm: MmId) -> [u64; 2] {
        let near = self.core.buddy.task(mm).node;
        let mut nr_pages = [0; 2];
        let table = &self.space(mm).table;
        for leaf in table.leaves(Vpn(0), PageTable::VPN_END.0) {
            let is_zero = leaf.flags.contains(PteFlags::SPECIAL);
            let nr = if is_zero { 0 } else { leaf.order.nr_pages() };
            nr_pages[usize::from(self.core.buddy.node_of(leaf.pfn) != near)] += nr;
        }
        nr_pages
    }

    fn check_node(&self, node: NodeId) -> Result<(), NumaError> {
        let nr_nodes = self.core.buddy.nr_nodes();
        let is_there = usize::from(node.0) < nr_nodes;
        if is_there { Ok(()) } else { Err(NumaError::NoSuchNode { nr_nodes }) }
    }

    fn checked(&self, policy: MemPolicy) -> Result<MemPolicy, NumaError> {
        let is_weighted = policy.mode() == PolicyMode::WeightedInterleave;
        if is_weighted && self.rules.anon.weighted_policy == WeightedPolicy::Refused {
            return Err(NumaError::NoWeights);
        }
        let nr_nodes = self.core.buddy.nr_nodes();
        self.existing(policy).ok_or(NumaError::NoSuchNode { nr_nodes })
    }

    fn is_whole(&self, mm: MmId, VpnRange { start, end }: VpnRange) -> bool {
        let mut at: Vpn = start;
        for vma in self.space(mm).vmas.overlapping(start, end) {
            if vma.start != at {
                return false;
            }
            at = vma.end;
        }
        at == end
    }

    /// Gives the policy to shared memory in the range: all its mappings follow it (R.2.5).
    fn bind_files(
        &mut self,
        mm: MmId,
        VpnRange { start, end }: VpnRange,
        policy: Option<MemPolicy>,
    ) {
        for vma in self.space(mm).vmas.overlapping(start, end) {
            let Backing::File { open, .. } = vma.backing else { continue };
            let file = self.open_file(open).mapping;
            let (first, end) = vma.file_range();
            let mapping = self.core.mapping_mut(file);
            if mapping.is_shmem {
                mapping.policies.set(first..end, policy);
            }
        }
    }
}
