//! Reclaim of unneeded memory by advice, without a second chance (docs/behaviour P.4).
//!
//! Answers to: `reclaim_pages`, `reclaim_folio_list`.

use super::EvictOutcome;
use crate::folio::FolioId;
use crate::folio::generations::Generations;
use crate::folio::lru::{Age, ListId};
use crate::memory::Memory;
use crate::units::Pfn;

impl Memory {
    pub(crate) fn reclaim_folios(&mut self, folios: Vec<FolioId>) {
        let mut kept = Vec::new();
        for id in folios {
            self.reclaim_folio(id, &mut kept);
        }
        for id in kept {
            self.core.folios.putback(id);
        }
    }

    fn reclaim_folio(&mut self, id: FolioId, kept: &mut Vec<FolioId>) {
        let folio = self.core.folios.get(id);
        let (pfn, end) = (folio.pfn, folio.end_pfn());
        let list = self.oldest_list(id);
        match self.evict_isolated(id, list) {
            EvictOutcome::Freed => {}
            EvictOutcome::Keep => kept.push(id),
            EvictOutcome::Activate => {
                self.note_activation(id);
                kept.push(id);
            }
            EvictOutcome::Split => {
                for pfn in (pfn.0..end.0).map(Pfn) {
                    if let Some(part) = self.core.folios.of_pfn(pfn)
                        && self.core.folios.isolate(part)
                    {
                        self.reclaim_folio(part, kept);
                    }
                }
            }
        }
    }

    fn oldest_list(&self, id: FolioId) -> ListId {
        let (kind, lru) = (self.core.folios.get(id).kind(), self.core.folios.lru());
        if self.core.folios.generations().is_none() {
            return ListId::new(kind, Age::Inactive);
        }
        let seq = lru.vec(lru.group_of(id)).gens.min_seq[kind as usize];
        ListId::generation(kind, Generations::list_of(seq))
    }
}
