//! Whether the machine lacked memory for large folios while a workload ran: the kernel then reads
//! smaller ones, by no rule of its own.
//!
//! Owns the evidence, read before and after a run. It misses a shortage in between that no counter
//! shows; therefore, a workload runs again if its result differs.

use std::fs;

/// Counters of failed attempts to make room for an allocation (`/proc/vmstat`).
const FAILED: [&str; 4] =
    ["compact_fail", "allocstall_normal", "allocstall_movable", "thp_file_fallback"];
/// Zones that cannot hold ordinary folios for long.
const OTHER_ZONES: [&str; 2] = ["DMA", "Device"];

/// Free memory at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeMemory {
    nr_failed: u64,
    /// Free blocks that a PMD folio fits in; `None` if unknown.
    nr_pmd_blocks: Option<u64>,
}

impl FreeMemory {
    #[must_use]
    pub fn now(page_bytes: u64) -> Self {
        let [vmstat, buddyinfo] = ["/proc/vmstat", "/proc/buddyinfo"]
            .map(|path| fs::read_to_string(path).unwrap_or_default());
        Self::of(&vmstat, &buddyinfo, page_bytes)
    }

    fn of(vmstat: &str, buddyinfo: &str, page_bytes: u64) -> Self {
        let counters = vmstat.lines().filter_map(|line| line.split_once(' '));
        let failed = counters.filter(|(name, _)| FAILED.contains(name));
        let nr_failed = failed.filter_map(|(_, nr)| nr.parse::<u64>().ok()).sum();
        let pmd_order = usize::try_from(page_bytes.max(8).ilog2() - 3).unwrap_or_default();
        // Node 0, zone Normal, and the free blocks per order from 0.
        let of_zone = |line: &str| {
            let mut words = line.split_once("zone")?.1.split_whitespace();
            let zone = words.next().filter(|zone| !OTHER_ZONES.contains(zone))?;
            let blocks: Vec<u64> = words.map_while(|nr| nr.parse().ok()).collect();
            // With base pages of 64K, a PMD folio is larger than every block.
            let order = pmd_order.min(blocks.len().checked_sub(1)?);
            Some((zone.to_owned(), blocks[order..].iter().sum::<u64>()))
        };
        let zones: Vec<_> = buddyinfo.lines().filter_map(of_zone).collect();
        let nr_pmd_blocks = (!zones.is_empty()).then(|| zones.iter().map(|(_, nr)| nr).sum());
        Self { nr_failed, nr_pmd_blocks }
    }

    /// Returns the evidence that memory for large folios was short between `self` and `later`.
    #[must_use]
    pub fn shortage(&self, later: &Self) -> Option<String> {
        if [self, later].iter().any(|at| at.nr_pmd_blocks == Some(0)) {
            return Some("no free block had room for a PMD folio (/proc/buddyinfo)".to_owned());
        }
        let nr = later.nr_failed.saturating_sub(self.nr_failed);
        (nr > 0).then(|| {
            format!("{nr} attempts to make room for a folio failed or waited (/proc/vmstat)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VMSTAT: &str =
        "nr_free_pages 9\nallocstall_normal 1\ncompact_fail 2\ncompact_success 5\n";
    const BUDDY: &str = "Node 0, zone      DMA 1 1 1 1 1 1 1 1 1 1 2\n\
                         Node 0, zone   Normal 9 9 9 9 9 9 9 9 9 0 0\n\
                         Node 1, zone  Movable 9 9 9 9 9 9 9 9 9 3 4\n";

    #[test]
    fn full_memory_and_failed_attempts_are_evidence() {
        let free = FreeMemory::of(VMSTAT, BUDDY, 4096);
        assert_eq!(free, FreeMemory { nr_failed: 3, nr_pmd_blocks: Some(7) });
        assert_eq!(free.shortage(&free), None);
        let later = FreeMemory { nr_failed: 5, ..free };
        assert!(free.shortage(&later).unwrap().starts_with("2 attempts"));
        assert_eq!(later.shortage(&free), None);
        let full = FreeMemory { nr_pmd_blocks: Some(0), ..free };
        for reason in [free.shortage(&full), full.shortage(&free)] {
            assert!(reason.unwrap().contains("no free block"));
        }
    }

    #[test]
    fn the_largest_blocks_count_if_no_block_is_as_large_as_a_pmd_folio() {
        assert_eq!(FreeMemory::of(VMSTAT, BUDDY, 65536).nr_pmd_blocks, Some(4));
    }

    #[test]
    fn what_is_not_shown_is_no_evidence() {
        let unknown =
            FreeMemory::of("x\ncompact_fail y\n", "Node 0, zone DMA 1 2\nrubbish\n", 4096);
        assert_eq!(unknown, FreeMemory::default());
        assert_eq!(unknown.shortage(&unknown), None);
    }
}
