//! Every column in order: its name and its source.
//!
//! Numbers come from [`largefolio_sim::metrics`]; this file adds which cell they belong to.

use std::borrow::Cow;

use arrow_array::ArrayRef;
use arrow_schema::Field;
use largefolio_sim::metrics::{Metric, table as metrics};
use largefolio_sim::replay::outcome::PolicyAnswers;
use largefolio_sim::replay::{Outcome, RESULTS_VERSION};

use super::values::Values;
use super::{CELL, KERNEL_TEXT, MACHINE_TEXT, Row, TableError};
use crate::predict::gaps;
use crate::predict::result::TOOL_VERSION;

pub(super) struct Column {
    name: Cow<'static, str>,
    values: Values,
    /// Whether older parts of sweeps lack the column; it is null there.
    is_later: bool,
}

impl Column {
    const fn new(name: &'static str, values: Values) -> Self {
        Self { name: Cow::Borrowed(name), values, is_later: false }
    }

    fn later(self) -> Self {
        Self { is_later: true, ..self }
    }

    pub(super) fn field(&self) -> Field {
        let is_nullable = self.is_later || self.values.is_nullable();
        Field::new(self.name.clone(), self.values.data_type(), is_nullable)
    }

    pub(super) fn array(&self, rows: &[Row<'_>]) -> Result<ArrayRef, TableError> {
        self.values.array(&self.name, rows)
    }
}

pub(super) fn all() -> Vec<Column> {
    let mut columns: Vec<Column> = identity().into_iter().chain(settings()).collect();
    for group in metrics::FOLIOS.into_iter().chain(metrics::STATISTICS) {
        add(&mut columns, group);
    }
    for group in [metrics::CACHED, metrics::FAULTS, metrics::READS] {
        add(&mut columns, group);
    }
    for group in metrics::TLB {
        add(&mut columns, group);
    }
    for group in [metrics::REFUSALS, metrics::FILLED, metrics::ENTRIES, metrics::MOVED] {
        add(&mut columns, group);
    }
    let outcome_text = |name, of| Column::new(name, Values::Text(of));
    columns.push(outcome_text("latency_preemption", |row| row.outcome.latency.preemption));
    add(&mut columns, metrics::LATENCY);
    columns.push(Column::new(
        "latency_not_known",
        Values::Strings(|row| row.outcome.latency.not_known.iter().cloned().collect()),
    ));
    add(&mut columns, metrics::WAITS);
    columns.push(outcome_text("estimate_walks", |row| row.outcome.estimate.walks.name()));
    for group in metrics::TIMES {
        add(&mut columns, group);
    }
    columns.push(Column::new(
        "estimate_not_known",
        Values::Strings(|row| row.outcome.estimate.not_known.iter().cloned().collect()),
    ));
    add(&mut columns, metrics::TOTAL);
    columns.extend([
        outcome_text("estimate_run_source", |row| row.outcome.estimate.run.source.name()),
        Column::new("estimate_run_runs", Values::Count(|row| row.outcome.estimate.run.runs)),
    ]);
    for group in [metrics::RUN_NS, metrics::OFF_CPU, metrics::SOME, metrics::BY_PROGRAM] {
        add(&mut columns, group);
    }
    add(&mut columns, metrics::STRAYS);
    columns.extend([
        Column::new("is_replaced", Values::Flag(|row| row.outcome.is_replaced)),
        Column::new("is_judged", Values::Flag(|row| row.outcome.is_judged)),
        Column::new(
            "gaps",
            Values::Strings(|row| row.outcome.gaps.iter().map(gaps::short).collect()),
        )
        .later(),
    ]);
    for group in metrics::PARTS {
        add(&mut columns, group);
    }
    columns
}

fn add(columns: &mut Vec<Column>, metrics: &'static [Metric]) {
    for metric in metrics {
        let column = Column {
            name: metric.frame_name().into(),
            values: Values::Metric(&metric.value),
            is_later: metric.is_later,
        };
        columns.insert(columns.len() - metric.frame_up, column);
    }
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

fn settings() -> [Column; 15] {
    [
        Column::new(
            "unusable_permille",
            Values::Count(|row| row.settings.unusable_permille.into()),
        ),
        Column::new("unusable_bytes", Values::Count(|row| row.settings.unusable_bytes)),
        Column::new("aged_rounds", Values::Count(|row| row.settings.aged_rounds)),
        Column::new("filesystem", Values::MaybeText(|row| row.settings.filesystem.as_deref())),
        Column::new("annotations", Values::Strings(|row| row.settings.annotations.clone())),
        Column::new("linked", Values::Strings(|row| row.outcome.linked.clone())),
        Column::new(
            "cgroups",
            Values::Strings(|row| {
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
        Column::new("changes", Values::Strings(|row| row.settings.changes.clone())).later(),
        Column::new("numa", Values::MaybeText(|row| row.settings.numa.as_deref())).later(),
    ]
}

/// Sums the policy's answers at all points; `None` without a policy.
fn answers(outcome: &Outcome, count: fn(&PolicyAnswers) -> u64) -> Option<u64> {
    Some(outcome.policy.as_ref()?.points.values().map(count).sum())
}
