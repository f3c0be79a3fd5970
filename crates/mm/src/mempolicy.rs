//! Memory policies: which node a page should come from (docs/behaviour R.2).
//!
//! Corresponds to: `policy_nodemask`, `interleave_nid`, `weighted_interleave_nid`.

use std::ops::Range;

use crate::units::{NodeId, NodeSet};

/// The mode of a policy (`MPOL_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyMode {
    /// The first of the nodes; if it is full, any (`MPOL_PREFERRED`).
    Preferred,
    /// Only the nodes (`MPOL_BIND`).
    Bind,
    /// The nodes in turn (`MPOL_INTERLEAVE`).
    Interleave,
    /// The CPU's node; if it is full, any (`MPOL_LOCAL`).
    Local,
    /// The nodes; if they are full, any (`MPOL_PREFERRED_MANY`).
    PreferredMany,
    /// The nodes in turn, each as often as its weight (`MPOL_WEIGHTED_INTERLEAVE`, 6.9+).
    WeightedInterleave,
}

/// A memory policy of a process or an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemPolicy {
    mode: PolicyMode,
    nodes: NodeSet,
}

/// Where one allocation looks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The node to start from; the others follow by distance from it.
    pub(crate) first: NodeId,
    pub(crate) allowed: NodeSet,
    pub(crate) reach: Reach,
    /// A PMD folio comes from the first node if that needs no reclaim (R.3.2).
    pub(crate) keeps_huge_near: bool,
}

/// What follows the first node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Nothing (`__GFP_THISNODE`).
    FirstOnly,
    /// The allowed nodes.
    Allowed,
    /// The allowed nodes, then all.
    AllowedThenAll,
}

impl MemPolicy {
    /// A policy for `nodes`; `None` for an empty set, or for a set with `Local`. As in the kernel, no preferred node means the CPU's.
    #[must_use]
    pub fn new(mode: PolicyMode, nodes: NodeSet) -> Option<Self> {
        match mode {
            PolicyMode::Local if !nodes.is_empty() => None,
            PolicyMode::Local => Some(Self { mode, nodes }),
            PolicyMode::Preferred if nodes.is_empty() => {
                Some(Self { mode: PolicyMode::Local, nodes })
            }
            PolicyMode::Preferred => Some(Self { mode, nodes: NodeSet::of([nodes.nth(0)?]) }),
            _ => (!nodes.is_empty()).then_some(Self { mode, nodes }),
        }
    }

    /// Its mode.
    #[must_use]
    pub const fn mode(self) -> PolicyMode {
        self.mode
    }

    /// Its nodes; none for the CPU's node.
    #[must_use]
    pub const fn nodes(self) -> NodeSet {
        self.nodes
    }

    pub(crate) const fn is_interleaved(self) -> bool {
        matches!(self.mode, PolicyMode::Interleave | PolicyMode::WeightedInterleave)
    }

    /// The node for the allocation number `nth` under an interleaving policy (R.2.4).
    pub(crate) fn interleaved(self, nth: u64, weight: impl Fn(NodeId) -> u64) -> NodeId {
        let weight = |node| if self.mode == PolicyMode::Interleave { 1 } else { weight(node) };
        let total: u64 = self.nodes.iter().map(&weight).sum();
        let mut left = nth % total.max(1);
        for node in self.nodes.iter() {
            if left < weight(node) {
                return node;
            }
            left -= weight(node);
        }
        unreachable!("the remainder is below the sum of the weights")
    }

    /// The route of an allocation by a CPU of `local`; `turn` is an interleaving policy's next node.
    pub(crate) fn route(self, local: NodeId, turn: NodeId) -> Route {
        let all = NodeSet::ALL;
        match self.mode {
            PolicyMode::Local => Route::to(local, all),
            PolicyMode::Preferred => Route::to(self.nodes.nth(0).unwrap_or(local), all),
            PolicyMode::Bind => Route::to(local, self.nodes),
            PolicyMode::PreferredMany => Route {
                reach: Reach::AllowedThenAll,
                keeps_huge_near: false,
                ..Route::to(local, self.nodes)
            },
            PolicyMode::Interleave | PolicyMode::WeightedInterleave => {
                Route { keeps_huge_near: false, ..Route::to(turn, all) }
            }
        }
    }
}

impl Route {
    pub(crate) fn to(first: NodeId, allowed: NodeSet) -> Self {
        let keeps_huge_near = allowed.contains(first);
        Self { first, allowed, reach: Reach::Allowed, keeps_huge_near }
    }

    pub(crate) fn first_only(self) -> Self {
        Self { reach: Reach::FirstOnly, ..self }
    }
}

/// The policies of a file's pages, by index (`struct shared_policy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRanges {
    /// In ascending order, without overlaps.
    ranges: Vec<(Range<u64>, MemPolicy)>,
}

impl PolicyRanges {
    /// The policy of a page.
    #[must_use]
    pub fn at(&self, index: u64) -> Option<MemPolicy> {
        let nr = self.ranges.partition_point(|(range, _)| range.end <= index);
        self.ranges.get(nr).filter(|(range, _)| range.contains(&index)).map(|(_, policy)| *policy)
    }

    /// Whether no page has a policy of its own.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Sets the policy of a range, or removes it.
    pub fn set(&mut self, range: Range<u64>, policy: Option<MemPolicy>) {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 2);
        for (old, kept) in self.ranges.drain(..) {
            let before = old.start..old.end.min(range.start);
            let after = old.start.max(range.end)..old.end;
            ranges.extend(
                [before, after]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .map(|part| (part, kept)),
            );
        }
        ranges.extend(policy.filter(|_| !range.is_empty()).map(|policy| (range, policy)));
        ranges.sort_by_key(|(range, _)| range.start);
        self.ranges = ranges;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);

    #[test]
    fn weights_decide_how_often_a_nodes_turn_comes() {
        let both = NodeSet::of([A, B]);
        let weighted = MemPolicy::new(PolicyMode::WeightedInterleave, both).unwrap();
        let weight = |node: NodeId| [3, 1][usize::from(node.0)];
        let turns: Vec<_> = (0..8).map(|nth| weighted.interleaved(nth, weight).0).collect();
        assert_eq!(turns, [0, 0, 0, 1, 0, 0, 0, 1]);
        let plain = MemPolicy::new(PolicyMode::Interleave, both).unwrap();
        let turns: Vec<_> = (0..4).map(|nth| plain.interleaved(nth, weight).0).collect();
        assert_eq!(turns, [0, 1, 0, 1]);
    }

    #[test]
    fn modes_take_nodes_as_in_the_kernel() {
        let none = NodeSet::EMPTY;
        assert!(MemPolicy::new(PolicyMode::Bind, none).is_none());
        assert!(MemPolicy::new(PolicyMode::Local, NodeSet::of([A])).is_none());
        let local = MemPolicy::new(PolicyMode::Preferred, none).unwrap();
        assert_eq!(local.mode(), PolicyMode::Local);
        let first = MemPolicy::new(PolicyMode::Preferred, NodeSet::of([B, A])).unwrap();
        assert_eq!(first.nodes(), NodeSet::of([A]));
    }

    #[test]
    fn a_policy_of_a_range_replaces_the_one_below_it() {
        let [a, b] = [A, B].map(|node| MemPolicy::new(PolicyMode::Bind, NodeSet::of([node])));
        let mut ranges = PolicyRanges::default();
        ranges.set(0..10, a);
        ranges.set(4..6, b);
        ranges.set(8..9, None);
        let found: Vec<_> = [0, 3, 4, 5, 6, 7, 8, 9, 10].map(|index| ranges.at(index)).into();
        assert_eq!(found, [a, a, b, b, a, a, None, a, None]);
    }
}
