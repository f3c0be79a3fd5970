//! Published tables beside what is found here.
//!
//! Reading order: `find` (the traces, the cells, the rows), `live` (rows that are timed), `result`
//! (JSON and CSV), `answer` (in a sentence), `text` of `curve`s (programs below limits) and `frontier`s (kernels
//! over many programs), `columns` (their numbers), `page`.

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
    /// As a page.
    ///
    /// # Errors
    /// None in practice: the result is names and numbers.
    pub fn page(&self) -> Result<Page, ExportError> {
        page::of(self)
    }
}
