//! Hinting faults: the use of a page that NUMA balancing marked (docs/behaviour R.6.3 .. R.6.5).
//!
//! Corresponds to: `do_numa_page`, `do_huge_pmd_numa_page`, `mpol_misplaced`,
//! `should_numa_migrate_memory`, `migrate_misplaced_folio`.

use super::mark::is_dirty_file;
use super::migrate::Target;
use crate::fault::Fault;
use crate::folio::{FolioId, HintedBy};
use crate::memory::Memory;
use crate::memory::rmap_walk::Site;
use crate::pgtable::{Leaf, LeafKind, Protection, PteFlags};
use crate::rules::anon::Regain;
use crate::rules::numa::{Reopened, SharedHuge};
use crate::units::{MmId, Vpn, VpnRange};
use crate::vma::{Prot, Vma};

/// Which entries become writable when their marks are removed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    /// The ones that mprotect makes writable (E.5.1).
    Regained,
    /// None.
    Lost,
}

impl Memory {
    /// Handles the use of a marked page: moves its folio near the CPU, or lets it be used where it
    /// is. A store to a page that is not writable afterwards faults again.
    pub(crate) fn hinting_fault(&mut self, fault: &Fault, leaf: &Leaf) {
        self.core.counters.numa.nr_hints += 1;
        let Some(id) = self.core.folios.of_pfn(leaf.pfn_of(fault.vpn)) else {
            self.reopen(fault.mm, &part(&fault.vma, fault.vpn, 1), Writes::Regained);
            return;
        };
        let is_pmd = leaf.kind == LeafKind::Pmd;
        let mut writes = Writes::Regained;
        if self.is_misplaced(fault, id) && self.may_move_by_hint(fault, id, is_pmd) {
            let node = self.core.buddy.task(fault.mm).node;
            let nr_moved = self.core.counters.numa.nr_moved_pages;
            let has_moved = self.move_folio(id, Target::Hint(node));
            let counters = &mut self.core.counters.numa;
            counters.nr_hint_moved_pages += counters.nr_moved_pages - nr_moved;
            let leaf = self.space(fault.mm).table.leaf(fault.vpn);
            if has_moved || leaf.is_none_or(|leaf| !leaf.flags.contains(PteFlags::NO_ACCESS)) {
                return;
            }
            writes = Writes::Lost;
        }
        self.reopen_around(fault, leaf, writes);
    }

    /// Whether the folio should move to the CPU's node. Notes the process that used it from afar.
    fn is_misplaced(&mut self, fault: &Fault, id: FolioId) -> bool {
        if self.has_policy(fault.mm, &fault.vma, fault.vpn) {
            return false;
        }
        let here = self.core.buddy.task(fault.mm).node;
        if self.core.buddy.node_of(self.core.folios.get(id).pfn) == here {
            return false;
        }
        let folio = self.core.folios.get_mut(id);
        let before = std::mem::replace(&mut folio.hinted_by, HintedBy::new(fault.mm, here));
        before.lets_move(fault.mm, here)
    }

    fn may_move_by_hint(&self, fault: &Fault, id: FolioId, is_pmd: bool) -> bool {
        let folio = self.core.folios.get(id);
        let is_shared = self.maybe_mapped_shared(id);
        let stays = is_pmd && is_shared && self.rules.numa.shared_huge == SharedHuge::Stay;
        let is_library = !folio.is_swapbacked && is_shared && fault.vma.prot.can_exec;
        !stays && !is_library && !is_dirty_file(folio)
    }

    /// Removes the marks of all the folio's pages in the area, or only the touched page's mark.
    fn reopen_around(&mut self, fault: &Fault, leaf: &Leaf, writes: Writes) {
        let (first, nr) = match leaf.kind {
            LeafKind::Pmd => (leaf.first_vpn, leaf.order.nr_pages()),
            _ if self.rules.numa.reopened == Reopened::Page => (fault.vpn, 1),
            _ => self.pages_around(fault, leaf),
        };
        self.reopen(fault.mm, &part(&fault.vma, first, nr), writes);
    }

    /// Returns the range that the whole folio would cover here, within the page table.
    fn pages_around(&self, fault: &Fault, leaf: &Leaf) -> (Vpn, u64) {
        let pfn = leaf.pfn_of(fault.vpn);
        let Some(id) = self.core.folios.of_pfn(pfn) else { return (fault.vpn, 1) };
        let folio = self.core.folios.get(id);
        let before = pfn.0 - folio.pfn.0;
        let table = self.rules.page.pmd_order();
        let table_first = table.round_down(fault.vpn.0);
        let first = fault.vpn.0.saturating_sub(before).max(table_first);
        let end = (fault.vpn.0 + folio.nr_pages() - before).min(table_first + table.nr_pages());
        (Vpn(first), end - first)
    }

    /// Removes the marks in a part of an area.
    fn reopen(&mut self, mm: MmId, part: &Vma, writes: Writes) {
        let mut closed: Vec<VpnRange> = Vec::new();
        for leaf in self.space(mm).table.leaves(part.start, part.nr_pages()) {
            let (start, end) = (leaf.first_vpn.max(part.start), leaf.end_vpn().min(part.end));
            if leaf.flags.contains(PteFlags::NO_ACCESS) {
                closed.push(VpnRange { start, end });
            }
        }
        let is_unnoticed = self.is_store_unnoticed(part);
        let set = if is_unnoticed { PteFlags::WRITABLE } else { PteFlags::NONE };
        let open = Protection { set: set.with(PteFlags::YOUNG), clear: PteFlags::NO_ACCESS };
        let regains = writes == Writes::Regained && self.rules.anon.regain == Regain::Exclusive;
        for VpnRange { start, end } in closed {
            self.protect_pages(mm, VpnRange { start, end }, open);
            if regains && part.prot.can_write {
                self.regain(mm, &Vma { start, end, ..*part });
            }
        }
    }

    /// A move of a folio with other references fails after its entries were rewritten.
    pub(super) fn reopen_held(&mut self, id: FolioId) {
        if self.has_marks && self.core.folios.get(id).has_extra_refs() {
            let sites = self.sites_of(id);
            self.reopen_sites(&sites);
        }
    }

    /// The same for a PMD entry.
    pub(crate) fn reopen_whole(&mut self, mm: MmId, leaf: &Leaf) {
        let (vpn, nr) = (leaf.first_vpn, leaf.order.nr_pages());
        self.reopen_sites(&[Site { mm, vpn, pfn: leaf.pfn, nr, is_pmd: true }]);
    }

    /// Removes the marks of entries that were rewritten: what replaces an entry has the access of
    /// its area.
    pub(crate) fn reopen_sites(&mut self, sites: &[Site]) {
        if !self.has_marks {
            return;
        }
        for site in sites {
            let end = site.vpn.plus(site.nr);
            let areas = self.space(site.mm).vmas.overlapping(site.vpn, end);
            let mut open = areas.iter().filter(|vma| vma.prot != Prot::NONE);
            if site.is_pmd {
                // Areas may be cut before their entry is.
                if let Some(vma) = open.next() {
                    self.reopen(site.mm, &Vma { start: site.vpn, end, ..*vma }, Writes::Lost);
                }
                continue;
            }
            for vma in open {
                let first = vma.start.max(site.vpn);
                let nr = vma.end.min(end).0 - first.0;
                self.reopen(site.mm, &part(vma, first, nr), Writes::Lost);
            }
        }
    }
}

/// The part of an area in `nr` pages from `first`.
fn part(vma: &Vma, first: Vpn, nr: u64) -> Vma {
    Vma { start: vma.start.max(first), end: vma.end.min(first.plus(nr)), ..*vma }
}
