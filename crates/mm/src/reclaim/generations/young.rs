//! Page-table walks that look for young entries, and look-around (docs/behaviour P.3.6, P.3.7).
//!
//! Corresponds to: `walk_mm`, `walk_pte_range`, `lru_gen_look_around`, `folio_update_gen`,
//! `suitable_to_scan`.
//!
//! The first walk covers every table of every process in the cgroup. Later walks cover only PMD
//! ranges in which at least one in eight entries was young at the last walk or look-around
//! ([`WorthWalking`]).

use std::collections::BTreeSet;

use super::Pass;
use crate::folio::generations::{BATCH_MIN, Generations};
use crate::folio::{FolioId, lruvec::WorthWalking};
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::pgtable::LeafKind;
use crate::rules::reclaim::GenerationRule;
use crate::units::{MmId, Pfn, Vpn, VpnRange};
use crate::vma::{AccessAdvice, Vma};

/// Entries per cache line: a range is worth walking if one in this many is young.
const ENTRIES_OF_LINE: u64 = 8;

#[derive(Clone, Copy)]
struct Young {
    id: FolioId,
    vpn: Vpn,
    pfn: Pfn,
}

struct YoungEntries {
    young: Vec<Young>,
    nr_entries: u64,
}

impl YoungEntries {
    fn is_worth_walking(&self) -> bool {
        self.young.len() as u64 * ENTRIES_OF_LINE >= self.nr_entries
    }
}

impl Memory {
    pub(super) fn walk_group(&mut self, pass: Pass) {
        let pmd = self.rules.page.pmd_order();
        let request = self.core.pressure.nr_requests;
        let vec = self.core.folios.lru_mut().vec_mut(pass.group);
        if std::mem::replace(&mut vec.walked_for, request) == request {
            return;
        }
        let max_seq = vec.gens.max_seq;
        let mut mms: Vec<MmId> = self.spaces().map(|(mm, _)| mm).collect();
        self.core.work.add_cheap(self.nr_spaces() as u64);
        // A process with almost nothing mapped is not worth a walk.
        mms.retain(|&mm| self.space(mm).group == pass.group && self.mapped_pages(mm) >= BATCH_MIN);
        if !mms.is_empty() {
            self.worth(pass).begin_walk(max_seq);
        }
        for mm in mms {
            for first in self.table_ranges(mm) {
                if self.worth(pass).has(max_seq, mm, first) {
                    let range = VpnRange { start: first, end: first.plus(pmd.nr_pages()) };
                    self.walk_table(pass, mm, range);
                }
            }
        }
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
        let found = self.take_young(pass, mm, range);
        if found.is_worth_walking() && !found.young.is_empty() {
            let next = self.gens(pass.group).max_seq + 1;
            self.worth(pass).note(next, mm, range.start);
        }
        let mut last = None;
        for young in found.young {
            // From 6.16 on, all pages of a folio count once.
            if pass.rule.is_reworked() && last == Some(young.id) {
                continue;
            }
            last = Some(young.id);
            self.update_generation(pass, young.id);
        }
    }

    fn worth(&mut self, pass: Pass) -> &mut WorthWalking {
        &mut self.core.folios.lru_mut().vec_mut(pass.group).worth
    }

    fn take_young(&mut self, pass: Pass, mm: MmId, range: VpnRange) -> YoungEntries {
        let VpnRange { start, end } = range;
        let areas = self.space(mm).vmas.overlapping(start, end);
        let nr_entries = areas.iter().map(Vma::nr_pages).sum();
        let mut found = YoungEntries { young: Vec::new(), nr_entries };
        for leaf in self.space(mm).table.leaves(start, end.0 - start.0) {
            let from = leaf.first_vpn.max(start);
            let nr = leaf.end_vpn().min(end).0 - from.0;
            if leaf.kind == LeafKind::Pmd {
                found.nr_entries -= nr - 1;
            }
            for vpn in (0..nr).map(|by| from.plus(by)) {
                let pfn = leaf.pfn_of(vpn);
                if self.advice_at(mm, vpn) != AccessAdvice::Normal {
                    continue;
                }
                if let Some(id) = self.core.folios.of_pfn(pfn)
                    && self.is_young(mm, vpn, pfn)
                    && self.is_scanned(pass, id)
                {
                    found.young.push(Young { id, vpn, pfn });
                }
            }
        }
        self.core.work.add_cheap(found.nr_entries);
        for young in &found.young {
            self.clear_young(mm, young.vpn, young.pfn);
        }
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
            let advice = self.advice_at(site.mm, site.vpn);
            if !self.rules.reclaim.recency.counts(advice) {
                continue;
            }
            if !self.is_young_site(site) {
                continue;
            }
            is_young = true;
            if !site.is_pmd
                && advice == AccessAdvice::Normal
                && let Some(window) = self.window_of(pass, site)
            {
                self.scan_window(pass, id, site.mm, window);
            }
        }
        self.clear_young_in(&sites);
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

    fn window_of(&self, pass: Pass, site: &Site) -> Option<VpnRange> {
        let is_young = |&by: &u64| self.is_young(site.mm, site.vpn.plus(by), site.pfn.plus(by));
        let mut first = (0..site.nr).find(is_young)?;
        let mut last = (0..site.nr).rev().find(is_young)?;
        if pass.rule == GenerationRule::FirstUse {
            (first, last) = (0, 0);
        }
        let pmd = self.rules.page.pmd_order();
        // A site's pages are adjacent, but can be in several areas.
        let around = |vpn: Vpn| {
            let vma = self.space(site.mm).vmas.find(vpn)?;
            let table = pmd.round_down(vpn.0);
            let start = table.max(vma.start.0);
            let end = (table + pmd.nr_pages()).min(vma.end.0);
            let half = BATCH_MIN / 2;
            Some(if end - start <= BATCH_MIN {
                (start, end)
            } else if vpn.0 - start < half {
                (start, start + BATCH_MIN)
            } else if end - vpn.0 < half {
                (end - BATCH_MIN, end)
            } else {
                (vpn.0 - half, vpn.0 + half)
            })
        };
        let (start, _) = around(site.vpn.plus(first))?;
        let (_, end) = around(site.vpn.plus(last))?;
        Some(VpnRange { start: Vpn(start), end: Vpn(end) })
    }

    fn scan_window(&mut self, pass: Pass, own: FolioId, mm: MmId, window: VpnRange) {
        let found = self.take_young(pass, mm, window);
        if found.is_worth_walking() {
            let pmd = self.rules.page.pmd_order();
            let seq = self.gens(pass.group).max_seq;
            self.worth(pass).note(seq, mm, Vpn(pmd.round_down(window.start.0)));
        }
        let mut others: Vec<FolioId> = found.young.iter().map(|young| young.id).collect();
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
