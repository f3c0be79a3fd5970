//! Uses and refaults under multi-gen LRU (docs/behaviour P.3.2, P.3.3).
//!
//! Corresponds to: `lru_gen_inc_refs`, `lru_gen_eviction`, `lru_gen_refault`.
//!
//! A shadow entry records the oldest generation at the time of eviction and how often the page had
//! been used. A refault counts against the page's tier if that generation is still the oldest
//! (since 6.16: within four generations).
//!
//! Owns the marks set by uses and restored by refaults. Does not compare tiers
//! ([`crate::folio::generations`]).

use super::Core;
use crate::folio::FolioId;
use crate::folio::generations::{NR_GENERATIONS_MAX, NR_REFS_MAX, nr_refs, tier_of};
use crate::folio::lru::LruKind;
use crate::mapping::shadows::Shadow;
use crate::rules::reclaim::GenerationRule;

impl Core {
    /// Counts a read call's use of a folio, up to five uses.
    pub(super) fn count_use(&mut self, id: FolioId, rule: GenerationRule) {
        let is_workingset = self.folios.get(id).is_workingset;
        let marks = self.folios.lru_mut().marks_mut(id);
        if !std::mem::replace(&mut marks.is_referenced, true) {
            if rule.is_reworked() {
                marks.nr_refs = 0;
            }
            return;
        }
        let is_counted = match rule {
            GenerationRule::First | GenerationRule::Protected => is_workingset,
            GenerationRule::Reworked | GenerationRule::FirstUse => marks.nr_refs < NR_REFS_MAX,
        };
        if is_counted {
            marks.nr_refs = (marks.nr_refs + 1).min(NR_REFS_MAX);
        } else {
            self.folios.get_mut(id).is_workingset = true;
        }
    }

    pub(super) fn generation_shadow(&mut self, id: FolioId, rule: GenerationRule) -> Shadow {
        let folio = self.folios.get(id);
        let (nr_pages, kind, is_workingset) = (folio.nr_pages(), folio.kind(), folio.is_workingset);
        let group = self.folios.lru().group_of(id);
        let refs = nr_refs(self.folios.lru().marks(id), is_workingset, rule);
        let gens = &mut self.folios.lru_mut().vec_mut(group).gens;
        gens.note_evicted(kind, tier_of(refs, is_workingset, rule), nr_pages);
        Shadow {
            group,
            time: gens.min_seq[kind as usize],
            nr_refs: refs.saturating_sub(1),
            was_workingset: match rule {
                GenerationRule::First | GenerationRule::Protected => refs > 0,
                GenerationRule::Reworked | GenerationRule::FirstUse => is_workingset,
            },
        }
    }

    pub(super) fn refault_generation(&mut self, id: FolioId, shadow: Shadow, rule: GenerationRule) {
        let group = self.folios.lru().group_of(id);
        if shadow.group != group {
            return;
        }
        let folio = self.folios.get(id);
        let (nr_pages, kind) = (folio.nr_pages(), folio.kind());
        let gens = &mut self.folios.lru_mut().vec_mut(group).gens;
        let (is_recent, refs) = match rule {
            GenerationRule::First | GenerationRule::Protected => (
                shadow.time == gens.min_seq[kind as usize],
                shadow.nr_refs + u8::from(shadow.was_workingset),
            ),
            GenerationRule::Reworked | GenerationRule::FirstUse => {
                (gens.max_seq - shadow.time < NR_GENERATIONS_MAX, shadow.nr_refs + 1)
            }
        };
        if is_recent {
            gens.note_refaulted(kind, tier_of(refs, shadow.was_workingset, rule), nr_pages);
        }
        let is_fault = self.folios.is_fault();
        // Up to 6.13, returning anonymous memory is not spared like a file's pages.
        let may_restore = kind == LruKind::File || rule.is_reworked();
        let is_restored = is_recent
            && may_restore
            && match rule {
                GenerationRule::First => is_fault || refs > NR_REFS_MAX,
                GenerationRule::Protected => is_fault || refs >= NR_REFS_MAX,
                GenerationRule::Reworked | GenerationRule::FirstUse => shadow.was_workingset,
            };
        if is_recent || rule != GenerationRule::First {
            let is_active = match rule {
                GenerationRule::Reworked => is_recent && is_fault,
                GenerationRule::FirstUse => is_restored && is_fault,
                GenerationRule::Protected => is_recent,
                GenerationRule::First => false,
            };
            self.count_refault(id, is_active, is_restored);
        }
        let marks = self.folios.lru_mut().marks_mut(id);
        match rule {
            GenerationRule::Protected if is_restored => marks.nr_refs = NR_REFS_MAX,
            GenerationRule::Reworked | GenerationRule::FirstUse if is_recent && !is_restored => {
                marks.nr_refs = refs - 1;
            }
            _ => {}
        }
        self.folios.get_mut(id).is_workingset |= is_restored;
    }
}
