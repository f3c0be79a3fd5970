//! Compares published tables with this model and this machine.
//!
//! Reading order: `find` (traces, cells, rows), `live` (timed rows), `table` (JSON and CSV),
//! `answer` (the answer in a sentence), `text` with `curve` (programs below limits) and `frontier`
//! (kernels over many programs), `columns` (their numbers).

mod columns;
mod curve;
mod find;
mod frontier;
mod live;
mod record;
mod summary;
mod table;
mod text;

use largefolio_results::ExportError;

use largefolio_results::Forms;

pub use find::{StudyRequest, find_traces};
pub use live::measure;
pub use table::StudyResult;

impl Forms for StudyResult {
    fn text(&self) -> String {
        let mut text = String::new();
        if let Some(sentence) = summary::of(self) {
            columns::wrapped(&mut text, "", &sentence);
            text.push('\n');
        }
        text.push_str(&text::shown(&self.studies));
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        table::csv(&self.studies)
    }
}
