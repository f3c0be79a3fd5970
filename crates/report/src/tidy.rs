//! The result as CSV in long ("tidy") form: one row per number.
//!
//! | column | meaning |
//! |---|---|
//! | `kernel` `machine` `page_bytes` `seed` `cache` `memory_bytes` | the cell, as in the JSON |
//! | `metric` | the count's name, such as `text_aligned` or `tlb_data_l2_misses` |
//! | `folio_bytes` | the folio size, or the unit's size for `cleared`; otherwise empty |
//! | `value` | an integer, exact |
//! | `unit` | of `value`: `bytes`, `faults`, `windows`, `references`, `walks`, `pages`, .. |
//! | `is_judged` | `true` or `false`, as in the JSON |
//! | `linked` | pages that programs and libraries are linked for, as in the JSON, separated by spaces; empty: as recorded |
//!
//! The form is long because folio sizes are data: a wide form would need a column for each size,
//! kind and alignment, and every kernel would have different columns. In the long form the columns
//! are always these twelve, results from many traces can be appended, and one pivot makes a wide
//! table:
//!
//! ```python
//! df[df.metric == "text_aligned"].pivot(index="folio_bytes", columns="kernel", values="value")
//! ```
//!
//! `time_total`, `time_CAUSE`, `run_END` and `run_change_END` (`low`, `mid`, `high`) are estimates;
//! everything else is counted. An unknown time has no row. Constants and requests over time are
//! only in the JSON. Ratios are omitted: they follow from the counts, and without them `value` is
//! an integer column in any reader. `run_change_END` is relative to the machine's first row.
//!
//! A control group adds `cgroup_WHAT:NAME`, and pools of huge pages add `hugetlb_WHAT`. A trace of
//! several processes or programs adds `processes_*`, `memory_*` and, for each program,
//! `program_WHAT:PATH`.
//!
//! A kernel with a policy has `policy_POINT_asked`, `..honoured` and `..refused`.
//!
//! If the user asks which rule makes the difference, the rows are the answer's (`why`).

mod groups;
mod why;

use std::io::Write;

use largefolio_sim::cost::BaseSource;
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::sizes::SizeTable;
use largefolio_sim::replay::statistics::Statistics;
use largefolio_sim::tlb::{Lines, SideCounters};

use crate::cells::Cells;
use crate::{ExportError, Exporter, PredictResult};

pub const COLUMNS: [&str; 12] = [
    "kernel",
    "machine",
    "page_bytes",
    "seed",
    "cache",
    "memory_bytes",
    "metric",
    "folio_bytes",
    "value",
    "unit",
    "is_judged",
    "linked",
];

#[derive(Clone, Copy, Debug, Default)]
pub struct Tidy;

impl Exporter for Tidy {
    fn export(&self, report: &PredictResult, out: &mut dyn Write) -> Result<(), ExportError> {
        let mut csv = Cells::new(out);
        if let Some(why) = &report.why {
            why::record(report, why, &mut csv)?;
            return csv.flush();
        }
        csv.record(COLUMNS)?;
        for outcome in &report.rows {
            for number in numbers(outcome) {
                csv.record(record(outcome, &number))?;
            }
        }
        csv.flush()
    }
}

pub(crate) struct Number {
    pub(crate) metric: String,
    pub(crate) folio_bytes: Option<u64>,
    pub(crate) value: i128,
    pub(crate) unit: &'static str,
}

/// Returns the cell's columns after the kernel: machine to memory.
fn cell(outcome: &Outcome) -> [String; 5] {
    [
        outcome.machine.clone(),
        outcome.page_bytes.to_string(),
        outcome.seed.to_string(),
        outcome.cache.clone(),
        outcome.memory_bytes.to_string(),
    ]
}

fn record(outcome: &Outcome, number: &Number) -> [String; 12] {
    let [machine, page_bytes, seed, cache, memory_bytes] = cell(outcome);
    [
        outcome.kernel.clone(),
        machine,
        page_bytes,
        seed,
        cache,
        memory_bytes,
        number.metric.clone(),
        number.folio_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        number.value.to_string(),
        number.unit.to_owned(),
        outcome.is_judged.to_string(),
        outcome.linked.join(" "),
    ]
}

pub(crate) fn numbers(outcome: &Outcome) -> Vec<Number> {
    let mut numbers = Vec::new();
    add_census(&mut numbers, "text", &outcome.folios.text);
    add_census(&mut numbers, "data", &outcome.folios.data);
    add_census(&mut numbers, "shmem", &outcome.folios.shmem);
    add_census(&mut numbers, "anon", &outcome.folios.anon);
    add_statistics(&mut numbers, outcome);
    for (&size, &value) in &outcome.cached_bytes {
        numbers.push(sized("cached", size, value));
    }
    add_faults(&mut numbers, outcome);
    add_reads(&mut numbers, outcome);
    add_tlb(&mut numbers, outcome);
    add_anon_sizes(&mut numbers, outcome);
    add_asked(&mut numbers, outcome);
    for (reason, &value) in &outcome.pmd_refused {
        numbers.push(plain(format!("pmd_refused_{reason}"), value, "faults"));
    }
    add_writers(&mut numbers, outcome);
    let collapse = &outcome.collapse;
    for (metric, value, unit) in [
        ("collapse_thp_collapse_alloc", collapse.thp_collapse_alloc, "folios"),
        ("collapse_thp_collapse_alloc_failed", collapse.thp_collapse_alloc_failed, "folios"),
        ("collapse_collapsed", collapse.collapsed, "folios"),
        ("collapse_pages_collapsed", collapse.pages_collapsed, "folios"),
    ] {
        numbers.push(plain(metric, value, unit));
    }
    for (reason, &value) in &collapse.refused {
        numbers.push(plain(format!("collapse_refused_{reason}"), value, "ranges"));
    }
    for (&name, &value) in &outcome.pressure {
        numbers.push(plain(format!("pressure_{name}"), value, "events"));
    }
    numbers.push(plain("zeroed", outcome.zeroed_pages, "pages"));
    numbers.push(plain("copied", outcome.copied_pages, "pages"));
    for (&unit, &value) in &outcome.cleared_bytes {
        numbers.push(sized("cleared", unit, value));
    }
    for (&unit, &value) in &outcome.copied_bytes {
        numbers.push(sized("copied_in_one_go", unit, value));
    }
    add_latency(&mut numbers, outcome);
    add_entries(&mut numbers, outcome);
    add_waits(&mut numbers, outcome);
    add_time(&mut numbers, outcome);
    let strays = &outcome.strays;
    for (metric, value) in [
        ("strays_unmapped", strays.unmapped),
        ("strays_protected", strays.protected),
        ("strays_beyond_file", strays.beyond_file),
    ] {
        numbers.push(plain(metric, value, "references"));
    }
    groups::add(&mut numbers, outcome);
    add_policy(&mut numbers, outcome);
    numbers
}

fn add_policy(numbers: &mut Vec<Number>, outcome: &Outcome) {
    for (point, answers) in outcome.policy.iter().flat_map(|policy| &policy.points) {
        for (what, value) in
            [("asked", answers.asked), ("honoured", answers.honoured), ("refused", answers.refused)]
        {
            numbers.push(plain(format!("policy_{point}_{what}"), value, "answers"));
        }
    }
}

fn add_asked(numbers: &mut Vec<Number>, outcome: &Outcome) {
    for (&size, asked) in &outcome.asked {
        for (metric, value) in [
            ("asked_file_asked", asked.file_asked),
            ("asked_file_got", asked.file_got),
            ("asked_anon_asked", asked.anon_asked),
            ("asked_anon_got", asked.anon_got),
        ] {
            numbers.push(Number { unit: "folios", ..sized(metric, size, value) });
        }
    }
    for (&size, &value) in &outcome.unusable_at_start {
        numbers.push(Number { unit: "permille", ..sized("unusable_at_start", size, value) });
    }
}

fn plain(metric: impl Into<String>, value: impl Into<i128>, unit: &'static str) -> Number {
    Number { metric: metric.into(), folio_bytes: None, value: value.into(), unit }
}

fn sized(metric: impl Into<String>, folio_bytes: u64, value: u64) -> Number {
    Number {
        metric: metric.into(),
        folio_bytes: Some(folio_bytes),
        value: value.into(),
        unit: "bytes",
    }
}

fn add_latency(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let latency = &outcome.latency;
    numbers.push(plain("latency_stretches", latency.stretches, "stretches"));
    numbers.push(plain("latency_max", latency.max_bytes, "bytes"));
    numbers.push(plain("latency_p99", latency.p99_bytes, "bytes"));
    for (metric, ns) in [("latency_max_time", latency.max_ns), ("latency_p99_time", latency.p99_ns)]
    {
        numbers.extend(ns.map(|ns| plain(metric, ns, "ns")));
    }
    for (&size, of_size) in &latency.sizes {
        let unit = "stretches";
        numbers.push(Number { unit, ..sized("latency_size_stretches", size, of_size.stretches) });
        numbers.push(sized("latency_size_max", size, of_size.max_bytes));
    }
}

fn add_census(numbers: &mut Vec<Number>, kind: &str, census: &SizeTable) {
    numbers.push(plain(format!("{kind}_mapped"), census.mapped_bytes, "bytes"));
    for (&size, row) in &census.by_size {
        numbers.push(sized(format!("{kind}_aligned"), size, row.aligned_bytes));
        numbers.push(sized(format!("{kind}_unaligned"), size, row.unaligned_bytes));
    }
    for (&size, &value) in &census.partial_by_size {
        numbers.push(sized(format!("{kind}_partial_by_size"), size, value));
    }
    for (what, value) in [
        ("partial", census.partial_bytes),
        ("contpte", census.contpte_bytes),
        ("pmd", census.pmd_bytes),
    ] {
        numbers.push(plain(format!("{kind}_{what}"), value, "bytes"));
    }
}

fn add_faults(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let faults = &outcome.faults;
    for (metric, value) in [
        ("faults_total", faults.total),
        ("faults_major", faults.major),
        ("faults_around", faults.around),
        ("faults_finish", faults.finish),
        ("faults_anon", faults.anon),
        ("faults_zero_page", faults.zero_page),
        ("faults_cow", faults.cow),
        ("faults_wp_reuse", faults.wp_reuse),
        ("faults_swap_in", faults.swap_in),
        ("faults_hugetlb", faults.hugetlb),
        ("faults_retries", faults.retries),
    ] {
        numbers.push(plain(metric, value, "faults"));
    }
}

fn add_reads(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let reads = &outcome.reads;
    for (metric, value, unit) in [
        ("reads", reads.bytes, "bytes"),
        ("reads_used", reads.used_bytes, "bytes"),
        ("reads_windows", reads.windows, "windows"),
        ("reads_async_windows", reads.async_windows, "windows"),
        ("reads_gated", reads.gated, "faults"),
        ("reads_large_folio_fallback", reads.large_folio_fallback, "folios"),
    ] {
        numbers.push(plain(metric, value, unit));
    }
}

fn add_tlb(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let tlb = &outcome.tlb;
    if tlb.is_empty() {
        return;
    }
    add_side(numbers, "instruction", &tlb.instruction);
    add_side(numbers, "data", &tlb.data);
    for (metric, value) in [
        ("tlb_walks_pte", tlb.walks_pte),
        ("tlb_walks_contpte", tlb.walks_contpte),
        ("tlb_walks_pmd", tlb.walks_pmd),
    ] {
        numbers.push(plain(metric, value, "walks"));
    }
    for (metric, value) in [
        ("tlb_walk_refs_pgd", tlb.walk_refs_pgd),
        ("tlb_walk_refs_pud", tlb.walk_refs_pud),
        ("tlb_walk_refs_pmd", tlb.walk_refs_pmd),
        ("tlb_walk_refs_pte", tlb.walk_refs_pte),
    ] {
        numbers.push(plain(metric, value, "entries"));
    }
    let kinds = &tlb.walk_kinds;
    for (name, kind) in [
        ("chained", kinds.chained),
        ("beside", kinds.overlapped),
        ("alone", kinds.alone),
        ("fetch", kinds.fetch),
    ] {
        for (of, nr) in [("walks", kind.walks), ("pmd_walks", kind.pmd_walks)] {
            numbers.push(plain(format!("tlb_walk_kinds_{name}_{of}"), nr, "walks"));
        }
        for (whose, Lines { l2, llc, memory }) in
            [("lines", kind.lines), ("host_lines", kind.host_lines)]
        {
            for (place, value) in [("l2", l2), ("llc", llc), ("memory", memory)] {
                let metric = format!("tlb_walk_kinds_{name}_{whose}_{place}");
                numbers.push(plain(metric, value, "lines"));
            }
        }
    }
}

fn add_statistics(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let Statistics { machine, machine_exact, total, total_exact, .. } = &outcome.statistics;
    for (of, machine) in [("machine", machine), ("machine_exact", machine_exact)] {
        for (metric, value) in [
            ("anon_pages", machine.anon_pages_bytes),
            ("mapped", machine.mapped_bytes),
            ("anon_huge_pages", machine.anon_huge_pages_bytes),
            ("shmem_pmd_mapped", machine.shmem_pmd_mapped_bytes),
            ("file_pmd_mapped", machine.file_pmd_mapped_bytes),
        ] {
            numbers.push(plain(format!("statistics_{of}_{metric}"), value, "bytes"));
        }
    }
    for (of, total) in [("total", total), ("total_exact", total_exact)] {
        for (metric, value) in [
            ("rss", total.rss_bytes),
            ("pss", total.pss_bytes),
            ("pss_anon", total.pss_anon_bytes),
            ("pss_file", total.pss_file_bytes),
            ("pss_shmem", total.pss_shmem_bytes),
            ("uss", total.uss_bytes),
            ("shared_clean", total.shared_clean_bytes),
            ("shared_dirty", total.shared_dirty_bytes),
            ("private_clean", total.private_clean_bytes),
            ("private_dirty", total.private_dirty_bytes),
        ] {
            numbers.push(plain(format!("statistics_{of}_{metric}"), value, "bytes"));
        }
    }
}

fn add_entries(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let entries = &outcome.entries;
    for (metric, value, unit) in [
        ("entries_set_by_faults", entries.set_by_faults, "entries"),
        ("entries_set_by_fork", entries.set_by_fork, "entries"),
        ("entries_ptes_cleared", entries.ptes_cleared, "entries"),
        ("entries_pmds_cleared", entries.pmds_cleared, "entries"),
        ("entries_batches_cleared", entries.batches_cleared, "batches"),
        ("mapcounts_pages", outcome.mapcounts.pages, "updates"),
        ("mapcounts_folios", outcome.mapcounts.folios, "updates"),
        ("mapcounts_owner_words", outcome.mapcounts.owner_words, "updates"),
    ] {
        numbers.push(plain(metric, value, unit));
    }
}

/// Unknown waits have no row.
fn add_waits(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let waits = &outcome.waits;
    for (metric, value, unit) in [
        ("waits_sync_requests", Some(waits.sync_requests), "reads"),
        ("waits_sync_bytes", Some(waits.sync_bytes), "bytes"),
        ("waits_async_requests", Some(waits.async_requests), "reads"),
        ("waits_async_bytes", Some(waits.async_bytes), "bytes"),
        ("waits_late_waits", waits.late_waits, "waits"),
        ("waits_queue_ns", waits.queue_ns, "ns"),
        ("waits_late_ns", waits.late_ns, "ns"),
    ] {
        numbers.extend(value.map(|value| plain(metric, value, unit)));
    }
}

/// Adds estimated time; unknown times have no row.
fn add_time(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let estimate = &outcome.estimate;
    numbers.extend(estimate.total_ns.map(|ns| plain("time_total", ns, "ns")));
    numbers.push(plain("time_known", estimate.known_ns, "ns"));
    for (cause, time) in &estimate.causes {
        numbers.extend(time.ns.map(|ns| plain(format!("time_{}", cause.name()), ns, "ns")));
    }
    let mut bounds = |name: &str, interval: Option<Interval>, parts: f64, unit| {
        let Some(Interval { low, mid, high }) = interval else { return };
        for (end, value) in [("low", low), ("mid", mid), ("high", high)] {
            numbers.push(plain(format!("{name}_{end}"), whole(value * parts), unit));
        }
    };
    let run = Some(estimate.run).filter(|run| run.source != BaseSource::NotKnown);
    bounds("run", run.map(|run| run.ns), 1.0, "ns");
    // The percentage in millionths, to keep the column integer.
    bounds("run_change", estimate.run_change, 1e4, "ppm");
}

#[expect(clippy::cast_possible_truncation, reason = "saturates")]
fn whole(value: f64) -> i64 {
    value.round() as i64
}

fn add_anon_sizes(numbers: &mut Vec<Number>, outcome: &Outcome) {
    for (&folio_bytes, size) in &outcome.anon_sizes {
        for (metric, value) in [
            ("sizes_anon_fault_alloc", size.anon_fault_alloc),
            ("sizes_anon_fault_fallback", size.anon_fault_fallback),
            ("sizes_split", size.split),
            ("sizes_split_failed", size.split_failed),
            ("sizes_split_deferred", size.split_deferred),
        ] {
            let folio_bytes = Some(folio_bytes);
            numbers.push(Number {
                metric: metric.to_owned(),
                folio_bytes,
                value: value.into(),
                unit: "folios",
            });
        }
    }
}

fn add_writers(numbers: &mut Vec<Number>, outcome: &Outcome) {
    let writers = &outcome.writers;
    for (metric, value, unit) in [
        ("writers_opens", writers.opens, "opens"),
        ("writers_text_busy", writers.text_busy, "opens"),
        ("writers_open_for_write", writers.open_for_write, "runs"),
        ("writers_drops", writers.drops, "opens"),
        ("writers_dropped_bytes", writers.dropped_bytes, "bytes"),
    ] {
        numbers.push(plain(metric, value, unit));
    }
}

fn add_side(numbers: &mut Vec<Number>, side: &str, counters: &SideCounters) {
    for (what, value) in [
        ("references", counters.references),
        ("l1_misses", counters.l1_misses),
        ("l2_misses", counters.l2_misses),
        ("permission_misses", counters.permission_misses),
    ] {
        numbers.push(plain(format!("tlb_{side}_{what}"), value, "references"));
    }
}
