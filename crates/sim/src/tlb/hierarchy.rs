//! The TLB of one CPU: both sides, both levels, and the hints in front.

use largefolio_mm::units::{Order, PageSize, Vpn, VpnRange};

use super::access::{Access, Side};
use super::coalesce::{Coalescing, LeafKind, Translation, Walk};
use super::config::{StructureConfig, TlbConfig};
use super::counters::Counters;
use super::entry::{Entry, Key};
use super::hints::Front;
use super::level::{Level, Violation};
use super::spaces::Spaces;
use super::walk_cache::{Steps, WalkCaches};
use super::walker::{Moment, Walker};

/// Hints of one side, a power of two: 256 x 24 bytes. Each hint covers one page, so large entries
/// need more hints than level 1 has entries. With 640 random pages in 40 entries, a lookup takes
/// 6.1 ns with 128 hints and 3.7 ns with 512, which would fill a quarter of a 48 KiB data cache.
const NR_HINTS: usize = 256;

const NR_SAVED_FRONTS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a miss must be walked and filled"]
pub enum Lookup {
    L1,
    /// Level 1 now has the entry too.
    L2,
    Miss,
    /// A write found a read-only entry and removed it. Fault or walk, then call [`Tlb::fill_walk`].
    Permission,
}

impl Lookup {
    #[must_use]
    pub const fn needs_walk(self) -> bool {
        matches!(self, Self::Miss | Self::Permission)
    }
}

/// The slot that last held an entry for `vpn`. Valid only if `keys[slot] == key` (I1).
#[derive(Clone, Copy, Debug)]
struct Hint {
    vpn: Vpn,
    key: Key,
    slot: usize,
}

impl Hint {
    const NONE: Self = Self { vpn: Vpn(u64::MAX), key: Key::EMPTY, slot: usize::MAX };
}

/// The TLB of one CPU.
///
/// After [`Lookup::Miss`] and [`Lookup::Permission`] the caller walks the page table, serves a
/// fault if needed, and fills. If the kernel flushes the TLB after a page-table change, the caller
/// must call [`Tlb::invalidate_of`]. Pages belong to the address space of the last
/// [`Tlb::switch_to`]; without a switch, only one address space exists.
#[derive(Clone, Debug)]
pub struct Tlb {
    pub(super) l1: [Level; 2],
    l2: Vec<Level>,
    l2_of: [Option<usize>; 2],
    hints: [Box<[Hint; NR_HINTS]>; 2],
    pub(super) front: Front,
    saved_fronts: Vec<(u64, Front)>,
    spaces: Spaces,
    space: Option<u64>,
    coalescing: Coalescing,
    walk_caches: WalkCaches,
    walker: Walker,
    /// A virtual machine's entries cover no more than a page of its host.
    host_order: Option<Order>,
    page: PageSize,
    /// Number of lookups and fills so far: the time of [`super::entry::Use`].
    pub(super) clock: u64,
    pub(super) counters: Counters,
}

impl Tlb {
    /// Creates an empty TLB for base pages of `page`.
    ///
    /// # Panics
    /// If `config.check(&[page])` fails. A loaded [`crate::machine::Machine`] has been checked.
    #[must_use]
    pub fn new(config: &TlbConfig, page: PageSize) -> Self {
        if let Err(error) = config.check(&[page]) {
            panic!("unchecked TLB configuration: {error}");
        }
        let mut l2 = Vec::new();
        let mut add = |configs: &[StructureConfig]| {
            (!configs.is_empty()).then(|| {
                l2.push(Level::new(configs, page));
                l2.len() - 1
            })
        };
        let shared = add(&config.l2);
        let l2_of = [shared.or(add(&config.l2_instruction)), shared.or(add(&config.l2_data))];
        Self {
            l1: [Level::new(&config.l1_instruction, page), Level::new(&config.l1_data, page)],
            l2,
            l2_of,
            hints: [Box::new([Hint::NONE; NR_HINTS]), Box::new([Hint::NONE; NR_HINTS])],
            front: Front::default(),
            saved_fronts: Vec::new(),
            spaces: Spaces::new(config.address_spaces.nr),
            space: None,
            coalescing: config.coalescing(),
            walk_caches: WalkCaches::new(&config.walk_cache, page),
            walker: Walker::new(&config.walker, page),
            host_order: config.host_order(page),
            page,
            clock: 0,
            counters: Counters::default(),
        }
    }

    #[inline]
    pub fn lookup(&mut self, side: Side, vpn: Vpn, access: Access) -> Lookup {
        self.lookup_run(side, vpn, access, 1)
    }

    #[inline]
    pub fn lookup_run(&mut self, side: Side, vpn: Vpn, access: Access, count: u64) -> Lookup {
        debug_assert!(count > 0, "a run has at least one reference");
        let vpn = self.spaces.tagged(vpn);
        self.counters.side_mut(side).references += count;
        self.clock += 1;
        let hint = self.hints[side as usize][hint_of(vpn)];
        let l1 = &mut self.l1[side as usize];
        if hint.vpn == vpn && l1.touch_hinted(hint.slot, hint.key, access, self.clock) {
            return Lookup::L1;
        }
        self.search(side, vpn, access)
    }

    /// Counts a level-2 hit of the data side whose address a recent row loaded.
    pub const fn count_chained_hit(&mut self) {
        self.counters.chained_hits += 1;
    }

    /// Records `count` references to a recorded page, numbered in 4 KiB. They bring lines into the
    /// caches that page-table walks use. Call this for every row that [`Tlb::serve`] does not
    /// serve.
    #[inline]
    pub fn bring_in(&mut self, side: Side, page: u64, count: u64) {
        self.walker.bring_in(side, self.spaces.marked(page), count);
    }

    /// Returns the entry that last served `vpn`, and its slot. Level 1 may have lost it since.
    #[inline]
    pub(super) fn last_hit(&self, side: Side, vpn: Vpn) -> Option<(Key, usize)> {
        let vpn = self.spaces.tagged(vpn);
        let hint = self.hints[side as usize][hint_of(vpn)];
        (hint.vpn == vpn).then_some((hint.key, hint.slot))
    }

    /// Fills one entry per level with the result of a walk.
    ///
    /// # Panics
    /// If the walk breaks I4: its leaf is larger than a PMD entry.
    pub fn fill_walk(&mut self, side: Side, walk: &Walk) {
        let walk = &Walk { vpn: self.spaces.tagged(walk.vpn), ..*walk };
        let row = self.clock - self.counters.walks();
        let instructions = self.counters.instruction.references;
        let steps = self.fill(side, walk.vpn, &self.coalescing.entry(walk));
        let (kind, entry_of) = self.walker.walk(side, walk, steps, Moment { row, instructions });
        self.counters.walk_kinds.add(kind, entry_of);
    }

    /// Adds a walk's translation, which must cover `vpn`. Returns the entries that the walk read.
    ///
    /// # Panics
    /// If the translation is larger than a PMD entry (I4) or does not cover `vpn`.
    pub(super) fn fill(&mut self, side: Side, vpn: Vpn, translation: &Translation) -> Steps {
        let entry = translation.entry();
        assert!(entry.order <= self.page.pmd_order(), "I4: entry larger than a PMD entry");
        assert!(
            entry.order.round_down(vpn.0) == entry.first_vpn.0,
            "I4: a translation is aligned and covers the page it was walked for"
        );
        self.counters.count_walk(translation.leaf);
        let steps = self.walk_caches.walk(vpn, translation.leaf);
        self.counters.count_steps(steps);
        self.clock += 1;
        let entry = match self.host_order {
            Some(host) if host < entry.order => entry.piece(vpn, host),
            _ => entry,
        };
        if let Some(nr) = self.l2_of[side as usize]
            && let level = &mut self.l2[nr]
            && let Some(home) = level.home(entry.order)
            && (translation.leaf != LeafKind::Pmd || home.order == entry.order)
        {
            level.insert(&entry.piece(vpn, home.order), home, self.clock);
        }
        self.fill_l1(side, vpn, &entry);
        steps
    }

    /// Switches to an address space. Returns the flushed pages if it took another space's tag.
    pub fn switch_to(&mut self, space: u64) -> Option<VpnRange> {
        if self.space == Some(space) {
            return None;
        }
        self.switch_front(space);
        self.space = Some(space);
        let flushed = self.spaces.switch_to(space)?;
        self.invalidate(flushed.start, flushed.end.0 - flushed.start.0);
        Some(flushed)
    }

    /// Switches to another thread, which ends the walks of the previous one.
    pub fn switch_thread(&mut self) {
        self.walker.forget_walks();
    }

    pub fn end_space(&mut self, space: u64) -> Option<VpnRange> {
        self.saved_fronts.retain(|(of, _)| *of != space);
        if self.space == Some(space) {
            self.space = None;
        }
        let flushed = self.spaces.end(space)?;
        self.invalidate(flushed.start, flushed.end.0 - flushed.start.0);
        Some(flushed)
    }

    /// Removes an address space's entries that cover any of these pages. Returns the tagged pages.
    pub fn invalidate_of(&mut self, space: u64, first: Vpn, nr_pages: u64) -> Option<VpnRange> {
        let range = self.spaces.range(space, first, nr_pages)?;
        self.invalidate(range.start, range.end.0 - range.start.0);
        Some(range)
    }

    #[inline]
    #[must_use]
    pub const fn tagged(&self, vpn: Vpn) -> Vpn {
        self.spaces.tagged(vpn)
    }

    fn switch_front(&mut self, space: u64) {
        let Some(before) = self.space else { return };
        let at = self.saved_fronts.iter().position(|(of, _)| *of == space);
        let mut next = match at {
            Some(at) => self.saved_fronts.remove(at).1,
            None if self.saved_fronts.len() < NR_SAVED_FRONTS => Front::default(),
            None => self.saved_fronts.remove(0).1,
        };
        std::mem::swap(&mut self.front, &mut next);
        self.saved_fronts.push((before, next));
    }

    /// Removes every entry that covers any of these tagged pages, in levels and page-walk caches.
    pub fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        self.walk_caches.invalidate(first, nr_pages);
        self.remove_range(first, nr_pages);
    }

    fn remove_range(&mut self, first: Vpn, nr_pages: u64) {
        for level in self.l1.iter_mut().chain(&mut self.l2) {
            level.remove_range(first, nr_pages);
        }
    }

    pub fn flush(&mut self) {
        self.walk_caches.flush();
        self.l1.iter_mut().chain(&mut self.l2).for_each(Level::clear);
    }

    /// Returns the entry that a lookup of `vpn` would use, without counting or ageing.
    #[must_use]
    pub fn peek(&self, side: Side, vpn: Vpn) -> Option<Entry> {
        let vpn = self.tagged(vpn);
        let entry_of = |level: &Level| level.find(vpn).map(|slot| level.entry(slot));
        entry_of(&self.l1[side as usize])
            .or_else(|| self.l2_of[side as usize].and_then(|nr| entry_of(&self.l2[nr])))
    }

    #[must_use]
    pub const fn coalescing(&self) -> Coalescing {
        self.coalescing
    }

    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks the invariants of every level.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        self.l1.iter().chain(&self.l2).try_for_each(Level::validate)
    }

    fn search(&mut self, side: Side, vpn: Vpn, access: Access) -> Lookup {
        let l1 = &mut self.l1[side as usize];
        if let Some(slot) = l1.find(vpn) {
            if access == Access::Write && !l1.is_writable(slot) {
                return self.refuse(side, vpn);
            }
            l1.touch(slot, self.clock);
            self.hints[side as usize][hint_of(vpn)] = Hint { vpn, key: l1.key(slot), slot };
            return Lookup::L1;
        }
        if let Some(nr) = self.l2_of[side as usize]
            && let level = &mut self.l2[nr]
            && let Some(slot) = level.find(vpn)
        {
            let entry = level.entry(slot);
            if access == Access::Write && !entry.is_writable {
                return self.refuse(side, vpn);
            }
            level.touch(slot, self.clock);
            self.counters.side_mut(side).l1_misses += 1;
            self.fill_l1(side, vpn, &entry);
            return Lookup::L2;
        }
        let counters = self.counters.side_mut(side);
        counters.l1_misses += 1;
        counters.l2_misses += 1;
        Lookup::Miss
    }

    /// Handles a write to a read-only entry: removes the page's entries, as the kernel's flush
    /// does. That flush covers only the leaf, so the page-walk caches keep their entries.
    #[cold]
    fn refuse(&mut self, side: Side, vpn: Vpn) -> Lookup {
        self.counters.side_mut(side).permission_misses += 1;
        self.remove_range(vpn, 1);
        Lookup::Permission
    }

    fn fill_l1(&mut self, side: Side, vpn: Vpn, entry: &Entry) {
        let l1 = &mut self.l1[side as usize];
        let Some(home) = l1.home(entry.order) else {
            unreachable!("a checked level 1 holds base pages, which are part of any entry")
        };
        let slot = l1.insert(&entry.piece(vpn, home.order), home, self.clock);
        self.hints[side as usize][hint_of(vpn)] = Hint { vpn, key: l1.key(slot), slot };
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
const fn hint_of(vpn: Vpn) -> usize {
    vpn.0 as usize % NR_HINTS
}
