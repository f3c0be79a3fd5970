//! Page-table walks that look for young entries, and look-around (docs/behaviour P.3.6, P.3.7).
//!
//! Corresponds to: `walk_mm`, `walk_pte_range`, `lru_gen_look_around`, `folio_update_gen`,
//! `suitable_to_scan`.
//!
//! The first walk after a process joined the cgroup covers all of its tables. Later walks cover only
//! processes that ran since the last walk, and PMD ranges in which at least one in eight entries was
//! young at the last walk or look-around ([`WorthWalking`]).

use std::collections::BTreeSet;

use super::Pass;
use crate::core::pressure::Schedule;
use crate::core::space::Aging;
use crate::folio::generations::{BATCH_MIN, Generations};
use crate::folio::{FolioId, lruvec::WorthWalking};
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::pgtable::{LeafKind, PteFlags};
use crate::rules::reclaim::GenerationRule;
use crate::units::{MmId, Vpn, VpnRange};
use crate::vma::{AccessAdvice, Lock, Prot};

/// Entries per cache line: a range is worth walking if one in this many is young.
const ENTRIES_OF_LINE: u64 = 8;

#[derive(Default)]
struct YoungEntries {
    /// Their folios, in address order; one with several young entries can occur several times.
    young: Vec<FolioId>,
    nr_young: u64,
    nr_entries: u64,
}

impl YoungEntries {
    const fn is_worth_walking(&self) -> bool {
        self.nr_young * ENTRIES_OF_LINE >= self.nr_entries
    }
}

impl Memory {
    pub(super) fn walk_group(&mut self, pass: Pass) {
        let pmd = self.rules.page.pmd_order();
        let visits = self.take_visits(pass);
        let max_seq = self.gens(pass.group).max_seq;
        if !visits.is_empty() {
            self.worth(pass).begin_walk(max_seq);
        }
        for (mm, is_new) in visits {
            for first in self.table_ranges(mm) {
                if is_new || self.is_pmd(mm, first) || self.worth(pass).has(max_seq, mm, first) {
                    let range = VpnRange { start: first, end: first.plus(pmd.nr_pages()) };
                    self.walk_table(pass, mm, range);
                }
            }
        }
    }

    fn is_pmd(&self, mm: MmId, first: Vpn) -> bool {
        self.space(mm).table.leaf(first).is_some_and(|leaf| leaf.kind == LeafKind::Pmd)
    }

    /// The processes that a walk visits, and whether each joined the group after the last walk.
    fn take_visits(&mut self, pass: Pass) -> Vec<(MmId, bool)> {
        let is_scheduled = self.core.pressure.schedule == Schedule::Given;
        let request = self.core.pressure.nr_requests;
        let vec = self.core.folios.lru_mut().vec_mut(pass.group);
        if !is_scheduled && std::mem::replace(&mut vec.walked_for, request) == request {
            return Vec::new();
        }
        self.core.work.add_cheap(self.nr_spaces() as u64);
        let members = self.spaces().filter(|(_, space)| space.group == pass.group);
        let mms: Vec<MmId> = members.map(|(mm, _)| mm).collect();
        let mut visits = Vec::new();
        for mm in mms {
            let aging = &mut self.space_mut(mm).aging;
            let Aging { is_new, has_run } = *aging;
            *aging = Aging { is_new: false, has_run: false };
            if is_new || has_run || !is_scheduled {
                visits.push((mm, is_new));
            }
        }
        // A process with almost nothing mapped is not worth a walk.
        visits.retain(|&(mm, _)| self.mapped_pages(mm) >= BATCH_MIN);
        visits
    }

    fn table_ranges(&self, mm: MmId) -> BTreeSet<Vpn> {
        let pmd = self.rules.page.pmd_order();
        let space = self.space(mm);
        let mut ranges = BTreeSet::new();
        for vma in space.vmas.iter() {
            let mut at = vma.start;
            while at < vma.end
                && let Some(set) = space.table.first_set_in(at, vma.end.0 - at.0)
            {
                let first = Vpn(pmd.round_down(set.0));
                ranges.insert(first);
                at = first.plus(pmd.nr_pages());
            }
        }
        ranges
    }

    fn mapped_pages(&self, mm: MmId) -> u64 {
        let space = self.space(mm);
        let of = |(start, end): (Vpn, Vpn)| -> u64 {
            let leaves = space.table.leaves(start, end.0 - start.0);
            leaves.map(|leaf| leaf.end_vpn().0 - leaf.first_vpn.0).sum()
        };
        let mut nr_pages = 0;
        for vma in space.vmas.iter() {
            nr_pages += of((vma.start, vma.end));
            if nr_pages >= BATCH_MIN {
                break;
            }
        }
        nr_pages
    }

    fn walk_table(&mut self, pass: Pass, mm: MmId, range: VpnRange) {
        let mut areas = self.space(mm).vmas.overlapping(range.start, range.end);
        areas.retain(|area| {
            area.prot != Prot::NONE
                && area.advice.lock == Lock::None
                && (!self.has_unrecent || area.advice.access == AccessAdvice::Normal)
        });
        let mut total = YoungEntries::default();
        for area in areas {
            let found = self.take_young(pass, mm, area.start, area.end);
            total.nr_young += found.nr_young;
            total.nr_entries += found.nr_entries;
            self.promote(pass, found.young);
        }
        if !self.is_pmd(mm, range.start) && total.is_worth_walking() && total.nr_young > 0 {
            let next = self.gens(pass.group).max_seq + 1;
            self.worth(pass).note(next, mm, range.start);
        }
    }

    fn promote(&mut self, pass: Pass, mut young: Vec<FolioId>) {
        // From 6.16 on, a folio counts once.
        if pass.rule.is_reworked() {
            young.dedup();
        }
        for id in young {
            self.update_generation(pass, id);
        }
    }

    fn worth(&mut self, pass: Pass) -> &mut WorthWalking {
        &mut self.core.folios.lru_mut().vec_mut(pass.group).worth
    }

    /// Clears the accessed bits of a part of an area. From 7.2 on, adjacent entries of a large folio
    /// count as young if the first is.
    fn take_young(&mut self, pass: Pass, mm: MmId, start: Vpn, end: Vpn) -> YoungEntries {
        let mut found = YoungEntries { nr_entries: end.0 - start.0, ..YoungEntries::default() };
        let mut at = start;
        while let Some(leaf) = self.space(mm).table.leaves(at, end.0 - at.0).next() {
            at = leaf.first_vpn.max(at);
            let is_pmd = leaf.kind == LeafKind::Pmd;
            let mut nr = if is_pmd { leaf.end_vpn().min(end).0 - at.0 } else { 1 };
            if is_pmd {
                found.nr_entries -= nr - 1;
            }
            let (vpn, pfn) = (at, leaf.pfn_of(at));
            let young = self.core.folios.of_pfn(pfn).filter(|&id| self.is_scanned(pass, id));
            if let Some(id) = young
                && (0..nr).any(|by| self.is_young(mm, vpn.plus(by), pfn.plus(by)))
            {
                if !is_pmd && pass.rule == GenerationRule::FirstUse {
                    let span = self.core.folios.span_of(pfn);
                    nr = self.space(mm).table.batch(vpn, end.0 - vpn.0, span, PteFlags::NONE).nr;
                }
                found.nr_young += if is_pmd { 1 } else { nr };
                found.young.push(id);
                for by in 0..nr {
                    self.clear_young(mm, vpn.plus(by), pfn.plus(by));
                }
            }
            at = at.plus(nr);
            if at >= end {
                break;
            }
        }
        self.core.work.add_cheap(found.nr_entries);
        found
    }

    /// Whether entries of a folio are checked. From 6.16 on, a folio on no list keeps its bits.
    fn is_scanned(&self, pass: Pass, id: FolioId) -> bool {
        let is_listed = || self.core.folios.lru().marks(id).generation.is_some();
        self.core.folios.lru().group_of(id) == pass.group
            && (pass.can_swap() || !self.core.folios.get(id).is_anon())
            && (!pass.rule.is_reworked() || is_listed())
    }

    /// Promotes a young folio to the youngest generation (`folio_update_gen`). It keeps its list
    /// position until that list is sorted. From 6.16 on, only its second use counts.
    fn update_generation(&mut self, pass: Pass, id: FolioId) {
        let youngest = Generations::list_of(self.gens(pass.group).max_seq);
        let is_isolated = self.core.folios.lru().marks(id).generation.is_none();
        let is_workingset = self.core.folios.get(id).is_workingset;
        let is_reworked = pass.rule.is_reworked();
        let marks = self.core.folios.lru_mut().marks_mut(id);
        if is_reworked && !marks.is_referenced && !is_workingset {
            (marks.is_referenced, marks.nr_refs) = (true, 0);
            return;
        }
        if is_isolated {
            marks.is_referenced |= !is_reworked;
            return;
        }
        marks.generation = Some(youngest);
        (marks.is_referenced, marks.nr_refs) = (false, 0);
        self.core.folios.get_mut(id).is_workingset = is_reworked;
    }

    /// Whether an isolated folio was accessed through page tables since the last check. If so, also
    /// checks the neighbouring entries: locality is likely.
    pub(super) fn look_around(&mut self, pass: Pass, id: FolioId) -> bool {
        if self.is_old_file(id) {
            return false;
        }
        let sites = self.sites_of(id);
        let mut is_young = false;
        for site in &sites {
            for area in self.space(site.mm).vmas.overlapping(site.vpn, site.vpn.plus(site.nr)) {
                let by = area.start.0 - site.vpn.0;
                let (pfn, nr) = (site.pfn.plus(by), area.nr_pages());
                is_young |= self.look_at(pass, id, Site { vpn: area.start, pfn, nr, ..*site });
            }
        }
        self.clear_young_in(&sites);
        is_young
    }

    /// Looks around the young entries of a folio in one area.
    fn look_at(&mut self, pass: Pass, id: FolioId, site: Site) -> bool {
        let advice = self.advice_at(site.mm, site.vpn);
        if !self.rules.reclaim.recency.counts(advice) {
            return false;
        }
        if site.is_pmd || advice != AccessAdvice::Normal {
            return self.is_young_site(&site);
        }
        // From 7.2 on, all adjacent entries of a folio are checked at once.
        let nr_max = if pass.rule == GenerationRule::FirstUse { site.nr } else { 1 };
        let pmd = self.rules.page.pmd_order();
        let (mut by, mut is_young) = (0, false);
        while by < site.nr {
            let vpn = site.vpn.plus(by);
            let table_end = pmd.round_down(vpn.0) + pmd.nr_pages();
            let nr = nr_max.min(site.nr - by).min(table_end - vpn.0);
            let part = Site { vpn, pfn: site.pfn.plus(by), nr, ..site };
            by += nr;
            if !self.is_young_site(&part) {
                continue;
            }
            is_young = true;
            self.clear_young_in(&[part]);
            if let Some(window) = self.window_of(&part) {
                self.scan_window(pass, id, &part, window);
            }
        }
        is_young
    }

    /// Walks and look-around skip areas with `MADV_RANDOM` or `MADV_SEQUENTIAL`; in 6.1 an examined
    /// folio's own entry still counts in a `MADV_RANDOM` area.
    fn advice_at(&self, mm: MmId, vpn: Vpn) -> AccessAdvice {
        if !self.has_unrecent {
            return AccessAdvice::Normal;
        }
        self.space(mm).vmas.find(vpn).map_or(AccessAdvice::Normal, |vma| vma.advice.access)
    }

    /// The entries around the part's first; `None` if the first is alone.
    fn window_of(&self, part: &Site) -> Option<VpnRange> {
        let vpn = part.vpn;
        let pmd = self.rules.page.pmd_order();
        let area = self.space(part.mm).vmas.find(vpn)?;
        let table = pmd.round_down(vpn.0);
        let start = table.max(area.start.0);
        let end = (table + pmd.nr_pages()).min(area.end.0);
        let half = BATCH_MIN / 2;
        let (start, end) = if end - start <= BATCH_MIN {
            (start, end)
        } else if vpn.0 - start < half {
            (start, start + BATCH_MIN)
        } else if end - vpn.0 < half {
            (end - BATCH_MIN, end)
        } else {
            (vpn.0 - half, vpn.0 + half)
        };
        (end - start > 1).then_some(VpnRange { start: Vpn(start), end: Vpn(end) })
    }

    fn scan_window(&mut self, pass: Pass, own: FolioId, part: &Site, window: VpnRange) {
        let mut found = self.take_young(pass, part.mm, window.start, window.end);
        // The entry that was young itself.
        found.nr_young += 1;
        if found.is_worth_walking() {
            let pmd = self.rules.page.pmd_order();
            let seq = self.gens(pass.group).max_seq;
            self.worth(pass).note(seq, part.mm, Vpn(pmd.round_down(window.start.0)));
        }
        let mut others = found.young;
        if pass.rule.is_reworked() {
            others.dedup();
        }
        others.retain(|&id| id != own);
        for id in others {
            // After this pass added a generation, young folios are promoted in place.
            if pass.has_aged {
                self.update_generation(pass, id);
            } else {
                self.activate_young(pass, id);
            }
        }
    }

    fn activate_young(&mut self, pass: Pass, id: FolioId) {
        let youngest = Generations::list_of(self.gens(pass.group).max_seq);
        let generation = self.core.folios.lru().marks(id).generation;
        let is_reworked = pass.rule.is_reworked();
        let is_used = !is_reworked || self.set_refs(pass, id);
        match generation {
            Some(nr) if is_used && nr != youngest => {
                let _ = self.core.folios.activate(id);
            }
            // Also isolated: its own examination will see the flag.
            None if !is_reworked => {
                self.core.folios.lru_mut().marks_mut(id).is_referenced = true;
            }
            Some(_) | None => {}
        }
    }
}
