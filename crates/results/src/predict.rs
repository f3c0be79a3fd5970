//! The result of `folio predict`, its formats, and sweeps.
//!
//! Reading order: [`result`] (the result and its JSON schema), [`verdict`] (which column is best),
//! [`text`] (the terminal table), [`tidy`] (CSV), [`table`] (the data frame) and [`parquet`] (its
//! file), `page`, `counted` (hardware counters), `labels` and `places` (names of columns, memory and code), `gains` and
//! [`functions`] (where page walks are), `sums`, [`sweep`] (data
//! sets of many results).
//!
//! This module counts nothing: every number comes from `sim`. A format may omit numbers and derive
//! others (shares, changes), but never stores derived numbers. It reads nothing of the running
//! kernel.

mod counted;
pub mod functions;
mod gains;
pub(crate) mod gaps;
mod labels;
mod page;
pub mod parquet;
mod places;
pub mod result;
mod sums;
pub mod sweep;
pub mod table;
pub mod text;
pub mod tidy;
pub mod verdict;

pub use result::{
    Absent, Options, PredictResult, SCHEMA_VERSION, Settings, TOOL_VERSION, TraceInfo,
};
pub use sums::memory_bytes;
pub use text::{Depth, TextStyle};
pub use verdict::{Goal, Verdict};

use crate::html::frame::Page;
use crate::{ExportError, Forms};

impl Forms for PredictResult {
    /// Returns the text for a pipe; [`text::text`] takes a terminal's width and style.
    fn text(&self) -> String {
        text::text(self, TextStyle::default())
    }

    fn csv(&self) -> Result<String, ExportError> {
        tidy::csv(self)
    }
}

impl PredictResult {
    /// # Errors
    /// If JSON cannot represent a value.
    pub fn page(&self) -> Result<Page, ExportError> {
        page::of(self)
    }
}
