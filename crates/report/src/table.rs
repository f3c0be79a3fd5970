//! The result as a data frame: one Arrow record batch, one row per cell.
//!
//! The schema is the same for every result, whatever the kernel, machine or program, so that files
//! of many runs and sweeps read as one data set (`read_parquet('DIR/part-*.parquet', union_by_name = true)`).
//!
//! | columns | meaning |
//! |---|---|
//! | `cell` | identity of the cell in a sweep; null outside of sweeps |
//! | `trace` `program` `trace_digest` | the file as named; the recorded program, or the generator; BLAKE3 of the file |
//! | `tool_version` `results_version` | the folio that made the row; the version of what it counts |
//! | `kernel` .. `nr_cpus` | which cell, as in the JSON |
//! | `kernel_text` `machine_text` | their rules, as the key of `texts` in the manifest of the sweep: a file may be edited under one name; null outside of sweeps |
//! | `unusable_permille` `unusable_bytes` `aged_rounds` `filesystem` `annotations` `linked` `cgroups` `reference_ns` | the settings |
//! | `cgroup_counts` | control groups: a list of `(name, limit_bytes, usage_bytes, peak_bytes, evicted_bytes, refaulted_bytes, nr_limit_hits)` |
//! | `processes_programs` | programs of a trace of several: a list of `(path, nr_processes, references, faults, major_faults, instruction_walks, data_walks)` |
//! | `policy` `policy_digest` `policy_asked` `policy_honoured` `policy_refused` | the policy of the kernel and its answers at all points; null without one |
//! | all others | the JSON of a row ([`crate::report`]): the pointer with `_` for `/` |
//!
//! So `/faults/total` is `faults_total`, and the time of a cause, `/estimate/causes/fault/ns`, is
//! `estimate_fault_ns`. What depends on the data - folio sizes, reasons - is a list of structs, not
//! a column for each: `folios_text_by_size` is a list of `(folio_bytes, aligned_bytes,
//! unaligned_bytes)`, `pmd_refused` of `(reason, count)`. Arrow's map type would say the same, but
//! polars has no such type and pandas makes tuples of it; a list of structs is read with its names
//! by all of `DuckDB`, polars and pandas, and `unnest` or `explode` makes rows of it.
//!
//! Counts are signed: a data frame subtracts one kernel's column from another's, and unsigned
//! numbers wrap around there. Every count of a replay is below 2^63 (checked: T1). Seeds are unsigned.
//!
//! Left out: `detail` (pictures), `asked_tenths` and `aged` (over time), `statistics/processes`, the
//! folios and times of single programs, memory by folio size at the peak of several processes, the
//! points of a policy one by one, the terms and constants of an estimate (the JSON has them, with their
//! sources), and the differences from a reference row, `estimate/run_change` among them: a data frame
//! of many files has no such row.
//!
//! Owns names, types and order of the columns. Does not own the Parquet file ([`crate::parquet`]).
//!
//! Invariants:
//! - T1: a number is exactly that of the JSON, or there is no table.
//! - T2: [`schema`] is the schema of every batch except for its metadata.

mod columns;
mod values;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use largefolio_sim::replay::Outcome;

use crate::report::{SCHEMA_VERSION, Settings, TOOL_VERSION, TraceInfo};

/// Version of the schema, raised when a column changes its meaning or goes away.
pub const TABLE_VERSION: u32 = 1;

/// Key of [`TABLE_VERSION`] in the metadata.
pub const KEY_TABLE_VERSION: &str = "largefolio.table_version";
/// Key of the version of the JSON schema whose names and meanings the columns have.
pub const KEY_SCHEMA_VERSION: &str = "largefolio.schema_version";
/// Key of the version of folio in the metadata.
pub const KEY_TOOL_VERSION: &str = "largefolio.tool_version";
/// Key of the command line, a JSON array, in the metadata.
pub const KEY_COMMAND_LINE: &str = "largefolio.command_line";
/// Key of [`TraceInfo`] as JSON in the metadata.
pub const KEY_TRACE: &str = "largefolio.trace";
/// Key of [`Settings`] as JSON in the metadata.
pub const KEY_SETTINGS: &str = "largefolio.settings";

/// The column with the identity of the cell.
pub const CELL: &str = "cell";
/// The column with the BLAKE3 of the kernel's text.
pub const KERNEL_TEXT: &str = "kernel_text";
/// The column with the BLAKE3 of the machine's text.
pub const MACHINE_TEXT: &str = "machine_text";

/// What a row is made of.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The trace.
    pub trace: &'a TraceInfo,
    /// What was asked of the cell beside kernel and machine.
    pub settings: &'a Settings,
    /// What it counted.
    pub outcome: &'a Outcome,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// T1: a count no 64-bit signed integer holds.
    #[error("{column} is {value}, which does not fit into a data frame; use --json instead")]
    TooLarge {
        /// Name of the column.
        column: String,
        /// The count.
        value: u64,
    },
    /// As many identities as rows are needed.
    #[error("{nr_cells} cells for {nr_rows} rows")]
    CellCount {
        /// Identities given.
        nr_cells: usize,
        /// Rows of the batch.
        nr_rows: usize,
    },
    /// Columns that do not fit together.
    #[error("cannot make a data frame of the result: {0}")]
    Arrow(#[from] ArrowError),
    /// Metadata that JSON has no form for.
    #[error("cannot describe the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// The columns of every result, without metadata.
#[must_use]
pub fn schema() -> SchemaRef {
    let fields: Vec<_> = columns::all().iter().map(columns::Column::field).collect();
    Arc::new(Schema::new(fields))
}

/// `outcomes` of the trace under `settings`, one row each; `cell` is null.
///
/// # Errors
/// [`TableError::TooLarge`]: no replay counts so far, but a hostile trace may try.
///
/// ```
/// use largefolio_report::{Settings, TraceInfo, table};
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

/// Rows with a trace and settings of their own; only the versions stand in the metadata.
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

/// `batch` with the identity of each row's cell.
///
/// # Errors
/// [`TableError::CellCount`].
pub fn with_cells(batch: &RecordBatch, cells: &[String]) -> Result<RecordBatch, TableError> {
    with_texts(batch, CELL, cells)
}

/// `batch` with a text in each row of the column called `name`, which was null.
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

/// `batch` with the command that made it in its metadata.
///
/// # Errors
/// None in practice: a command line is JSON.
pub fn with_command_line(
    batch: RecordBatch,
    command_line: &[String],
) -> Result<RecordBatch, TableError> {
    let mut schema = Schema::clone(&batch.schema());
    schema.metadata.insert(KEY_COMMAND_LINE.to_owned(), serde_json::to_string(command_line)?);
    Ok(batch.with_schema(Arc::new(schema))?)
}

/// The versions.
fn metadata() -> HashMap<String, String> {
    let versions = [
        (KEY_TABLE_VERSION, TABLE_VERSION.to_string()),
        (KEY_SCHEMA_VERSION, SCHEMA_VERSION.to_string()),
        (KEY_TOOL_VERSION, TOOL_VERSION.to_owned()),
    ];
    versions.map(|(key, value)| (key.to_owned(), value)).into()
}
