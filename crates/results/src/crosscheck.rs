//! The model against recordings of kernels: of this one, made now, or made earlier and elsewhere.
//!
//! Reading order: `result` (one row per recording; JSON, CSV), `words`, `text`, `page`; `replay`
//! (recordings that are there), `live` and `program` (recorded now), `cow` (random programs of
//! processes, with a result of its own), `workloads` (the set as a list).

mod cow;
mod live;
mod page;
mod program;
mod replay;
mod result;
mod text;
mod words;
mod workloads;

use std::path::Path;

use largefolio_report::ExportError;
use largefolio_report::html::frame::Page;
use largefolio_trace::{disk, shown};

use crate::{Error, Forms};

pub use cow::{CowCheck, CowResult, GROUP, Record, groups};
pub use live::{LiveCheck, recorder};
pub use program::ProgramCheck;
pub use replay::ReplayRequest;
pub use result::{CrosscheckOutcome, CrosscheckResult, CrosscheckRow};
pub use workloads::WorkloadList;

impl Forms for CrosscheckResult {
    fn text(&self) -> String {
        text::of(self)
    }

    fn csv(&self) -> Result<String, ExportError> {
        self.records()
    }
}

impl CrosscheckResult {
    /// As a page.
    ///
    /// # Errors
    /// None in practice: the result is names and numbers.
    pub fn page(&self) -> Result<Page, ExportError> {
        page::of(self)
    }
}

/// Writes a recording into a directory.
///
/// # Errors
/// When the file cannot be written whole.
pub fn keep_text(directory: &Path, name: &str, text: &str) -> Result<(), Error> {
    let path = directory.join(format!("{name}.txt"));
    disk::write_whole(&path, text.as_bytes())
        .map_err(Error::system(format!("cannot write {}", shown(&path))))
}
