//! Models what a page-table walk waits for: cache lines of page tables, and other walks.
//!
//! ```text
//!   data      ░░░░█░░░█░░░░░░░█░░░░      lines that the program brings in: the volume
//!   PTE line  r·············r            read again after a volume of 14 lines:
//!                                        below l2 in the L2 cache, below llc in the last one, else memory
//! ```
//!
//! Rules (reasons in docs/design/machines.md):
//! - W1: page tables and data share the caches by age alone. A line read at volume `v` stays in a
//!   cache of `n` lines until the volume is `v + n`.
//! - W2: the volume grows for each recorded page that is not among the last [`NR_PAGES`] of its
//!   side: by one line per load or store, or one per [`FETCHES_A_LINE`] fetches, up to the page's
//!   lines. It also grows by each page-table line that is not in the L2 cache.
//! - W3: a line that has never been read counts as written when the thread started. Entries set by
//!   a fault are in the cache.
//! - W4: a walk has a *depth*: one more than that of the walk that its address waited for, if an
//!   earlier reference loaded the address and needed one of the last [`NR_RECENT`] walks, else 0. A
//!   walk is *chained* if it is deeper than all walks of its group: it starts when they end.
//!   Otherwise it runs *beside* others if the group's last chained or first walk started less than
//!   `window` instructions ago, and *alone* if not: then a group starts. So two chains that a
//!   program follows by turns take as long as one. Fetches stop the core and are a separate kind.
//! - W5: a line of the host's table holds entries of neighbouring page frames. Frames of one folio
//!   are neighbours. Folios smaller than a line's frames, and tables, are spread over lines as
//!   `host_lines` says.
//!
//! A nested walk also reads entries of the host: one for the page, and one for each table. They are
//! counted separately, on both virtual and physical machines.

mod host;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use largefolio_mm::units::{PageSize, Vpn};
use largefolio_trace::validate::REFERENCE_PAGE_BYTES;
use serde::{Deserialize, Serialize};

use self::host::HostPlaces;
use super::access::Side;
use super::coalesce::{LeafKind, Walk};
use super::sizes::{CacheSize, EntrySize};
use super::walk_cache::Steps;

const LINE_SHIFT: u32 = 6;
const PAGE_LINES: u64 = REFERENCE_PAGE_BYTES >> LINE_SHIFT;
const LINE_ENTRIES_SHIFT: u32 = LINE_SHIFT - 3;
/// Instructions of a cache line, at about four bytes each.
const FETCHES_A_LINE: u64 = 16;
/// Recently used recorded pages of a side, a power of two. A page replaces the previous one with
/// the same low bits, as in the TLB's hint table. So a row that a hint serves need not be recorded
/// here: its page is already in its place.
pub(super) const NR_PAGES: usize = 1 << 10;
/// Recent walks that a link can refer to. A link reaches 15 rows back.
const NR_RECENT: usize = 16;
/// A fault writes at least this many pages' entries: fault-around may set the neighbours.
const NR_WRITTEN_MIN: u64 = 16;
/// A fault counts as writing at most this many lines.
const NR_LINES_WRITTEN_MAX: u64 = 64;
/// Minimum number of lines before old ones are dropped.
const NR_LINES_MIN: usize = 1 << 12;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkerConfig {
    pub l2: CacheSize,
    pub llc: CacheSize,
    /// Instructions in flight; 0 = an in-order core.
    pub window: u32,
    /// Page size in which a host maps the memory of a virtual machine.
    pub host_page: EntrySize,
    #[serde(default)]
    pub is_virtual: bool,
    /// Lines of the host's page table with the entries of 1,000 base pages that a program uses.
    /// `None`: the fewest, as with pages in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_lines: Option<u32>,
    pub source: String,
    #[serde(default)]
    pub assumed: bool,
}

impl Default for WalkerConfig {
    fn default() -> Self {
        Self {
            l2: CacheSize(1 << 20),
            llc: CacheSize(16 << 20),
            window: 224,
            host_page: EntrySize::PMD_4K,
            is_virtual: false,
            host_lines: None,
            source: "the machine file has no [tlb.walker]".to_owned(),
            assumed: true,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lines {
    /// In the L2 cache or closer.
    pub l2: u64,
    pub llc: u64,
    pub memory: u64,
}

impl std::ops::AddAssign for Lines {
    fn add_assign(&mut self, other: Self) {
        self.l2 += other.l2;
        self.llc += other.llc;
        self.memory += other.memory;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KindCounters {
    pub walks: u64,
    pub pmd_walks: u64,
    pub lines: Lines,
    /// Lines of the host's page tables that they read in a virtual machine.
    pub host_lines: Lines,
}

impl std::ops::AddAssign for KindCounters {
    fn add_assign(&mut self, other: Self) {
        self.walks += other.walks;
        self.pmd_walks += other.pmd_walks;
        self.lines += other.lines;
        self.host_lines += other.host_lines;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WalkCounters {
    /// Data walks that start after the walk for the load of their address.
    pub chained: KindCounters,
    #[serde(rename = "beside")]
    pub overlapped: KindCounters,
    /// Data walks without another walk nearby.
    pub alone: KindCounters,
    pub fetch: KindCounters,
}

impl WalkCounters {
    pub(super) fn add(&mut self, kind: WalkKind, counters: KindCounters) {
        match kind {
            WalkKind::Chained => self.chained += counters,
            WalkKind::Overlapped => self.overlapped += counters,
            WalkKind::Alone => self.alone += counters,
            WalkKind::Fetch => self.fetch += counters,
        }
    }

    #[must_use]
    pub fn lines(&self) -> [Lines; 2] {
        let mut sums = [Lines::default(); 2];
        for kind in [self.chained, self.overlapped, self.alone, self.fetch] {
            sums[0] += kind.lines;
            sums[1] += kind.host_lines;
        }
        sums
    }
}

impl std::ops::AddAssign for WalkCounters {
    fn add_assign(&mut self, other: Self) {
        self.chained += other.chained;
        self.overlapped += other.overlapped;
        self.alone += other.alone;
        self.fetch += other.fetch;
    }
}

impl std::ops::Sub for Lines {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            l2: self.l2 - before.l2,
            llc: self.llc - before.llc,
            memory: self.memory - before.memory,
        }
    }
}

impl std::ops::Sub for KindCounters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            walks: self.walks - before.walks,
            pmd_walks: self.pmd_walks - before.pmd_walks,
            lines: self.lines - before.lines,
            host_lines: self.host_lines - before.host_lines,
        }
    }
}

impl std::ops::Sub for WalkCounters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            chained: self.chained - before.chained,
            overlapped: self.overlapped - before.overlapped,
            alone: self.alone - before.alone,
            fetch: self.fetch - before.fetch,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WalkKind {
    Chained,
    Overlapped,
    Alone,
    Fetch,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) row: u64,
    pub(super) instructions: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Walker {
    lines: PageTableLines,
    pages: Box<[[u64; NR_PAGES]; 2]>,
    table_bits: u32,
    host: HostPlaces,
    window: u64,
    /// Instructions at the start of the current group's last chained walk, or of its first.
    group_start: Option<u64>,
    /// Depth of the group's deepest walk.
    group_depth: u64,
    /// Rows and depths.
    recent: [(u64, u64); NR_RECENT],
    next_recent: usize,
}

impl Walker {
    pub(super) fn new(config: &WalkerConfig, page: PageSize) -> Self {
        let host_line = config.host_page.bytes().trailing_zeros() + LINE_ENTRIES_SHIFT;
        Self {
            lines: PageTableLines::new(config),
            pages: Box::new([[u64::MAX; NR_PAGES]; 2]),
            table_bits: page.shift() - 3,
            host: HostPlaces::new(host_line.saturating_sub(page.shift()), config.host_lines),
            window: u64::from(config.window),
            group_start: None,
            group_depth: 0,
            recent: [(u64::MAX, 0); NR_RECENT],
            next_recent: 0,
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only the low bits matter")]
    pub(super) fn bring_in(&mut self, side: Side, page: u64, nr_references: u64) {
        let last = &mut self.pages[side as usize][page as usize % NR_PAGES];
        if std::mem::replace(last, page) == page {
            return;
        }
        let nr_lines = match side {
            Side::Instruction => nr_references.div_ceil(FETCHES_A_LINE),
            Side::Data => nr_references,
        };
        self.lines.volume += nr_lines.min(PAGE_LINES);
    }

    /// Drops the walks of the previous thread, which have ended.
    pub(super) fn forget_walks(&mut self) {
        self.group_start = None;
        self.recent = [(u64::MAX, 0); NR_RECENT];
    }

    pub(super) fn walk(
        &mut self,
        side: Side,
        walk: &Walk,
        steps: Steps,
        now: Moment,
    ) -> (WalkKind, KindCounters) {
        if walk.is_written {
            self.write(walk);
        }
        let kind = match side {
            Side::Instruction => WalkKind::Fetch,
            Side::Data => self.kind(walk, now),
        };
        let pmd_walks = u64::from(walk.leaf == LeafKind::Pmd);
        let mut kind_counters = KindCounters { walks: 1, pmd_walks, ..KindCounters::default() };
        let reads = [(0, steps.pte), (1, steps.pmd), (2, steps.pud), (3, steps.pgd)];
        for (level, _) in reads.into_iter().filter(|&(_, nr)| nr > 0) {
            self.lines.read(self.line_of(level, walk.vpn), &mut kind_counters.lines);
            // The host's entry for the page that holds this table.
            self.lines
                .read(self.host_line_of_table(level, walk.vpn), &mut kind_counters.host_lines);
        }
        let line = match walk.leaf {
            LeafKind::Pmd => self.host.line_in_order(walk.pfn.0),
            LeafKind::Pte | LeafKind::Contpte => self.host.line(walk.pfn.0, walk.folio),
        };
        self.lines.read(line, &mut kind_counters.host_lines);
        (kind, kind_counters)
    }

    fn kind(&mut self, walk: &Walk, now: Moment) -> WalkKind {
        let from = now.row.checked_sub(u64::from(walk.link)).filter(|_| walk.link > 0);
        let parent = self.recent.iter().find(|(row, _)| from == Some(*row));
        let depth = parent.map_or(0, |(_, depth)| depth + 1);
        self.recent[self.next_recent] = (now.row, depth);
        self.next_recent = (self.next_recent + 1) % NR_RECENT;
        let is_near = |start: u64| now.instructions.saturating_sub(start) < self.window;
        let is_near = self.group_start.is_some_and(is_near);
        if is_near && depth <= self.group_depth {
            return WalkKind::Overlapped;
        }
        self.group_start = Some(now.instructions);
        self.group_depth = depth;
        if depth > 0 { WalkKind::Chained } else { WalkKind::Alone }
    }

    /// Puts entries that a fault has just written into the cache (W3).
    fn write(&mut self, walk: &Walk) {
        let nr_pages = walk.order.nr_pages().max(NR_WRITTEN_MIN);
        let first = walk.vpn.0 & !(nr_pages - 1);
        let nr_lines = (nr_pages >> LINE_ENTRIES_SHIFT).clamp(1, NR_LINES_WRITTEN_MAX);
        let nr_lines = if walk.leaf == LeafKind::Pmd { 0 } else { nr_lines };
        for line in 0..nr_lines {
            self.lines.touch(self.line_of(0, Vpn(first + (line << LINE_ENTRIES_SHIFT))));
        }
        for level in 1..=3 {
            self.lines.touch(self.line_of(level, walk.vpn));
        }
    }

    fn line_of(&self, level: u32, vpn: Vpn) -> LineId {
        let entry = vpn.0 >> (self.table_bits * level);
        LineId::new(level.into(), entry >> LINE_ENTRIES_SHIFT)
    }

    /// Returns the line of the host's entry for the page that holds a table. Tables are assumed to
    /// be allocated in address order, because their allocation order is unknown.
    fn host_line_of_table(&self, level: u32, vpn: Vpn) -> LineId {
        let table = vpn.0 >> (self.table_bits * (level + 1));
        self.host.line_of_table(level, table)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LineId(u64);

impl LineId {
    /// Entries of the host. Smaller kinds are the levels of the machine's own table.
    const HOST: u64 = 4;
    const HOST_OF_TABLE: u64 = 5;
    /// Entries of the host for folios that are spread, by order.
    const HOST_OF_ORDER: u64 = 9;

    const fn new(kind: u64, line: u64) -> Self {
        Self(line << 5 | kind)
    }
}

#[derive(Clone, Debug)]
struct PageTableLines {
    volume: u64,
    l2_lines: u64,
    llc_lines: u64,
    read_at: HashMap<LineId, u64, BuildHasherDefault<Scatter>>,
    /// At this number, lines that are no longer in any cache are dropped.
    nr_lines_max: usize,
}

impl PageTableLines {
    fn new(config: &WalkerConfig) -> Self {
        Self {
            volume: 0,
            l2_lines: config.l2.0 >> LINE_SHIFT,
            llc_lines: config.llc.0 >> LINE_SHIFT,
            read_at: HashMap::default(),
            nr_lines_max: NR_LINES_MIN,
        }
    }

    fn read(&mut self, line: LineId, counters: &mut Lines) {
        let age = self.volume - self.touch(line);
        if age < self.l2_lines {
            counters.l2 += 1;
            return;
        }
        if age < self.llc_lines {
            counters.llc += 1;
        } else {
            counters.memory += 1;
        }
        self.volume += 1;
    }

    /// Marks a line as just read and returns the volume at its previous read.
    fn touch(&mut self, line: LineId) -> u64 {
        let before = self.read_at.insert(line, self.volume).unwrap_or(0);
        if self.read_at.len() > self.nr_lines_max {
            let oldest = self.volume.saturating_sub(self.llc_lines);
            self.read_at.retain(|_, read_at| *read_at > oldest);
            self.nr_lines_max = NR_LINES_MIN.max(self.read_at.len() * 2);
        }
        before
    }
}

/// Hash of a line (Fibonacci hashing). A malicious trace with colliding lines only makes its own
/// replay slow; mapped pages bound the number of lines.
#[derive(Clone, Copy, Debug, Default)]
struct Scatter(u64);

impl Hasher for Scatter {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

#[cfg(test)]
mod tests;
