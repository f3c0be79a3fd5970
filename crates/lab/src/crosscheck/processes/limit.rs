//! Programs in a memory cgroup with a limit, on a machine with swap space.
//!
//! Owns the additional parts of such programs and their recordings: the limit, the LRU kind, and
//! the swap numbers after each step. Does not own reclaim.

use std::fmt;

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::memory::Memory;
use largefolio_mm::rules::reclaim::LruRule;
use largefolio_mm::units::{GroupId, MmId};

use crate::crosscheck::text::{Parsed, number_to, unknown};

/// Swap space of a recording machine in bytes (`scripts/recordings/swap.py`).
pub(super) const SWAP_BYTES: u64 = 256 << 20;
const LIMIT_KIB_MAX: u64 = 1 << 20;

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

    pub(super) fn begin(self, memory: &mut Memory, mm: MmId) -> GroupId {
        let pages = (self.kib << 10) >> memory.rules().page.shift();
        let group = memory.add_group(GroupLimits::max(pages));
        memory.join_group(mm, group);
        group
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
