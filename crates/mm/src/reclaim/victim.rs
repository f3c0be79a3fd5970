//! A policy's decision about a folio that reclaim chose.
//!
//! Differs: no kernel has this ([`crate::policy`]).
//!
//! Limits how long a policy may keep folios: reclaim must end, so the last pass evicts kept folios
//! too. If a request reached that pass and only kept folios, each of them has had its extra round,
//! so later requests may evict the same number without another round.
//!
//! Invariants:
//! - I1: the number of folios that requests keep in vain exceeds neither the number they evict nor
//!   the number in their cgroup.

use super::{EvictOutcome, Victim};
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::policy::{Answer, Context, Point, victim};
use crate::units::{GroupId, Order};

impl Memory {
    pub(super) fn decided_victim(&mut self, id: FolioId) -> Victim {
        if !self.policy_handles(Point::Victim) {
            return Victim::Own;
        }
        let context = Context { own: victim::EVICT, ..self.victim_context(id) };
        match self.ask(Point::Victim, &context) {
            Answer::Own => Victim::Own,
            Answer::Value(victim::EVICT) => Victim::Evict,
            Answer::Value(victim::KEEP) if self.may_keep() => {
                self.core.pressure.nr_kept += 1;
                self.honoured(Point::Victim);
                Victim::Done(EvictOutcome::Keep)
            }
            Answer::Value(victim::SPLIT) if self.split_victim(id) => {
                self.honoured(Point::Victim);
                Victim::Done(EvictOutcome::Split)
            }
            Answer::Value(_) | Answer::Window(_) => {
                self.refused(Point::Victim);
                Victim::Own
            }
        }
    }

    pub(super) fn count_taken(&mut self, outcome: EvictOutcome) {
        match outcome {
            EvictOutcome::Freed | EvictOutcome::Split => self.honoured(Point::Victim),
            EvictOutcome::Keep | EvictOutcome::Activate => self.refused(Point::Victim),
        }
    }

    fn may_keep(&mut self) -> bool {
        if self.core.pressure.is_last_look {
            return false;
        }
        let target = self.core.pressure.target;
        let nr_unkeepable = &mut self.core.folios.lru_mut().vec_mut(target).nr_unkeepable;
        let may_keep = *nr_unkeepable == 0;
        *nr_unkeepable = nr_unkeepable.saturating_sub(1);
        may_keep
    }

    /// A request for `target` only kept folios: do not keep as many again.
    pub(super) fn end_keeping(&mut self, target: GroupId) {
        let nr_kept = self.core.pressure.nr_kept;
        self.core.folios.lru_mut().vec_mut(target).nr_unkeepable += nr_kept;
    }

    fn split_victim(&mut self, id: FolioId) -> bool {
        let folio = self.core.folios.get(id);
        let may_split = folio.is_anon() && folio.is_large() && folio.slot().is_none();
        may_split && self.split(id, Order::ZERO).is_ok()
    }

    fn victim_context(&self, id: FolioId) -> Context {
        let site = self.sites_of(id).first().copied();
        let area = site.and_then(|site| Some((site, *self.space(site.mm).vmas.find(site.vpn)?)));
        let of_group = self.context(self.core.folios.lru().group_of(id));
        let Context { group_max, group_pages, .. } = of_group;
        let context = match area {
            Some((site, vma)) => {
                let of_area = self.context_of(site.mm, &vma);
                Context { page: site.vpn.0, group_max, group_pages, ..of_area }
            }
            None => of_group,
        };
        self.with_folio(&context, id)
    }
}
