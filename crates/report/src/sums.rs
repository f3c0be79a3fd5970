//! What several forms derive from the counts of a row.

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::sizes::SizeTable;

use crate::figures::percent;

/// From this folio size on one entry of most TLBs, or one contpte block of 4K pages, maps a folio.
pub(crate) const LARGE_BYTES: u64 = 64 << 10;

/// Bytes of a census in folios of [`LARGE_BYTES`] and more: also what is mapped of a folio in part.
pub(crate) fn large_bytes(census: &SizeTable) -> u64 {
    census.in_folios_from(LARGE_BYTES)
}

/// The same as a share of what is mapped: `93.5%`, or `none`.
pub(crate) fn large_share(census: &SizeTable) -> String {
    let share = percent(large_bytes(census), census.mapped_bytes);
    if share.is_empty() { "none".to_owned() } else { share }
}

/// All references.
pub(crate) fn references(row: &Outcome) -> u64 {
    row.tlb.instruction.references + row.tlb.data.references
}

/// Page cache at the end, in folios of all sizes.
pub(crate) fn cached_bytes(row: &Outcome) -> u64 {
    row.cached_bytes.values().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes))
}

/// Private memory where most is mapped, and the page cache at the end.
#[must_use]
pub fn memory_bytes(row: &Outcome) -> u64 {
    cached_bytes(row).saturating_add(row.statistics.machine_exact.anon_pages_bytes)
}
