//! The sections of the table, in order.

use std::collections::BTreeSet;

use largefolio_sim::cost::{Cause, Walks};
use largefolio_sim::interval::Interval;
use largefolio_sim::metrics::{self, Metric};
use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::cgroup::CgroupOutcome;
use largefolio_sim::replay::outcome::AnonSize;
use largefolio_sim::replay::requested::Requested;
use largefolio_sim::replay::sizes::{SizeRow, SizeTable};
use largefolio_sim::replay::statistics::Statistics;
use largefolio_trace::shown;

use super::section::{Section, SectionLine};
use crate::figures::{self, size};

pub(super) fn sections(rows: &[Outcome]) -> Vec<Section> {
    vec![
        mapped("Mapped text by folio size", rows, |row| row.folios.text.clone()),
        mapped("Mapped data by folio size", rows, |row| row.folios.data.clone()),
        mapped("Text and data together", rows, |row| row.folios.all()),
        mapped("Shared memory by size", rows, |row| row.folios.shmem.clone()),
        mapped("Private memory by size", rows, |row| row.folios.anon.clone()),
        anon_sizes(rows),
        Section::new("Faults", labelled(rows, metrics::table::FAULTS)),
        reads(rows),
        requested_sizes(rows),
        tlb(rows),
        refusals(rows),
        writers(rows),
        collapses(rows),
        pressure(rows),
        cgroups(rows),
        Section::new("Memory by node", labelled(rows, metrics::table::SOME)),
        filled(rows),
        cached(rows),
        statistics(rows),
    ]
}

pub(super) fn run_time(rows: &[Outcome]) -> Section {
    let of = |get: &dyn Fn(Interval) -> f64| {
        rows.iter()
            .map(|row| row.estimate.run_change.map_or(String::new(), |it| figures::points(get(it))))
            .collect()
    };
    Section::new(
        "Change in run time",
        vec![
            SectionLine::texts("likeliest, %", of(&|change| change.mid)),
            SectionLine::texts("from, %", of(&|change| change.low)),
            SectionLine::texts("to, %", of(&|change| change.high)),
        ],
    )
}

pub(super) fn time(rows: &[Outcome]) -> Section {
    let line = |label: &str, get: &dyn Fn(&Outcome) -> Option<u64>| {
        SectionLine::times(label, rows.iter().map(get).collect())
    };
    let mut lines = vec![line("all", &|row| row.estimate.total_ns)];
    let is_nested = rows.iter().any(|row| row.estimate.walks == Walks::Nested);
    let walks = if is_nested { Walks::Nested } else { Walks::Native };
    for cause in Cause::ALL {
        let label = figures::cause(cause, walks);
        lines.push(line(label, &|row| row.estimate.causes.get(&cause)?.ns));
    }
    Section::new("Estimated time", lines)
}

/// How long clearing and copying delay other tasks. The heading names the preemption models of the
/// columns.
pub(super) fn latency(rows: &[Outcome]) -> Section {
    let line = |path| line(rows, metrics::at(path));
    Section::new(
        "Until a reschedule point",
        vec![
            line("latency.max_ns"),
            line("latency.p99_ns"),
            SectionLine::counts("longest, KiB", each(rows, |row| row.latency.max_bytes >> 10)),
            SectionLine::counts(
                "99th percentile, KiB",
                each(rows, |row| row.latency.p99_bytes >> 10),
            ),
            line("latency.stretches"),
        ],
    )
}

fn each(rows: &[Outcome], get: impl Fn(&Outcome) -> u64) -> Vec<u64> {
    rows.iter().map(get).collect()
}

/// The rows of docs/behaviour J.1 for one kind of file memory, or for all of it as published.
fn mapped(
    title: &'static str,
    rows: &[Outcome],
    census: impl Fn(&Outcome) -> SizeTable,
) -> Section {
    let columns: Vec<SizeTable> = rows.iter().map(census).collect();
    let whole: Vec<u64> = columns.iter().map(|column| column.mapped_bytes).collect();
    let share = |label: String, get: &dyn Fn(&SizeTable) -> u64| {
        SectionLine::bytes(label, columns.iter().map(get).collect()).with_shares_of(&whole)
    };
    let sizes: BTreeSet<u64> =
        columns.iter().flat_map(|column| column.by_size.keys().copied()).collect();
    let in_size =
        |column: &SizeTable, size: u64| column.by_size.get(&size).copied().unwrap_or_default();
    let mut lines = vec![SectionLine::bytes("all", whole.clone())];
    for &bytes in &sizes {
        let is_base = rows.iter().zip(&columns).all(|(row, column)| {
            row.page_bytes == bytes || in_size(column, bytes) == SizeRow::default()
        });
        let kind = if is_base { "base pages" } else { "aligned" };
        let aligned = |column: &SizeTable| in_size(column, bytes).aligned_bytes;
        lines.push(share(format!("{} {kind}", size_column(bytes)), &aligned));
    }
    for &bytes in &sizes {
        let unaligned = |column: &SizeTable| in_size(column, bytes).unaligned_bytes;
        lines.push(share(format!("{} unaligned", size_column(bytes)), &unaligned));
    }
    lines.push(share("partly mapped".to_owned(), &|column| column.partial_bytes));
    lines.push(share("contpte-mapped".to_owned(), &|column| column.contpte_bytes));
    lines.push(share("PMD-mapped".to_owned(), &|column| column.pmd_bytes));
    Section::new(title, lines)
}

fn size_column(bytes: u64) -> String {
    format!("{:>4}", size(bytes))
}

/// Returns the lines of `metrics` that have a label.
fn labelled(rows: &[Outcome], metrics: &'static [Metric]) -> Vec<SectionLine> {
    metrics.iter().filter(|of| !of.label.is_empty()).map(|of| line(rows, of)).collect()
}

/// Returns the line of a metric; unknown counts are 0, unknown times `not known`.
fn line(rows: &[Outcome], metric: &'static Metric) -> SectionLine {
    let values = rows.iter().map(|row| metric.count(row));
    match metric.unit {
        "ns" => SectionLine::times(metric.label, values.collect()),
        "bytes" => {
            SectionLine::bytes(metric.label, values.map(Option::unwrap_or_default).collect())
        }
        _ => SectionLine::counts(metric.label, values.map(Option::unwrap_or_default).collect()),
    }
}

fn reads(rows: &[Outcome]) -> Section {
    let mut lines = labelled(rows, metrics::table::READS);
    let amplification = rows.iter().map(|row| (row.reads.bytes, row.reads.used_bytes)).collect();
    lines.insert(2, SectionLine::ratios("read amplification", amplification));
    Section::new("Reading files", lines)
}

/// The share of requested file folios that memory could provide; empty if it provided all.
fn requested_sizes(rows: &[Outcome]) -> Section {
    let is_short = |requested: &Requested| requested.file_got < requested.file_asked;
    let sizes =
        rows.iter().flat_map(|row| row.asked.iter()).filter(|(_, requested)| is_short(requested));
    let sizes: BTreeSet<u64> = sizes.map(|(&bytes, _)| bytes).collect();
    let lines = sizes.into_iter().flat_map(|bytes| {
        let of =
            |get: fn(&Requested) -> u64| each(rows, |row| row.asked.get(&bytes).map_or(0, get));
        let requested = of(|requested| requested.file_asked);
        let label = size_column(bytes);
        [
            SectionLine::counts(format!("{label} requested"), requested.clone()),
            SectionLine::counts(format!("{label} free"), of(|requested| requested.file_got))
                .with_shares_of(&requested),
        ]
    });
    Section::new("Folios of files that were free", lines.collect())
}

fn tlb(rows: &[Outcome]) -> Section {
    let references = each(rows, |row| row.tlb.instruction.references + row.tlb.data.references);
    let sum = |label: &str, get: fn(&Outcome) -> u64| {
        SectionLine::counts(label, each(rows, get)).with_rates_of(&references)
    };
    let line = |path| line(rows, metrics::at(path)).with_rates_of(&references);
    Section::new(
        "TLB",
        vec![
            SectionLine::counts("references", references.clone()),
            line("tlb.instruction.l1_misses"),
            line("tlb.data.l1_misses"),
            line("tlb.instruction.l2_misses"),
            line("tlb.data.l2_misses"),
            sum("walks, read-only entry", |row| row.tlb.permission_misses()),
            sum("walks to plain PTE", |row| row.tlb.walks_pte - row.tlb.walks_contpte),
            line("tlb.walks_contpte"),
            line("tlb.walks_pmd"),
            line("tlb.walk_kinds.chained.walks"),
            line("tlb.walk_kinds.beside.walks"),
            sum("table lines from the LLC", |row| row.tlb.walk_kinds.lines()[0].llc),
            sum("table lines from memory", |row| row.tlb.walk_kinds.lines()[0].memory),
        ],
    )
}

fn anon_sizes(rows: &[Outcome]) -> Section {
    let sizes: BTreeSet<u64> = rows.iter().flat_map(|row| row.anon_sizes.keys().copied()).collect();
    let lines = |label: &'static str, get: fn(&AnonSize) -> u64| {
        sizes.iter().map(move |&bytes| {
            let of = |row: &Outcome| row.anon_sizes.get(&bytes).map_or(0, get);
            SectionLine::counts(format!("{} {label}", size_column(bytes)), each(rows, of))
        })
    };
    let lines = lines("allocated", |size| size.anon_fault_alloc)
        .chain(lines("fell back", |size| size.anon_fault_fallback))
        .chain(lines("partly unmapped", |size| size.split_deferred))
        .chain(lines("split", |size| size.split))
        .chain(lines("split refused", |size| size.split_failed));
    Section::new("Anonymous folios", lines.collect())
}

/// The values of `meminfo` and `smaps` and their error, if processes share memory or the kernel's
/// counters are inexact.
fn statistics(rows: &[Outcome]) -> Section {
    let needs_detail =
        |row: &Outcome| row.statistics.processes.len() > 1 || row.statistics.is_inexact();
    if !rows.iter().any(needs_detail) {
        return Section::new("Statistics", Vec::new());
    }
    let line = |label: &str, get: &dyn Fn(&Statistics) -> u64| {
        SectionLine::bytes(label, each(rows, |row| get(&row.statistics)))
    };
    let lines = vec![
        line("AnonPages", &|it| it.machine.anon_pages_bytes),
        line("  too much", &|it| {
            it.machine.anon_pages_bytes.saturating_sub(it.machine_exact.anon_pages_bytes)
        }),
        line("Mapped", &|it| it.machine.mapped_bytes),
        line("  too much", &|it| {
            it.machine.mapped_bytes.saturating_sub(it.machine_exact.mapped_bytes)
        }),
        line("AnonHugePages", &|it| it.machine.anon_huge_pages_bytes),
        line("ShmemPmdMapped", &|it| it.machine.shmem_pmd_mapped_bytes),
        line("FilePmdMapped", &|it| it.machine.file_pmd_mapped_bytes),
        line("ShmemHugePages", &|it| it.machine.shmem_huge_pages_bytes),
        line("FileHugePages", &|it| it.machine.file_huge_pages_bytes),
        line("Rss", &|it| it.total.rss_bytes),
        line("Pss", &|it| it.total.pss_bytes),
        line("  too much", &|it| it.total.pss_bytes.saturating_sub(it.total_exact.pss_bytes)),
        line("  too little", &|it| it.total_exact.pss_bytes.saturating_sub(it.total.pss_bytes)),
        line("USS", &|it| it.total.uss_bytes),
        line("  too much", &|it| it.total.uss_bytes.saturating_sub(it.total_exact.uss_bytes)),
        line("  too little", &|it| it.total_exact.uss_bytes.saturating_sub(it.total.uss_bytes)),
        line("exclusive (pagemap)", &|it| it.total.exclusive_bytes),
        line("kpagecount 1", &|it| it.total.mapped_once_bytes),
        SectionLine::counts("mapmax", each(rows, |row| row.statistics.total.mapmax)),
    ];
    Section::new("Statistics", lines)
}

fn refusals(rows: &[Outcome]) -> Section {
    let reasons: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.pmd_refused.keys().copied()).collect();
    let line = |reason: &str| {
        let values = each(rows, |row| row.pmd_refused.get(reason).copied().unwrap_or(0));
        SectionLine::counts(reason.replace('_', " "), values)
    };
    Section::new("PMD mappings refused", reasons.into_iter().map(line).collect())
}

fn writers(rows: &[Outcome]) -> Section {
    let shown = ["drops", "dropped_bytes", "text_busy", "open_for_write"];
    let lines = shown.map(|name| line(rows, metrics::at(&format!("writers.{name}"))));
    Section::new("Opens for writing", lines.into())
}

/// Results of collapse; empty without attempts.
fn collapses(rows: &[Outcome]) -> Section {
    let reasons: BTreeSet<&str> =
        rows.iter().flat_map(|row| row.collapse.refused.keys().copied()).collect();
    let refused = reasons.into_iter().map(|reason| {
        let of = |row: &Outcome| row.collapse.refused.get(reason).copied().unwrap_or(0);
        SectionLine::counts(format!("refused: {}", reason.replace('_', " ")), each(rows, of))
    });
    let collapsed = ["collapse.collapsed", "collapse.pages_collapsed"];
    let collapsed = collapsed.map(|path| line(rows, metrics::at(path)));
    Section::new("Collapse", collapsed.into_iter().chain(refused).collect())
}

/// Effects of memory pressure: pages as bytes, events as counts.
fn pressure(rows: &[Outcome]) -> Section {
    let nr = |row: &Outcome, name: &str| row.pressure.get(name).copied().unwrap_or(0);
    let sum = |row: &Outcome, names: &[&str]| names.iter().map(|name| nr(row, name)).sum::<u64>();
    let bytes = |label: &str, names: &[&str]| {
        SectionLine::bytes(label, each(rows, |row| sum(row, names).saturating_mul(row.page_bytes)))
    };
    let count =
        |label: &str, names: &[&str]| SectionLine::counts(label, each(rows, |row| sum(row, names)));
    Section::new(
        "Memory pressure",
        vec![
            bytes("examined", &["pgscan_kswapd", "pgscan_direct"]),
            bytes("reclaimed", &["pgsteal_kswapd", "pgsteal_direct"]),
            bytes("files refaulted", &["workingset_refault_file"]),
            bytes("of which hot", &["workingset_activate_file"]),
            bytes("left because dirty", &["nr_vmscan_immediate_reclaim"]),
            bytes("swapped out", &["pswpout"]),
            bytes("swapped in", &["pswpin"]),
            bytes("stored in zswap", &["zswpout"]),
            bytes("loaded from zswap", &["zswpin"]),
            bytes("written back by zswap", &["zswpwb"]),
            bytes("swapped as zeroes", &["swpout_zero"]),
            bytes("freed (MADV_FREE)", &["pglazyfreed"]),
            bytes("moved by compaction", &["pgmigrate_success"]),
            count("file folios evicted", &["nr_evicted_file"]),
            count("background runs", &["kswapd_runs"]),
            count("allocations that waited", &["allocstall"]),
            count("large folios swapped whole", &["thp_swpout", "swpout_large"]),
            count("split, no free slots", &["thp_swpout_fallback", "swpout_large_fallback"]),
            count("compactions", &["compact_stall", "compact_daemon_wake"]),
            count("of which failed", &["compact_fail"]),
        ],
    )
}

fn cgroups(rows: &[Outcome]) -> Section {
    Section::new("Control groups", cgroup_lines(rows))
}

pub(super) fn cgroup_lines(rows: &[Outcome]) -> Vec<SectionLine> {
    let names = rows.first().map_or(&[][..], |row| &row.cgroups);
    let lines_of = |(nr, group): (usize, &CgroupOutcome)| {
        let of = |value: fn(&CgroupOutcome) -> u64| {
            each(rows, move |row| row.cgroups.get(nr).map_or(0, value))
        };
        let label = |what: &str| format!("{}: {what}", shown(&group.name));
        [
            SectionLine::bytes(label("peak"), of(|group| group.peak_bytes)),
            SectionLine::bytes(label("evicted"), of(|group| group.evicted_bytes)),
            SectionLine::bytes(label("refaulted"), of(|group| group.refaulted_bytes)),
            SectionLine::counts(label("limit hits"), of(|group| group.nr_limit_hits)),
        ]
    };
    names.iter().enumerate().flat_map(lines_of).collect()
}

/// In bytes, because page sizes differ.
fn filled(rows: &[Outcome]) -> Section {
    let line = |of: &Metric| {
        let bytes = |row: &Outcome| of.count(row).unwrap_or(0).saturating_mul(row.page_bytes);
        SectionLine::bytes(of.label, each(rows, bytes))
    };
    Section::new("Memory filled", metrics::table::FILLED.iter().map(line).collect())
}

fn cached(rows: &[Outcome]) -> Section {
    let whole = each(rows, |row| row.cached_bytes.values().sum());
    let sizes: BTreeSet<u64> =
        rows.iter().flat_map(|row| row.cached_bytes.keys().copied()).collect();
    let mut lines = vec![SectionLine::bytes("all", whole.clone())];
    lines.extend(sizes.into_iter().map(|bytes| {
        let values = each(rows, |row| row.cached_bytes.get(&bytes).copied().unwrap_or(0));
        SectionLine::bytes(size_column(bytes), values).with_shares_of(&whole)
    }));
    Section::new("Page cache at the end", lines)
}
