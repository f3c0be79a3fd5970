//! Where a program runs and its memory policy, as with `numactl`: `node=1,interleave=0-1`.
//!
//! Owns the text form and the check against a machine.

use std::fmt;
use std::str::FromStr;

use largefolio_mm::mempolicy::{MemPolicy, PolicyMode};
use largefolio_mm::numa::NodePlace;
use largefolio_mm::units::{NodeId, NodeSet};

use crate::machine::Machine;

const MODES: [(&str, PolicyMode); 6] = [
    ("preferred", PolicyMode::Preferred),
    ("bind", PolicyMode::Bind),
    ("interleave", PolicyMode::Interleave),
    ("local", PolicyMode::Local),
    ("preferred-many", PolicyMode::PreferredMany),
    ("weighted-interleave", PolicyMode::WeightedInterleave),
];

/// The start of a program on a machine with nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numa(pub NodePlace);

impl Numa {
    /// The first node that it names and the machine lacks, with the machine's number of nodes.
    #[must_use]
    pub fn missing_in(&self, machine: &Machine) -> Option<(NodeId, usize)> {
        let nr_nodes = machine.nodes.len().max(1);
        let named = self.0.policy.map_or(NodeSet::EMPTY, MemPolicy::nodes);
        let mut all = named.iter().chain([self.0.node]);
        all.find(|node| usize::from(node.0) >= nr_nodes).map(|node| (node, nr_nodes))
    }
}

fn node_of(text: &str) -> Result<NodeId, String> {
    let number = text.parse().ok().filter(|number| *number < NodeId::LIMIT);
    number.map(NodeId).ok_or_else(|| format!("'{text}' is not a node; nodes are 0 to 15"))
}

/// Reads `0`, `0+2` or `0-3`.
fn nodes_of(text: &str) -> Result<NodeSet, String> {
    let mut nodes = Vec::new();
    for part in text.split('+') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (node_of(first)?, node_of(last)?);
        nodes.extend((first.0..=last.0).map(NodeId));
    }
    Ok(NodeSet::of(nodes))
}

impl FromStr for Numa {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numa = Self::default();
        for word in text.split(',') {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if key == "node" {
                numa.0.node = node_of(value)?;
                continue;
            }
            let mode = MODES.iter().find(|(name, _)| *name == key);
            let (_, mode) = mode.ok_or_else(|| {
                let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
                format!(
                    "'{word}' is neither node=N nor a policy; policies are {}",
                    names.join(", ")
                )
            })?;
            if numa.0.policy.is_some() {
                return Err(format!("'{word}' is a second policy; give one"));
            }
            let nodes = if value.is_empty() { NodeSet::EMPTY } else { nodes_of(value)? };
            let policy = MemPolicy::new(*mode, nodes);
            numa.0.policy = Some(policy.ok_or_else(|| {
                format!(
                    "'{word}': {key} {} nodes",
                    if value.is_empty() { "needs" } else { "takes no" }
                )
            })?);
        }
        Ok(numa)
    }
}

impl fmt::Display for Numa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node={}", self.0.node.0)?;
        let Some(policy) = self.0.policy else { return Ok(()) };
        let name = MODES.iter().find(|(_, mode)| *mode == policy.mode());
        write!(f, ",{}", name.map_or("", |(name, _)| name))?;
        for (nr, node) in policy.nodes().iter().enumerate() {
            write!(f, "{}{}", if nr == 0 { '=' } else { '+' }, node.0)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_as_it_is_written() {
        for text in ["node=0", "node=1,bind=1", "node=0,interleave=0+1", "node=0,local"] {
            assert_eq!(text.parse::<Numa>().unwrap().to_string(), text);
        }
        let range: Numa = "interleave=0-2".parse().unwrap();
        assert_eq!(range.to_string(), "node=0,interleave=0+1+2");
    }

    #[test]
    fn wrong_placements_name_the_word() {
        for (text, what) in [
            ("", "'' is neither node=N nor a policy"),
            ("node=16", "'16' is not a node"),
            ("bind", "'bind': bind needs nodes"),
            ("local=1", "'local=1': local takes no nodes"),
            ("bind=0,local", "'local' is a second policy"),
            ("bind=1-x", "'x' is not a node"),
        ] {
            let error = text.parse::<Numa>().unwrap_err();
            assert!(error.starts_with(what), "{error}");
        }
    }
}
