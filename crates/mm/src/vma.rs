//! A process's virtual memory areas: their backing, protection and advice.
//!
//! Invariants:
//! - I1: areas do not overlap and are not empty.
//! - I2: adjacent areas without anonymous pages are merged if possible, except those that only a lock
//!   in a parent process kept apart.
//! - I3: a child's areas never share an `anon_vma`: fork creates one for each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::mempolicy::MemPolicy;
use crate::units::{Order, Vpn};

/// Open file in the memory manager: one readahead state (B.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub u32);

/// Allowed accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prot {
    /// Loads.
    pub can_read: bool,
    /// Stores.
    pub can_write: bool,
    /// Instruction fetches.
    pub can_exec: bool,
}

impl Prot {
    /// No access.
    pub const NONE: Self = Self { can_read: false, can_write: false, can_exec: false };
    /// Loads only.
    pub const READ: Self = Self { can_read: true, can_write: false, can_exec: false };
    /// Loads and instruction fetches.
    pub const READ_EXEC: Self = Self { can_read: true, can_write: false, can_exec: true };
    /// Loads and stores.
    pub const READ_WRITE: Self = Self { can_read: true, can_write: true, can_exec: false };
}

/// `MADV_HUGEPAGE` and its opposite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugeAdvice {
    /// No advice.
    #[default]
    Default,
    /// `VM_HUGEPAGE`.
    Huge,
    /// `VM_NOHUGEPAGE`.
    Nohuge,
}

/// `MADV_RANDOM`, `MADV_SEQUENTIAL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessAdvice {
    /// No advice.
    #[default]
    Normal,
    /// `VM_RAND_READ`.
    Random,
    /// `VM_SEQ_READ`.
    Sequential,
}

/// `MADV_DONTFORK`, `MADV_WIPEONFORK`: what fork gives to the child (E.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkAdvice {
    /// The child does not get the area (`VM_DONTCOPY`).
    pub is_left_out: bool,
    /// The child gets the area without its pages (`VM_WIPEONFORK`).
    pub is_wiped: bool,
}

/// mlock: which pages stay in memory (P.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// None.
    #[default]
    None,
    /// All (`VM_LOCKED`): the call populates the area.
    All,
    /// Those that faults map (`VM_LOCKONFAULT`).
    OnFault,
}

/// Advice of an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advice {
    /// `MADV_HUGEPAGE` or `MADV_NOHUGEPAGE`.
    pub huge: HugeAdvice,
    /// `MADV_RANDOM` or `MADV_SEQUENTIAL`.
    pub access: AccessAdvice,
    /// Preferred folio order for reads, at most the page cache's largest (K.1.4).
    pub preferred: Option<Order>,
    /// What fork gives to the child.
    pub fork: ForkAdvice,
    /// Pages that stay in memory.
    pub lock: Lock,
    /// Nodes that its pages come from (mbind); `None` = as the process's policy says.
    pub policy: Option<MemPolicy>,
}

/// Source of an area's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Anonymous: zeroes on first touch.
    Anon,
    /// A file from page `pgoff` on.
    File {
        /// Open file used for the mapping.
        open: OpenId,
        /// Page offset of the area's first page.
        pgoff: u64,
    },
    /// Hugetlb pages from a pool.
    Hugetlb(HugeArea),
}

/// File of one `mmap` with `MAP_HUGETLB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HugeFileId(pub u32);

/// An area of huge pages (docs/behaviour O.1). It is never merged with a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugeArea {
    /// The area's file.
    pub file: HugeFileId,
    /// Order of its pages.
    pub order: Order,
    /// Page offset of the area's first page, in base pages.
    pub pgoff: u64,
    /// Whether the process owns a private mapping's reservations; a child does not (O.2.2).
    pub is_owner: bool,
    /// The owner took one of its pages: absent pages are refused from then on (O.4.4).
    pub has_lost: bool,
}

/// Whether stores reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Stores copy the page first.
    Private,
    /// Stores go to the file.
    Shared,
}

/// Use of an anonymous mapping, if the kernel knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Any use.
    #[default]
    Memory,
    /// `MAP_STACK` (D.1.6).
    Stack,
    /// The main thread's stack, which faults extend downwards (D.2.10).
    Growing {
        /// Its limit in bytes (`RLIMIT_STACK`).
        bytes_max: u64,
    },
    /// A System V segment; only for shared mappings (B.5.1).
    Segment,
}

/// An area's `anon_vma`, which leads to its anonymous pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonVma {
    /// Unique within the process.
    pub id: u32,
    /// Whether fork created the area. Its `anon_vma` is linked to the parent's too, so the area
    /// does not merge with a neighbour that has none.
    pub is_inherited: bool,
}

impl AnonVma {
    const fn can_merge(one: Option<Self>, other: Option<Self>) -> bool {
        match (one, other) {
            (None, None) => true,
            (Some(one), Some(other)) => one.id == other.id,
            (Some(own), None) | (None, Some(own)) => !own.is_inherited,
        }
    }
}

/// Shared memory as the area maps it; stays as it was when the area was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedShmem {
    /// A file in memory that has a name, or no shared memory.
    Named,
    /// A file without a name: the controls of sizes decide its faults (Q.1.3).
    Unnamed,
    /// A System V segment: no fault-around (B.5.1), and it never merges with a neighbour (E.4.6).
    Segment,
}

/// One area: pages `[start, end)` with one backing, protection and advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vma {
    /// Number of the first page.
    pub start: Vpn,
    /// Page after the last one.
    pub end: Vpn,
    /// Allowed accesses.
    pub prot: Prot,
    /// Whether stores stay private or reach the file.
    pub sharing: Sharing,
    /// Source of absent pages.
    pub backing: Backing,
    /// The program's advice.
    pub advice: Advice,
    /// Set by the first fault that may create anonymous pages here; decides what fork copies.
    pub anon: Option<AnonVma>,
    /// Creation page number of an anonymous area minus its current one (wrapping), for mremap.
    pub moved_by: u64,
    /// Its pages count as committed (`VM_ACCOUNT`): it is writable, or has its own pages.
    pub is_accounted: bool,
    /// `userfaultfd` handles absent pages, so faults allocate single pages (D.2.3).
    pub is_armed: bool,
    /// Its last readahead from swap space; `None` before the first.
    pub ahead: Option<SwapAhead>,
    /// Lowest page that the area can grow down to (`VM_GROWSDOWN`); `None` if it does not grow.
    pub grows_to: Option<Vpn>,
    /// What decides its faults in shared memory.
    pub shmem: MappedShmem,
}

/// The last window that an area read ahead from swap space (`swap_readahead_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapAhead {
    /// The last page requested.
    pub last: Vpn,
    /// Pages of the window.
    pub window: u64,
    /// Pages read ahead and used since.
    pub nr_hits: u64,
}

impl Vma {
    /// Whether it may have anonymous pages.
    #[must_use]
    pub const fn has_anon(&self) -> bool {
        self.anon.is_some()
    }

    /// Changes the protection. Read-only memory without pages no longer counts as committed.
    pub fn protect(&mut self, prot: Prot) {
        self.prot = prot;
        if prot.can_write && self.sharing == Sharing::Private {
            self.is_accounted = true;
        } else if self.backing == Backing::Anon && !self.has_anon() {
            self.is_accounted = false;
        }
    }

    /// Pages of the area.
    #[must_use]
    pub fn nr_pages(&self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether `vpn` is inside.
    #[must_use]
    pub fn contains(&self, vpn: Vpn) -> bool {
        self.start <= vpn && vpn < self.end
    }

    /// Returns the huge pages of a hugetlb area.
    #[must_use]
    pub const fn huge(&self) -> Option<HugeArea> {
        match self.backing {
            Backing::Hugetlb(area) => Some(area),
            Backing::Anon | Backing::File { .. } => None,
        }
    }

    /// File index of `vpn`; for anonymous memory, the page number it was created at. `vpn` may
    /// precede the area, but not the file.
    #[must_use]
    pub fn index_of(&self, vpn: Vpn) -> u64 {
        match self.backing {
            Backing::Anon => vpn.0.wrapping_add(self.moved_by),
            Backing::File { pgoff, .. } | Backing::Hugetlb(HugeArea { pgoff, .. }) => {
                (pgoff + vpn.0).wrapping_sub(self.start.0)
            }
        }
    }

    /// First file index and the index after the last (B.4.7 `[v0, v1)`).
    #[must_use]
    pub fn file_range(&self) -> (u64, u64) {
        (self.index_of(self.start), self.index_of(self.end))
    }

    pub(crate) fn cuts_huge_page(&self) -> bool {
        let is_whole = |area: HugeArea| {
            area.order.is_aligned(self.start.0) && area.order.is_aligned(self.end.0)
        };
        self.huge().is_some_and(|area| !is_whole(area))
    }

    fn part(&self, start: Vpn, end: Vpn) -> Self {
        let mut part = Self { start, end, ..*self };
        match &mut part.backing {
            Backing::Anon => {}
            Backing::File { pgoff, .. } | Backing::Hugetlb(HugeArea { pgoff, .. }) => {
                *pgoff = self.index_of(start);
            }
        }
        part
    }

    fn is_continued_by(&self, next: &Self) -> bool {
        self.shmem != MappedShmem::Segment && self.takes_from(next)
    }

    /// Whether the edge to `next` can move. A segment's area is never removed, so two areas of it
    /// merge only if a third part of them stays.
    fn takes_from(&self, next: &Self) -> bool {
        self.prot == next.prot && self.is_alike(next)
    }

    /// Whether `next` is adjacent and equal, apart from its protection: they share an `anon_vma`.
    fn is_like_but_for_prot(&self, next: &Self) -> bool {
        self.shmem != MappedShmem::Segment && self.is_alike(next)
    }

    fn is_alike(&self, next: &Self) -> bool {
        let is_same_backing = match (self.backing, next.backing) {
            (Backing::Anon, Backing::Anon) => self.moved_by == next.moved_by,
            (Backing::File { open, .. }, Backing::File { open: next_open, pgoff }) => {
                open == next_open && pgoff == self.index_of(self.end)
            }
            _ => false,
        };
        is_same_backing
            && self.end == next.start
            && self.sharing == next.sharing
            && self.advice == next.advice
            && self.is_accounted == next.is_accounted
            && self.is_armed == next.is_armed
            && self.grows_to == next.grows_to
    }
}

/// E.4.7: an area with anonymous pages that becomes like a neighbour without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AreaMerge {
    /// \[..6.15\] stays apart.
    #[default]
    Faulted,
    /// \[6.16+\] merges.
    Any,
}

/// All areas of a process, by start address.
#[derive(Clone, Debug, Default)]
pub struct VmaTree {
    areas: BTreeMap<Vpn, Vma>,
    nr_anon: u32,
    /// Whether areas are apart because a parent had locked one of them.
    has_inherited_edges: bool,
    merge: AreaMerge,
}

impl VmaTree {
    /// Creates an empty tree.
    #[must_use]
    pub fn new(merge: AreaMerge) -> Self {
        Self { merge, ..Self::default() }
    }

    /// Whether an area that changes, with `own` pages, merges with a neighbour.
    fn joins(&self, own: Option<AnonVma>, neighbour: Option<AnonVma>) -> bool {
        let is_possible = self.merge == AreaMerge::Any || own.is_none() || neighbour.is_some();
        is_possible && AnonVma::can_merge(own, neighbour)
    }

    /// Finds the area that contains `vpn`.
    #[must_use]
    pub fn find(&self, vpn: Vpn) -> Option<&Vma> {
        let (_, vma) = self.areas.range(..=vpn).next_back()?;
        vma.contains(vpn).then_some(vma)
    }

    /// Sets the `anon_vma` of the area of `vpn`: a mergeable neighbour's, otherwise a new one.
    pub fn mark_anon(&mut self, vpn: Vpn) {
        let Some(vma) = self.find(vpn).copied().filter(|vma| !vma.has_anon()) else { return };
        let own = |vma: &Vma| vma.anon.filter(|anon| !anon.is_inherited);
        let after = self.areas.get(&vma.end).filter(|after| vma.is_like_but_for_prot(after));
        let before = self.last_before(vma.start).filter(|b| b.is_like_but_for_prot(&vma));
        let anon = after.and_then(own).or_else(|| before.and_then(own));
        let anon = anon.unwrap_or_else(|| self.new_anon(false));
        if let Some(vma) = self.areas.get_mut(&vma.start) {
            vma.anon = Some(anon);
        }
    }

    pub(crate) fn set_ahead(&mut self, vpn: Vpn, ahead: SwapAhead) {
        let Some(start) = self.find(vpn).map(|vma| vma.start) else { return };
        if let Some(vma) = self.areas.get_mut(&start) {
            vma.ahead = Some(ahead);
        }
    }

    fn new_anon(&mut self, is_inherited: bool) -> AnonVma {
        self.nr_anon += 1;
        AnonVma { id: self.nr_anon, is_inherited }
    }

    /// Returns the areas for a forked child (I3).
    #[must_use]
    pub fn forked(&self) -> Self {
        let mut child = self.clone();
        child.areas.retain(|_, vma| !vma.advice.fork.is_left_out);
        for start in self.areas.keys() {
            let anon = child.new_anon(true);
            if let Some(vma) = child.areas.get_mut(start) {
                // A child locks nothing, and its areas stay as they are.
                let lock = std::mem::take(&mut vma.advice.lock);
                child.has_inherited_edges |= lock != Lock::None;
                let is_copied = vma.has_anon() && !vma.advice.fork.is_wiped;
                vma.anon = is_copied.then_some(anon);
            }
        }
        child
    }

    /// Finds the last area that ends at or before `vpn`.
    #[must_use]
    pub fn last_before(&self, vpn: Vpn) -> Option<&Vma> {
        self.areas.range(..vpn).next_back().map(|(_, vma)| vma).filter(|vma| vma.end <= vpn)
    }

    /// Finds the first area that starts at or after `vpn`.
    #[must_use]
    pub fn first_from(&self, vpn: Vpn) -> Option<&Vma> {
        self.areas.range(vpn..).next().map(|(_, vma)| vma)
    }

    /// Iterates over the areas in ascending order.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Vma> {
        self.areas.values()
    }

    /// Extends the area from `start` down to `to`; the pages between are free.
    pub(crate) fn grow_down(&mut self, start: Vpn, to: Vpn) {
        if let Some(vma) = self.areas.remove(&start) {
            self.areas.insert(to, Vma { start: to, ..vma });
        }
    }

    /// Number of areas, at most `max_map_count`.
    #[must_use]
    pub fn len(&self) -> usize {
        self.areas.len()
    }

    /// Whether there are no areas.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.areas.is_empty()
    }

    /// Returns the areas that overlap `[start, end)`, clipped to it.
    #[must_use]
    pub fn overlapping(&self, start: Vpn, end: Vpn) -> Vec<Vma> {
        let from = self.find(start).filter(|_| start < end).map_or(start, |vma| vma.start);
        self.areas
            .range(from..end.max(from))
            .filter(|(_, vma)| vma.end > start)
            .map(|(_, vma)| vma.part(vma.start.max(start), vma.end.min(end)))
            .collect()
    }

    /// Number of areas that overlap `[start, end)`.
    #[must_use]
    pub fn nr_in(&self, start: Vpn, end: Vpn) -> usize {
        let before = self.find(start).is_some_and(|vma| vma.start < start);
        usize::from(before) + self.areas.range(start..end.max(start)).count()
    }

    /// Adds an area over free addresses, merged with its neighbours if possible.
    ///
    /// # Panics
    /// Panics if the area is empty or overlaps another: callers remove existing areas first.
    pub fn insert(&mut self, vma: Vma) {
        self.insert_if(vma, Vma::is_continued_by);
    }

    fn insert_if(&mut self, vma: Vma, merges: fn(&Vma, &Vma) -> bool) {
        assert!(vma.start < vma.end, "I1: empty area");
        assert!(self.overlapping(vma.start, vma.end).is_empty(), "I1: areas overlap");
        let own = vma.anon;
        let mut vma = vma;
        if let Some((&start, before)) = self.areas.range(..vma.start).next_back()
            && merges(before, &vma)
            && self.joins(own, before.anon)
        {
            vma = Vma { end: vma.end, anon: before.anon.or(vma.anon), ..*before };
            self.areas.remove(&start);
        }
        if let Some(after) = self.areas.get(&vma.end).copied()
            && merges(&vma, &after)
            && self.joins(own, after.anon)
            && AnonVma::can_merge(vma.anon, after.anon)
        {
            self.areas.remove(&vma.end);
            vma.end = after.end;
            vma.anon = vma.anon.or(after.anon);
        }
        self.areas.insert(vma.start, vma);
    }

    /// Removes `[start, end)`. Returns the removed areas in ascending order.
    pub fn remove(&mut self, start: Vpn, end: Vpn) -> Vec<Vma> {
        let removed = self.overlapping(start, end);
        for part in &removed {
            let Some(whole) = self.find(part.start).copied() else {
                unreachable!("overlapping returns parts of areas")
            };
            self.areas.remove(&whole.start);
            if whole.start < part.start {
                self.areas.insert(whole.start, whole.part(whole.start, part.start));
            }
            if part.end < whole.end {
                self.areas.insert(part.end, whole.part(part.end, whole.end));
            }
        }
        removed
    }

    /// Applies `change` to `[start, end)`, splitting and merging areas as needed.
    pub fn change(&mut self, start: Vpn, end: Vpn, mut change: impl FnMut(&mut Vma)) {
        for mut part in self.overlapping(start, end) {
            let before = part;
            change(&mut part);
            // What does not change is neither split nor merged.
            if part == before {
                continue;
            }
            let is_whole =
                self.find(part.start).is_some_and(|whole| whole.nr_pages() == part.nr_pages());
            self.remove(part.start, part.end);
            self.insert_if(part, if is_whole { Vma::is_continued_by } else { Vma::takes_from });
        }
    }

    /// Checks I1 and I2.
    ///
    /// # Errors
    /// Returns the start of the first invalid area.
    pub fn validate(&self) -> Result<(), Vpn> {
        let mut before: Option<&Vma> = None;
        for (start, vma) in &self.areas {
            let is_sound = *start == vma.start
                && vma.start < vma.end
                && before.is_none_or(|b| {
                    b.end <= vma.start
                        && (b.has_anon()
                            || vma.has_anon()
                            || self.has_inherited_edges
                            || !b.is_continued_by(vma))
                });
            if !is_sound {
                return Err(*start);
            }
            before = Some(vma);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
