//! Eviction from the oldest generation (docs/behaviour P.3.4).
//!
//! Corresponds to: `evict_folios`, `isolate_folios`, `scan_folios`, `sort_folio`, `isolate_folio`.

use super::Pass;
use crate::folio::FolioId;
use crate::folio::generations::{
    BATCH_MIN, Generations, NR_GENERATIONS_MIN, NR_REFS_MAX, nr_refs, tier_of,
};
use crate::folio::lru::{ListId, LruKind};
use crate::memory::Memory;
use crate::reclaim::EvictOutcome;
use crate::reclaim::examine::Examined;
use crate::reclaim::scan::Scan;
use crate::rules::reclaim::GenerationRule;

struct Isolated {
    kind: LruKind,
    folios: Vec<FolioId>,
    nr_pages: u64,
    nr_scanned: u64,
    nr_dirty: u64,
}

impl Isolated {
    const fn new(kind: LruKind) -> Self {
        Self { kind, folios: Vec::new(), nr_pages: 0, nr_scanned: 0, nr_dirty: 0 }
    }
}

enum Sorted {
    Belongs,
    Moved,
    LeftDirty,
}

#[derive(Clone, Copy)]
struct ScanLimit {
    tier_max: usize,
    nr_max: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    First,
    Last,
}

impl Memory {
    pub(super) fn evict_generation(&mut self, scan: &mut Scan, pass: Pass, nr_max: u64) -> u64 {
        let is_bounded = pass.rule == GenerationRule::FirstUse;
        // Its folios may have been freed.
        if is_bounded {
            self.advance_oldest(pass);
        }
        let isolated = self.isolate_oldest(pass, nr_max);
        let mut nr_scanned = isolated.nr_scanned;
        // From 7.2 on, retiring empty generations is not progress.
        let has_advanced = (!is_bounded || nr_scanned > 0) && self.advance_oldest(pass);
        if !is_bounded {
            nr_scanned += u64::from(has_advanced);
            let gens = self.gens(pass.group);
            if pass.evictable_min_seq(gens) + NR_GENERATIONS_MIN > gens.max_seq {
                nr_scanned = 0;
            }
        }
        let Isolated { kind, folios, nr_pages, nr_dirty, .. } = isolated;
        scan.nr_dirty += nr_dirty;
        scan.nr_file_taken += nr_dirty + if kind == LruKind::File { nr_pages } else { 0 };
        if folios.is_empty() {
            return nr_scanned;
        }
        // Other rules do not isolate dirty folios, or do not wake the flusher (P.6.3).
        let is_all_dirty = is_bounded && self.are_dirty(&folios);
        let (again, mut nr_freed) = self.examine_all(pass, folios, Round::First);
        // Folios that were briefly busy may be evictable now.
        nr_freed += self.examine_all(pass, again, Round::Last).1;
        self.count_scan(scan.who, pass.group, nr_pages, nr_freed);
        scan.nr_freed += nr_freed;
        self.core.pressure.wants_flush |= is_all_dirty;
        nr_scanned
    }

    fn isolate_oldest(&mut self, pass: Pass, nr_max: u64) -> Isolated {
        let gens = self.gens(pass.group);
        let [min_anon, min_file] = gens.min_seq;
        let (mut kind, tier) = match pass.rule {
            _ if !pass.can_swap() => (LruKind::File, None),
            GenerationRule::First | GenerationRule::Protected if min_anon < min_file => {
                (LruKind::Anon, None)
            }
            rule => {
                let (kind, tier) = gens.kind_to_evict(pass.swappiness, rule);
                (kind, Some(tier))
            }
        };
        let mut tier = tier;
        let is_bounded = pass.rule == GenerationRule::FirstUse;
        let (mut isolated, mut nr_scanned) = (Isolated::new(kind), 0);
        for _ in pass.kinds() {
            let tier_max =
                tier.take().unwrap_or_else(|| self.gens(pass.group).tier_max(kind, pass.rule));
            isolated = self.scan_oldest(pass, kind, ScanLimit { tier_max, nr_max });
            nr_scanned += isolated.nr_scanned;
            if !isolated.folios.is_empty() || !is_bounded && nr_scanned > 0 {
                break;
            }
            // From 7.2 on, a scan that only moved folios is repeated.
            if isolated.nr_scanned == 0 {
                kind = if kind == LruKind::File { LruKind::Anon } else { LruKind::File };
            }
        }
        Isolated { nr_scanned, ..isolated }
    }

    fn scan_oldest(&mut self, pass: Pass, kind: LruKind, limit: ScanLimit) -> Isolated {
        let mut isolated = Isolated::new(kind);
        let gens = self.gens(pass.group);
        if gens.nr(kind) == NR_GENERATIONS_MIN {
            return isolated;
        }
        let oldest = ListId::generation(kind, Generations::list_of(gens.min_seq[kind as usize]));
        let mut nr_left = limit.nr_max;
        while isolated.nr_pages < BATCH_MIN
            && nr_left > 0
            && let Some(id) = self.core.folios.lru().tail(pass.group, oldest)
        {
            self.core.work.add(1);
            let nr = self.core.folios.get(id).nr_pages();
            nr_left -= 1;
            isolated.nr_scanned += nr;
            match self.sort(pass, id, kind, limit.tier_max) {
                Sorted::Moved => {}
                Sorted::LeftDirty => isolated.nr_dirty += nr,
                Sorted::Belongs => {
                    self.isolate_for_eviction(pass, id);
                    isolated.folios.push(id);
                    isolated.nr_pages += nr;
                }
            }
        }
        let is_bounded = pass.rule == GenerationRule::FirstUse;
        if !is_bounded && isolated.folios.is_empty() && nr_left > 0 {
            isolated.nr_scanned = 0;
        }
        isolated
    }

    fn sort(&mut self, pass: Pass, id: FolioId, kind: LruKind, tier_max: usize) -> Sorted {
        let min_seq = self.gens(pass.group).min_seq[kind as usize];
        let marks = self.core.folios.lru().marks(id);
        let generation = marks.generation.unwrap_or(Generations::list_of(min_seq));
        if generation != Generations::list_of(min_seq) {
            self.core.folios.lru_mut().link_head(id, ListId::generation(kind, generation));
            return Sorted::Moved;
        }
        let folio = self.core.folios.get(id);
        let (nr_pages, is_workingset) = (folio.nr_pages(), folio.is_workingset);
        let refs = nr_refs(marks, is_workingset, pass.rule);
        let tier = tier_of(refs, is_workingset, pass.rule);
        // Its use counter is saturated: protected in any case, whatever the refaults.
        let is_hot = match pass.rule {
            GenerationRule::First | GenerationRule::Protected => refs > NR_REFS_MAX,
            GenerationRule::Reworked | GenerationRule::FirstUse => {
                refs > NR_REFS_MAX && is_workingset
            }
        };
        // Other kernels isolate dirty folios and activate them (P.6.2).
        let is_moved = matches!(pass.rule, GenerationRule::First | GenerationRule::Reworked);
        let is_dirty = is_moved && self.are_dirty(&[id]);
        let waits =
            folio.is_under_writeback || is_dirty || folio.is_locked && !pass.rule.is_reworked();
        let is_spared = tier > tier_max || is_hot;
        if !is_spared && !waits {
            return Sorted::Belongs;
        }
        let to = self.move_on(pass, id, kind);
        let at_tail = is_spared && !pass.rule.is_reworked();
        let lru = self.core.folios.lru_mut();
        if at_tail {
            lru.link_tail(id, to);
        } else {
            lru.link_head(id, to);
        }
        if is_spared && !(is_hot && pass.rule.is_reworked()) {
            self.gens_mut(pass.group).note_protected(kind, tier, nr_pages);
        }
        if is_spared || !is_dirty {
            return Sorted::Moved;
        }
        self.core.folios.lru_mut().marks_mut(id).is_reclaim = true;
        Sorted::LeftDirty
    }

    pub(super) fn move_on(&mut self, pass: Pass, id: FolioId, kind: LruKind) -> ListId {
        let next = Generations::list_of(self.gens(pass.group).min_seq[kind as usize] + 1);
        self.forget_uses(id, pass.rule);
        self.core.folios.lru_mut().marks_mut(id).generation = Some(next);
        ListId::generation(kind, next)
    }

    fn forget_uses(&mut self, id: FolioId, rule: GenerationRule) {
        let marks = self.core.folios.lru_mut().marks_mut(id);
        (marks.is_referenced, marks.nr_refs) = (false, 0);
        if !rule.is_reworked() {
            self.core.folios.get_mut(id).is_workingset = false;
        }
    }

    fn isolate_for_eviction(&mut self, pass: Pass, id: FolioId) {
        self.core.folios.lru_mut().take_off(id);
        // Up to 6.18 the marker's bit is cleared: it also means that reclaim waits for writeback.
        if pass.rule != GenerationRule::FirstUse {
            self.core.folios.get_mut(id).is_marked = false;
        }
        if !self.core.folios.lru().marks(id).is_referenced {
            self.forget_uses(id, pass.rule);
        }
    }

    /// Returns the folios for another round, and how many pages were freed.
    fn examine_all(
        &mut self,
        pass: Pass,
        folios: Vec<FolioId>,
        round: Round,
    ) -> (Vec<FolioId>, u64) {
        let mut again = Vec::new();
        let Examined { mut kept, nr_freed, .. } =
            self.examine_in_order(folios, |memory, id| memory.examine(pass, id));
        kept.retain(|&id| {
            let is_again = round == Round::First && self.may_go_at_once(pass, id);
            if is_again {
                again.push(id);
            } else {
                self.leave_oldest(pass, id);
            }
            !is_again
        });
        for id in kept {
            self.core.folios.putback(id);
        }
        (again, nr_freed)
    }

    fn may_go_at_once(&self, pass: Pass, id: FolioId) -> bool {
        let folio = self.core.folios.get(id);
        let marks = self.core.folios.lru().marks(id);
        let is_idle =
            !marks.is_active && folio.maps() == 0 && !folio.is_dirty && !folio.is_under_writeback;
        is_idle && (pass.rule.is_reworked() || !marks.is_referenced && !folio.is_locked)
    }

    fn leave_oldest(&mut self, pass: Pass, id: FolioId) {
        let kind = self.core.folios.get(id).kind();
        let is_oldest = || {
            let gens = self.gens(pass.group);
            self.core.folios.start_of(id, gens, pass.rule) == gens.min_seq[kind as usize]
        };
        if !pass.rule.is_reworked() || is_oldest() {
            self.forget_uses(id, pass.rule);
            self.core.folios.lru_mut().marks_mut(id).is_active = true;
        }
    }

    fn examine(&mut self, pass: Pass, id: FolioId) -> EvictOutcome {
        let folio = self.core.folios.get(id);
        if folio.is_locked {
            return EvictOutcome::Keep;
        }
        let is_mapped = folio.maps() > 0;
        let was_referenced = self.core.folios.lru().marks(id).is_referenced;
        let is_reworked = pass.rule.is_reworked();
        // It was promoted while it was isolated.
        if !is_reworked && is_mapped && was_referenced {
            return EvictOutcome::Keep;
        }
        let is_young = self.look_around(pass, id);
        if !is_reworked {
            self.core.folios.lru_mut().marks_mut(id).is_referenced = is_young;
            if is_young {
                return EvictOutcome::Activate;
            }
        } else if is_young {
            return if self.set_refs(pass, id) {
                EvictOutcome::Activate
            } else {
                EvictOutcome::Keep
            };
        }
        self.evict(id)
    }

    /// Records a use through page tables (`lru_gen_set_refs`). Returns `false` for the first.
    pub(super) fn set_refs(&mut self, pass: Pass, id: FolioId) -> bool {
        let is_workingset = self.core.folios.get(id).is_workingset;
        let marks = self.core.folios.lru_mut().marks_mut(id);
        if !marks.is_referenced && !is_workingset {
            (marks.is_referenced, marks.nr_refs) = (true, 0);
            return false;
        }
        // From 7.2 on, a folio joins the working set at the third use instead of the second.
        let is_second = !marks.is_referenced || marks.nr_refs == 0;
        if pass.rule == GenerationRule::FirstUse && is_second {
            marks.nr_refs = u8::from(marks.is_referenced);
            marks.is_referenced = true;
        } else {
            (marks.is_referenced, marks.nr_refs) = (false, 0);
            self.core.folios.get_mut(id).is_workingset = true;
        }
        true
    }
}
