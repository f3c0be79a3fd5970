//! A remedy's gain and cost, as sums over a mapping's blocks.
//!
//! ```text
//!   a mapping's blocks   -> judged one at a time (census::block) -> Gain
//!   a file's blocks      -> counted for the first mapping that gains them, in any process
//! ```
//!
//! Pure: takes facts and earlier promises ([`Promised`]).
//!
//! Invariants:
//! - G1: a gain never exceeds the mapping's allowed blocks.
//! - G2: all mappings of the same memory together gain at most that memory, in whole blocks.
//! - G3: a gain's present, new and swapped bytes sum to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::census::block::{AreaFacts, BlockFacts, BlockPlace, FileBlock, Obstacle, Runs, When};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gain {
    /// In blocks that are not large yet but can be.
    pub(super) bytes: u64,
    pub(super) present_bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) swapped_bytes: u64,
    /// Copied while other processes keep the original; this also needs more memory.
    pub(super) copied_bytes: u64,
    /// Left out because it is counted in another mapping of the same memory.
    pub(super) elsewhere_bytes: u64,
    /// Left out because this much is pinned at unknown addresses.
    pub(super) pinned_bytes: u64,
}

impl Gain {
    pub(super) fn without_pinned(self, pinned_bytes: u64, block_bytes: u64) -> Self {
        let pinned_bytes = pinned_bytes.next_multiple_of(block_bytes).min(self.bytes);
        Self { pinned_bytes, ..self.without(pinned_bytes) }
    }

    /// Subtracts `bytes` of present memory at unknown addresses.
    pub(super) fn without(self, bytes: u64) -> Self {
        let bytes = self.bytes.saturating_sub(bytes);
        // The rest keeps as many of its holes as fit.
        let new_bytes = self.new_bytes.min(bytes);
        let swapped_bytes = self.swapped_bytes.min(bytes - new_bytes);
        let present_bytes = bytes - new_bytes - swapped_bytes;
        let copied_bytes = self.copied_bytes.min(present_bytes);
        Self { bytes, present_bytes, new_bytes, swapped_bytes, copied_bytes, ..self }
    }

    /// Accounts for shared memory in swap, which page tables do not show: up to `bytes` of the
    /// seemingly new memory is read from swap instead.
    pub(super) fn reading(self, bytes: u64) -> Self {
        let read = bytes.min(self.new_bytes);
        Self { new_bytes: self.new_bytes - read, swapped_bytes: self.swapped_bytes + read, ..self }
    }

    /// Returns the additional memory it needs, without swapped memory.
    pub(super) const fn extra_bytes(&self) -> u64 {
        self.new_bytes.saturating_add(self.copied_bytes)
    }
}

/// The shared blocks of all mappings, and those already promised.
#[derive(Debug, Default)]
pub(super) struct Promised {
    /// The highest page count that one mapping has in each block.
    views: BTreeMap<FileBlock, u32>,
    now: BTreeSet<FileBlock>,
    next: BTreeSet<FileBlock>,
}

impl Promised {
    /// Adds a mapping, which may show pages that other mappings do not.
    pub(super) fn see(&mut self, place: BlockPlace, runs: &Runs, page_bytes: u64) {
        let block_bytes = page_bytes << runs.order;
        for run in runs.iter() {
            for block in run.first..run.first + run.nr {
                let most =
                    self.views.entry(place.block(runs.order, block, block_bytes)).or_default();
                *most = run.facts.nr_present.max(*most);
            }
        }
    }

    pub(super) fn keep(&mut self, blocks: Vec<FileBlock>, when: When) {
        self.of(when).extend(blocks);
    }

    const fn of(&mut self, when: When) -> &mut BTreeSet<FileBlock> {
        match when {
            When::Now => &mut self.now,
            When::NextStart => &mut self.next,
        }
    }

    const fn kept(&self, when: When) -> &BTreeSet<FileBlock> {
        match when {
            When::Now => &self.now,
            When::NextStart => &self.next,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks<'a> {
    pub(super) area: AreaFacts,
    pub(super) runs: &'a Runs,
    pub(super) place: Option<BlockPlace>,
    pub(super) page_bytes: u64,
}

impl Blocks<'_> {
    pub(super) fn gain(&self, when: When, promised: &Promised) -> (Gain, Vec<FileBlock>) {
        let (mut gain, mut kept) = (Gain::default(), Vec::new());
        for run in self.runs.iter() {
            let Some(place) = self.place else {
                self.add(&mut gain, &run.facts, run.nr, when);
                continue;
            };
            for block in run.first..run.first + run.nr {
                let block = place.block(self.runs.order, block, self.block_bytes());
                let mut facts = run.facts;
                let most = promised.views.get(&block).copied().unwrap_or(0);
                facts.nr_present = facts.nr_present.max(most).min(self.runs.nr_pages());
                if !self.allows(&facts, when) {
                    continue;
                }
                // A mapping never contains a file block twice.
                if promised.kept(when).contains(&block) {
                    gain.elsewhere_bytes += self.block_bytes();
                    continue;
                }
                kept.push(block);
                self.add(&mut gain, &facts, 1, when);
            }
        }
        (gain, kept)
    }

    fn allows(&self, facts: &BlockFacts, when: When) -> bool {
        self.area.judge(facts, self.runs.nr_pages(), when).is_ok()
    }

    fn add(&self, gain: &mut Gain, facts: &BlockFacts, nr: u64, when: When) {
        let nr_pages = self.runs.nr_pages();
        let Ok(cost) = self.area.judge(facts, nr_pages, when) else { return };
        let bytes = |pages: u64| pages.saturating_mul(nr).saturating_mul(self.page_bytes);
        gain.bytes += bytes(nr_pages.into());
        gain.new_bytes += bytes(cost.nr_new);
        gain.swapped_bytes += bytes(cost.nr_swapped);
        gain.copied_bytes += bytes(cost.nr_copied);
        gain.present_bytes +=
            bytes(u64::from(nr_pages).saturating_sub(cost.nr_new).saturating_sub(cost.nr_swapped));
    }

    pub(super) fn obstacles(&self, when: When) -> BTreeMap<Obstacle, u64> {
        let mut bytes_of: BTreeMap<Obstacle, u64> = BTreeMap::new();
        for run in self.runs.iter() {
            if let Err(obstacle) = self.area.judge(&run.facts, self.runs.nr_pages(), when) {
                *bytes_of.entry(obstacle).or_default() += run.nr * self.block_bytes();
            }
        }
        bytes_of
    }

    const fn block_bytes(&self) -> u64 {
        self.page_bytes << self.runs.order
    }
}

#[cfg(test)]
mod tests;
