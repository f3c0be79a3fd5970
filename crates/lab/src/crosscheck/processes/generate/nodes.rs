//! Programs about NUMA: policies and moves, between the steps of copy-on-write and collapse programs.

use largefolio_mm::mempolicy::{MemPolicy, PolicyMode};
use largefolio_mm::numa::BoundPages;
use largefolio_mm::units::{NodeId, NodeSet};
use largefolio_trace::generate::Rng;

use super::super::nodes::{Binding, MoveTo};
use super::super::program::{AreaSource, ProcessOp};
use super::Generator;

/// Nodes of the machines that run the programs.
pub(super) const NR_NODES: u64 = 2;
/// The first mode that only newer kernels have is last.
const MODES: [PolicyMode; 5] = [
    PolicyMode::Preferred,
    PolicyMode::Bind,
    PolicyMode::Interleave,
    PolicyMode::Local,
    PolicyMode::PreferredMany,
];

fn node(rng: &mut Rng) -> NodeId {
    NodeId(rng.below(NR_NODES) as u8)
}

fn policy(rng: &mut Rng, interleaves: bool) -> Option<MemPolicy> {
    if rng.below(5) == 0 {
        return None;
    }
    let mode = match MODES[rng.below(MODES.len() as u64) as usize] {
        // Interleaved shared memory starts at a node that depends on the file's inode number.
        PolicyMode::Interleave if !interleaves => PolicyMode::Bind,
        PolicyMode::Interleave if rng.below(3) == 0 => PolicyMode::WeightedInterleave,
        mode => mode,
    };
    let both = NodeSet::of((0..NR_NODES as u8).map(NodeId));
    let nodes = match mode {
        PolicyMode::Local => NodeSet::EMPTY,
        _ if rng.below(3) == 0 => both,
        PolicyMode::Interleave | PolicyMode::WeightedInterleave if rng.below(4) > 0 => both,
        _ => NodeSet::of([node(rng)]),
    };
    MemPolicy::new(mode, nodes)
}

impl Generator {
    pub(super) fn nodes_step(&mut self) {
        let (slot, _) = self.some_process();
        let interleaves = !self.shares_memory();
        match self.rng.below(100) {
            0..8 => {
                let node = node(&mut self.rng);
                self.emit(slot, ProcessOp::Node(node));
            }
            8..12 => {
                let policy = policy(&mut self.rng, interleaves);
                self.emit(slot, ProcessOp::Policy(policy));
            }
            12..22 => self.on_range(slot, |rng, range| {
                let pages = if rng.below(3) == 0 { BoundPages::Stay } else { BoundPages::Move };
                ProcessOp::Bind(range, Binding { policy: policy(rng, interleaves), pages })
            }),
            22..32 => self.on_range(slot, |rng, range| {
                let pages = if rng.below(4) == 0 { BoundPages::MoveAll } else { BoundPages::Move };
                ProcessOp::Move(range, MoveTo { node: node(rng), pages })
            }),
            32..34 => {
                let from = node(&mut self.rng);
                let to = NodeId(1 - from.0);
                self.emit(slot, ProcessOp::Migrate([from, to]));
            }
            34..40 => self.touch_run(slot),
            40..46 => self.collapse(slot),
            46..48 => self.pin(slot),
            48..50 => self.emit(slot, ProcessOp::Unpin),
            _ => self.step(),
        }
    }

    /// A third of the programs have shared memory, whose policy all processes follow.
    pub(super) fn shares_memory(&self) -> bool {
        self.program.seed.is_multiple_of(3)
    }

    pub(super) fn source_of_nodes(&mut self) -> AreaSource {
        match self.rng.below(100) {
            0..30 if self.shares_memory() => AreaSource::Shared,
            30..40 if self.shares_memory() => AreaSource::Segment,
            40..48 => AreaSource::Stack,
            _ => AreaSource::Anon,
        }
    }
}
