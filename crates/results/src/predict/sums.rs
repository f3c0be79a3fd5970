//! Sums and shares that several formats derive from a row's counts.

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::sizes::SizeTable;

use crate::figures::percent;

/// The smallest large folio: most TLBs map it with one entry, and 4K pages with one contpte block.
pub(crate) const LARGE_BYTES: u64 = 64 << 10;

/// Mapped bytes in folios of [`LARGE_BYTES`] and more, including partially mapped ones.
pub(crate) fn large_bytes(census: &SizeTable) -> u64 {
    census.in_folios_from(LARGE_BYTES)
}

pub(crate) fn large_share(census: &SizeTable) -> String {
    let share = percent(large_bytes(census), census.mapped_bytes);
    if share.is_empty() { "none".to_owned() } else { share }
}

pub(crate) fn references(row: &Outcome) -> u64 {
    row.tlb.instruction.references + row.tlb.data.references
}

pub(crate) fn cached_bytes(row: &Outcome) -> u64 {
    row.cached_bytes.values().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes))
}

/// The page cache when most memory is mapped, or at the end if it is larger then. Shared memory
/// belongs to it, and most of it is gone at the end.
pub(crate) fn largest_cached_bytes(row: &Outcome) -> u64 {
    cached_bytes(row).max(row.memory_stat.get("file").copied().unwrap_or(0))
}

/// Private memory at its peak plus the page cache then, or at the end if it is larger then.
#[must_use]
pub fn memory_bytes(row: &Outcome) -> u64 {
    largest_cached_bytes(row).saturating_add(row.statistics.machine_exact.anon_pages_bytes)
}
