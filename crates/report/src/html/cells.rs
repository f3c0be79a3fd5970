//! Cells of a report: their names, and what several pictures read from them.

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::sizes::SizeTable;

use crate::figures::{self, size};

/// From this folio size on one entry of most TLBs, or one contpte block of 4K pages, maps a folio.
pub(super) const LARGE_BYTES: u64 = 64 << 10;

/// The name of each cell: kernel and machine, and what else tells cells apart.
pub(super) fn names(rows: &[Outcome]) -> Vec<String> {
    let first = rows.first();
    let differs =
        |get: &dyn Fn(&Outcome) -> u64| rows.iter().any(|row| Some(get(row)) != first.map(get));
    let has_pages = differs(&|row| row.page_bytes);
    let has_links = rows.iter().any(|row| Some(&row.linked) != first.map(|row| &row.linked));
    let has_memory = differs(&|row| row.memory_bytes);
    let has_seed = differs(&|row| row.seed);
    let name = |row: &Outcome| {
        let mut name = format!("{} on {}", row.kernel, row.machine);
        if has_pages {
            name = format!("{name}, {} pages", size(row.page_bytes));
        }
        if has_links {
            name = format!("{name}, linked for {}", row.linked.join(", "));
        }
        if has_memory {
            name = format!("{name}, {}", figures::bytes(row.memory_bytes));
        }
        if has_seed {
            name = format!("{name}, seed {}", row.seed);
        }
        name
    };
    rows.iter().map(name).collect()
}

/// Bytes of a census in whole folios of [`LARGE_BYTES`] and more.
pub(super) fn large_bytes(census: &SizeTable) -> u64 {
    let large = census.by_size.range(LARGE_BYTES..);
    large.map(|(_, row)| row.aligned_bytes + row.unaligned_bytes).sum()
}

/// All references.
pub(super) fn references(row: &Outcome) -> u64 {
    row.tlb.instruction.references + row.tlb.data.references
}

/// The row to show first: the last one on the machine of the baseline, else the last.
pub(super) fn told(rows: &[Outcome]) -> Option<usize> {
    let first = rows.first()?;
    let same = rows.iter().rposition(|row| row.machine == first.machine);
    same.filter(|&nr| nr > 0).or(rows.len().checked_sub(1)).filter(|&nr| nr > 0)
}
