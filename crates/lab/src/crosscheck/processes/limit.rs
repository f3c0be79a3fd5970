//! Programs in a memory cgroup with a limit, on a machine with swap space.
//!
//! Owns the additional parts of such programs and their recordings: the limit, the LRU kind, and
//! the swap numbers after each step. Does not own reclaim.

use std::fmt;

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::fault::Access;
use largefolio_mm::map::Map;
use largefolio_mm::memory::Memory;
use largefolio_mm::rules::reclaim::LruRule;
use largefolio_mm::units::{GroupId, MmId, Vaddr};
use largefolio_mm::vma::Prot;

use crate::crosscheck::text::{Parsed, number_to, unknown};

/// Swap space of a recording machine in bytes (`scripts/recordings/swap.py`).
pub(super) const SWAP_BYTES: u64 = 256 << 20;
const LIMIT_KIB_MAX: u64 = 1 << 20;
/// A recording machine's cached file pages, if the recording does not contain their number.
/// `MADV_PAGEOUT` belongs to no cgroup, so pages that return after it are compared with the whole
/// machine's lists (docs/behaviour P.2.6). Between 8 and 16 pages agree with most recordings.
const OTHER_FILE_PAGES: u64 = 10;
const OTHER_FILE_PAGES_MAX: u64 = 1 << 16;
/// The probe's own mapped pages: enough for its page tables to be walked (P.3.6).
const OTHER_PROCESS_PAGES: u64 = 64;
/// A place for them, below the program's window.
const OTHER_BASE: Vaddr = Vaddr(0x3fff_0000_0000);

/// `memory.max` of the program's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) kib: u64,
}

impl Limit {
    /// Reads `limit=KIB`; `None` for another word.
    pub(super) fn of(word: &str) -> Option<Parsed<Self>> {
        let kib = word.strip_prefix("limit=")?;
        Some(number_to(LIMIT_KIB_MAX, kib).map(|kib| Self { kib }))
    }

    pub(super) fn begin(self, memory: &mut Memory, mm: MmId, others: Option<u64>) -> GroupId {
        add_other_memory(memory, mm, others.unwrap_or(OTHER_FILE_PAGES));
        let pages = (self.kib << 10) >> memory.rules().page.shift();
        let group = memory.add_group(GroupLimits::max(pages));
        memory.join_group(mm, group);
        group
    }
}

/// Adds other memory that the recording machine and the process had.
fn add_other_memory(memory: &mut Memory, mm: MmId, nr_file_pages: u64) {
    let page = memory.rules().page.bytes();
    let bytes = nr_file_pages * page;
    let file = memory.add_file(bytes, "ext4");
    let file = memory.open(file);
    let nr_read = memory.pread(file, 0, bytes);
    debug_assert!(nr_read.is_ok(), "the machine has room");
    let area = Map::anon(OTHER_PROCESS_PAGES * page, Prot::READ_WRITE).at(OTHER_BASE);
    let area = memory.mmap(mm, area);
    debug_assert!(area.is_ok(), "nothing else is there");
    for by in 0..OTHER_PROCESS_PAGES {
        let touched = memory.touch(mm, Vaddr(OTHER_BASE.0 + by * page), Access::Write);
        debug_assert!(touched.is_ok(), "the machine has room");
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit={}", self.kib)
    }
}

/// Reads a header's `lru=` word.
pub(super) fn lists_of(word: Option<&str>) -> Parsed<Option<LruRule>> {
    match word {
        None => Ok(None),
        Some("lists") => Ok(Some(LruRule::Lists)),
        Some("generations") => Ok(Some(LruRule::Generations)),
        Some(other) => Err(format!("lru={other}: neither lists nor generations")),
    }
}

/// Reads a header's `others=` word.
pub(super) fn others_of(word: Option<&str>) -> Parsed<Option<u64>> {
    word.map(|word| number_to(OTHER_FILE_PAGES_MAX, word)).transpose()
}

/// Swap activity of one step, and the state after it, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "counts of pages")]
pub(super) struct SwapNumbers {
    pub(super) nr_in: u64,
    pub(super) nr_out: u64,
    pub(super) nr_cached: u64,
    pub(super) nr_used: u64,
}

impl SwapNumbers {
    /// Reads `w IN OUT CACHED USED`.
    pub(super) fn of(fields: &[&str]) -> Parsed<Self> {
        let [nr_in, nr_out, cached, used] = fields else { return unknown(fields) };
        let number = |word| number_to(u64::MAX, word);
        Ok(Self {
            nr_in: number(nr_in)?,
            nr_out: number(nr_out)?,
            nr_cached: number(cached)?,
            nr_used: number(used)?,
        })
    }

    pub(super) const fn still(self) -> Self {
        Self { nr_in: 0, nr_out: 0, ..self }
    }
}

impl fmt::Display for SwapNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nr_in, nr_out, nr_cached, nr_used } = self;
        write!(f, "{nr_in} in, {nr_out} out, {nr_cached} in the swap cache, {nr_used} slots used")
    }
}
