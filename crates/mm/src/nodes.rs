//! Free memory by NUMA node, and the node that an allocation takes it from (docs/behaviour R.1, R.3).
//!
//! Corresponds to: `build_zonelists`, `get_page_from_freelist`, `alloc_pages_mpol`,
//! `alloc_pages_preferred_many`.
//!
//! ```text
//!   pfn 0                 n                  2n
//!       | node 0: a zone  | node 1: a zone   |     a CPU of node 1 tries 1, then 0
//! ```
//!
//! Owns each node's zone, the order of nodes by distance, and each process's CPU and policy. A
//! machine without nodes has one zone, and every allocation goes straight to it.
//!
//! Differs: a policy belongs to a process, not to a thread. A watermark is shared among the nodes
//! by their sizes.

mod task;

use std::ops::ControlFlow;

use crate::buddy::{
    Ageing, Buddy, BuddyConfig, BuddyError, Fragmentation, MigrateType, RoundOfAgeing, Violation,
    WatermarkRefusal,
};
use crate::mempolicy::Route;
use crate::units::{NodeId, Order, Pfn};

pub use task::Task;

/// Distance of a node to itself.
pub const LOCAL_DISTANCE: u8 = 10;
const REMOTE_DISTANCE: u8 = 20;

/// A node of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Its part of memory, relative to the others' parts.
    pub share: u32,
    /// Distances to all nodes in order, as firmware states them; the missing ones are 20.
    pub distances: Vec<u8>,
    /// Its turns under `MPOL_WEIGHTED_INTERLEAVE`.
    pub weight: u8,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self { share: 1, distances: Vec::new(), weight: 1 }
    }
}

#[derive(Clone, Debug)]
struct Zone {
    first: u64,
    buddy: Buddy,
    weight: u64,
    distances: Vec<u8>,
    /// All nodes, nearest first.
    nearest: Vec<NodeId>,
}

/// Free memory, by node.
#[derive(Clone, Debug)]
pub struct Nodes {
    zones: Vec<Zone>,
    nr_pages: u64,
    low: u64,
    tasks: Vec<Task>,
    current: usize,
    /// The route of an allocation for an area; it takes precedence over the process's.
    area: Option<Route>,
}

impl Nodes {
    /// Free memory of `zone.nr_pages`, divided among `nodes`; without any, one zone.
    ///
    /// # Errors
    /// As [`Buddy::new`], for the first zone that is refused.
    pub fn new(zone: &BuddyConfig, nodes: &[NodeConfig]) -> Result<Self, BuddyError> {
        let default = [NodeConfig::default()];
        let nodes = if nodes.is_empty() { &default } else { nodes };
        let mut zones = Vec::new();
        let (total, block) = (total_share(nodes), zone.max_order.nr_pages());
        let (mut first, mut shares) = (0, 0);
        for (nr, node) in nodes.iter().enumerate() {
            shares += u64::from(node.share);
            let is_last = nr + 1 == nodes.len();
            let end = if is_last {
                zone.nr_pages
            } else {
                (u128::from(zone.nr_pages) * u128::from(shares) / u128::from(total)) as u64 / block
                    * block
            };
            let seeded = |one: Fragmentation| Fragmentation {
                seed: one.seed.wrapping_add(nr as u64),
                ..one
            };
            let fragmentation = zone.fragmentation.map(seeded);
            let config = BuddyConfig { nr_pages: end - first, fragmentation, ..*zone };
            zones.push(Zone {
                first,
                buddy: Buddy::new(config)?,
                weight: node.weight.max(1).into(),
                distances: distances(nodes, nr),
                nearest: nearest(&distances(nodes, nr), nr),
            });
            first = end;
        }
        Ok(Self {
            zones,
            nr_pages: zone.nr_pages,
            low: 0,
            tasks: Vec::new(),
            current: 0,
            area: None,
        })
    }

    /// Ages each node's memory. `None` if `should_stop` stopped it.
    pub(crate) fn age_until(
        &mut self,
        ageing: Ageing,
        should_stop: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Option<Vec<RoundOfAgeing>> {
        let mut all: Vec<RoundOfAgeing> = Vec::new();
        for (nr, zone) in (0..).zip(&mut self.zones) {
            let ageing = Ageing { seed: ageing.seed.wrapping_add(nr), ..ageing };
            let rounds = zone.buddy.age_until(ageing, should_stop)?;
            all.resize(rounds.len().max(all.len()), RoundOfAgeing::default());
            all.iter_mut().zip(&rounds).for_each(|(sum, round)| sum.add(round));
        }
        Some(all)
    }

    pub(crate) fn set_low(&mut self, low: u64) {
        self.low = low;
    }

    /// Whether the machine has one node: nothing depends on policies then.
    #[must_use]
    #[inline]
    pub const fn is_single(&self) -> bool {
        self.zones.len() == 1
    }

    /// Number of nodes.
    #[must_use]
    pub const fn nr_nodes(&self) -> usize {
        self.zones.len()
    }

    /// Node of a page frame.
    #[must_use]
    pub fn node_of(&self, pfn: Pfn) -> NodeId {
        let nr = self.zones.iter().rposition(|zone| zone.first <= pfn.0).unwrap_or(0);
        NodeId(nr as u8)
    }

    /// Whether a page frame is on the current process's node.
    pub(crate) fn is_local(&self, pfn: Pfn) -> bool {
        self.node_of(pfn) == self.current_task().node
    }

    /// Distance from one node to another.
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        self.zones[usize::from(from.0)].distances[usize::from(to.0)]
    }

    /// Page frames of a node that are free.
    ///
    /// # Panics
    /// If the machine lacks the node.
    #[must_use]
    pub fn nr_free_in(&self, node: NodeId) -> u64 {
        self.zones[usize::from(node.0)].buddy.nr_free_pages()
    }

    #[inline]
    fn zone_of(&self, pfn: Pfn) -> &Zone {
        if self.is_single() {
            &self.zones[0]
        } else {
            &self.zones[usize::from(self.node_of(pfn).0)]
        }
    }

    #[inline]
    fn zone_of_mut(&mut self, pfn: Pfn) -> &mut Zone {
        let nr = if self.is_single() { 0 } else { usize::from(self.node_of(pfn).0) };
        &mut self.zones[nr]
    }
}

fn total_share(nodes: &[NodeConfig]) -> u64 {
    nodes.iter().map(|node| u64::from(node.share)).sum::<u64>().max(1)
}

fn distances(nodes: &[NodeConfig], from: usize) -> Vec<u8> {
    let distance = |to: usize| {
        let stated = nodes[from].distances.get(to).copied();
        stated.unwrap_or(if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE })
    };
    (0..nodes.len()).map(distance).collect()
}

/// All nodes by distance; of equally distant ones, the next higher number comes first (R.1.2).
fn nearest(distances: &[u8], from: usize) -> Vec<NodeId> {
    let mut all: Vec<usize> = (0..distances.len()).collect();
    all.sort_by_key(|&to| (to != from, distances[to], to < from, to));
    all.into_iter().map(|nr| NodeId(nr as u8)).collect()
}

/// Allocation, as in [`Buddy`], along the route.
impl Nodes {
    /// Allocates `2^order` page frames.
    #[inline]
    pub fn alloc(&mut self, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        if self.is_single() {
            return self.zones[0].buddy.alloc(order, migrate_type);
        }
        self.alloc_along(order, migrate_type, 0)
    }

    /// [`Nodes::alloc`] if the watermark allows it.
    ///
    /// # Errors
    /// The condition that fails on the last node of the route.
    pub fn try_alloc(
        &mut self,
        order: Order,
        migrate_type: MigrateType,
        mark: u64,
    ) -> Result<Pfn, WatermarkRefusal> {
        if self.is_single() {
            return self.zones[0].buddy.try_alloc(order, migrate_type, mark);
        }
        self.check_watermark(order, mark)?;
        self.alloc_along(order, migrate_type, mark).ok_or(WatermarkRefusal::NoSuitableBlock)
    }

    /// Nodes above their low watermark come first: memory of another node is better than reclaim.
    #[cold]
    fn alloc_along(&mut self, order: Order, migrate_type: MigrateType, mark: u64) -> Option<Pfn> {
        let walk = self.walk(self.route());
        for mark in [self.low.max(mark), mark] {
            for &nr in &walk {
                let zone = &self.zones[nr];
                let part = self.part(zone, mark);
                let zone = &mut self.zones[nr];
                if let Ok(pfn) = zone.buddy.try_alloc(order, migrate_type, part) {
                    let pfn = pfn.plus(zone.first);
                    self.count_turn();
                    return Some(pfn);
                }
            }
        }
        None
    }

    /// Frees page frames.
    #[inline]
    pub fn free(&mut self, pfn: Pfn, order: Order) {
        let zone = self.zone_of_mut(pfn);
        zone.buddy.free(Pfn(pfn.0 - zone.first), order);
    }

    /// Checks a request against the watermark on the nodes of the route.
    ///
    /// # Errors
    /// The condition that fails on the last node.
    pub fn check_watermark(&self, order: Order, mark: u64) -> Result<(), WatermarkRefusal> {
        if self.is_single() {
            return self.zones[0].buddy.check_watermark(order, mark);
        }
        let mut checked = Err(WatermarkRefusal::BelowWatermark);
        for nr in self.walk(self.route()) {
            let zone = &self.zones[nr];
            checked = zone.buddy.check_watermark(order, self.part(zone, mark));
            if checked.is_ok() {
                break;
            }
        }
        checked
    }

    /// Whether a block of at least `order` is free on a node of the route.
    #[must_use]
    pub fn has_block(&self, order: Order) -> bool {
        if self.is_single() {
            return self.zones[0].buddy.has_block(order);
        }
        self.walk(self.route()).into_iter().any(|nr| self.zones[nr].buddy.has_block(order))
    }

    /// Takes a block for a migrated page, in `[first, end)` of one node.
    pub(crate) fn take_in(
        &mut self,
        first: u64,
        end: u64,
        order: Order,
        below: Order,
    ) -> Option<Pfn> {
        let zone = self.zone_of_mut(Pfn(first));
        let base = zone.first;
        let pfn = zone.buddy.take_in(first - base, end - base, order, below)?;
        Some(pfn.plus(base))
    }

    /// The page frames of the nodes on the route.
    pub(crate) fn spans(&self) -> Vec<std::ops::Range<u64>> {
        let nodes = if self.is_single() { vec![0] } else { self.walk(self.route()) };
        let span = |nr: usize| {
            let zone = &self.zones[nr];
            zone.first..zone.first + zone.buddy.nr_pages()
        };
        nodes.into_iter().map(span).collect()
    }
}

/// All nodes together, as in [`Buddy`].
impl Nodes {
    /// Largest order that can be allocated.
    #[must_use]
    #[inline]
    pub fn max_order(&self) -> Order {
        self.zones[0].buddy.max_order()
    }

    /// Order of a pageblock.
    #[must_use]
    pub fn pageblock_order(&self) -> Order {
        self.zones[0].buddy.pageblock_order()
    }

    /// Page frames.
    #[must_use]
    pub const fn nr_pages(&self) -> u64 {
        self.nr_pages
    }

    /// Free page frames.
    #[must_use]
    #[inline]
    pub fn nr_free_pages(&self) -> u64 {
        if self.is_single() {
            return self.zones[0].buddy.nr_free_pages();
        }
        self.zones.iter().map(|zone| zone.buddy.nr_free_pages()).sum()
    }

    /// Allocated page frames, including pinned ones.
    #[must_use]
    pub fn nr_allocated_pages(&self) -> u64 {
        self.zones.iter().map(|zone| zone.buddy.nr_allocated_pages()).sum()
    }

    /// Free blocks of exactly `order`.
    #[must_use]
    pub fn nr_free_of(&self, order: Order) -> u64 {
        self.zones.iter().map(|zone| zone.buddy.nr_free_of(order)).sum()
    }

    /// Type of the pageblock of `pfn`.
    #[must_use]
    pub fn pageblock_type(&self, pfn: Pfn) -> MigrateType {
        let zone = self.zone_of(pfn);
        zone.buddy.pageblock_type(Pfn(pfn.0 - zone.first))
    }

    /// The first node's [`Buddy::fragmentation_index`] on the route.
    #[must_use]
    pub fn fragmentation_index(&self, order: Order) -> i32 {
        let nr = if self.is_single() { 0 } else { usize::from(self.route().first.0) };
        self.zones[nr].buddy.fragmentation_index(order)
    }

    /// [`Buddy::unusable_index`] of all free pages.
    #[must_use]
    pub fn unusable_index(&self, order: Order) -> u32 {
        if self.is_single() {
            return self.zones[0].buddy.unusable_index(order);
        }
        let nr_free = self.nr_free_pages();
        let part =
            |zone: &Zone| u64::from(zone.buddy.unusable_index(order)) * zone.buddy.nr_free_pages();
        let sum: u64 = self.zones.iter().map(part).sum();
        sum.checked_div(nr_free).unwrap_or(1000) as u32
    }

    /// Checks every zone.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        self.zones.iter().try_for_each(|zone| zone.buddy.validate())
    }
}
