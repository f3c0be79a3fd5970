//! Nodes, memory policies and moves in a program of processes.
//!
//! ```text
//!   program 4 pages=128 sizes=64 nodes=2
//!   0 node 1                    runs on a CPU of node 1
//!   0 policy i01                set_mempolicy: interleave on nodes 0 and 1; `d` is the default
//!   0 bind 0 32 b1M             mbind: bind to node 1; `M` moves existing pages
//!   0 move 3 t0                 move_pages to node 0; `A` also moves pages of several processes
//!   0 migrate n01               migrate_pages from node 0 to node 1
//!   program 5 pages=128 sizes=64 nodes=2 balanced
//!   0 hint                      NUMA balancing marks the process's pages
//! ```

use largefolio_mm::mempolicy::{MemPolicy, PolicyMode};
use largefolio_mm::nodes::NodeConfig;
use largefolio_mm::numa::BoundPages;
use largefolio_mm::units::{NodeId, NodeSet};

use crate::crosscheck::text::{Parsed, number_to};

/// The recording program names nodes by one digit, up to 7.
const NR_NODES_MAX: u64 = 8;

const MODES: [(char, PolicyMode); 6] = [
    ('p', PolicyMode::Preferred),
    ('b', PolicyMode::Bind),
    ('i', PolicyMode::Interleave),
    ('l', PolicyMode::Local),
    ('m', PolicyMode::PreferredMany),
    ('w', PolicyMode::WeightedInterleave),
];

/// Reads `nodes=NR`; `None` for another word.
pub(super) fn nodes_of(word: &str) -> Option<Parsed<u64>> {
    let nr = word.strip_prefix("nodes=")?;
    Some(match number_to(NR_NODES_MAX, nr) {
        Ok(0) => Err("a machine has at least one node".to_owned()),
        read => read,
    })
}

pub(super) fn node_of(word: &str) -> Parsed<NodeId> {
    Ok(NodeId(number_to(NR_NODES_MAX - 1, word)? as u8))
}

/// The machine's nodes: alike, and 20 from each other.
pub(super) fn configs(nr: u64) -> Vec<NodeConfig> {
    (0..nr).map(|_| NodeConfig::default()).collect()
}

/// A policy with the call's word for existing pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) policy: Option<MemPolicy>,
    pub(super) pages: BoundPages,
}

/// The node of a move, and the pages that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MoveTo {
    pub(super) node: NodeId,
    pub(super) pages: BoundPages,
}

fn nodes_in(word: &str) -> NodeSet {
    let digits = word.chars().filter_map(|letter| letter.to_digit(NR_NODES_MAX as u32));
    NodeSet::of(digits.map(|digit| NodeId(digit as u8)))
}

fn letters(nodes: NodeSet) -> String {
    nodes.iter().map(|node| node.0.to_string()).collect()
}

/// Reads a policy's letter and nodes; `d` is the default.
pub(super) fn policy_of(word: &str) -> Parsed<Option<MemPolicy>> {
    let letter = word.chars().next().unwrap_or_default();
    if letter == 'd' {
        return Ok(None);
    }
    let mode = MODES.iter().find(|(known, _)| *known == letter);
    let policy = mode.and_then(|(_, mode)| MemPolicy::new(*mode, nodes_in(word)));
    policy.map(Some).ok_or_else(|| format!("{word:?} is not a memory policy"))
}

/// Writes a policy as [`policy_of`] reads it.
pub(super) fn policy_text(policy: Option<MemPolicy>) -> String {
    let Some(policy) = policy else { return "d".to_owned() };
    let letter = MODES.iter().find(|(_, mode)| *mode == policy.mode());
    letter.map_or_else(String::new, |(letter, _)| format!("{letter}{}", letters(policy.nodes())))
}

impl Binding {
    pub(super) fn of(word: &str) -> Parsed<Self> {
        let pages = if word.ends_with('M') { BoundPages::Move } else { BoundPages::Stay };
        Ok(Self { policy: policy_of(word)?, pages })
    }

    pub(super) fn text(self) -> String {
        let moves = if self.pages == BoundPages::Move { "M" } else { "" };
        format!("{}{moves}", policy_text(self.policy))
    }
}

impl MoveTo {
    pub(super) fn of(word: &str) -> Parsed<Self> {
        let pages = if word.ends_with('A') { BoundPages::MoveAll } else { BoundPages::Move };
        let node = nodes_in(word).nth(0).ok_or_else(|| format!("{word:?} names no node"))?;
        Ok(Self { node, pages })
    }

    pub(super) fn text(self) -> String {
        let all = if self.pages == BoundPages::MoveAll { "A" } else { "" };
        format!("t{}{all}", self.node.0)
    }
}

/// Reads `nFROMTO`.
pub(super) fn ends_of(word: &str) -> Parsed<[NodeId; 2]> {
    let mut digits = word.chars().skip(1).map(|letter| letter.to_digit(NR_NODES_MAX as u32));
    match (digits.next().flatten(), digits.next().flatten()) {
        (Some(from), Some(to)) => Ok([NodeId(from as u8), NodeId(to as u8)]),
        _ => Err(format!("{word:?} does not name two nodes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_moves_are_read_as_they_are_written() {
        for text in ["d", "l", "p1", "b01", "i01", "m0", "w01"] {
            assert_eq!(policy_text(policy_of(text).unwrap()), text);
            let bound = format!("{text}M");
            assert_eq!(Binding::of(&bound).unwrap().text(), bound);
        }
        for text in ["t0", "t7A"] {
            assert_eq!(MoveTo::of(text).unwrap().text(), text);
        }
        assert_eq!(ends_of("n10").unwrap(), [NodeId(1), NodeId(0)]);
    }

    #[test]
    fn wrong_words_are_refused() {
        for text in ["", "b", "x1", "l0", "b9"] {
            assert!(policy_of(text).is_err(), "{text}");
        }
        assert!(MoveTo::of("t").is_err() && ends_of("n1").is_err() && ends_of("n19").is_err());
        assert!(nodes_of("nodes=0").unwrap().is_err() && nodes_of("nodes=9").unwrap().is_err());
        assert!(nodes_of("memfd=4").is_none());
    }
}
