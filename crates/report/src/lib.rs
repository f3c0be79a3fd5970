#![forbid(unsafe_code)]
//! One versioned result, and the formats it is printed in.
//!
//! Reading order: [`report`] (the result and its JSON schema), [`exporter`] (the interface of the
//! formats), [`json`], [`cells`] and [`tidy`] (CSV), [`table`] (the data frame) and [`parquet`]
//! (its file), [`text`] (the terminal table), [`html`] (the page), [`figures`] (numbers as text),
//! [`prose`] (line wrapping), `labels` (column names), [`verdict`] (which column is best),
//! [`sweep`] (data sets of many results).
//!
//! This crate counts nothing: every number comes from `sim`. A format may omit numbers and derive
//! others (shares, changes), but never stores derived numbers.

pub mod cells;
pub mod exporter;
pub mod figures;
pub mod html;
pub mod json;
mod labels;
pub mod parquet;
pub mod prose;
pub mod report;
mod sums;
pub mod sweep;
pub mod table;
pub mod text;
pub mod tidy;
pub mod verdict;

pub use exporter::{ExportError, Exporter};
pub use html::Html;
pub use json::Json;
pub use parquet::Parquet;
pub use report::{
    Absent, Options, PredictResult, SCHEMA_VERSION, Settings, TOOL_VERSION, TraceInfo,
};
pub use sums::memory_bytes;
pub use text::Text;
pub use tidy::Tidy;
pub use verdict::{Goal, Verdict};
