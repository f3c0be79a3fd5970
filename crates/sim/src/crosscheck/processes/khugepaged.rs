//! khugepaged in a program of processes: its limits, and what one waking of it did.
//!
//! ```text
//!   program 4 pages=1280 sizes=2048 memfd=1024 khugepaged=511,256,0    empty, shared, pages a waking
//!   0 scan                                               it wakes once
//!   k 0 a exceed_none_pte                                a block of process 0, anonymous memory
//!   k 1 f succeeded                                      a block of process 1, a file
//!   K 1 1                                                passes ended, blocks collapsed
//! ```
//!
//! Owns the words of both sides, so that they can be compared. The blocks come in the order in
//! which khugepaged looked at them.

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

/// What a block came to if it was one folio, or one entry, before.
const ALREADY: &str = "already";
const SUCCEEDED: &str = "succeeded";

/// Names of results that the kernel's tracepoints write in other words than the model, and the
/// model's; the others are equal.
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

/// What khugepaged may do for the processes of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScanLimits {
    /// `max_ptes_none`.
    pub(super) none: u64,
    /// `max_ptes_shared`.
    pub(super) shared: u64,
    /// `pages_to_scan`; 0: so many that each waking is one pass over all processes.
    pub(super) pages: u64,
}

/// What one waking did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// Blocks of the program's processes, in order: process, kind of memory and result.
    pub(super) looks: Vec<String>,
    /// Passes over all processes that ended.
    pub(super) nr_passes: u64,
    /// Blocks it counts as collapsed; `None` where those of other processes are among them.
    pub(super) nr_collapsed: Option<u64>,
    /// It also looked at blocks of other processes.
    pub(super) is_of_others: bool,
}

impl ScanLimits {
    /// `NONE,SHARED,PAGES`.
    pub(super) fn of(word: &str) -> Parsed<Self> {
        let numbers: Vec<&str> = word.split(',').collect();
        let [none, shared, pages] = numbers[..] else { return unknown(&[word]) };
        let count = |word| number_to(1 << 16, word);
        Ok(Self { none: count(none)?, shared: count(shared)?, pages: count(pages)? })
    }

    /// Sets them in the model.
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
    /// `k SLOT a|f RESULT` without the `k`.
    pub(super) fn line(&mut self, words: &[&str]) -> Parsed<()> {
        let [slot, kind @ ("a" | "f"), result] = *words else { return unknown(words) };
        let known = NAMES.iter().find(|(kernel, _)| *kernel == result);
        // Of a file "already" is what the page cache says, before the tables.
        let result = known.map_or(result, |(_, model)| model);
        self.looks.push(format!("{} {kind} {result}", slot_of(slot)?));
        Ok(())
    }

    /// `K PASSES COLLAPSED` without the `K`.
    pub(super) fn end(&mut self, passes: &str, collapsed: &str) -> Parsed<()> {
        self.nr_passes = number(passes)?;
        self.is_of_others = collapsed == "-";
        self.nr_collapsed = if self.is_of_others { None } else { Some(number(collapsed)?) };
        Ok(())
    }

    /// A block that the model looked at.
    pub(super) fn look(
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
        self.looks.push(format!("{slot} {} {result}", if is_anon { "a" } else { "f" }));
    }
}

/// A process in khugepaged's list of which nothing can be collapsed (`probe/khugepaged.h`): the list
/// is never empty.
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
