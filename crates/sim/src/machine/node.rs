//! The NUMA nodes of a machine: each one's part of memory, and its distance to the others.

use largefolio_mm::nodes::{LOCAL_DISTANCE, NodeConfig};
use largefolio_mm::units::NodeId;
use serde::{Deserialize, Serialize};

use super::error::Contradiction;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineNode {
    /// Its part of memory, relative to the other nodes' parts.
    pub share: u32,
    /// Distances to all nodes in order, as `numactl --hardware` shows them.
    pub distances: Vec<u8>,
    /// Its turns under `MPOL_WEIGHTED_INTERLEAVE`.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u8,
    /// The document, or the reason for an assumption.
    pub source: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub assumed: bool,
}

const fn one() -> u8 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_one(weight: &u8) -> bool {
    *weight == 1
}

impl MachineNode {
    #[must_use]
    pub fn config(&self) -> NodeConfig {
        let Self { share, distances, weight, .. } = self;
        NodeConfig { share: *share, distances: distances.clone(), weight: *weight }
    }

    /// Checks a machine's nodes together; none is one node.
    pub(super) fn check_all(nodes: &[Self]) -> Result<(), Contradiction> {
        let contradiction = |nr: usize, key: &str, what: &'static str| Contradiction::Node {
            place: format!("nodes[{nr}].{key}"),
            what,
        };
        if nodes.len() > usize::from(NodeId::LIMIT) {
            return Err(contradiction(nodes.len() - 1, "share", "a machine has at most 16 nodes"));
        }
        for (nr, node) in nodes.iter().enumerate() {
            if node.share == 0 || node.weight == 0 {
                return Err(contradiction(nr, "share", "share and weight are at least 1"));
            }
            let is_valid = |(to, &distance): (usize, &u8)| {
                if to == nr { distance == LOCAL_DISTANCE } else { distance > LOCAL_DISTANCE }
            };
            if node.distances.len() != nodes.len()
                || !node.distances.iter().enumerate().all(is_valid)
            {
                let what = "one distance to each node is needed: 10 to itself, more to others";
                return Err(contradiction(nr, "distances", what));
            }
            if node.source.trim().is_empty() {
                return Err(Contradiction::NoSource { place: format!("nodes[{nr}]") });
            }
        }
        Ok(())
    }
}
