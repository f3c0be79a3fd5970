//! The result as a data frame: one Arrow record batch, one row per cell.
//!
//! Every result has the same schema, whatever its kernel, machine or program. Files of many runs
//! and sweeps therefore read as one data set (`read_parquet('DIR/part-*.parquet', union_by_name =
//! true)`).
//!
//! | columns | meaning |
//! |---|---|
//! | `cell` | identity of the cell in a sweep; null outside sweeps |
//! | `trace` `program` `trace_digest` | the file as named; the recorded program, or the generator; BLAKE3 of the file |
//! | `tool_version` `results_version` | the version of folio; the version of the counts |
//! | `kernel` .. `nr_cpus` | which cell, as in the JSON |
//! | `kernel_text` `machine_text` | their rules, as the key of `texts` in the sweep's manifest, because a file can change under the same name; null outside sweeps |
//! | `unusable_permille` `unusable_bytes` `aged_rounds` `filesystem` `annotations` `linked` `cgroups` `reference_ns` | the settings |
//! | `cgroup_counts` | control groups: a list of `(name, limit_bytes, usage_bytes, peak_bytes, evicted_bytes, refaulted_bytes, nr_limit_hits)` |
//! | `processes_programs` | programs of a trace with several: a list of `(path, nr_processes, references, faults, major_faults, instruction_walks, data_walks)` |
//! | `policy` `policy_digest` `policy_asked` `policy_honoured` `policy_refused` | the kernel's policy and its answers at all points; null without one |
//! | all others | the numbers of a row ([`largefolio_sim::metrics`]): the pointer with `_` for `/` |
//!
//! For example, `/faults/total` is `faults_total`, and the time of a cause,
//! `/estimate/causes/fault/ns`, is `estimate_fault_ns`. Values keyed by data (folio sizes, reasons)
//! are a list of structs instead of a column each: `folios_text_by_size` is a list of
//! `(folio_bytes, aligned_bytes, unaligned_bytes)`, `pmd_refused` a list of `(reason, count)`.
//! Arrow's map type would fit, but polars does not support it and pandas turns it into tuples.
//! `DuckDB`, polars and pandas all read a list of structs with its names, and `unnest` or `explode`
//! turns it into rows.
//!
//! Counts are signed: users subtract one kernel's column from another's, and unsigned numbers would
//! wrap around. Every count of a replay is below 2^63 (checked: T1). Seeds are unsigned.
//!
//! Omitted: `detail` (pictures), `asked_tenths` and `aged` (over time), `statistics/processes`, the
//! folios and times of single programs, memory by folio size at the peak of several processes, the
//! single points of a policy, the terms and constants of an estimate (the JSON has them, with their
//! sources), and differences from a reference row such as `estimate/run_change`: a data frame of
//! many files has no reference row.
//!
//! Owns names, types and order of the columns. Does not own the Parquet file ([`crate::predict::parquet`]).
//!
//! Invariants:
//! - T1: every number equals the JSON's exactly, or there is no table.
//! - T2: [`schema`] is the schema of every batch except for its metadata.

mod columns;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use largefolio_sim::replay::Outcome;

use crate::predict::result::{SCHEMA_VERSION, Settings, TOOL_VERSION, TraceInfo};

pub const TABLE_VERSION: u32 = 1;

pub const KEY_TABLE_VERSION: &str = "largefolio.table_version";
/// Metadata key of the version of the JSON schema that the columns are named after.
pub const KEY_SCHEMA_VERSION: &str = "largefolio.schema_version";
pub const KEY_TOOL_VERSION: &str = "largefolio.tool_version";
/// Metadata key of the command line, a JSON array.
pub const KEY_COMMAND_LINE: &str = "largefolio.command_line";
pub const KEY_TRACE: &str = "largefolio.trace";
pub const KEY_SETTINGS: &str = "largefolio.settings";

pub const CELL: &str = "cell";
/// Column: BLAKE3 of the kernel's text.
pub const KERNEL_TEXT: &str = "kernel_text";
/// Column: BLAKE3 of the machine's text.
pub const MACHINE_TEXT: &str = "machine_text";

#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub trace: &'a TraceInfo,
    pub settings: &'a Settings,
    pub outcome: &'a Outcome,
}

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// T1: a count that does not fit into a signed 64-bit integer.
    #[error("{column} is {value}, which does not fit in a data frame; use --json instead")]
    TooLarge { column: String, value: u64 },
    #[error("there are {nr_cells} cells but {nr_rows} rows")]
    CellCount { nr_cells: usize, nr_rows: usize },
    #[error("cannot convert the result to a data frame: {0}")]
    Arrow(#[from] ArrowError),
    #[error("cannot describe the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

#[must_use]
pub fn schema() -> SchemaRef {
    let fields: Vec<_> = columns::all().iter().map(columns::Column::field).collect();
    Arc::new(Schema::new(fields))
}

/// Returns `outcomes` of the trace under `settings`, one row each. `cell` is null.
///
/// # Errors
/// [`TableError::TooLarge`]: no replay counts that far, but a hostile trace may try.
///
/// ```
/// use largefolio_results::predict::{Settings, TraceInfo, table};
///
/// let batch = table::batch(&TraceInfo::default(), &Settings::default(), &[])?;
/// assert_eq!(batch.schema().fields(), table::schema().fields());
/// assert_eq!(batch.num_rows(), 0);
/// # Ok::<(), table::TableError>(())
/// ```
pub fn batch(
    trace: &TraceInfo,
    settings: &Settings,
    outcomes: &[Outcome],
) -> Result<RecordBatch, TableError> {
    let rows: Vec<Row<'_>> =
        outcomes.iter().map(|outcome| Row { trace, settings, outcome }).collect();
    let mut schema = Schema::clone(&schema());
    schema.metadata = metadata().into();
    schema.metadata.insert(KEY_TRACE.to_owned(), serde_json::to_string(trace)?);
    schema.metadata.insert(KEY_SETTINGS.to_owned(), serde_json::to_string(settings)?);
    Ok(batch_of(&rows)?.with_schema(Arc::new(schema))?)
}

/// Returns rows with their own traces and settings. The metadata holds only the versions.
///
/// # Errors
/// As [`batch`].
pub fn batch_of(rows: &[Row<'_>]) -> Result<RecordBatch, TableError> {
    let (mut fields, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
    for column in columns::all() {
        arrays.push(column.array(rows)?);
        fields.push(column.field());
    }
    let schema = Schema::new_with_metadata(fields, metadata());
    Ok(RecordBatch::try_new(Arc::new(schema), arrays)?)
}

/// Adds the identity of each row's cell.
///
/// # Errors
/// [`TableError::CellCount`].
pub fn with_cells(batch: &RecordBatch, cells: &[String]) -> Result<RecordBatch, TableError> {
    with_texts(batch, CELL, cells)
}

/// Fills the column `name`, which was null, with one text per row.
///
/// # Errors
/// [`TableError::CellCount`].
pub fn with_texts(
    batch: &RecordBatch,
    name: &str,
    texts: &[String],
) -> Result<RecordBatch, TableError> {
    let (nr_cells, nr_rows) = (texts.len(), batch.num_rows());
    if nr_cells != nr_rows {
        return Err(TableError::CellCount { nr_cells, nr_rows });
    }
    let schema = batch.schema();
    let mut arrays = batch.columns().to_vec();
    arrays[schema.index_of(name)?] = Arc::new(StringArray::from_iter_values(texts));
    Ok(RecordBatch::try_new(schema, arrays)?)
}

/// Adds the command line to the metadata.
///
/// # Errors
/// Never in practice: JSON can represent every command line.
pub fn with_command_line(
    batch: RecordBatch,
    command_line: &[String],
) -> Result<RecordBatch, TableError> {
    let mut schema = Schema::clone(&batch.schema());
    schema.metadata.insert(KEY_COMMAND_LINE.to_owned(), serde_json::to_string(command_line)?);
    Ok(batch.with_schema(Arc::new(schema))?)
}

fn metadata() -> HashMap<String, String> {
    let versions = [
        (KEY_TABLE_VERSION, TABLE_VERSION.to_string()),
        (KEY_SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (KEY_TOOL_VERSION, TOOL_VERSION.to_owned()),
    ];
    versions.map(|(key, value)| (key.to_owned(), value)).into()
}
