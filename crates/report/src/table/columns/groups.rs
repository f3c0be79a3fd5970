//! Columns that only some cells have: control groups, pools of huge pages, several processes.

use largefolio_sim::replay::Outcome;

use super::Column;
use crate::table::values::{Named, Values};

const CGROUPS: Named = Named {
    key: "name",
    counts: &[
        "limit_bytes",
        "usage_bytes",
        "peak_bytes",
        "evicted_bytes",
        "refaulted_bytes",
        "nr_limit_hits",
    ],
};
const PROGRAMS: Named = Named {
    key: "path",
    counts: &[
        "nr_processes",
        "references",
        "faults",
        "major_faults",
        "instruction_walks",
        "data_walks",
    ],
};

/// A column for each named field of the outcome's optional part `$part`; null without it.
macro_rules! some {
    ($prefix:literal, $part:ident; $($field:ident),+ $(,)?) => {
        [$(Column::new(
            concat!($prefix, stringify!($field)),
            Values::Known(|row| Some(row.outcome.$part.as_ref()?.$field)),
        )),+]
    };
}

pub(super) fn columns() -> Vec<Column> {
    let mut columns =
        vec![Column::later("cgroup_counts", Values::Named(&CGROUPS, |row| cgroups(row.outcome)))];
    columns.extend(some!("hugetlb_", hugetlb;
        faults, allocated, forked, copied, reused, taken, sigbus, maps_refused, maps_without_pool));
    columns.extend(some!("processes_", processes; nr_started, nr_alive_max));
    columns.push(Column::new(
        "processes_memory_peak_bytes",
        Values::Known(|row| Some(row.outcome.processes.as_ref()?.memory.peak_bytes)),
    ));
    columns.push(Column::new(
        "processes_memory_peak_references",
        Values::Known(|row| Some(row.outcome.processes.as_ref()?.memory.peak_references)),
    ));
    columns.push(Column::later(
        "processes_programs",
        Values::Named(&PROGRAMS, |row| programs(row.outcome)),
    ));
    columns
}

fn cgroups(outcome: &Outcome) -> Vec<(String, Vec<u64>)> {
    let groups = outcome.cgroups.iter().map(|group| {
        let counts = vec![
            group.limit_bytes,
            group.usage_bytes,
            group.peak_bytes,
            group.evicted_bytes,
            group.refaulted_bytes,
            group.nr_limit_hits,
        ];
        (group.name.clone(), counts)
    });
    groups.collect()
}

fn programs(outcome: &Outcome) -> Vec<(String, Vec<u64>)> {
    let programs = outcome.processes.iter().flat_map(|processes| &processes.programs);
    let programs = programs.map(|program| {
        let counts = vec![
            program.nr_processes,
            program.references,
            program.faults,
            program.major_faults,
            program.instruction_walks,
            program.data_walks,
        ];
        (program.path.clone(), counts)
    });
    programs.collect()
}
