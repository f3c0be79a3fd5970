//! Adding and retiring generations (docs/behaviour P.3.5).
//!
//! Corresponds to: `try_to_inc_max_seq`, `inc_max_seq`, `inc_min_seq`, `try_to_inc_min_seq`.

use super::Pass;
use crate::folio::generations::{
    BATCH_MAX, Generations, NR_GENERATIONS_MAX, NR_GENERATIONS_MIN, nr_refs, tier_of,
};
use crate::folio::lru::{ListId, LruKind};
use crate::memory::Memory;
use crate::rules::reclaim::GenerationRule;

impl Memory {
    pub(super) fn add_generation(&mut self, pass: &mut Pass) -> bool {
        pass.has_aged = true;
        let pass = *pass;
        self.walk_group(pass);
        for kind in [LruKind::File, LruKind::Anon] {
            while self.gens(pass.group).nr(kind) == NR_GENERATIONS_MAX {
                self.empty_oldest(pass, kind);
            }
        }
        // The refault statistics belong to the oldest generation; the new one starts empty.
        self.gens_mut(pass.group).max_seq += 1;
        true
    }

    /// Moves a kind's oldest generation into the next, and retires it. Memory that cannot be
    /// swapped stays on its list, which a young generation will reuse.
    fn empty_oldest(&mut self, pass: Pass, kind: LruKind) {
        if kind == LruKind::File || pass.can_swap() {
            let seq = self.gens(pass.group).min_seq[kind as usize];
            let oldest = ListId::generation(kind, Generations::list_of(seq));
            let mut nr_left = BATCH_MAX;
            while nr_left > 0
                && let Some(id) = self.core.folios.lru().tail(pass.group, oldest)
            {
                nr_left -= 1;
                self.core.work.add(1);
                self.move_on_from(pass, id, kind);
            }
            // The batch is used up: the caller comes back.
            if nr_left == 0 {
                return;
            }
        }
        self.gens_mut(pass.group).retire_oldest(kind);
    }

    fn move_on_from(&mut self, pass: Pass, id: crate::folio::FolioId, kind: LruKind) {
        let seq = self.gens(pass.group).min_seq[kind as usize];
        let marks = self.core.folios.lru().marks(id);
        let promoted = marks.generation.filter(|&nr| nr != Generations::list_of(seq));
        let folio = self.core.folios.get(id);
        let (nr_pages, is_workingset) = (folio.nr_pages(), folio.is_workingset);
        let refs = nr_refs(marks, is_workingset, pass.rule);
        let to = match promoted {
            Some(nr) => ListId::generation(kind, nr),
            None => self.move_on(pass, id, kind),
        };
        self.core.folios.lru_mut().link_tail(id, to);
        if pass.rule.is_reworked() {
            let tier = tier_of(refs, is_workingset, pass.rule);
            self.gens_mut(pass.group).note_protected(kind, tier, nr_pages);
        }
    }

    pub(super) fn advance_oldest(&mut self, pass: Pass) -> bool {
        let gens = self.gens(pass.group);
        let max_seq = gens.max_seq;
        let mut min_seq = gens.min_seq;
        for &kind in pass.kinds() {
            let min = &mut min_seq[kind as usize];
            while *min + NR_GENERATIONS_MIN <= max_seq
                && self.generation_pages(pass.group, kind, *min) == 0
            {
                *min += 1;
            }
        }
        if pass.can_swap() {
            min_seq = self.keep_together(pass, min_seq);
        }
        let mut has_advanced = false;
        for &kind in pass.kinds() {
            let gens = self.gens_mut(pass.group);
            if min_seq[kind as usize] > gens.min_seq[kind as usize] {
                gens.fade(kind);
                gens.min_seq[kind as usize] = min_seq[kind as usize];
                has_advanced = true;
            }
        }
        has_advanced
    }

    fn keep_together(&self, pass: Pass, mut min_seq: [u64; 2]) -> [u64; 2] {
        let gens = self.gens(pass.group);
        let [anon, file] = min_seq;
        match pass.rule {
            GenerationRule::First | GenerationRule::Protected => {
                min_seq[0] = anon.min(file);
                min_seq[1] = min_seq[0].max(gens.min_seq[1]);
            }
            GenerationRule::Reworked | GenerationRule::FirstUse => {
                let seq = gens.max_seq.saturating_sub(NR_GENERATIONS_MIN);
                if anon > seq && file < seq {
                    min_seq[0] = seq;
                } else if file > seq && anon < seq {
                    min_seq[1] = seq;
                }
            }
        }
        min_seq
    }
}
