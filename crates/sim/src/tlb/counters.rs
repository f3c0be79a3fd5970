//! TLB counters.

use std::ops::{AddAssign, Sub};

use serde::{Deserialize, Serialize};

use super::access::Side;
use super::coalesce::LeafKind;
use super::walk_cache::Steps;
use super::walker::WalkCounters;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideCounters {
    /// References. Each is a level-1 hit, a level-1 miss or a permission miss.
    pub references: u64,
    pub l1_misses: u64,
    /// References that also missed level 2, or had no level 2: page-table walks.
    pub l2_misses: u64,
    /// Writes that found a read-only entry: a protection fault and a walk, but not a TLB miss.
    pub permission_misses: u64,
}

impl SideCounters {
    #[must_use]
    pub const fn l2_hits(&self) -> u64 {
        self.l1_misses - self.l2_misses
    }
}

impl AddAssign for SideCounters {
    fn add_assign(&mut self, other: Self) {
        self.references += other.references;
        self.l1_misses += other.l1_misses;
        self.l2_misses += other.l2_misses;
        self.permission_misses += other.permission_misses;
    }
}

/// Counters of a TLB. `+=` sums over CPUs; `-` returns the counts since an earlier moment.
///
/// If one fill follows every miss, `walks() == l2_misses() + permission_misses()`. A walk that ends
/// in a segmentation fault is a miss without a fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub instruction: SideCounters,
    pub data: SideCounters,
    pub walks_pte: u64,
    pub walks_contpte: u64,
    pub walks_pmd: u64,
    pub walk_refs_pgd: u64,
    pub walk_refs_pud: u64,
    pub walk_refs_pmd: u64,
    pub walk_refs_pte: u64,
    /// Level-2 hits of the data side whose address a recent row loaded.
    pub chained_hits: u64,
    /// Walks by their kind of wait, and where their cache lines were found.
    pub walk_kinds: WalkCounters,
}

impl Counters {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.instruction.references == 0 && self.data.references == 0
    }

    #[must_use]
    pub const fn walks(&self) -> u64 {
        self.walks_pte + self.walks_pmd
    }

    #[must_use]
    pub const fn l2_misses(&self) -> u64 {
        self.instruction.l2_misses + self.data.l2_misses
    }

    #[must_use]
    pub const fn permission_misses(&self) -> u64 {
        self.instruction.permission_misses + self.data.permission_misses
    }

    #[must_use]
    pub const fn side(&self, side: Side) -> &SideCounters {
        match side {
            Side::Instruction => &self.instruction,
            Side::Data => &self.data,
        }
    }

    #[inline]
    pub(super) const fn side_mut(&mut self, side: Side) -> &mut SideCounters {
        match side {
            Side::Instruction => &mut self.instruction,
            Side::Data => &mut self.data,
        }
    }

    #[must_use]
    pub const fn walk_references(&self) -> u64 {
        self.walk_refs_pgd + self.walk_refs_pud + self.walk_refs_pmd + self.walk_refs_pte
    }

    #[must_use]
    pub const fn l2_hits(&self) -> u64 {
        self.instruction.l2_hits() + self.data.l2_hits()
    }

    /// Returns the level-2 hits that the program waits for, and those that overlap with its work.
    #[must_use]
    pub const fn l2_hits_by_wait(&self) -> [u64; 2] {
        let waited = self.instruction.l2_hits() + self.chained_hits;
        [waited, self.l2_hits() - waited]
    }

    pub(super) const fn count_steps(&mut self, steps: Steps) {
        self.walk_refs_pgd += steps.pgd;
        self.walk_refs_pud += steps.pud;
        self.walk_refs_pmd += steps.pmd;
        self.walk_refs_pte += steps.pte;
    }

    pub(super) const fn count_walk(&mut self, leaf: LeafKind) {
        match leaf {
            LeafKind::Pte => self.walks_pte += 1,
            LeafKind::Contpte => {
                self.walks_pte += 1;
                self.walks_contpte += 1;
            }
            LeafKind::Pmd => self.walks_pmd += 1,
        }
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.instruction += other.instruction;
        self.data += other.data;
        self.walks_pte += other.walks_pte;
        self.walks_contpte += other.walks_contpte;
        self.walks_pmd += other.walks_pmd;
        self.walk_refs_pgd += other.walk_refs_pgd;
        self.walk_refs_pud += other.walk_refs_pud;
        self.walk_refs_pmd += other.walk_refs_pmd;
        self.walk_refs_pte += other.walk_refs_pte;
        self.chained_hits += other.chained_hits;
        self.walk_kinds += other.walk_kinds;
    }
}

impl Sub for SideCounters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            references: self.references - before.references,
            l1_misses: self.l1_misses - before.l1_misses,
            l2_misses: self.l2_misses - before.l2_misses,
            permission_misses: self.permission_misses - before.permission_misses,
        }
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            instruction: self.instruction - before.instruction,
            data: self.data - before.data,
            walks_pte: self.walks_pte - before.walks_pte,
            walks_contpte: self.walks_contpte - before.walks_contpte,
            walks_pmd: self.walks_pmd - before.walks_pmd,
            walk_refs_pgd: self.walk_refs_pgd - before.walk_refs_pgd,
            walk_refs_pud: self.walk_refs_pud - before.walk_refs_pud,
            walk_refs_pmd: self.walk_refs_pmd - before.walk_refs_pmd,
            walk_refs_pte: self.walk_refs_pte - before.walk_refs_pte,
            chained_hits: self.chained_hits - before.chained_hits,
            walk_kinds: self.walk_kinds - before.walk_kinds,
        }
    }
}
