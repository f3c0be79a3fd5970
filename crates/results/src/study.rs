//! Compares published tables with this model and this machine.
//!
//! Reading order: `find` (traces, cells, rows), `live` (timed rows), `result` (JSON and CSV),
//! `answer` (the answer in a sentence), `text` with `curve` (programs below limits) and `frontier`
//! (kernels over many programs), `columns` (their numbers), `page`.

mod answer;
mod columns;
mod curve;
mod find;
mod frontier;
mod live;
mod page;
mod record;
mod result;
mod text;

use largefolio_report::ExportError;
use largefolio_report::html::frame::Page;

use crate::{Forms, sentence};

pub use find::{StudyRequest, beside, find_traces};
pub use live::measure;
pub use result::StudyResult;

impl Forms for StudyResult {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(sentence) = answer::of(self) {
            columns::wrapped(&mut text, "", &sentence::plain(&sentence));
            text.push('\n');
        }
        text.push_str(&text::shown(&self.studies));
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        result::csv(&self.studies)
    }
}

impl StudyResult {
    /// # Errors
    /// Never in practice: the result is names and numbers.
    pub fn page(&self) -> Result<Page, ExportError> {
        page::of(self)
    }
}
