//! A group's generations, and the refault statistics of their tiers (docs/behaviour P.3).
//!
//! Corresponds to: `struct lru_gen_folio`, `read_ctrl_pos`, `positive_ctrl_err`, `reset_ctrl_pos`.
//!
//! ```text
//!   seq    min_seq                         max_seq
//!            |                                |
//!          [ oldest ] [ second ] [ .. ] [ youngest ]       at most 4, at least 2 per kind
//!   evicted from here                  folios used through page tables go here
//! ```
//!
//! Generations are numbered in ascending order; a generation's list is its number modulo 4. A folio
//! used several times through descriptors is in a higher tier of its generation. Eviction spares a
//! tier if its pages refault more often than the pages in the first tier. Owns the numbers and that
//! comparison. Does not own the lists ([`super::lru`]) or moves between them
//! (`crate::reclaim::generations`).
//!
//! Invariants:
//! - I1: each kind of memory has 1 to 4 generations: `max_seq - 3 <= min_seq <= max_seq`.

use super::link::Marks;
use super::list_id::LruKind;
use crate::rules::reclaim::GenerationRule;

pub(crate) const NR_GENERATIONS_MAX: u64 = 4;
/// Generations that eviction leaves (`MIN_NR_GENS`).
pub(crate) const NR_GENERATIONS_MIN: u64 = 2;
pub(crate) const NR_TIERS: usize = 4;
/// Largest stored count of uses, without the first (`LRU_REFS_MASK`).
pub(crate) const NR_REFS_MAX: u8 = 3;
/// Pages isolated at a time; fewer refaults than this are not significant (`MIN_LRU_BATCH`).
pub(crate) const BATCH_MIN: u64 = 64;
pub(crate) const BATCH_MAX: u64 = 64 * 64;

type Tiers = [[u64; NR_TIERS]; 2];

#[derive(Clone, Debug)]
pub(crate) struct Generations {
    pub(crate) max_seq: u64,
    pub(crate) min_seq: [u64; 2],
    avg_refaulted: Tiers,
    avg_total: Tiers,
    refaulted: Tiers,
    evicted: Tiers,
    protected: Tiers,
}

impl Default for Generations {
    fn default() -> Self {
        Self {
            max_seq: NR_GENERATIONS_MIN + 1,
            min_seq: [0; 2],
            avg_refaulted: Tiers::default(),
            avg_total: Tiers::default(),
            refaulted: Tiers::default(),
            evicted: Tiers::default(),
            protected: Tiers::default(),
        }
    }
}

/// Refault statistics of some pages, with a weight (`struct ctrl_pos`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refaults {
    nr_refaulted: u64,
    nr_total: u64,
    gain: u64,
}

impl Refaults {
    /// Whether pages with statistics `other` refaulted rarely, or at most as often as these.
    pub(crate) fn allows(self, other: Self) -> bool {
        let left = u128::from(other.nr_refaulted)
            * u128::from(self.nr_total + BATCH_MIN)
            * u128::from(self.gain);
        let right =
            u128::from(self.nr_refaulted + 1) * u128::from(other.nr_total) * u128::from(other.gain);
        other.nr_refaulted < BATCH_MIN || left <= right
    }
}

impl Generations {
    pub(crate) const fn nr(&self, kind: LruKind) -> u64 {
        self.max_seq + 1 - self.min_seq[kind as usize]
    }

    pub(crate) const fn list_of(seq: u64) -> u8 {
        (seq % NR_GENERATIONS_MAX) as u8
    }

    pub(crate) fn retire_oldest(&mut self, kind: LruKind) {
        self.fade(kind);
        self.min_seq[kind as usize] += 1;
    }

    /// Halves the refault statistics (`reset_ctrl_pos`).
    pub(crate) fn fade(&mut self, kind: LruKind) {
        let kind = kind as usize;
        for tier in 0..NR_TIERS {
            let refaulted = self.avg_refaulted[kind][tier] + self.refaulted[kind][tier];
            let gone = self.evicted[kind][tier] + self.protected[kind][tier];
            let total = self.avg_total[kind][tier] + gone;
            self.avg_refaulted[kind][tier] = refaulted / 2;
            self.avg_total[kind][tier] = total / 2;
        }
        (self.refaulted[kind], self.evicted[kind], self.protected[kind]) = Default::default();
    }

    pub(crate) fn note_evicted(&mut self, kind: LruKind, tier: usize, nr_pages: u64) {
        self.evicted[kind as usize][tier] += nr_pages;
    }

    pub(crate) fn note_protected(&mut self, kind: LruKind, tier: usize, nr_pages: u64) {
        self.protected[kind as usize][tier] += nr_pages;
    }

    pub(crate) fn note_refaulted(&mut self, kind: LruKind, tier: usize, nr_pages: u64) {
        self.refaulted[kind as usize][tier] += nr_pages;
    }

    fn refaults(&self, kind: LruKind, tiers: std::ops::Range<usize>, gain: u64) -> Refaults {
        let kind = kind as usize;
        let mut sum = Refaults { nr_refaulted: 0, nr_total: 0, gain };
        for tier in tiers {
            sum.nr_refaulted += self.avg_refaulted[kind][tier] + self.refaulted[kind][tier];
            sum.nr_total += self.avg_total[kind][tier] + self.evicted[kind][tier];
            sum.nr_total += self.protected[kind][tier];
        }
        sum
    }

    /// The highest tier that can be evicted. Tiers that refault too often are spared. To rule out
    /// chance, a higher tier must be twice as bad as the first (6.16+: one and a half times).
    pub(crate) fn tier_max(&self, kind: LruKind, rule: GenerationRule) -> usize {
        let (first, higher) = if rule.is_reworked() { (2, 3) } else { (1, 2) };
        let base = self.refaults(kind, 0..1, first);
        self.last_allowed(kind, base, higher)
    }

    fn last_allowed(&self, kind: LruKind, base: Refaults, gain: u64) -> usize {
        (1..NR_TIERS)
            .take_while(|&tier| base.allows(self.refaults(kind, tier..tier + 1, gain)))
            .last()
            .unwrap_or(0)
    }

    /// The kind to evict from, by refault cost and `swappiness`, and its highest tier to evict.
    pub(crate) fn kind_to_evict(&self, swappiness: u64, rule: GenerationRule) -> (LruKind, usize) {
        let gain = [swappiness, 200 - swappiness];
        let tiers = if rule.is_reworked() { 0..NR_TIERS } else { 0..1 };
        let of = |kind: LruKind| self.refaults(kind, tiers.clone(), gain[kind as usize]);
        let is_file = of(LruKind::Anon).allows(of(LruKind::File));
        let (kind, other) =
            if is_file { (LruKind::File, LruKind::Anon) } else { (LruKind::Anon, LruKind::File) };
        let tier = match rule {
            GenerationRule::Reworked | GenerationRule::FirstUse => self.tier_max(kind, rule),
            GenerationRule::First | GenerationRule::Protected => {
                let base = self.refaults(other, 0..1, gain[other as usize]);
                self.last_allowed(kind, base, gain[kind as usize])
            }
        };
        (kind, tier)
    }

    pub(crate) fn is_sound(&self) -> bool {
        let is_near = |&min: &u64| min <= self.max_seq && self.max_seq < min + NR_GENERATIONS_MAX;
        self.min_seq.iter().all(is_near)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct NewListing {
    pub(crate) kind: LruKind,
    pub(crate) marks: Marks,
    pub(crate) is_workingset: bool,
    pub(crate) waits_for_writeback: bool,
    pub(crate) is_in_swap_cache: bool,
}

impl Generations {
    pub(crate) fn seq_of(&self, listing: NewListing, rule: GenerationRule) -> u64 {
        let (max, min) = (self.max_seq, self.min_seq[listing.kind as usize]);
        let is_active = listing.marks.is_active;
        // It must be written before eviction, so it starts in a younger generation.
        let is_unsaved = listing.kind == LruKind::Anon && !listing.is_in_swap_cache;
        let cannot_go = is_unsaved || listing.waits_for_writeback;
        match rule {
            GenerationRule::Reworked | GenerationRule::FirstUse => {
                // Generations below the youngest.
                let was_used = listing.is_workingset
                    || rule == GenerationRule::FirstUse && listing.marks.is_referenced;
                let down = if is_active {
                    1 - u64::from(listing.is_workingset)
                } else if cannot_go {
                    1
                } else {
                    3 - u64::from(was_used)
                };
                max.saturating_sub(down).max(min)
            }
            GenerationRule::First | GenerationRule::Protected if is_active => max,
            GenerationRule::First | GenerationRule::Protected if cannot_go => max - 1,
            // With four generations, the oldest is left to folios already in it.
            GenerationRule::First | GenerationRule::Protected => {
                min + u64::from(min + NR_GENERATIONS_MIN < max)
            }
        }
    }
}

pub(crate) fn nr_refs(marks: Marks, is_workingset: bool, rule: GenerationRule) -> u8 {
    match rule {
        GenerationRule::First | GenerationRule::Protected => {
            marks.nr_refs + u8::from(is_workingset)
        }
        GenerationRule::Reworked | GenerationRule::FirstUse if marks.is_referenced => {
            marks.nr_refs + 1
        }
        GenerationRule::Reworked | GenerationRule::FirstUse => 0,
    }
}

pub(crate) fn tier_of(nr_refs: u8, is_workingset: bool, rule: GenerationRule) -> usize {
    match rule {
        GenerationRule::First | GenerationRule::Protected => order_base_2(u64::from(nr_refs) + 1),
        GenerationRule::Reworked | GenerationRule::FirstUse if is_workingset => NR_TIERS - 1,
        GenerationRule::Reworked | GenerationRule::FirstUse => order_base_2(nr_refs.into()),
    }
}

fn order_base_2(nr: u64) -> usize {
    nr.max(1).next_power_of_two().trailing_zeros() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: GenerationRule = GenerationRule::Protected;
    const NEW: GenerationRule = GenerationRule::Reworked;

    #[test]
    fn uses_become_tiers() {
        let tiers = |rule, is_workingset: bool| {
            [0, 1, 2, 3, 4].map(|refs| tier_of(refs, is_workingset, rule))
        };
        assert_eq!(tiers(OLD, false), [0, 1, 2, 2, 3]);
        assert_eq!(tiers(NEW, false), [0, 0, 1, 2, 2]);
        assert_eq!(tiers(NEW, true), [3; 5]);
    }

    #[test]
    fn a_tier_that_comes_back_more_often_is_spared() {
        let mut gens = Generations::default();
        assert_eq!(gens.tier_max(LruKind::File, OLD), 3, "nothing is known");
        gens.note_evicted(LruKind::File, 0, 1000);
        gens.note_evicted(LruKind::File, 2, 100);
        gens.note_refaulted(LruKind::File, 2, 63);
        assert_eq!(gens.tier_max(LruKind::File, OLD), 3, "63 refaults say nothing");
        gens.note_refaulted(LruKind::File, 2, 1);
        assert_eq!(gens.tier_max(LruKind::File, OLD), 1);
        gens.note_refaulted(LruKind::File, 0, 900);
        assert_eq!(gens.tier_max(LruKind::File, OLD), 3, "the first tier is as bad");
        gens.retire_oldest(LruKind::File);
        assert_eq!((gens.nr(LruKind::File), gens.nr(LruKind::Anon)), (3, 4));
        assert_eq!(gens.refaults(LruKind::File, 0..1, 1).nr_total, 500);
    }

    #[test]
    fn where_a_folio_starts() {
        let mut gens = Generations { max_seq: 10, ..Generations::default() };
        gens.min_seq = [7, 7];
        let seq = |gens: &Generations, rule, is_active, is_workingset| {
            let marks = Marks { is_active, ..Marks::default() };
            let kind = LruKind::File;
            let (waits_for_writeback, is_in_swap_cache) = (false, false);
            let listing =
                NewListing { kind, marks, is_workingset, waits_for_writeback, is_in_swap_cache };
            gens.seq_of(listing, rule)
        };
        let all = |gens: &Generations, is_active, is_workingset| {
            [GenerationRule::First, OLD, NEW].map(|rule| seq(gens, rule, is_active, is_workingset))
        };
        assert_eq!(all(&gens, false, false), [8, 8, 7]);
        assert_eq!(all(&gens, false, true), [8, 8, 8]);
        assert_eq!(all(&gens, true, false), [10, 10, 9]);
        assert_eq!(all(&gens, true, true), [10, 10, 10]);
        gens.min_seq = [8, 8];
        assert_eq!(all(&gens, false, false), [8, 8, 8]);
    }
}
