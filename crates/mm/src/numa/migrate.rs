//! Moving folios to other nodes (docs/behaviour R.4).
//!
//! Corresponds to: `queue_folios_pte_range`, `migrate_pages`, `migrate_pages_batch`,
//! `alloc_migration_target`.
//!
//! A page moves with its whole folio. A partially mapped folio is split first.

use std::collections::BTreeSet;

use crate::folio::{FolioId, Owner};
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::mempolicy::{MemPolicy, Route};
use crate::pgtable::PteFlags;
use crate::route::Place;
use crate::rules::anon::{Effort, MovedFolio};
use crate::units::{MmId, NodeId, NodeSet, Order, Pfn, Vpn, VpnRange};

/// By how many processes a folio that moves may be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharers {
    /// Folios that several may map stay (F.2.2, F.2.3).
    One,
    Any,
}

/// Where folios move.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// To this node only.
    Node(NodeId),
    /// To this node if it has enough free memory (R.6.4).
    Hint(NodeId),
    /// As the policy says; `nth` turns a folio's index into its number (R.4.4).
    Policy { policy: Option<MemPolicy>, local: NodeId, nth: u64 },
}

impl Memory {
    /// Finds a page's folio, if it must move.
    pub(super) fn misplaced(
        &self,
        mm: MmId,
        vpn: Vpn,
        sharers: Sharers,
        is_wrong: &impl Fn(NodeId) -> bool,
    ) -> Option<FolioId> {
        let leaf = self.space(mm).table.leaf(vpn)?;
        if leaf.flags.contains(PteFlags::SPECIAL) {
            return None;
        }
        let pfn = leaf.pfn_of(vpn);
        let id = self.core.folios.of_pfn(pfn)?;
        let may_move = sharers == Sharers::Any || !self.maybe_mapped_shared(id);
        let is_listed = self.core.folios.lru().is_on_lru(id);
        (is_wrong(self.core.buddy.node_of(pfn)) && may_move && is_listed).then_some(id)
    }

    /// Finds a range's folios that must move, in ascending order.
    pub(super) fn queue_range(
        &self,
        mm: MmId,
        VpnRange { start, end }: VpnRange,
        sharers: Sharers,
        is_wrong: impl Fn(NodeId) -> bool,
    ) -> Vec<FolioId> {
        let mut queue: Vec<FolioId> = Vec::new();
        for leaf in self.space(mm).table.leaves(start, end.0 - start.0) {
            let mut vpn = leaf.first_vpn.max(start);
            while vpn < leaf.end_vpn().min(end) {
                self.core.work.add(1);
                match self.misplaced(mm, vpn, sharers, &is_wrong) {
                    Some(id) if queue.last() != Some(&id) => queue.push(id),
                    _ => {}
                }
                vpn = vpn.plus(1);
            }
        }
        let mut seen = BTreeSet::new();
        queue.retain(|id| seen.insert(*id));
        queue
    }

    /// How mbind places the queued folios. It numbers them by the first one's place in the range
    /// (R.4.4).
    pub(super) fn target_in(&self, mm: MmId, range: VpnRange, queue: &[FolioId]) -> Target {
        let task = self.core.buddy.task(mm);
        let vma = self.space(mm).vmas.find(range.start).copied();
        let policy = vma.and_then(|vma| vma.advice.policy).or(task.policy);
        let nth = queue.first().and_then(|id| self.turn_of(mm, range, *id)).unwrap_or(0);
        Target::Policy { policy, local: task.node, nth }
    }

    fn turn_of(&self, mm: MmId, range: VpnRange, id: FolioId) -> Option<u64> {
        let folio = self.core.folios.get(id);
        let site = self.sites_of(id).into_iter().find(|site| site.mm == mm)?;
        let head = Vpn(site.vpn.0.checked_sub(site.pfn.0 - folio.pfn.0)?);
        let vma = self.space(mm).vmas.find(head)?;
        let is_in_range = vma.end > range.start && vma.start < range.end;
        let vma = is_in_range.then_some(vma)?;
        let nth = Place { mm, vma, first: head }.nth(folio.order);
        Some(nth.wrapping_sub(vma.index_of(head) >> folio.order.get()))
    }

    /// Moves folios; returns whether all moved. The others stay.
    pub(super) fn move_folios(&mut self, queue: &[FolioId], target: Target) -> bool {
        let mut have_all_moved = true;
        for &id in queue {
            have_all_moved &= self.move_folio(id, target);
        }
        have_all_moved
    }

    pub(super) fn move_folio(&mut self, id: FolioId, target: Target) -> bool {
        let folio = self.core.folios.get(id);
        let (first, nr_pages) = (folio.pfn, folio.nr_pages());
        if folio.is_partially_mapped
            && folio.deferred.is_some()
            && self.split(id, Order::ZERO).is_ok()
        {
            // A part may move to a frame that another part left.
            let parts: Vec<FolioId> =
                (0..nr_pages).filter_map(|by| self.core.folios.of_pfn(first.plus(by))).collect();
            let moved = parts.into_iter().map(|part| self.move_whole(part, target));
            return moved.fold(true, |all, one| all & one);
        }
        self.move_whole(id, target)
    }

    fn move_whole(&mut self, id: FolioId, target: Target) -> bool {
        let folio = self.core.folios.get(id);
        let can_move = !folio.has_extra_refs()
            && folio.refs > 0
            && !folio.is_locked
            && self.core.folios.lru().is_on_lru(id);
        let Some(to) = can_move.then(|| self.block_at(id, target)).flatten() else {
            self.core.counters.numa.nr_not_moved += 1;
            self.reopen_held(id);
            return false;
        };
        let counters = &mut self.core.counters.numa;
        counters.nr_moved_folios += 1;
        counters.nr_moved_pages += self.core.folios.get(id).nr_pages();
        let sites = self.sites_of(id);
        self.migrate(id, to);
        self.requeue(id, &sites);
        true
    }

    /// A move takes a folio off the queue of deferred splits. Some kernels put it back, marked as
    /// it was while its entries were removed one by one (R.4.5).
    fn requeue(&mut self, id: FolioId, sites: &[Site]) {
        let folio = self.core.folios.get_mut(id);
        let (was_queued, order) = (folio.deferred.is_some(), folio.order);
        self.core.deferred.remove(folio);
        if self.rules.anon.moved == MovedFolio::Whole {
            return;
        }
        if unmaps_in_parts(sites, order) {
            self.core.became_partially_mapped(id);
        } else if was_queued {
            self.core.deferred.push(id, self.core.folios.get_mut(id));
        }
    }

    /// Whether a node has more free memory than the folio needs and background reclaim wants.
    fn has_room(&self, node: NodeId, order: Order) -> bool {
        let high = self.core.buddy.part_of(node, self.core.pressure.watermarks.high);
        self.core.buddy.nr_free_in(node) > high + order.nr_pages()
    }

    fn block_at(&mut self, id: FolioId, target: Target) -> Option<Pfn> {
        let folio = self.core.folios.get(id);
        let order = folio.order;
        let effort = if let Target::Hint(_) = target { Effort::None } else { Effort::Direct };
        let route = match target {
            Target::Hint(node) if !self.has_room(node, order) => return None,
            Target::Node(node) | Target::Hint(node) => Route::to(node, NodeSet::ALL).first_only(),
            Target::Policy { policy, local, nth } => {
                let index = match folio.owner {
                    Owner::Anon { index } | Owner::File { index, .. } => index.0,
                    Owner::Detached => 0,
                };
                self.core.buddy.route_of(policy, local, nth.wrapping_add(index >> order.get()))
            }
        };
        self.alloc_on_route(route, order, effort, |memory, effort| {
            let is_ready = order == Order::ZERO || memory.prepare_large(order, effort);
            is_ready.then(|| memory.core.take_block(order, Order::ZERO)).flatten()
        })
    }
}

/// Whether removing these entries one by one leaves some pages unmapped while others are mapped.
fn unmaps_in_parts(sites: &[Site], order: Order) -> bool {
    let mut maps = vec![0_u32; order.nr_pages() as usize];
    let pages = |site: &Site| {
        let first = (site.pfn.0 & (order.nr_pages() - 1)) as usize;
        first..first + site.nr as usize
    };
    for site in sites {
        maps[pages(site)].iter_mut().for_each(|nr| *nr += 1);
    }
    let mut nr_mapped = maps.iter().filter(|nr| **nr > 0).count();
    for site in sites {
        let (mut is_gone, before) = (false, nr_mapped);
        for nr in &mut maps[pages(site)] {
            *nr -= 1;
            nr_mapped -= usize::from(*nr == 0);
            is_gone |= !site.is_pmd && *nr == 0 && nr_mapped > 0;
        }
        if is_gone || (nr_mapped < before && nr_mapped > 0) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(pfn: u64, nr: u64, is_pmd: bool) -> Site {
        Site { mm: MmId(0), vpn: Vpn(0), pfn: Pfn(pfn), nr, is_pmd }
    }

    #[test]
    fn only_one_entry_for_all_pages_unmaps_them_at_once() {
        let order = Order::new(2);
        assert!(!unmaps_in_parts(&[site(8, 4, true)], order));
        assert!(unmaps_in_parts(&[site(8, 4, false)], order));
        assert!(!unmaps_in_parts(&[site(10, 1, false)], order));
        // The pages stay mapped by the PMD entry, which goes last.
        assert!(!unmaps_in_parts(&[site(8, 4, false), site(8, 4, true)], order));
        assert!(unmaps_in_parts(&[site(8, 4, true), site(9, 2, false)], order));
    }
}
