//! Computes a mapping's gains, now and after a restart, as sums of [`super::gain`].

use super::case::Case;
use super::gain::{Blocks, Gain};
use super::judge::Judge;
use super::pieces::HeapPiece;
use super::reason::{Finding, Refusal};
use crate::census::block::{AreaFacts, Backing, FileBlock, When};
use crate::proc::smaps::{Merging, Smap};
use crate::remedies::{Action, Remedy};

impl Judge<'_> {
    pub(super) fn gains(&mut self, case: &Case<'_>) -> Gains {
        let area = self.area(case);
        let geometry = self.census.geometry;
        let (pmd_bytes, target_bytes) = (geometry.pmd_bytes(), case.target_bytes);
        let swap_bytes = match area.backing {
            Backing::Shmem => self.facts.smap(case).swap_bytes,
            Backing::Anon | Backing::File => 0,
        };
        // If no option lifts the ban, the remedy says so.
        let Some(blocks) = self.blocks(case, area.lifted(), target_bytes) else {
            return Gains::unseen(case, area, pmd_bytes);
        };
        let allocated = self.allocated(case);
        let pieces = &allocated.pieces;
        let page_bytes = geometry.page_bytes;
        let inside = |is_wanted: fn(&HeapPiece) -> bool| {
            let pieces = pieces.iter().filter(|piece| is_wanted(piece));
            blocks.runs.inside(pieces.map(|piece| piece.range.clone()), page_bytes)
        };
        let (whole, chunks) = (inside(|_| true), inside(|piece| piece.is_chunk));
        let of_runs = |runs| Blocks { runs, ..blocks }.gain(When::NextStart, &self.promised);
        let has_borders = pieces.has_borders();
        let (next, next_blocks) = of_runs(if has_borders { &whole } else { blocks.runs });
        let of_malloc = if has_borders { of_runs(&chunks).0 } else { next };
        // Only the total of contpte blocks that are already large is known.
        let next = if target_bytes == pmd_bytes { next } else { next.without(case.large_bytes) };
        let pmd = self.blocks(case, area, pmd_bytes);
        let (now, now_blocks) =
            pmd.map(|pmd| pmd.gain(When::Now, &self.promised)).unwrap_or_default();
        let pinned = &case.process.held.pinned;
        let pinned = self.pinned.entry(case.process.pid).or_insert(pinned.unknown_bytes());
        let now = now.without_pinned(*pinned, pmd_bytes).reading(swap_bytes);
        Gains { area, now, next, of_malloc, has_borders, now_blocks, next_blocks }
    }

    /// Records the promises, because other mappings of the same memory must not repeat them.
    pub(super) fn promise(&mut self, case: &Case<'_>, gains: Gains, remedies: &[Remedy]) {
        let is_now = |remedy: &Remedy| remedy.action == Action::Collapse;
        if remedies.iter().any(is_now) {
            self.promised.keep(gains.now_blocks, When::Now);
            if let Some(pinned) = self.pinned.get_mut(&case.process.pid) {
                *pinned = pinned.saturating_sub(gains.now.pinned_bytes);
            }
        }
        if remedies.iter().any(|remedy| remedy.is_some() && !is_now(remedy)) {
            self.promised.keep(gains.next_blocks, When::NextStart);
        }
    }
}

pub(super) struct Gains {
    pub(super) area: AreaFacts,
    pub(super) now: Gain,
    /// By changes that take effect when the program starts again.
    pub(super) next: Gain,
    /// The part of `next` in memory that glibc's malloc mapped.
    pub(super) of_malloc: Gain,
    pub(super) has_borders: bool,
    now_blocks: Vec<FileBlock>,
    next_blocks: Vec<FileBlock>,
}

impl Gains {
    /// Estimates without the pages: as many blocks as the resident memory can fill.
    fn unseen(case: &Case<'_>, area: AreaFacts, pmd_bytes: u64) -> Self {
        let all = case.mapping.tally.all().mapped_bytes();
        let filled = |area: AreaFacts, block_bytes: u64, when| {
            let whole = case.mapping.vma.nr_whole_blocks(block_bytes).saturating_mul(block_bytes);
            let bytes = whole.min(all / block_bytes * block_bytes).saturating_sub(case.large_bytes);
            let bytes = if area.obstacle(when).is_some() { 0 } else { bytes };
            Gain { bytes, present_bytes: bytes, ..Gain::default() }
        };
        let now = filled(area, pmd_bytes, When::Now);
        let next = filled(area.lifted(), case.target_bytes, When::NextStart);
        let (now_blocks, next_blocks) = (Vec::new(), Vec::new());
        Self { area, now, next, of_malloc: next, has_borders: false, now_blocks, next_blocks }
    }
}

pub(super) fn nothing_to_gain(finding: &Finding, gains: &Gains, smap: &Smap) -> String {
    const OF_BLOCKS: [Refusal; 8] = [
        Refusal::Disabled,
        Refusal::NoHugeAdvice,
        Refusal::GuardPage,
        Refusal::Merged,
        Refusal::Userfaultfd,
        Refusal::Pinned,
        Refusal::Device,
        Refusal::PrivateCopy,
    ];
    if gains.next.elsewhere_bytes > 0 || gains.now.elsewhere_bytes > 0 {
        return "counted in another mapping of the same memory".to_owned();
    }
    let reasons = finding.reasons.iter().map(|reason| reason.refusal);
    match reasons.into_iter().find(|refusal| OF_BLOCKS.contains(refusal)) {
        Some(Refusal::Merged) => merged(smap),
        Some(refusal) => format!("no block can be larger: {}", refusal.meaning()),
        None => "no whole block in it has been touched".to_owned(),
    }
}

/// Says why KSM keeps the pages small, and what larger folios would cost.
fn merged(smap: &Smap) -> String {
    let why = match smap.merging {
        Merging::No => "the kernel cannot collapse a block that has one of them twice",
        Merging::Advised => {
            "the program asks for it (MADV_MERGEABLE), and KSM would split a large folio again"
        }
        Merging::Process => {
            "it merges all memory of the process (PR_SET_MEMORY_MERGE, such as by MemoryKSM=yes), \
             and would split a large folio again"
        }
    };
    let cost = match smap.merged_bytes >> 10 {
        0 => String::new(),
        kib => format!("; unmerged, these pages take up to {kib} KiB"),
    };
    format!("no block can be larger: {}: {why}{cost}", Refusal::Merged.meaning())
}
