//! Checks the state of memory pressure: I15, I16.

use std::collections::BTreeMap;

use super::Violation;
use crate::memory::Memory;
use crate::pgtable::PmdState;
use crate::units::{PageIndex, SwapSlot};

impl Memory {
    pub(super) fn check_reclaim(&self) -> Result<(), Violation> {
        self.core.folios.validate_lru().map_err(|(folio, what)| Violation::I15 { folio, what })?;
        let mut users: BTreeMap<SwapSlot, u64> = BTreeMap::new();
        for (_, space) in self.all_spaces() {
            for (vpn, slot) in space.swapped.iter() {
                *users.entry(slot).or_default() += 1;
                if space.table.leaf(vpn).is_some() || space.vmas.find(vpn).is_none() {
                    return Err(Violation::I16 { what: "a swapped page is mapped, or in no area" });
                }
                if !matches!(space.table.pmd(vpn), PmdState::Table { .. }) {
                    return Err(Violation::I16 { what: "a swapped page has no PTE table" });
                }
            }
        }
        for (file, mapping) in self.core.mappings() {
            if mapping.shadows.validate().is_err() {
                return Err(Violation::I16 { what: "shadows overlap" });
            }
            for (&PageIndex(index), &slot) in &mapping.swapped {
                *users.entry(slot).or_default() += 1;
                if self.core.find(file, PageIndex(index)).is_some() {
                    return Err(Violation::I16 { what: "a page is cached and in swap space" });
                }
            }
        }
        if !self.core.is_dirty_sound() {
            return Err(Violation::I16 { what: "dirty pages" });
        }
        if !self.is_swap_cache_sound() {
            return Err(Violation::I16 { what: "the swap cache" });
        }
        let is_sound = match &self.core.pressure.swap {
            Some(swap) => swap.validate(&users),
            None => users.is_empty(),
        };
        if is_sound { Ok(()) } else { Err(Violation::I16 { what: "users of slots" }) }
    }

    fn is_swap_cache_sound(&self) -> bool {
        let mut nr = 0;
        for (id, folio) in self.core.folios.iter() {
            let Some(first) = folio.slot else { continue };
            nr += folio.nr_pages();
            let mut slots = (0..folio.nr_pages()).map(|by| first.plus(by));
            if !folio.is_in_swap_cache || !slots.all(|slot| self.core.cached_in(slot) == Some(id)) {
                return false;
            }
        }
        self.nr_swap_cached() == nr
    }
}
