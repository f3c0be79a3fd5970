//! NUMA balancing marks pages: their next use is a hinting fault (docs/behaviour R.6.1, R.6.2).
//!
//! Corresponds to: `task_numa_work`, `vma_policy_mof`, `change_pte_range`, `change_huge_pmd`.
//!
//! A mark is an entry without access in an area that allows access, as in the kernel.

use crate::folio::Folio;
use crate::memory::Memory;
use crate::pgtable::{Leaf, LeafKind, Protection, PteFlags};
use crate::route::Place;
use crate::rules::anon::Regain;
use crate::rules::numa::{HugeMarks, Marks, MemoryFiles};
use crate::units::{MmId, NodeId, Pfn, Vpn, VpnRange};
use crate::vma::{Backing, Prot, Sharing, Vma};

impl Memory {
    /// Makes one pass of NUMA balancing over a process's memory. Returns the number of pages that
    /// it marked. Does nothing on a machine with one node.
    ///
    /// Differs: a pass covers the whole process, and areas that it has not used recently too.
    pub fn mark_for_balancing(&mut self, mm: MmId) -> u64 {
        if self.core.buddy.is_single() {
            return 0;
        }
        self.drain_batches();
        let areas = self.space(mm).vmas.iter().filter(|vma| self.gets_hints(mm, vma));
        let ranges: Vec<VpnRange> = areas.flat_map(|vma| self.marked_in(mm, vma)).collect();
        let mut nr_marked = 0;
        for range in ranges {
            nr_marked += range.end.0 - range.start.0;
            self.mark(mm, range);
        }
        self.core.counters.numa.nr_marked_pages += nr_marked;
        nr_marked
    }

    fn mark(&mut self, mm: MmId, range: VpnRange) {
        // A mark removes the write bit, unless the kernel keeps it aside.
        let is_lost = self.rules.anon.regain == Regain::Exclusive;
        let clear = if is_lost { PteFlags::WRITABLE } else { PteFlags::NONE };
        self.protect_pages(mm, range, Protection { set: PteFlags::NO_ACCESS, clear });
        self.has_marks = true;
    }

    /// Whether balancing concerns the area: neither it nor its process has a policy.
    fn gets_hints(&self, mm: MmId, vma: &Vma) -> bool {
        let file = match vma.backing {
            Backing::Hugetlb(_) => return false,
            Backing::Anon => None,
            Backing::File { open, .. } => Some(self.core.mapping(self.open_file(open).mapping)),
        };
        let are_unmarked = self.rules.numa.memory_files == MemoryFiles::Unmarked;
        let is_left_out =
            file.is_some_and(|file| file.is_shmem && (are_unmarked || !file.policies.is_empty()));
        let is_library = file.is_some() && vma.prot.can_read && !vma.prot.can_write;
        let is_closed = vma.prot == Prot::NONE;
        !is_left_out && !is_library && !is_closed && !self.has_policy(mm, vma, vma.start)
    }

    /// Whether a policy decides on a page's node.
    pub(super) fn has_policy(&self, mm: MmId, vma: &Vma, page: Vpn) -> bool {
        let own = self.policy_at(Place { mm, vma, first: page });
        own.or(self.core.buddy.task(mm).policy).is_some()
    }

    /// The area's ranges to mark.
    fn marked_in(&self, mm: MmId, vma: &Vma) -> Vec<VpnRange> {
        // Of shared areas, pages on the CPU's node get hints too: another process may use them.
        let near = (vma.sharing == Sharing::Private).then(|| self.core.buddy.task(mm).node);
        let mut ranges: Vec<VpnRange> = Vec::new();
        for leaf in self.space(mm).table.leaves(vma.start, vma.nr_pages()) {
            let (first, end) = (leaf.first_vpn.max(vma.start), leaf.end_vpn().min(vma.end));
            let step = if leaf.kind == LeafKind::Pmd { end.0 - first.0 } else { 1 };
            for at in (first.0..end.0).step_by(step as usize).map(Vpn) {
                self.core.work.add(1);
                let next = at.plus(step);
                match ranges.last_mut() {
                    _ if !self.is_marked_at(vma, &leaf, at, near) => {}
                    Some(last) if last.end == at => last.end = next,
                    _ => ranges.push(VpnRange { start: at, end: next }),
                }
            }
        }
        ranges
    }

    fn is_marked_at(&self, vma: &Vma, leaf: &Leaf, at: Vpn, near: Option<NodeId>) -> bool {
        let is_closed = leaf.flags.contains(PteFlags::NO_ACCESS);
        if is_closed || leaf.flags.contains(PteFlags::SPECIAL) {
            return false;
        }
        let is_pmd = leaf.kind == LeafKind::Pmd;
        if is_pmd && self.rules.numa.huge_marks == HugeMarks::All {
            return true;
        }
        let pfn = leaf.pfn_of(at);
        let Some(id) = self.core.folios.of_pfn(pfn) else { return false };
        let folio = self.core.folios.get(id);
        let is_own = vma.sharing == Sharing::Shared
            || match self.rules.numa.marks {
                Marks::OneReference => folio.refs == 1,
                Marks::NotShared => !self.maybe_mapped_shared(id),
            };
        is_own && !is_dirty_file(folio) && !self.is_near(pfn, near)
    }

    fn is_near(&self, pfn: Pfn, near: Option<NodeId>) -> bool {
        near.is_some_and(|near| near == self.core.buddy.node_of(pfn))
    }
}

/// A page that may not move while it waits to be written.
pub(super) fn is_dirty_file(folio: &Folio) -> bool {
    !folio.is_anon() && !folio.is_swapbacked && folio.is_dirty
}
