//! The TLB of one CPU: both sides, both levels, and the hints in front.

use largefolio_mm::units::{PageSize, Vpn, VpnRange};

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

/// Hints of one side, a power of two: 256 x 24 bytes. A hint is per page, so that entries of many
/// pages want more of them than level 1 has entries: 640 random pages in 40 entries cost 6.1 ns a
/// lookup with 128 hints and 3.7 ns with 512, which would take a quarter of a 48 KiB data cache.
const NR_HINTS: usize = 256;

/// Address spaces whose hints in front are kept while others run: 32 KiB each.
const NR_FRONTS_ASIDE: usize = 5;

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a miss must be walked and filled"]
pub enum Lookup {
    /// A level-1 entry.
    L1,
    /// A level-2 entry; level 1 now has it as well.
    L2,
    /// No entry: walk, then [`Tlb::fill_walk`].
    Miss,
    /// A read-only entry, wanted for a write; every entry of the page is gone. Fault or walk, then
    /// [`Tlb::fill_walk`].
    Permission,
}

impl Lookup {
    /// Whether the page table must be walked.
    #[must_use]
    pub const fn needs_walk(self) -> bool {
        matches!(self, Self::Miss | Self::Permission)
    }
}

/// Where an entry that covered `vpn` was last seen. It is believed only after `keys[slot] == key`;
/// by I1 that entry then is the one a search would find.
#[derive(Clone, Copy, Debug)]
struct Hint {
    vpn: Vpn,
    key: Key,
    slot: usize,
}

impl Hint {
    const NONE: Self = Self { vpn: Vpn(u64::MAX), key: Key::EMPTY, slot: usize::MAX };
}

/// The TLB of one CPU, and whose entries it keeps.
///
/// Every reference is looked up; after [`Lookup::Miss`] and [`Lookup::Permission`] the caller walks
/// the page table (and serves a fault if need be) and fills. Any change of the page table that a
/// kernel would follow by a TLB flush must be followed by [`Tlb::invalidate_of`]. Pages are those of
/// the address space that [`Tlb::switch_to`] named last; while none was, there is only one.
#[derive(Clone, Debug)]
pub struct Tlb {
    /// By side.
    pub(super) l1: [Level; 2],
    /// Second levels: none, one that both sides share, or one for a side.
    l2: Vec<Level>,
    /// By side: which of `l2` it uses.
    l2_of: [Option<usize>; 2],
    /// By side; slots of `l1`.
    hints: [Box<[Hint; NR_HINTS]>; 2],
    pub(super) front: Front,
    /// Fronts of address spaces that ran before, the last one last.
    fronts_aside: Vec<(u64, Front)>,
    spaces: Spaces,
    /// The address space that runs.
    space: Option<u64>,
    coalescing: Coalescing,
    walk_caches: WalkCaches,
    walker: Walker,
    page: PageSize,
    /// Number of lookups and fills so far: the time of [`super::entry::Use`].
    pub(super) clock: u64,
    pub(super) counters: Counters,
}

impl Tlb {
    /// An empty TLB for base pages of `page`.
    ///
    /// # Panics
    /// When `config.check(&[page])` fails; a loaded [`crate::machine::Machine`] has been checked.
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
            fronts_aside: Vec::new(),
            spaces: Spaces::new(config.address_spaces.nr),
            space: None,
            coalescing: config.coalescing(),
            walk_caches: WalkCaches::new(&config.walk_cache, page),
            walker: Walker::new(&config.walker, page),
            page,
            clock: 0,
            counters: Counters::default(),
        }
    }

    /// Looks up one reference.
    #[inline]
    pub fn lookup(&mut self, side: Side, vpn: Vpn, access: Access) -> Lookup {
        self.lookup_run(side, vpn, access, 1)
    }

    /// Looks up `count >= 1` references to one page in a row, of which only the first can miss.
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

    /// Notes `count` references to a page of the recorded program, given by its number of 4 KiB: they
    /// bring lines into the caches in which walks find those of page tables. A row that
    /// [`Tlb::serve`] does not serve must be noted.
    #[inline]
    pub fn bring_in(&mut self, side: Side, page: u64, count: u64) {
        self.walker.bring_in(side, self.spaces.marked(page), count);
    }

    /// The entry that served `vpn` last, and its slot; level 1 may have lost it since.
    #[inline]
    pub(super) fn last_seen(&self, side: Side, vpn: Vpn) -> Option<(Key, usize)> {
        let vpn = self.spaces.tagged(vpn);
        let hint = self.hints[side as usize][hint_of(vpn)];
        (hint.vpn == vpn).then_some((hint.key, hint.slot))
    }

    /// Adds what a walk for `vpn` found, as one entry of each level.
    ///
    /// # Panics
    /// When the walk breaks I4: its leaf is larger than a PMD entry.
    pub fn fill_walk(&mut self, side: Side, walk: &Walk) {
        let walk = &Walk { vpn: self.spaces.tagged(walk.vpn), ..*walk };
        // Every lookup and every walk takes the clock one further.
        let row = self.clock - self.counters.walks();
        let instructions = self.counters.instruction.references;
        let steps = self.fill(side, walk.vpn, &self.coalescing.entry(walk));
        let (kind, found) = self.walker.walk(side, walk, steps, Moment { row, instructions });
        self.counters.walk_kinds.add(kind, found);
    }

    /// Adds a translation that a walk for `vpn` found, which it must cover; says what the walk read.
    ///
    /// # Panics
    /// When the translation is larger than a PMD entry (I4) or does not cover `vpn`.
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

    /// Lets another address space run, which has a number of its own. What it flushed: the pages of
    /// the one whose tag it got.
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

    /// Another thread runs: no walk of the one before is under way any more.
    pub fn switch_thread(&mut self) {
        self.walker.forget_walks();
    }

    /// Forgets an address space that ended; the pages that it flushed.
    pub fn end_space(&mut self, space: u64) -> Option<VpnRange> {
        self.fronts_aside.retain(|(of, _)| *of != space);
        if self.space == Some(space) {
            self.space = None;
        }
        let flushed = self.spaces.end(space)?;
        self.invalidate(flushed.start, flushed.end.0 - flushed.start.0);
        Some(flushed)
    }

    /// Removes every entry of an address space that covers one of `nr_pages` pages from `first`;
    /// the pages as [`Tlb::tagged`] names them, if it had any.
    pub fn invalidate_of(&mut self, space: u64, first: Vpn, nr_pages: u64) -> Option<VpnRange> {
        let range = self.spaces.range(space, first, nr_pages)?;
        self.invalidate(range.start, range.end.0 - range.start.0);
        Some(range)
    }

    /// A page of the address space that runs, as entries of several are told apart.
    #[inline]
    #[must_use]
    pub const fn tagged(&self, vpn: Vpn) -> Vpn {
        self.spaces.tagged(vpn)
    }

    /// Puts the hints aside, for those of another address space.
    fn switch_front(&mut self, space: u64) {
        let Some(before) = self.space else { return };
        let at = self.fronts_aside.iter().position(|(of, _)| *of == space);
        let mut next = match at {
            Some(at) => self.fronts_aside.remove(at).1,
            None if self.fronts_aside.len() < NR_FRONTS_ASIDE => Front::default(),
            None => self.fronts_aside.remove(0).1,
        };
        std::mem::swap(&mut self.front, &mut next);
        self.fronts_aside.push((before, next));
    }

    /// Removes every entry that covers one of `nr_pages` tagged pages from `first`, in all levels and
    /// in the page-walk caches.
    pub fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        self.walk_caches.invalidate(first, nr_pages);
        self.remove_range(first, nr_pages);
    }

    fn remove_range(&mut self, first: Vpn, nr_pages: u64) {
        for level in self.l1.iter_mut().chain(&mut self.l2) {
            level.remove_range(first, nr_pages);
        }
    }

    /// Removes every entry.
    pub fn flush(&mut self) {
        self.walk_caches.flush();
        self.l1.iter_mut().chain(&mut self.l2).for_each(Level::clear);
    }

    /// The entry a lookup of `vpn` would use, level 1 before level 2. Counts and ages nothing.
    #[must_use]
    pub fn peek(&self, side: Side, vpn: Vpn) -> Option<Entry> {
        let vpn = self.tagged(vpn);
        let found = |level: &Level| level.find(vpn).map(|slot| level.entry(slot));
        found(&self.l1[side as usize])
            .or_else(|| self.l2_of[side as usize].and_then(|nr| found(&self.l2[nr])))
    }

    /// What one entry may cover; [`Coalescing::run_cap`] tells a walk how far to look.
    #[must_use]
    pub const fn coalescing(&self) -> Coalescing {
        self.coalescing
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks the invariants of every level.
    ///
    /// # Errors
    /// The first broken one.
    pub fn validate(&self) -> Result<(), Violation> {
        self.l1.iter().chain(&self.l2).try_for_each(Level::validate)
    }

    /// The way of a reference that no hint served.
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

    /// A write met a read-only entry: the page's entries go, as after the kernel's flush. That one
    /// is of the leaf alone, so that the page-walk caches keep theirs.
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

/// Where the hint for a page lies.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
const fn hint_of(vpn: Vpn) -> usize {
    vpn.0 as usize % NR_HINTS
}
