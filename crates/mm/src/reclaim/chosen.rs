//! Folios that a policy chooses for reclaim.
//!
//! ```text
//!   reclaim in a cgroup needs file memory --> policy: this folio --> evicted? --> next question
//!                                                 | the kernel decides   | no, 32 times
//!                                                 v                      v
//!                                            the kernel's own lists
//! ```
//!
//! Differs: no kernel has this ([`crate::policy`]).
//!
//! Invariants:
//! - I1: a round asks at most twice per page that it needs, and [`NR_REFUSED_MAX`] times more.

use super::EvictOutcome;
use super::scan::Reclaimer;
use crate::folio::{FolioId, Owner};
use crate::memory::Memory;
use crate::policy::{Answer, Context, Point};
use crate::units::GroupId;

/// Answers in vain after which the kernel's own lists are scanned: a batch of reclaim.
const NR_REFUSED_MAX: u32 = 32;

impl Memory {
    /// Evicts the folios that the policy chooses, up to `nr_wanted` pages and the rest of the last one.
    /// Returns the freed pages.
    pub(super) fn shrink_chosen(&mut self, who: Reclaimer, group: GroupId, nr_wanted: u64) -> u64 {
        if !self.policy_handles(Point::Evict) {
            return 0;
        }
        let (mut nr_freed, mut nr_refused) = (0, 0);
        while nr_freed < nr_wanted && nr_refused < NR_REFUSED_MAX {
            let context = Context { wanted: nr_wanted - nr_freed, ..self.context(group) };
            let number = match self.ask(Point::Evict, &context) {
                Answer::Value(number) => number,
                Answer::Own | Answer::Window(_) => break,
            };
            let freed = self.evict_chosen(group, number);
            self.count_scan(who, group, freed.max(1), freed);
            if freed > 0 {
                self.honoured(Point::Evict);
                nr_freed += freed;
            } else {
                self.refused(Point::Evict);
                nr_refused += 1;
            }
        }
        nr_freed
    }

    /// Evicts one of the group's cached folios. Returns the freed pages, or 0 if it must stay now.
    fn evict_chosen(&mut self, group: GroupId, number: u64) -> u64 {
        let Some(id) = self.chosen(group, number) else { return 0 };
        self.core.drain_lru();
        if !self.core.folios.isolate(id) {
            return 0;
        }
        let nr_pages = self.core.folios.get(id).nr_pages();
        match self.evict_as_chosen(id) {
            EvictOutcome::Freed => nr_pages,
            EvictOutcome::Keep | EvictOutcome::Activate | EvictOutcome::Split => {
                self.core.folios.putback(id);
                0
            }
        }
    }

    fn chosen(&self, group: GroupId, number: u64) -> Option<FolioId> {
        let nr = u32::try_from(number.checked_sub(1)?).ok()?;
        let id = self.core.folios.live(nr)?;
        let folio = self.core.folios.get(id);
        let Owner::File { mapping, .. } = folio.owner else { return None };
        let is_file = !self.core.mapping(mapping).is_shmem;
        // Memory of a cgroup at its limit; global reclaim also asks for the root.
        (is_file && folio.group == group && !folio.is_dirty).then_some(id)
    }
}
