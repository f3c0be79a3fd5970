//! Judges one mapping: which of its memory is small, and why.
//!
//! Owns the order of the questions, and caches the answers shared by several mappings.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::allocated::Allocated;
use super::case::{Case, is_shared_memory};
use super::facts::Facts;
use super::gain::{Blocks, Promised};
use super::is_kernels;
use super::reason::{CensusQuestion, Finding, Reason, Refusal};
use super::tmpfs::Home;
use crate::alignment::Placed;
use crate::census::block::{AreaFacts, Backing, BlockPlace, When};
use crate::census::folios::{Cell, MemoryKind, Size};
use crate::census::settings::{Allows, ThpSettings};
use crate::census::{Access, Census};
use crate::proc::smaps::Smap;
use crate::remedies::runtime::Traits;
use crate::warm::Warmed;

#[derive(Clone, Debug)]
pub(super) struct FilePlan {
    pub(super) placed: Option<Placed>,
    pub(super) warm: Option<Warmed>,
}

pub(super) struct Judge<'a> {
    pub(super) census: &'a Census,
    pub(super) question: &'a CensusQuestion<'a>,
    pub(super) facts: &'a Facts,
    pub(super) settings: ThpSettings<'a>,
    /// The largest folio order seen on each device: proof that the filesystem supports it.
    seen_orders: BTreeMap<(u32, u32), u32>,
    /// By process and address.
    pub(super) allocated: BTreeMap<(u32, u64), Rc<Allocated>>,
    pub(super) promised: Promised,
    /// Each process's pinned bytes not yet subtracted from a gain.
    pub(super) pinned: BTreeMap<u32, u64>,
    pub(super) traits: BTreeMap<u32, Traits>,
    /// The processes whose THP is disabled except for advised memory, as far as something shows it.
    excepted: BTreeMap<u32, bool>,
    pub(super) files: BTreeMap<((u32, u32), u64, u64), FilePlan>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(
        census: &'a Census,
        question: &'a CensusQuestion<'a>,
        facts: &'a Facts,
    ) -> Self {
        let mut seen_orders = BTreeMap::new();
        for mapping in census.processes.iter().flat_map(|process| &process.mappings) {
            for (kind, size, _) in mapping.tally.cells() {
                if let (MemoryKind::Text | MemoryKind::File, Size::Order(order)) = (kind, size) {
                    let largest_order: &mut u32 =
                        seen_orders.entry(mapping.vma.device).or_default();
                    *largest_order = order.max(*largest_order);
                }
            }
        }
        let settings = ThpSettings::of(question.system);
        let excepted = excepted(census, &settings, facts);
        Self {
            census,
            question,
            facts,
            settings,
            excepted,
            seen_orders,
            allocated: BTreeMap::new(),
            promised: promised(census),
            pinned: BTreeMap::new(),
            traits: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    pub(super) fn reasons(&self, finding: &Finding) -> Vec<Reason> {
        let case = Case::new(self.census, finding);
        let mut reasons = self.judge(&case);
        // Bytes beyond the missing blocks are at the mapping's ends, which hold no block.
        for reason in &mut reasons {
            reason.bytes = reason.bytes.min(finding.missing_bytes);
        }
        reasons.retain(|reason| reason.bytes > 0);
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.bytes));
        reasons
    }

    /// Returns the memory of a mapping without a whole block.
    pub(super) fn too_small(&self, finding: &Finding) -> Vec<Reason> {
        let case = Case::new(self.census, finding);
        let bytes = case.mapping.tally.all().mapped_bytes();
        let is_short = case.mapping.vma.nr_whole_blocks(case.target_bytes) == 0;
        if is_short && bytes > 0 {
            vec![Case::reason(Refusal::TooSmall, bytes)]
        } else {
            Vec::new()
        }
    }

    fn judge(&self, case: &Case<'_>) -> Vec<Reason> {
        let vma = &case.mapping.vma;
        let all = case.mapping.tally.all().mapped_bytes();
        if vma.nr_whole_blocks(case.target_bytes) == 0 {
            return vec![Case::reason(Refusal::TooSmall, all)];
        }
        let mut reasons = Vec::new();
        if self.census.access == Access::Smaps {
            let unknown = case.mapping.tally.sum(|_, size| size == Size::Unknown).mapped_bytes();
            reasons.push(Case::reason(Refusal::SizeUnknown, unknown));
        }
        if vma.has_file() && !vma.is_congruent(case.target_bytes) {
            // Private copies no longer have a position in the file.
            let copies = case.mapping.tally.of(MemoryKind::Anon).mapped_bytes();
            let bytes = all.saturating_sub(case.large_bytes).saturating_sub(copies);
            reasons.push(Case::reason(Refusal::Incongruent, bytes));
        }
        if vma.has_file() {
            self.file(case, &mut reasons);
        } else {
            self.memory(case, MemoryKind::Anon, &mut reasons);
        }
        self.large(case, &mut reasons);
        self.obstacles(case, &mut reasons);
        let swapped =
            self.facts.smap(case).swap_bytes.max(case.mapping.swapped_bytes(self.census.geometry));
        reasons.push(Case::reason(Refusal::SwappedOut, swapped));
        let untouched = vma.len_bytes().saturating_sub(all).saturating_sub(swapped);
        reasons.push(Case::reason(Refusal::NotTouched, untouched));
        reasons
    }

    fn file(&self, case: &Case<'_>, reasons: &mut Vec<Reason>) {
        let vma = &case.mapping.vma;
        let anon = case.sum(|kind| kind == MemoryKind::Anon, false).mapped_bytes();
        reasons.push(Case::reason(Refusal::PrivateCopy, anon));
        let is_file = |kind| matches!(kind, MemoryKind::Text | MemoryKind::File);
        let small = case.sum(is_file, false).mapped_bytes();
        let filesystem = self.facts.filesystem(case);
        let is_memory = is_shared_memory(vma, filesystem);
        if is_memory || case.sum(|kind| kind == MemoryKind::Shmem, false).mapped_bytes() > 0 {
            return self.memory(case, MemoryKind::Shmem, reasons);
        }
        if small == 0 {
            return;
        }
        let limit = (self.question.limit)(filesystem);
        let largest_order = self.seen_orders.get(&vma.device).copied().unwrap_or(0);
        let can = largest_order >= case.target_order
            || limit.is_none_or(|limit| limit >= case.target_bytes);
        let refusal = if can { Refusal::CachedSmall } else { Refusal::Filesystem };
        reasons.push(Case::reason(refusal, small));
        if self.facts.file(case).is_some_and(|file| file.is_open_for_write == Some(true)) {
            reasons.push(Case::reason(Refusal::OpenForWrite, small));
        }
    }

    fn memory(&self, case: &Case<'_>, kind: MemoryKind, reasons: &mut Vec<Reason>) {
        let is_kind = |other| match kind {
            MemoryKind::Anon => matches!(other, MemoryKind::Anon | MemoryKind::Text),
            _ => matches!(other, MemoryKind::Shmem | MemoryKind::Text),
        };
        let unknown = case.mapping.tally.sum(|other, size| is_kind(other) && size == Size::Unknown);
        let small = case.sum(is_kind, false).mapped_bytes() + unknown.mapped_bytes();
        if small == 0 {
            return;
        }
        let home = if kind == MemoryKind::Anon { Home::Kernel } else { self.facts.home(case) };
        let allows = match kind {
            MemoryKind::Anon => self.settings.anon(case.target_bytes).map(|set| set.allows),
            _ => home.allows(&self.settings, case.target_bytes),
        };
        let smap = self.facts.smap(case);
        let is_disabled = self.facts.disabled(case).is_some();
        let refusal = match allows {
            _ if is_disabled => Refusal::Disabled,
            _ if smap.is_no_huge => Refusal::NoHugeAdvice,
            Some(Allows::All) if !smap.is_huge && self.is_excepted(case) == Some(true) => {
                Refusal::DisabledExceptAdvised
            }
            None => Refusal::Filesystem,
            Some(_) if matches!(home, Home::Unseen) => Refusal::MountUnseen,
            Some(Allows::None) => Refusal::SettingOff,
            Some(Allows::Advised) if !smap.is_huge => Refusal::NotAdvised,
            Some(_) => Refusal::FilledSmall,
        };
        reasons.push(Case::reason(refusal, small));
    }

    fn large(&self, case: &Case<'_>, reasons: &mut Vec<Reason>) {
        let large = case.sum(|_| true, true);
        let rest = large.mapped_bytes().saturating_sub(case.large_bytes);
        let is_congruent = case.mapping.vma.is_congruent(case.target_bytes);
        if rest == 0 || case.mapping.vma.has_file() && !is_congruent {
            return;
        }
        let partial = large.partial_bytes.min(rest);
        reasons.push(Case::reason(Refusal::PartlyMapped, partial));
        let unaligned = if case.mapping.vma.has_file() { 0 } else { large.unaligned_bytes };
        reasons.push(Case::reason(Refusal::Incongruent, unaligned));
        let whole = rest.saturating_sub(partial).saturating_sub(unaligned);
        if whole == 0 || !case.is_pmd(self.census) {
            return;
        }
        let refusal = match self.facts.smap(case).is_no_huge {
            _ if self.facts.disabled(case).is_some() => Refusal::Disabled,
            true => Refusal::NoHugeAdvice,
            false => Refusal::MappedByPages,
        };
        reasons.push(Case::reason(refusal, whole));
    }

    fn obstacles(&self, case: &Case<'_>, reasons: &mut Vec<Reason>) {
        let area = self.area(case);
        if let Some(blocks) = self.blocks(case, area, case.target_bytes) {
            for (obstacle, bytes) in blocks.obstacles(When::Now) {
                let refusal = Refusal::of(obstacle);
                reasons.extend(refusal.map(|refusal| Case::reason(refusal, bytes)));
            }
        }
    }

    pub(super) fn area(&self, case: &Case<'_>) -> AreaFacts {
        let backing = self.backing(case);
        let mut runs = case.mapping.touched.iter().flat_map(|touched| touched.contpte.iter());
        let is_forked = backing == Backing::Anon && runs.any(|run| run.facts.nr_shared > 0);
        AreaFacts { is_forked, ..AreaFacts::of(&self.facts.smap(case), backing) }
    }

    fn backing(&self, case: &Case<'_>) -> Backing {
        let vma = &case.mapping.vma;
        if !vma.has_file() {
            return Backing::Anon;
        }
        if case.mapping.tally.of(MemoryKind::Shmem) != Cell::default() {
            return Backing::Shmem;
        }
        if is_shared_memory(vma, self.facts.filesystem(case)) {
            Backing::Shmem
        } else {
            Backing::File
        }
    }

    /// Returns the blocks of a size; `None` if single pages are not visible.
    pub(super) fn blocks<'c>(
        &self,
        case: &Case<'c>,
        area: AreaFacts,
        bytes: u64,
    ) -> Option<Blocks<'c>> {
        let touched = case.mapping.touched.as_ref()?;
        let geometry = self.census.geometry;
        let runs = if bytes == geometry.pmd_bytes() { &touched.pmd } else { &touched.contpte };
        let place = BlockPlace::of(&case.mapping.vma);
        Some(Blocks { area, runs, place, page_bytes: geometry.page_bytes })
    }

    /// Returns whether the process has THP disabled except for advised memory; `None` if nothing
    /// shows it.
    pub(super) fn is_excepted(&self, case: &Case<'_>) -> Option<bool> {
        self.excepted.get(&case.process.pid).copied()
    }
}

/// Finds processes that have THP disabled except for advised memory. The kernel shows that only if
/// the setting is always: memory without any other ban is then not eligible.
fn excepted(census: &Census, settings: &ThpSettings<'_>, facts: &Facts) -> BTreeMap<u32, bool> {
    let block_bytes = census.geometry.block_bytes();
    if settings.anon(block_bytes).is_none_or(|set| set.allows != Allows::All) {
        return BTreeMap::new();
    }
    let is_plain = |smap: &&Smap| {
        let is_other = smap.vma.has_file() || smap.is_huge || smap.is_no_huge;
        let has_block = smap.vma.nr_whole_blocks(block_bytes) > 0 && smap.vma.prot() != 0;
        !is_other && !is_kernels(&smap.vma) && has_block
    };
    let of = |pid| {
        let plain = facts.smaps(pid).iter().filter(is_plain).filter_map(|smap| smap.is_eligible);
        Some((pid, plain.map(|is_eligible| !is_eligible).max()?))
    };
    facts.pids().filter_map(of).collect()
}

fn promised(census: &Census) -> Promised {
    let mut promised = Promised::default();
    let mappings = census.processes.iter().flat_map(|process| &process.mappings);
    for mapping in mappings.filter(|mapping| mapping.tally.of(MemoryKind::Shmem) != Cell::default())
    {
        if let (Some(place), Some(touched)) = (BlockPlace::of(&mapping.vma), &mapping.touched) {
            promised.see(place, &touched.pmd, census.geometry.page_bytes);
        }
    }
    promised
}
