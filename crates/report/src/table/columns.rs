//! Every column in order: its name and its source.
//!
//! A column's name derives from its field: renaming the field renames the column, and removing it
//! is a compile error.

mod groups;

use std::collections::BTreeMap;

use arrow_array::ArrayRef;
use arrow_schema::Field;
use largefolio_sim::cost::{BaseSource, Cause};
use largefolio_sim::replay::outcome::PolicyAnswers;
use largefolio_sim::replay::sizes::SizeTable;
use largefolio_sim::replay::{Outcome, RESULTS_VERSION};

use super::values::{Names, Sizes, Values};
use super::{CELL, KERNEL_TEXT, MACHINE_TEXT, Row, TableError};
use crate::report::TOOL_VERSION;

pub(super) struct Column {
    name: &'static str,
    values: Values,
    /// Whether older parts of sweeps lack the column; it is null there.
    is_later: bool,
}

impl Column {
    const fn new(name: &'static str, values: Values) -> Self {
        Self { name, values, is_later: false }
    }

    const fn later(name: &'static str, values: Values) -> Self {
        Self { name, values, is_later: true }
    }

    pub(super) fn field(&self) -> Field {
        let is_nullable = self.is_later || self.values.is_nullable();
        Field::new(self.name, self.values.data_type(), is_nullable)
    }

    pub(super) fn array(&self, rows: &[Row<'_>]) -> Result<ArrayRef, TableError> {
        self.values.array(self.name, rows)
    }
}

/// A column for each named field of `$part`, an expression of the outcome `$o`.
macro_rules! counts {
    ($prefix:expr, $o:ident => $part:expr; $($field:ident),+ $(,)?) => {
        [$(Column::new(
            concat!($prefix, stringify!($field)),
            Values::Count(|row| { let $o = row.outcome; $part.$field }),
        )),+]
    };
}

macro_rules! tlb {
    ($prefix:expr, $tlb:ident => $part:expr; $($field:ident),+ $(,)?) => {
        [$(Column::new(
            concat!($prefix, stringify!($field)),
            Values::Known(|row| {
                let $tlb = &row.outcome.tlb;
                (!$tlb.is_empty()).then(|| $part.$field)
            }),
        )),+]
    };
}

macro_rules! walks {
    ($name:literal, $kind:ident) => {{
        let mut columns = Vec::new();
        columns.extend(tlb!(concat!("tlb_walk_kinds_", $name, "_"), tlb => tlb.walk_kinds.$kind;
            walks, pmd_walks));
        columns.extend(tlb!(concat!("tlb_walk_kinds_", $name, "_lines_"),
            tlb => tlb.walk_kinds.$kind.lines; l2, llc, memory));
        columns.extend(tlb!(concat!("tlb_walk_kinds_", $name, "_host_lines_"),
            tlb => tlb.walk_kinds.$kind.host_lines; l2, llc, memory));
        columns
    }};
}

macro_rules! census {
    ($kind:ident) => {
        [
            Column::new(
                concat!("folios_", stringify!($kind), "_mapped_bytes"),
                Values::Count(|row| row.outcome.folios.$kind.mapped_bytes),
            ),
            Column::new(
                concat!("folios_", stringify!($kind), "_by_size"),
                Values::Sizes(&CENSUS, |row| census_sizes(&row.outcome.folios.$kind)),
            ),
            Column::new(
                concat!("folios_", stringify!($kind), "_partial_bytes"),
                Values::Count(|row| row.outcome.folios.$kind.partial_bytes),
            ),
            Column::later(
                concat!("folios_", stringify!($kind), "_partial_by_size"),
                Values::Sizes(&CACHED, |row| by_size(&row.outcome.folios.$kind.partial_by_size)),
            ),
            Column::new(
                concat!("folios_", stringify!($kind), "_contpte_bytes"),
                Values::Count(|row| row.outcome.folios.$kind.contpte_bytes),
            ),
            Column::new(
                concat!("folios_", stringify!($kind), "_pmd_bytes"),
                Values::Count(|row| row.outcome.folios.$kind.pmd_bytes),
            ),
        ]
    };
}

macro_rules! cause {
    ($name:literal, $cause:ident) => {
        Column::new(
            concat!("estimate_", $name, "_ns"),
            Values::Known(|row| row.outcome.estimate.causes.get(&Cause::$cause)?.ns),
        )
    };
}

const CENSUS: Sizes = Sizes { key: "folio_bytes", counts: &["aligned_bytes", "unaligned_bytes"] };
const CACHED: Sizes = Sizes { key: "folio_bytes", counts: &["bytes"] };
const CLEARED: Sizes = Sizes { key: "unit_bytes", counts: &["bytes"] };
const STRETCHES: Sizes = Sizes { key: "unit_bytes", counts: &["stretches", "max_bytes"] };
const ANON: Sizes = Sizes {
    key: "folio_bytes",
    counts: &["anon_fault_alloc", "anon_fault_fallback", "split", "split_failed", "split_deferred"],
};
const ASKED: Sizes =
    Sizes { key: "folio_bytes", counts: &["file_asked", "file_got", "anon_asked", "anon_got"] };
const UNUSABLE: Sizes = Sizes { key: "folio_bytes", counts: &["permille"] };
const REASONS: Names = Names { key: "reason" };
const NAMES: Names = Names { key: "name" };

pub(super) fn all() -> Vec<Column> {
    let mut columns = Vec::new();
    columns.extend(identity());
    columns.extend(settings());
    columns.extend(folios());
    columns.extend(activity());
    columns.extend(translation());
    columns.extend(refusals());
    columns.extend(work());
    columns.extend(estimate());
    columns.extend(run_time());
    columns.extend(groups::columns());
    columns.extend(counts!("strays_", o => o.strays; unmapped, protected, beyond_file));
    columns.extend([
        Column::new("is_replaced", Values::Flag(|row| row.outcome.is_replaced)),
        Column::new("is_judged", Values::Flag(|row| row.outcome.is_judged)),
    ]);
    columns
}

fn identity() -> [Column; 16] {
    let text = Values::Text;
    [
        Column::new(CELL, Values::Absent),
        Column::new("trace", text(|row| &row.trace.path)),
        Column::new("program", text(|row| row.trace.program())),
        Column::new("trace_digest", Values::MaybeText(|row| row.trace.digest.as_deref())),
        Column::new("tool_version", text(|_| TOOL_VERSION)),
        Column::new("results_version", Values::Count(|_| RESULTS_VERSION.into())),
        Column::new("kernel", text(|row| &row.outcome.kernel)),
        Column::new(KERNEL_TEXT, Values::Absent),
        Column::new("machine", text(|row| &row.outcome.machine)),
        Column::new(MACHINE_TEXT, Values::Absent),
        Column::new("page_bytes", Values::Count(|row| row.outcome.page_bytes)),
        Column::new("seed", Values::Number(|row| row.outcome.seed)),
        Column::new("cache", text(|row| &row.outcome.cache)),
        Column::new("memory_bytes", Values::Count(|row| row.outcome.memory_bytes)),
        Column::new("swap_bytes", Values::Count(|row| row.outcome.swap_bytes)),
        Column::new("nr_cpus", Values::Count(|row| row.outcome.nr_cpus.into())),
    ]
}

fn settings() -> [Column; 13] {
    [
        Column::new(
            "unusable_permille",
            Values::Count(|row| row.settings.unusable_permille.into()),
        ),
        Column::new("unusable_bytes", Values::Count(|row| row.settings.unusable_bytes)),
        Column::new("aged_rounds", Values::Count(|row| row.settings.aged_rounds)),
        Column::new("filesystem", Values::MaybeText(|row| row.settings.filesystem.as_deref())),
        Column::new("annotations", Values::Words(|row| row.settings.annotations.clone())),
        Column::new("linked", Values::Words(|row| row.outcome.linked.clone())),
        Column::new(
            "cgroups",
            Values::Words(|row| {
                row.outcome.cgroups.iter().map(|group| group.name.clone()).collect()
            }),
        ),
        Column::new("reference_ns", Values::Count(|row| row.settings.reference_ns)),
        Column::new(
            "policy",
            Values::MaybeText(|row| row.outcome.policy.as_ref().map(|policy| policy.name.as_str())),
        ),
        Column::new(
            "policy_digest",
            Values::MaybeText(|row| row.outcome.policy.as_ref()?.digest.as_deref()),
        ),
        Column::new("policy_asked", Values::Known(|row| answers(row.outcome, |of| of.asked))),
        Column::new("policy_honoured", Values::Known(|row| answers(row.outcome, |of| of.honoured))),
        Column::new("policy_refused", Values::Known(|row| answers(row.outcome, |of| of.refused))),
    ]
}

/// Sums the policy's answers at all points; `None` without a policy.
fn answers(outcome: &Outcome, count: fn(&PolicyAnswers) -> u64) -> Option<u64> {
    Some(outcome.policy.as_ref()?.points.values().map(count).sum())
}

fn folios() -> Vec<Column> {
    let mut columns = Vec::new();
    columns.extend(census!(text));
    columns.extend(census!(data));
    columns.extend(census!(shmem));
    columns.extend(census!(anon));
    columns.extend(counts!("statistics_machine_", o => o.statistics.machine;
        anon_pages_bytes, mapped_bytes, anon_huge_pages_bytes, shmem_pmd_mapped_bytes,
        file_pmd_mapped_bytes));
    columns.extend(counts!("statistics_machine_exact_", o => o.statistics.machine_exact;
        anon_pages_bytes, mapped_bytes, anon_huge_pages_bytes, shmem_pmd_mapped_bytes,
        file_pmd_mapped_bytes));
    columns.extend(counts!("statistics_total_", o => o.statistics.total;
        rss_bytes, pss_bytes, pss_anon_bytes, pss_file_bytes, pss_shmem_bytes, uss_bytes,
        shared_clean_bytes, shared_dirty_bytes, private_clean_bytes, private_dirty_bytes));
    columns.extend(counts!("statistics_total_exact_", o => o.statistics.total_exact;
        rss_bytes, pss_bytes, pss_anon_bytes, pss_file_bytes, pss_shmem_bytes, uss_bytes,
        shared_clean_bytes, shared_dirty_bytes, private_clean_bytes, private_dirty_bytes));
    columns.push(Column::new(
        "cached_bytes",
        Values::Sizes(&CACHED, |row| by_size(&row.outcome.cached_bytes)),
    ));
    columns
}

fn activity() -> Vec<Column> {
    let mut columns = Vec::from(counts!("faults_", o => o.faults;
        total, major, around, finish, anon, zero_page, cow, wp_reuse, retries));
    columns.extend([
        Column::later("faults_swap_in", Values::Count(|row| row.outcome.faults.swap_in)),
        Column::later("faults_hugetlb", Values::Count(|row| row.outcome.faults.hugetlb)),
    ]);
    columns.extend(counts!("reads_", o => o.reads; bytes, used_bytes));
    columns.push(Column::new(
        "reads_amplification",
        Values::Ratio(|row| row.outcome.reads.amplification),
    ));
    columns.extend(counts!("reads_", o => o.reads;
        windows, async_windows, gated, large_folio_fallback));
    columns
}

fn translation() -> Vec<Column> {
    let mut columns = Vec::from(tlb!("tlb_instruction_", tlb => tlb.instruction;
        references, l1_misses, l2_misses, permission_misses));
    columns.extend(tlb!("tlb_data_", tlb => tlb.data;
        references, l1_misses, l2_misses, permission_misses));
    columns.extend(tlb!("tlb_", tlb => tlb;
        walks_pte, walks_contpte, walks_pmd,
        walk_refs_pgd, walk_refs_pud, walk_refs_pmd, walk_refs_pte));
    columns.extend(walks!("chained", chained));
    columns.extend(walks!("beside", overlapped));
    columns.extend(walks!("alone", alone));
    columns.extend(walks!("fetch", fetch));
    columns
}

fn refusals() -> Vec<Column> {
    let mut columns = vec![
        Column::new("anon_sizes", Values::Sizes(&ANON, |row| anon_sizes(row.outcome))),
        Column::new("asked", Values::Sizes(&ASKED, |row| asked(row.outcome))),
        Column::new(
            "unusable_at_start",
            Values::Sizes(&UNUSABLE, |row| by_size(&row.outcome.unusable_at_start)),
        ),
        Column::new("pmd_refused", Values::Names(&REASONS, |row| &row.outcome.pmd_refused)),
    ];
    columns.extend(counts!("writers_", o => o.writers;
        opens, text_busy, open_for_write, drops, dropped_bytes));
    columns.extend(counts!("collapse_", o => o.collapse;
        thp_collapse_alloc, thp_collapse_alloc_failed, collapsed, pages_collapsed));
    columns.extend([
        Column::new(
            "collapse_refused",
            Values::Names(&REASONS, |row| &row.outcome.collapse.refused),
        ),
        Column::new("pressure", Values::Names(&NAMES, |row| &row.outcome.pressure)),
    ]);
    columns
}

fn work() -> Vec<Column> {
    let mut columns = Vec::from(counts!("", o => o; zeroed_pages, copied_pages));
    columns.extend(counts!("entries_", o => o.entries;
        set_by_faults, set_by_fork, ptes_cleared, pmds_cleared, batches_cleared));
    columns.extend(counts!("mapcounts_", o => o.mapcounts; pages, folios, owner_words));
    columns.push(Column::new(
        "cleared_bytes",
        Values::Sizes(&CLEARED, |row| by_size(&row.outcome.cleared_bytes)),
    ));
    columns.push(Column::new(
        "copied_bytes",
        Values::Sizes(&CLEARED, |row| by_size(&row.outcome.copied_bytes)),
    ));
    columns.extend(latency());
    columns.extend(counts!("waits_", o => o.waits;
        sync_requests, sync_bytes, async_requests, async_bytes));
    columns.extend([
        Column::new("waits_late_waits", Values::Known(|row| row.outcome.waits.late_waits)),
        Column::new("waits_queue_ns", Values::Known(|row| row.outcome.waits.queue_ns)),
        Column::new("waits_late_ns", Values::Known(|row| row.outcome.waits.late_ns)),
    ]);
    columns
}

fn latency() -> [Column; 8] {
    [
        Column::new("latency_preemption", Values::Text(|row| row.outcome.latency.preemption)),
        Column::new("latency_stretches", Values::Count(|row| row.outcome.latency.stretches)),
        Column::new("latency_max_bytes", Values::Count(|row| row.outcome.latency.max_bytes)),
        Column::new("latency_p99_bytes", Values::Count(|row| row.outcome.latency.p99_bytes)),
        Column::new("latency_max_ns", Values::Known(|row| row.outcome.latency.max_ns)),
        Column::new("latency_p99_ns", Values::Known(|row| row.outcome.latency.p99_ns)),
        Column::new(
            "latency_sizes",
            Values::Sizes(&STRETCHES, |row| {
                let sizes = row.outcome.latency.sizes.iter();
                sizes.map(|(&size, of)| (size, vec![of.stretches, of.max_bytes])).collect()
            }),
        ),
        Column::new(
            "latency_not_known",
            Values::Words(|row| row.outcome.latency.not_known.iter().cloned().collect()),
        ),
    ]
}

macro_rules! interval {
    ($name:literal, $get:expr) => {
        [
            Column::new(
                concat!("estimate_", $name, "_low"),
                Values::Ratio(|row| Some($get(row)?.low)),
            ),
            Column::new(
                concat!("estimate_", $name, "_mid"),
                Values::Ratio(|row| Some($get(row)?.mid)),
            ),
            Column::new(
                concat!("estimate_", $name, "_high"),
                Values::Ratio(|row| Some($get(row)?.high)),
            ),
        ]
    };
}

fn run_time() -> Vec<Column> {
    let total = interval!("total", (|row: &Row<'_>| row.outcome.estimate.total));
    let run = interval!(
        "run_ns",
        (|row: &Row<'_>| {
            let run = row.outcome.estimate.run;
            (run.source != BaseSource::NotKnown).then_some(run.ns)
        })
    );
    let source = [
        Column::new(
            "estimate_run_source",
            Values::Text(|row| row.outcome.estimate.run.source.name()),
        ),
        Column::new("estimate_run_runs", Values::Count(|row| row.outcome.estimate.run.runs)),
    ];
    let off_cpu = Column::new(
        "estimate_run_off_cpu_ns",
        Values::Ratio(|row| row.outcome.estimate.run.off_cpu_ns),
    );
    total.into_iter().chain(source).chain(run).chain([off_cpu]).collect()
}

fn estimate() -> [Column; 14] {
    [
        Column::new("estimate_walks", Values::Text(|row| row.outcome.estimate.walks.name())),
        Column::new("estimate_total_ns", Values::Known(|row| row.outcome.estimate.total_ns)),
        Column::new("estimate_known_ns", Values::Count(|row| row.outcome.estimate.known_ns)),
        cause!("fault", Fault),
        cause!("map", Map),
        cause!("fork", Fork),
        cause!("unmap", Unmap),
        cause!("clear", Clear),
        cause!("copy", Copy),
        cause!("read", Read),
        cause!("swap", Swap),
        cause!("tlb", Tlb),
        cause!("walk", Walk),
        Column::new(
            "estimate_not_known",
            Values::Words(|row| row.outcome.estimate.not_known.iter().cloned().collect()),
        ),
    ]
}

fn by_size(counts: &BTreeMap<u64, u64>) -> Vec<(u64, Vec<u64>)> {
    counts.iter().map(|(&size, &count)| (size, vec![count])).collect()
}

fn census_sizes(census: &SizeTable) -> Vec<(u64, Vec<u64>)> {
    let rows = census.by_size.iter();
    rows.map(|(&size, row)| (size, vec![row.aligned_bytes, row.unaligned_bytes])).collect()
}

fn anon_sizes(outcome: &Outcome) -> Vec<(u64, Vec<u64>)> {
    let rows = outcome.anon_sizes.iter().map(|(&size, row)| {
        let counts = vec![
            row.anon_fault_alloc,
            row.anon_fault_fallback,
            row.split,
            row.split_failed,
            row.split_deferred,
        ];
        (size, counts)
    });
    rows.collect()
}

fn asked(outcome: &Outcome) -> Vec<(u64, Vec<u64>)> {
    let rows = outcome.asked.iter().map(|(&size, row)| {
        (size, vec![row.file_asked, row.file_got, row.anon_asked, row.anon_got])
    });
    rows.collect()
}
