//! The table in a few lines: the numbers that decide the verdict, and those that users look for
//! first.

use largefolio_sim::cost::Estimate;
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::Outcome;

use super::measures::cgroup_lines;
use super::section::{Section, SectionLine};
use crate::figures::{points, size, whole_ns};
use crate::predict::sums::{LARGE_BYTES, large_bytes, largest_cached_bytes, memory_bytes};

type PartOf = fn(&Estimate) -> Option<Interval>;

/// The parts of the time of memory management, as `getrusage` counts them.
const PARTS: [(&str, PartOf); 3] = [
    ("  in user time", |estimate| estimate.user),
    ("  in system time", |estimate| estimate.system),
    ("  waiting for storage", |estimate| estimate.waiting),
];

/// Returns the lines; lines that are zero in every cell are hidden.
pub(super) fn section(rows: &[Outcome]) -> Section {
    let counts = |label: &str, get: fn(&Outcome) -> u64| {
        SectionLine::counts(label, rows.iter().map(get).collect())
    };
    let bytes = |label: &str, get: fn(&Outcome) -> u64| {
        SectionLine::bytes(label, rows.iter().map(get).collect())
    };
    let large = |what: &str, get: fn(&Outcome) -> (u64, u64)| {
        let label = format!("{what} in {} and larger", size(LARGE_BYTES));
        SectionLine::shares(label, rows.iter().map(get).collect())
    };
    let changes = |show: &dyn Fn(Interval) -> String| -> Vec<String> {
        let of = |row: &Outcome| row.estimate.run_change.map_or(String::new(), show);
        rows.iter().map(of).collect()
    };
    let known = rows.iter().all(|row| row.estimate.total_ns.is_some());
    let time = rows.iter().map(|row| row.estimate.total_ns).collect();
    let mut lines = vec![
        SectionLine::texts("run time", changes(&|change| format!("{}%", points(change.mid)))),
        SectionLine::texts(
            "  within",
            changes(&|change| format!("{} .. {}", points(change.low), points(change.high))),
        ),
    ];
    if known {
        lines.push(SectionLine::times("time of memory management", time));
        for (label, of) in PARTS {
            let ns = |row: &Outcome| of(&row.estimate).map(|part| whole_ns(part.mid));
            lines.push(SectionLine::times(label, rows.iter().map(ns).collect()));
        }
    }
    lines.extend([
        large("text", |row| (large_bytes(&row.folios.text), row.folios.text.mapped_bytes)),
        large("private memory", |row| {
            (large_bytes(&row.folios.anon), row.folios.anon.mapped_bytes)
        }),
        large("shared memory", |row| {
            (large_bytes(&row.folios.shmem), row.folios.shmem.mapped_bytes)
        }),
        counts("walks, instructions", |row| row.tlb.instruction.l2_misses),
        counts("walks, data", |row| row.tlb.data.l2_misses),
        counts("faults", |row| row.faults.total),
        bytes("read from files", |row| row.reads.bytes),
        bytes("memory", memory_bytes),
        bytes("  from other nodes", |row| row.nodes.map_or(0, |nodes| nodes.other_bytes)),
        bytes("  moved by balancing", |row| row.nodes.map_or(0, |nodes| nodes.hint_moved_bytes)),
    ]);
    // The page size changes each part by a different amount.
    if rows.iter().any(|row| row.page_bytes != rows[0].page_bytes) {
        lines.extend([
            bytes("  private memory", |row| row.statistics.machine_exact.anon_pages_bytes),
            bytes("  page cache", largest_cached_bytes),
            bytes("page tables", |row| row.page_table_bytes),
        ]);
    }
    lines.extend(cgroup_lines(rows));
    Section::new("", lines)
}
