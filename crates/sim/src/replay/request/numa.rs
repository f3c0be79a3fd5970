//! Where a program runs and its memory policy, as with `numactl`: `node=1,interleave=0-1`; when it
//! moves to another node, and when NUMA balancing works: `node=0,node=1@50%,balance=10%`.
//!
//! Owns the text form and the check against a machine.

use std::fmt;
use std::str::FromStr;

use largefolio_mm::mempolicy::{MemPolicy, PolicyMode};
use largefolio_mm::numa::NodePlace;
use largefolio_mm::units::{NodeId, NodeSet};

use crate::machine::Machine;
use crate::replay::request::changes::Share;

const MODES: [(&str, PolicyMode); 6] = [
    ("preferred", PolicyMode::Preferred),
    ("bind", PolicyMode::Bind),
    ("interleave", PolicyMode::Interleave),
    ("local", PolicyMode::Local),
    ("preferred-many", PolicyMode::PreferredMany),
    ("weighted-interleave", PolicyMode::WeightedInterleave),
];

/// A program on a machine with nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numa {
    /// Where it starts.
    pub place: NodePlace,
    /// When it moves to the CPUs of another node.
    pub moves: Option<(Share, NodeId)>,
    /// The share of the trace between passes of NUMA balancing; `None` = it is off.
    pub balance: Option<Share>,
}

/// What changes while the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumaEvent {
    /// It moves to the CPUs of a node.
    Run(NodeId),
    /// NUMA balancing marks its pages.
    Balance,
}

/// More passes are not plausible: the kernel waits at least a second between two.
const SHARE_MIN: &str = "0.1";

impl Numa {
    /// The first node that it names and the machine lacks, with the machine's number of nodes.
    #[must_use]
    pub fn missing_in(&self, machine: &Machine) -> Option<(NodeId, usize)> {
        let nr_nodes = machine.nodes.len().max(1);
        let named = self.place.policy.map_or(NodeSet::EMPTY, MemPolicy::nodes);
        let later = self.moves.map(|(_, node)| node);
        let mut all = named.iter().chain([self.place.node]).chain(later);
        all.find(|node| usize::from(node.0) >= nr_nodes).map(|node| (node, nr_nodes))
    }

    /// The events of a replay with their rows, in order.
    pub(crate) fn events(&self, nr_before: u64, nr_rows: u64) -> Vec<(u64, NumaEvent)> {
        let moves = self.moves.map(|(share, node)| (share, NumaEvent::Run(node)));
        let passes = self.balance.into_iter().flat_map(Share::multiples);
        let passes = passes.map(|share| (share, NumaEvent::Balance));
        let mut events: Vec<(Share, NumaEvent)> = moves.into_iter().chain(passes).collect();
        events.sort_by_key(|(share, _)| *share);
        events.into_iter().map(|(share, event)| (share.row(nr_before, nr_rows), event)).collect()
    }
}

fn share_of(text: &str) -> Result<Share, String> {
    let share = text.strip_suffix('%').and_then(Share::of);
    share.ok_or_else(|| format!("'{text}' is not a share of the trace below 100%, such as 50%"))
}

/// Reads `1` or `1@50%`.
fn later_node_of(text: &str) -> Result<(Option<Share>, NodeId), String> {
    let Some((node, share)) = text.split_once('@') else { return Ok((None, node_of(text)?)) };
    Ok((Some(share_of(share)?), node_of(node)?))
}

fn balance_of(text: &str) -> Result<Share, String> {
    let share = share_of(text)?;
    if Share::of(SHARE_MIN).is_some_and(|min| share < min) {
        return Err(format!("'{text}': at least {SHARE_MIN}% of the trace is between two passes"));
    }
    Ok(share)
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
                match later_node_of(value)? {
                    (None, node) => numa.place.node = node,
                    (Some(_), _) if numa.moves.is_some() => {
                        return Err(format!("'{word}' is a second move; give one"));
                    }
                    (Some(share), node) => numa.moves = Some((share, node)),
                }
                continue;
            }
            if key == "balance" {
                numa.balance = Some(balance_of(value)?);
                continue;
            }
            let mode = MODES.iter().find(|(name, _)| *name == key);
            let (_, mode) = mode.ok_or_else(|| {
                let names: Vec<&str> = MODES.iter().map(|(name, _)| *name).collect();
                format!(
                    "'{word}' is neither node=N nor balance=SHARE% nor a policy; policies are {}",
                    names.join(", ")
                )
            })?;
            if numa.place.policy.is_some() {
                return Err(format!("'{word}' is a second policy; give one"));
            }
            let nodes = if value.is_empty() { NodeSet::EMPTY } else { nodes_of(value)? };
            let policy = MemPolicy::new(*mode, nodes);
            numa.place.policy = Some(policy.ok_or_else(|| {
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
        write!(f, "node={}", self.place.node.0)?;
        if let Some(policy) = self.place.policy {
            let name = MODES.iter().find(|(_, mode)| *mode == policy.mode());
            write!(f, ",{}", name.map_or("", |(name, _)| name))?;
            for (nr, node) in policy.nodes().iter().enumerate() {
                write!(f, "{}{}", if nr == 0 { '=' } else { '+' }, node.0)?;
            }
        }
        if let Some((share, node)) = self.moves {
            write!(f, ",node={}@{share}", node.0)?;
        }
        if let Some(share) = self.balance {
            write!(f, ",balance={share}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_is_read_as_it_is_written() {
        for text in [
            "node=0",
            "node=1,bind=1",
            "node=0,interleave=0+1",
            "node=0,local",
            "node=0,node=1@50%,balance=12.5%",
            "node=1,preferred=0,balance=10%",
        ] {
            assert_eq!(text.parse::<Numa>().unwrap().to_string(), text);
        }
        let range: Numa = "interleave=0-2".parse().unwrap();
        assert_eq!(range.to_string(), "node=0,interleave=0+1+2");
    }

    #[test]
    fn a_pass_follows_each_share_of_the_trace() {
        let numa: Numa = "balance=40%,node=1@40%".parse().unwrap();
        let events = numa.events(10, 110);
        let run = NumaEvent::Run(NodeId(1));
        assert_eq!(events, [(50, run), (50, NumaEvent::Balance), (90, NumaEvent::Balance)]);
        assert_eq!("node=1".parse::<Numa>().unwrap().events(0, 100), []);
    }

    #[test]
    fn wrong_placements_name_the_word() {
        for (text, what) in [
            ("", "'' is neither node=N nor balance=SHARE% nor a policy"),
            ("node=1@50", "'50' is not a share"),
            ("node=1@100%", "'100%' is not a share"),
            ("node=1@5%,node=0@6%", "'node=0@6%' is a second move"),
            ("balance", "'' is not a share"),
            ("balance=0.01%", "'0.01%': at least 0.1%"),
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
