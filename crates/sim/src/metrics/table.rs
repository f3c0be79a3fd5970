//! Every number of a result: its path, unit and accessor, and for lines of tables its label.

use std::collections::BTreeMap;

use super::{Groups, Member, Metric, Sizes, Value};
use crate::cost::{BaseSource, Cause, Estimate};
use crate::interval::Interval;

macro_rules! path {
    ($first:ident $(.$rest:ident)*) => { concat!(stringify!($first) $(, ".", stringify!($rest))*) };
}

macro_rules! count {
    ($unit:literal, $($step:ident).+) => {
        Metric::new(path!($($step).+), $unit, Value::Count(|o| o.$($step).+))
    };
}

/// A count that is known only sometimes.
macro_rules! known {
    ($unit:literal, $($step:ident).+) => {
        Metric::new(path!($($step).+), $unit, Value::Known(|o| o.$($step).+))
    };
}

/// A count of an optional part.
macro_rules! part {
    ($unit:literal, $part:ident.$($step:ident).+) => {
        Metric::new(
            path!($part.$($step).+),
            $unit,
            Value::Known(|o| Some(o.$part.as_ref()?.$($step).+)),
        )
    };
}

/// A count of the TLB, which a trace of page faults only lacks.
macro_rules! tlb {
    ($unit:literal, $($step:ident).+) => {
        Metric::new(
            path!(tlb.$($step).+),
            $unit,
            Value::Known(|o| (!o.tlb.is_empty()).then_some(o.tlb.$($step).+)),
        )
    };
}

macro_rules! sizes {
    ($path:literal, $key:literal, [$(($name:literal, $csv:expr, $unit:literal)),+], $rows:expr) => {
        Metric::new($path, "", Value::Sizes(Sizes {
            key: $key,
            members: &[$(Member { name: $name, csv: $csv, unit: $unit }),+],
            rows: $rows,
        }))
    };
}

macro_rules! folios {
    ($kind:ident) => {
        &[
            count!("bytes", folios.$kind.mapped_bytes).csv(concat!(stringify!($kind), "_mapped")),
            Metric::new(
                path!(folios.$kind.by_size),
                "",
                Value::Sizes(Sizes {
                    key: "folio_bytes",
                    members: &[
                        Member {
                            name: "aligned_bytes",
                            csv: concat!(stringify!($kind), "_aligned"),
                            unit: "bytes",
                        },
                        Member {
                            name: "unaligned_bytes",
                            csv: concat!(stringify!($kind), "_unaligned"),
                            unit: "bytes",
                        },
                    ],
                    rows: |o| {
                        let rows = o.folios.$kind.by_size.iter();
                        rows.map(|(&size, row)| {
                            (size, vec![row.aligned_bytes, row.unaligned_bytes])
                        })
                        .collect()
                    },
                }),
            ),
            Metric::new(
                path!(folios.$kind.partial_by_size),
                "",
                Value::Sizes(Sizes {
                    key: "folio_bytes",
                    members: &[Member {
                        name: "bytes",
                        csv: concat!(stringify!($kind), "_partial_by_size"),
                        unit: "bytes",
                    }],
                    rows: |o| by_size(&o.folios.$kind.partial_by_size),
                }),
            )
            .later(),
            count!("bytes", folios.$kind.partial_bytes)
                .csv(concat!(stringify!($kind), "_partial"))
                .frame_up(1),
            count!("bytes", folios.$kind.contpte_bytes).csv(concat!(stringify!($kind), "_contpte")),
            count!("bytes", folios.$kind.pmd_bytes).csv(concat!(stringify!($kind), "_pmd")),
        ]
    };
}

pub const FOLIOS: [&[Metric]; 4] = [folios!(text), folios!(data), folios!(shmem), folios!(anon)];

/// Bytes, named in the CSV without `_bytes`.
macro_rules! statistics {
    ($of:ident; $($name:ident $field:ident $($better:ident)?),+ $(,)?) => {
        &[$(count!("bytes", statistics.$of.$field)
            .csv(concat!("statistics_", stringify!($of), "_", stringify!($name)))
            $(.$better())?),+]
    };
}

macro_rules! machine_statistics {
    ($of:ident) => {
        statistics!($of;
            anon_pages anon_pages_bytes less_is_better,
            mapped mapped_bytes,
            anon_huge_pages anon_huge_pages_bytes,
            shmem_pmd_mapped shmem_pmd_mapped_bytes,
            file_pmd_mapped file_pmd_mapped_bytes,
        )
    };
}

macro_rules! huge_statistics {
    ($of:ident) => {
        &[
            count!("bytes", statistics.$of.file_huge_pages_bytes)
                .csv(concat!("statistics_", stringify!($of), "_file_huge_pages"))
                .later(),
            count!("bytes", statistics.$of.shmem_huge_pages_bytes)
                .csv(concat!("statistics_", stringify!($of), "_shmem_huge_pages"))
                .later(),
        ]
    };
}

macro_rules! map_statistics {
    ($of:ident) => {
        &[
            count!("bytes", statistics.$of.exclusive_bytes)
                .csv(concat!("statistics_", stringify!($of), "_exclusive"))
                .later(),
            count!("bytes", statistics.$of.mapped_once_bytes)
                .csv(concat!("statistics_", stringify!($of), "_mapped_once"))
                .later(),
            count!("mappings", statistics.$of.mapmax).later(),
        ]
    };
}

macro_rules! process_statistics {
    ($of:ident) => {
        statistics!($of;
            rss rss_bytes less_is_better,
            pss pss_bytes less_is_better,
            pss_anon pss_anon_bytes,
            pss_file pss_file_bytes,
            pss_shmem pss_shmem_bytes,
            uss uss_bytes,
            shared_clean shared_clean_bytes,
            shared_dirty shared_dirty_bytes,
            private_clean private_clean_bytes,
            private_dirty private_dirty_bytes,
        )
    };
}

pub const STATISTICS: [&[Metric]; 8] = [
    machine_statistics!(machine),
    huge_statistics!(machine),
    machine_statistics!(machine_exact),
    huge_statistics!(machine_exact),
    process_statistics!(total),
    map_statistics!(total),
    process_statistics!(total_exact),
    map_statistics!(total_exact),
];

pub const CACHED: &[Metric] =
    &[sizes!("cached_bytes", "folio_bytes", [("bytes", "cached", "bytes")], |o| {
        by_size(&o.cached_bytes)
    })];

pub const FAULTS: &[Metric] = &[
    count!("faults", faults.total).label("all").less_is_better(),
    count!("faults", faults.major).label("major"),
    count!("faults", faults.around).label("ended by fault-around"),
    count!("faults", faults.finish).label("ended by one folio"),
    count!("faults", faults.anon).label("anonymous memory"),
    count!("faults", faults.zero_page).label("zero page"),
    count!("faults", faults.cow).label("copy on write"),
    count!("faults", faults.wp_reuse).label("made writable"),
    count!("faults", faults.swap_in).label("from swap space").later(),
    count!("faults", faults.hugetlb).label("in hugetlb mappings").later(),
    count!("faults", faults.retries).label("repeated after I/O").frame_up(2),
];

pub const READS: &[Metric] = &[
    count!("bytes", reads.bytes).csv("reads").label("read").less_is_better(),
    count!("bytes", reads.used_bytes).csv("reads_used").label("used"),
    Metric::new("reads.amplification", "", Value::Real(|o| o.reads.amplification)),
    count!("windows", reads.windows).label("readahead windows"),
    count!("windows", reads.async_windows).label("of which asynchronous"),
    count!("faults", reads.gated).label("without readahead"),
    count!("folios", reads.large_folio_fallback).label("large folios refused"),
];

macro_rules! walk_kind {
    ($name:literal, $kind:ident, $label:literal) => {
        &[
            walk_kind!(@ $name, $kind, "walks", walks).label($label),
            walk_kind!(@ $name, $kind, "walks", pmd_walks),
            walk_kind!(@ $name, $kind, "lines", lines.l2),
            walk_kind!(@ $name, $kind, "lines", lines.llc),
            walk_kind!(@ $name, $kind, "lines", lines.memory),
            walk_kind!(@ $name, $kind, "lines", host_lines.l2),
            walk_kind!(@ $name, $kind, "lines", host_lines.llc),
            walk_kind!(@ $name, $kind, "lines", host_lines.memory),
        ]
    };
    (@ $name:literal, $kind:ident, $unit:literal, $($step:ident).+) => {
        Metric::new(
            concat!("tlb.walk_kinds.", $name, ".", path!($($step).+)),
            $unit,
            Value::Known(|o| (!o.tlb.is_empty()).then_some(o.tlb.walk_kinds.$kind.$($step).+)),
        )
    };
}

pub const TLB: [&[Metric]; 5] = [
    &[
        tlb!("references", instruction.references),
        tlb!("references", instruction.l1_misses).label("L1 misses, instructions"),
        tlb!("references", instruction.l2_misses).label("walks, instructions").less_is_better(),
        tlb!("references", instruction.permission_misses),
        tlb!("references", data.references),
        tlb!("references", data.l1_misses).label("L1 misses, data"),
        tlb!("references", data.l2_misses).label("walks, data").less_is_better(),
        tlb!("references", data.permission_misses),
        tlb!("walks", walks_pte),
        tlb!("walks", walks_contpte).label("walks to contpte block"),
        tlb!("walks", walks_pmd).label("walks to PMD entry"),
        tlb!("entries", walk_refs_pgd),
        tlb!("entries", walk_refs_pud),
        tlb!("entries", walk_refs_pmd),
        tlb!("entries", walk_refs_pte),
        tlb!("references", chained_hits),
    ],
    walk_kind!("chained", chained, "walks after another walk"),
    walk_kind!("beside", overlapped, "overlapping walks"),
    walk_kind!("alone", alone, ""),
    walk_kind!("fetch", fetch, ""),
];

pub const REFUSALS: &[Metric] = &[
    sizes!(
        "anon_sizes",
        "folio_bytes",
        [
            ("anon_fault_alloc", "sizes_anon_fault_alloc", "folios"),
            ("anon_fault_fallback", "sizes_anon_fault_fallback", "folios"),
            ("split", "sizes_split", "folios"),
            ("split_failed", "sizes_split_failed", "folios"),
            ("split_deferred", "sizes_split_deferred", "folios")
        ],
        |o| {
            let sizes = o.anon_sizes.iter().map(|(&size, of)| {
                let alloc = [of.anon_fault_alloc, of.anon_fault_fallback];
                let split = [of.split, of.split_failed, of.split_deferred];
                (size, [&alloc[..], &split[..]].concat())
            });
            sizes.collect()
        }
    ),
    sizes!(
        "asked",
        "folio_bytes",
        [
            ("file_asked", "asked_file_asked", "folios"),
            ("file_got", "asked_file_got", "folios"),
            ("anon_asked", "asked_anon_asked", "folios"),
            ("anon_got", "asked_anon_got", "folios")
        ],
        |o| {
            let sizes = o.asked.iter().map(|(&size, of)| {
                (size, vec![of.file_asked, of.file_got, of.anon_asked, of.anon_got])
            });
            sizes.collect()
        }
    ),
    sizes!(
        "unusable_at_start",
        "folio_bytes",
        [("permille", "unusable_at_start", "permille")],
        |o| by_size(&o.unusable_at_start)
    ),
    Metric::new("pmd_refused", "faults", Value::Names("reason", |o| &o.pmd_refused)),
    count!("opens", writers.opens),
    count!("opens", writers.text_busy).label("refused: program runs"),
    count!("runs", writers.open_for_write).label("runs refused: writer"),
    count!("opens", writers.drops).label("page caches dropped"),
    count!("bytes", writers.dropped_bytes).label("bytes dropped"),
    count!("folios", collapse.thp_collapse_alloc),
    count!("folios", collapse.thp_collapse_alloc_failed),
    count!("folios", collapse.collapsed).label("by advice"),
    count!("folios", collapse.pages_collapsed).label("pages_collapsed of khugepaged"),
    Metric::new("collapse.refused", "ranges", Value::Names("reason", |o| &o.collapse.refused)),
    Metric::new("pressure", "events", Value::Names("name", |o| &o.pressure)),
    Metric::new("memory_stat", "bytes or events", Value::Names("name", |o| &o.memory_stat)).later(),
];

pub const FILLED: &[Metric] = &[
    count!("pages", zeroed_pages).csv("zeroed").label("zeroed"),
    count!("pages", copied_pages).csv("copied").label("copied"),
];

pub const ENTRIES: &[Metric] = &[
    count!("bytes", page_table_bytes).later(),
    count!("entries", entries.set_by_faults),
    count!("entries", entries.set_by_fork),
    count!("entries", entries.ptes_cleared),
    count!("entries", entries.pmds_cleared),
    count!("batches", entries.batches_cleared),
    count!("updates", mapcounts.pages),
    count!("updates", mapcounts.folios),
    count!("updates", mapcounts.owner_words),
];

pub const MOVED: &[Metric] = &[
    sizes!("cleared_bytes", "unit_bytes", [("bytes", "cleared", "bytes")], |o| {
        by_size(&o.cleared_bytes)
    }),
    sizes!("copied_bytes", "unit_bytes", [("bytes", "copied_in_one_go", "bytes")], |o| {
        by_size(&o.copied_bytes)
    }),
];

pub const LATENCY: &[Metric] = &[
    count!("stretches", latency.stretches).label("number"),
    count!("bytes", latency.max_bytes).csv("latency_max"),
    count!("bytes", latency.p99_bytes).csv("latency_p99"),
    known!("ns", latency.max_ns).csv("latency_max_time").label("longest"),
    known!("ns", latency.p99_ns).csv("latency_p99_time").label("99th percentile"),
    sizes!(
        "latency.sizes",
        "unit_bytes",
        [
            ("stretches", "latency_size_stretches", "stretches"),
            ("max_bytes", "latency_size_max", "bytes")
        ],
        |o| {
            let sizes = o.latency.sizes.iter();
            sizes.map(|(&size, of)| (size, vec![of.stretches, of.max_bytes])).collect()
        }
    ),
];

pub const WAITS: &[Metric] = &[
    count!("reads", waits.sync_requests),
    count!("bytes", waits.sync_bytes),
    count!("reads", waits.async_requests),
    count!("bytes", waits.async_bytes),
    known!("waits", waits.late_waits),
    known!("ns", waits.queue_ns),
    known!("ns", waits.late_ns),
];

macro_rules! cause {
    ($name:literal, $cause:ident) => {
        Metric::new(
            concat!("estimate.causes.", $name, ".ns"),
            "ns",
            Value::Known(|o| o.estimate.causes.get(&Cause::$cause)?.ns),
        )
        .csv(concat!("time_", $name))
    };
}

pub const TIMES: &[&[Metric]] = &[&[
    known!("ns", estimate.total_ns).csv("time_total").label("all").less_is_better(),
    count!("ns", estimate.known_ns).csv("time_known"),
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
]];

/// The three ends of an interval. Percentages are in millionths in the CSV, to keep it integer.
macro_rules! interval {
    ($path:literal, $csv:literal, $unit:literal, $factor:literal, $get:expr) => {
        &[
            Metric::new(
                concat!($path, ".low"),
                $unit,
                Value::Rounded(|o| Some($get(&o.estimate)?.low), $factor),
            )
            .csv(concat!($csv, "_low")),
            Metric::new(
                concat!($path, ".mid"),
                $unit,
                Value::Rounded(|o| Some($get(&o.estimate)?.mid), $factor),
            )
            .csv(concat!($csv, "_mid")),
            Metric::new(
                concat!($path, ".high"),
                $unit,
                Value::Rounded(|o| Some($get(&o.estimate)?.high), $factor),
            )
            .csv(concat!($csv, "_high")),
        ]
    };
}

fn run_ns(estimate: &Estimate) -> Option<Interval> {
    (estimate.run.source != BaseSource::NotKnown).then_some(estimate.run.ns)
}

fn run_change(estimate: &Estimate) -> Option<Interval> {
    estimate.run_change
}

pub const RUN_NS: &[Metric] = interval!("estimate.run.ns", "run", "ns", 1.0, run_ns);

/// The run time. Changes of other numbers are relative to it.
pub const RUN: &[&[Metric]] =
    &[RUN_NS, interval!("estimate.run_change", "run_change", "ppm", 1e4, run_change)];

/// The total's bounds. The CSV has the total itself.
pub const TOTAL: &[Metric] = &[
    Metric::new("estimate.total.low", "ns", Value::Real(|o| Some(o.estimate.total?.low))),
    Metric::new("estimate.total.mid", "ns", Value::Real(|o| Some(o.estimate.total?.mid))),
    Metric::new("estimate.total.high", "ns", Value::Real(|o| Some(o.estimate.total?.high))),
];

macro_rules! time_part {
    ($path:literal, $part:ident) => {
        &[
            Metric::new(concat!($path, ".low"), "ns", Value::Real(|o| Some(o.estimate.$part?.low)))
                .later(),
            Metric::new(concat!($path, ".mid"), "ns", Value::Real(|o| Some(o.estimate.$part?.mid)))
                .later(),
            Metric::new(
                concat!($path, ".high"),
                "ns",
                Value::Real(|o| Some(o.estimate.$part?.high)),
            )
            .later(),
        ]
    };
}

/// The parts of the total, each with bounds.
pub const PARTS: &[&[Metric]] = &[
    time_part!("estimate.user", user),
    time_part!("estimate.system", system),
    time_part!("estimate.waiting", waiting),
];

pub const OFF_CPU: &[Metric] =
    &[Metric::new("estimate.run.off_cpu_ns", "ns", Value::Real(|o| o.estimate.run.off_cpu_ns))];

pub const STRAYS: &[Metric] = &[
    count!("references", strays.unmapped),
    count!("references", strays.protected),
    count!("references", strays.beyond_file),
];

macro_rules! members {
    ($(($name:literal, $csv:literal, $unit:literal)),+ $(,)?) => {
        &[$(Member { name: $name, csv: $csv, unit: $unit }),+]
    };
}

const CGROUPS: Groups = Groups {
    key: "name",
    frame: "cgroup_counts",
    nr_framed: 6,
    members: members![
        ("limit_bytes", "cgroup_limit", "bytes"),
        ("usage_bytes", "cgroup_usage", "bytes"),
        ("peak_bytes", "cgroup_peak", "bytes"),
        ("evicted_bytes", "cgroup_evicted", "bytes"),
        ("refaulted_bytes", "cgroup_refaulted", "bytes"),
        ("nr_limit_hits", "cgroup_limit_hits", "charges"),
    ],
    rows: |o| {
        let groups = o.cgroups.iter().map(|of| {
            let now = [of.limit_bytes, of.usage_bytes, of.peak_bytes];
            let past = [of.evicted_bytes, of.refaulted_bytes, of.nr_limit_hits];
            (of.name.clone(), now.into_iter().chain(past).map(Some).collect())
        });
        groups.collect()
    },
};

const PROGRAMS: Groups = Groups {
    key: "path",
    frame: "processes_programs",
    nr_framed: 6,
    members: members![
        ("nr_processes", "program_processes", "processes"),
        ("references", "program_references", "references"),
        ("faults", "program_faults", "faults"),
        ("major_faults", "program_major_faults", "faults"),
        ("instruction_walks", "program_instruction_walks", "walks"),
        ("data_walks", "program_data_walks", "walks"),
        ("folios.text.mapped_bytes", "program_text_mapped", "bytes"),
        ("folios.data.mapped_bytes", "program_data_mapped", "bytes"),
        ("folios.anon.mapped_bytes", "program_anon_mapped", "bytes"),
        ("estimate_ns", "program_time", "ns"),
    ],
    rows: |o| {
        let programs = o.processes.iter().flat_map(|processes| &processes.programs).map(|of| {
            let events = [of.nr_processes, of.references, of.faults, of.major_faults];
            let walks = [of.instruction_walks, of.data_walks];
            let folios = [&of.folios.text, &of.folios.data, &of.folios.anon];
            let mapped = folios.into_iter().map(|kind| kind.mapped_bytes);
            let counts = events.into_iter().chain(walks).chain(mapped).map(Some);
            (of.path.clone(), counts.chain([of.estimate_ns]).collect())
        });
        programs.collect()
    },
};

/// Numbers that only some cells have.
pub const SOME: &[Metric] = &[
    Metric::new("cgroups", "", Value::Groups(CGROUPS)).later(),
    part!("bytes", nodes.local_bytes).csv("nodes_local").label("from the own node").later(),
    part!("bytes", nodes.other_bytes)
        .csv("nodes_other")
        .label("from other nodes")
        .less_is_better()
        .later(),
    part!("faults", hugetlb.faults),
    part!("pages", hugetlb.allocated),
    part!("entries", hugetlb.forked),
    part!("pages", hugetlb.copied),
    part!("pages", hugetlb.reused),
    part!("pages", hugetlb.taken),
    part!("touches", hugetlb.sigbus),
    part!("mappings", hugetlb.maps_refused),
    part!("mappings", hugetlb.maps_without_pool),
    part!("processes", processes.nr_started).csv("processes_started"),
    part!("processes", processes.nr_alive_max).csv("processes_alive_max"),
    part!("bytes", processes.memory.peak_bytes).csv("memory_peak"),
    part!("references", processes.memory.peak_references).csv("memory_peak_at"),
    part!("bytes", nodes.mapped_local_bytes)
        .csv("nodes_mapped_local")
        .label("mapped on the own node")
        .later(),
    part!("bytes", nodes.mapped_other_bytes)
        .csv("nodes_mapped_other")
        .label("mapped on other nodes")
        .less_is_better()
        .later(),
    part!("faults", nodes.hint_faults)
        .csv("nodes_hint_faults")
        .label("hinting faults")
        .less_is_better()
        .later(),
    part!("bytes", nodes.hint_moved_bytes)
        .csv("nodes_hint_moved")
        .label("moved by balancing")
        .later(),
];

macro_rules! memory_parts {
    ($when:ident, $what:ident, $csv:literal) => {
        Metric::new(
            path!(processes.memory.$when.$what),
            "",
            Value::Sizes(Sizes {
                key: "folio_bytes",
                members: &[Member { name: "bytes", csv: $csv, unit: "bytes" }],
                rows: |o| {
                    let parts = o.processes.iter().map(|processes| &processes.memory.$when);
                    parts.flat_map(|parts| by_size(&parts.$what)).collect()
                },
            }),
        )
    };
}

/// Memory of several processes by folio size. The data frame omits it.
pub const MEMORY_PARTS: &[Metric] = &[
    memory_parts!(peak, cached_bytes, "memory_peak_cached"),
    memory_parts!(peak, anon_bytes, "memory_peak_anon"),
    memory_parts!(end, cached_bytes, "memory_end_cached"),
    memory_parts!(end, anon_bytes, "memory_end_anon"),
];

pub const BY_PROGRAM: &[Metric] =
    &[Metric::new("processes.programs", "", Value::Groups(PROGRAMS)).later()];

/// The counts, in the order of the CSV.
pub const RESULTS: &[&[Metric]] = &[
    FOLIOS[0],
    FOLIOS[1],
    FOLIOS[2],
    FOLIOS[3],
    STATISTICS[0],
    STATISTICS[1],
    STATISTICS[2],
    STATISTICS[3],
    STATISTICS[4],
    STATISTICS[5],
    STATISTICS[6],
    STATISTICS[7],
    CACHED,
    FAULTS,
    READS,
    TLB[0],
    TLB[1],
    TLB[2],
    TLB[3],
    TLB[4],
    REFUSALS,
    FILLED,
    MOVED,
    LATENCY,
    ENTRIES,
    WAITS,
];

/// The counts that follow the times in the CSV.
pub const ENDS: &[&[Metric]] = &[STRAYS, SOME, MEMORY_PARTS, BY_PROGRAM];

/// Returns every metric.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let tables = [RESULTS, TIMES, RUN, &[TOTAL, OFF_CPU], PARTS, ENDS];
    tables.into_iter().flatten().copied().flatten()
}

fn by_size(counts: &BTreeMap<u64, u64>) -> Vec<(u64, Vec<u64>)> {
    counts.iter().map(|(&size, &count)| (size, vec![count])).collect()
}
