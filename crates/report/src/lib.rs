#![forbid(unsafe_code)]
//! One versioned result, and the forms it is printed in.
//!
//! Reading order: [`report`] (the result and its JSON schema), [`exporter`] (what a form is),
//! [`json`], [`cells`] and [`tidy`] (CSV), [`table`] (the data frame) and [`parquet`] (its file), [`text`] (the table
//! people read), [`html`] (the page), [`figures`] (how they write numbers), [`prose`] (lines that fit), `labels` (what columns are
//! called), [`verdict`] (which column is best), [`why`] (which rule makes the difference), [`sweep`] (data sets of many results).
//!
//! Owns no number: everything comes from `sim` as it was counted there. A form may leave out and
//! derive (shares, changes), it never stores what it derived.

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
pub mod why;

pub use exporter::{ExportError, Exporter};
pub use html::Html;
pub use json::Json;
pub use parquet::Parquet;
pub use report::{Absent, PredictResult, SCHEMA_VERSION, Settings, TOOL_VERSION, TraceInfo};
pub use sums::memory_bytes;
pub use text::Text;
pub use tidy::Tidy;
pub use verdict::{Goal, Verdict};
