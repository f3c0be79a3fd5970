//! Reclaim by generations (docs/behaviour P.3).
//!
//! Corresponds to: `lru_gen_shrink_lruvec`, `try_to_shrink_lruvec`, `get_nr_to_scan`,
//! `should_run_aging`.
//!
//! ```text
//!        page tables: accessed folios move to the youngest (aging, look-around)
//!                       |
//!   [ oldest ] [ .. ] [ youngest ]
//!     |
//!     +-- another generation by now --> that generation's list
//!     +-- a protected tier -----------> the second oldest
//!     +-- else: isolated, examined ---> evicted, or back on a list
//! ```
//!
//! Reading order: this file, `evict`, `age`, `young`. [`crate::folio::generations`] has the
//! numbers.
//!
//! Differs:
//! - Global reclaim visits cgroups in turn, as it does with two lists; a kernel sorts the cgroups
//!   into generations.
//! - The second list of PMD ranges worth walking is exact; a kernel's is a Bloom filter, which has
//!   a few false positives.

mod age;
mod evict;
mod young;

use super::scan::{PRIORITY_FIRST, Scan};
use crate::core::pressure::SWAPPINESS;
use crate::core::swap::Swap;
use crate::folio::generations::{BATCH_MAX, BATCH_MIN, Generations, NR_GENERATIONS_MIN};
use crate::folio::lru::{ListId, LruKind};
use crate::memory::Memory;
use crate::rules::reclaim::GenerationRule;
use crate::units::GroupId;

#[derive(Clone, Copy, Debug)]
struct Pass {
    group: GroupId,
    /// Of 200; 0 without swap space.
    swappiness: u64,
    rule: GenerationRule,
    has_aged: bool,
}

impl Pass {
    const fn can_swap(self) -> bool {
        self.swappiness > 0
    }

    fn kinds(self) -> &'static [LruKind] {
        if self.can_swap() { &LruKind::ALL } else { &LruKind::ALL[1..] }
    }

    fn min_seq(self, gens: &Generations) -> u64 {
        self.kinds().iter().map(|&kind| gens.min_seq[kind as usize]).min().unwrap_or(0)
    }

    fn evictable_min_seq(self, gens: &Generations) -> u64 {
        match self.rule {
            GenerationRule::Reworked | GenerationRule::FirstUse => self.min_seq(gens),
            // The preferred kind decides.
            GenerationRule::First | GenerationRule::Protected => {
                gens.min_seq[usize::from(!self.can_swap())]
            }
        }
    }
}

enum Quota {
    Pages(u64),
    Stop,
}

impl Memory {
    pub(super) fn shrink_generations(&mut self, scan: &mut Scan, group: GroupId) {
        let Some(rule) = self.core.folios.generations() else { return };
        self.core.drain_lru();
        let swap = self.core.pressure.swap.as_ref();
        // A few free slots are not worth the search.
        let has_slots = swap.map_or(0, Swap::nr_free) >= BATCH_MIN;
        let swappiness = if has_slots { SWAPPINESS } else { 0 };
        let mut pass = Pass { group, swappiness, rule, has_aged: false };
        if rule == GenerationRule::FirstUse {
            self.shrink_bounded(scan, pass);
            return;
        }
        let mut nr_scanned = 0;
        (scan.nr_file_taken, scan.nr_dirty) = (0, 0);
        while let Quota::Pages(quota @ 1..) = self.quota(scan, &mut pass) {
            // Up to 6.13 a whole batch is scanned, whatever the quota.
            let nr_max = if rule.is_reworked() { quota.min(BATCH_MAX) } else { BATCH_MAX };
            let nr = self.evict_generation(scan, pass, nr_max);
            nr_scanned += nr;
            let is_enough = scan.target == GroupId::ROOT && scan.is_done();
            if nr == 0 || nr_scanned >= quota || is_enough {
                break;
            }
        }
        // Up to 6.13 the flusher is not woken (P.6.3).
        let is_all_dirty = scan.nr_dirty > 0 && scan.nr_dirty == scan.nr_file_taken;
        self.core.pressure.wants_flush |= rule.is_reworked() && is_all_dirty;
    }

    /// From 7.2 on a pass scans as much as the priority says, even after a generation was added.
    fn shrink_bounded(&mut self, scan: &mut Scan, mut pass: Pass) {
        let nr_pages = self.unprotected(scan, pass.group, self.evictable_pages(pass));
        let mut nr_left = nr_pages >> scan.priority;
        while nr_left > 0 {
            let gens = self.gens(pass.group);
            let (max_seq, min_seq) = (gens.max_seq, pass.evictable_min_seq(gens));
            let is_stuck = min_seq + NR_GENERATIONS_MIN > max_seq;
            if is_stuck || scan.priority < PRIORITY_FIRST && self.needs_aging(pass, min_seq) {
                self.add_generation(&mut pass);
            }
            let nr = self.evict_generation(scan, pass, nr_left.min(BATCH_MIN));
            if nr == 0 || scan.is_done() {
                break;
            }
            nr_left = nr_left.saturating_sub(nr);
        }
    }

    fn gens(&self, group: GroupId) -> &Generations {
        &self.core.folios.lru().vec(group).gens
    }

    fn gens_mut(&mut self, group: GroupId) -> &mut Generations {
        &mut self.core.folios.lru_mut().vec_mut(group).gens
    }

    fn generation_pages(&self, group: GroupId, kind: LruKind, seq: u64) -> u64 {
        let list = ListId::generation(kind, Generations::list_of(seq));
        self.core.folios.lru().vec(group).nr_pages(list)
    }

    fn quota(&mut self, scan: &mut Scan, pass: &mut Pass) -> Quota {
        let nr_pages = self.unprotected(scan, pass.group, self.evictable_pages(*pass));
        let quota = nr_pages >> scan.priority;
        let (max_seq, min_seq) = {
            let gens = self.gens(pass.group);
            (gens.max_seq, pass.evictable_min_seq(gens))
        };
        let is_stuck = min_seq + NR_GENERATIONS_MIN > max_seq;
        if !self.needs_aging(*pass, min_seq) {
            return Quota::Pages(quota);
        }
        // The first pass may skip aging.
        if scan.priority == PRIORITY_FIRST {
            return Quota::Pages(if is_stuck { 0 } else { quota });
        }
        let was_added = self.add_generation(pass);
        match (pass.rule, was_added) {
            (GenerationRule::First, true) => Quota::Pages(quota),
            (GenerationRule::First, false) if !is_stuck => Quota::Pages(quota),
            _ => Quota::Stop,
        }
    }

    fn evictable_pages(&self, pass: Pass) -> u64 {
        let gens = self.gens(pass.group);
        let of = |&kind: &LruKind| -> u64 {
            let seqs = gens.min_seq[kind as usize]..=gens.max_seq;
            seqs.map(|seq| self.generation_pages(pass.group, kind, seq)).sum()
        };
        pass.kinds().iter().map(of).sum()
    }

    fn needs_aging(&self, pass: Pass, min_seq: u64) -> bool {
        let gens = self.gens(pass.group);
        let max_seq = gens.max_seq;
        if min_seq + NR_GENERATIONS_MIN != max_seq {
            return min_seq + NR_GENERATIONS_MIN > max_seq;
        }
        if pass.rule.is_reworked() {
            return true;
        }
        // Three remain, which is ideal if each has about a third.
        let pages_of = |seq| -> u64 {
            pass.kinds().iter().map(|&kind| self.generation_pages(pass.group, kind, seq)).sum()
        };
        let total = self.evictable_pages(pass);
        let (young, old) = (pages_of(max_seq), pages_of(max_seq - NR_GENERATIONS_MIN));
        young * NR_GENERATIONS_MIN > total || old * (NR_GENERATIONS_MIN + 2) < total
    }
}
