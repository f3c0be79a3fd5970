//! A prediction as CSV in long ("tidy") form: one row per number.
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
//! | `gaps` | everything without a rule or recording, as `KIND: NAME`, separated by `; ` |
//!
//! The form is long because folio sizes are data: a wide form would need a column for each size,
//! kind and alignment, and every kernel would have different columns. In the long form the columns
//! are always these thirteen, results from many traces can be appended, and one pivot makes a wide
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

mod why;

use largefolio_sim::metrics::{Number, numbers};
use largefolio_sim::replay::Outcome;

use crate::ExportError;
use crate::cells::Cells;
use crate::predict::{PredictResult, gaps};

pub const COLUMNS: [&str; 13] = [
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
    "gaps",
];

pub(super) fn csv(report: &PredictResult) -> Result<String, ExportError> {
    let mut csv = Cells::text();
    if let Some(why) = &report.why {
        why::record(report, why, &mut csv)?;
        return csv.into_text();
    }
    csv.record(COLUMNS)?;
    for outcome in &report.rows {
        for number in numbers(outcome) {
            csv.record(record(outcome, &number))?;
        }
    }
    csv.into_text()
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

fn record(outcome: &Outcome, number: &Number) -> [String; 13] {
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
        outcome.gaps.iter().map(gaps::short).collect::<Vec<_>>().join("; "),
    ]
}
