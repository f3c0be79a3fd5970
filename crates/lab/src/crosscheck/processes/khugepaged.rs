//! khugepaged in a program of processes: its limits, and the results of one wakeup.
//!
//! ```text
//!   program 4 pages=1280 sizes=2048 memfd=1024 khugepaged=511,256,0    none, shared, pages per wakeup
//!   0 scan                                               one wakeup
//!   k 0 a exceed_none_pte                                a PMD range of process 0, anonymous memory
//!   k 1 f succeeded                                      a PMD range of process 1, a file
//!   K 1 1                                                completed passes, collapsed ranges
//! ```
//!
//! Translates both sides' results to common names, so they can be compared. The ranges appear in
//! scan order.

use std::fmt;

use largefolio_mm::counters::collapse::{CollapseRefusal, Done};
use largefolio_mm::fault::Access;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::Memory;
use largefolio_mm::rules::Rules;
use largefolio_mm::rules::anon::NonePtes;
use largefolio_mm::rules::collapse::SharedPtes;
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

use super::range::slot_of;
use crate::crosscheck::text::{Parsed, number, number_to, unknown};

/// Result for a range that already was one folio or one PMD entry.
const ALREADY: &str = "already";
const SUCCEEDED: &str = "succeeded";

/// Results that the kernel's tracepoints name differently, with the model's names; all others are
/// equal.
const NAMES: [(&str, &str); 22] = [
    ("failed", "fail"),
    ("pmd_null", "no_pte_table"),
    ("pmd_none", "no_pte_table"),
    ("no_pte_table", "no_pte_table"),
    ("page_pmd_mapped", ALREADY),
    ("pmd_mapped", ALREADY),
    ("no_writable_page", "page_ro"),
    ("not_suitable_page_count", "page_count"),
    ("page_not_in_lru", "page_lru"),
    ("page_locked", "page_lock"),
    ("lazyfree page", "page_lazyfree"),
    ("page_lazyfree", "page_lazyfree"),
    ("no_process_for_page", "any_process"),
    ("vma_check_failed", "vma_check"),
    ("not_suitable_address_range", "address_range"),
    ("could_not_delete_page_from_lru", "del_page_lru"),
    ("alloc_huge_page_failed", "alloc_huge_page_fail"),
    ("ccgroup_charge_failed", "cgroup_charge_fail"),
    ("copy_poisoned_page", "copy_mc"),
    ("page_dirty_or_writeback", "page_dirty_or_writeback"),
    ("dirty_or_writeback_page", "page_dirty_or_writeback"),
    ("non_present_pte", "pte_non_present"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanLimits {
    pub(super) none: u64,
    pub(super) shared: u64,
    /// `pages_to_scan`; 0: large enough that each wakeup is one pass over all processes.
    pub(super) pages: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// The program's scanned ranges, in order: process, kind of memory and result.
    pub(super) visits: Vec<String>,
    pub(super) nr_passes: u64,
    /// Collapsed ranges; `None` if ranges of other processes are included.
    pub(super) nr_collapsed: Option<u64>,
    pub(super) is_of_others: bool,
}

impl ScanLimits {
    /// Reads `NONE,SHARED,PAGES`.
    pub(super) fn of(word: &str) -> Parsed<Self> {
        let numbers: Vec<&str> = word.split(',').collect();
        let [none, shared, pages] = numbers[..] else { return unknown(&[word]) };
        let count = |word| number_to(1 << 16, word);
        Ok(Self { none: count(none)?, shared: count(shared)?, pages: count(pages)? })
    }

    pub(super) fn apply(self, rules: &mut Rules) {
        let nr = rules.page.pmd_order().nr_pages();
        rules.anon.max_ptes_none =
            if self.none + 1 == nr { NonePtes::AllButOne } else { NonePtes::Exactly(self.none) };
        rules.collapse.max_ptes_shared = SharedPtes::Exactly(self.shared);
        rules.collapse.ranges_to_scan =
            if self.pages == 0 { u64::MAX } else { self.pages.div_ceil(nr) };
    }
}

impl fmt::Display for ScanLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.none, self.shared, self.pages)
    }
}

impl Scan {
    /// Reads `k SLOT a|f RESULT` without the `k`.
    pub(super) fn line(&mut self, fields: &[&str]) -> Parsed<()> {
        let [slot, kind @ ("a" | "f"), result] = *fields else { return unknown(fields) };
        let known = NAMES.iter().find(|(kernel, _)| *kernel == result);
        // For a file, "already" comes from the page cache, before the page tables.
        let result = known.map_or(result, |(_, model)| model);
        self.visits.push(format!("{} {kind} {result}", slot_of(slot)?));
        Ok(())
    }

    /// Reads `K PASSES COLLAPSED` without the `K`.
    pub(super) fn end(&mut self, passes: &str, collapsed: &str) -> Parsed<()> {
        self.nr_passes = number(passes)?;
        self.is_of_others = collapsed == "-";
        self.nr_collapsed = if self.is_of_others { None } else { Some(number(collapsed)?) };
        Ok(())
    }

    pub(super) fn add_visit(
        &mut self,
        slot: usize,
        is_anon: bool,
        outcome: Result<Done, CollapseRefusal>,
    ) {
        let result = match outcome {
            Ok(Done::Collapsed) => SUCCEEDED,
            Ok(Done::Already) => ALREADY,
            Err(refusal) => refusal.name(),
        };
        self.visits.push(format!("{slot} {} {result}", if is_anon { "a" } else { "f" }));
    }
}

/// Adds a process that keeps khugepaged's list non-empty and has nothing to collapse
/// (`probe/khugepaged.h`).
pub(super) fn add_keeper(memory: &mut Memory) {
    let page = memory.rules().page;
    let nr = 2 * page.pmd_order().nr_pages();
    let (at, len) = (Vaddr(nr * page.bytes()), nr * page.bytes());
    let keeper = memory.new_space();
    let last = Vaddr(at.0 + len - page.bytes());
    let done = memory.mmap(keeper, Map::anon(len, Prot::READ_WRITE).at(at)).is_ok()
        && memory.touch(keeper, last, Access::Write).is_ok()
        && memory.madvise(keeper, at, len, Madvice::Hugepage).is_ok()
        && memory.madvise(keeper, at, len, Madvice::Nohugepage).is_ok();
    debug_assert!(done, "an empty process takes an area");
}
