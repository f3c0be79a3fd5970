//! Compares the model with recordings of kernels, made now on this kernel, or earlier and
//! elsewhere.
//!
//! Reading order: `head` and `rows` (one row per recording; JSON), `labels`, `csv`, `text`; `replay`
//! (existing recordings), `live` and `program` (new recordings), `cow` (random programs of
//! processes, with their own result), `workloads` (the list of workloads).

mod cow;
mod csv;
mod head;
mod keep;
mod labels;
mod live;
mod program;
mod replay;
mod rows;
mod run;
mod run_rows;
mod run_scripts;
mod run_text;
mod text;
mod workloads;

use largefolio_results::ExportError;

use largefolio_results::Forms;

pub use cow::{CowCheck, CowResult, GROUP, Record, groups};
pub use keep::keep_text;
pub use live::{LiveCheck, recorder};
pub use program::{ProgramCheck, program_recorder};
pub use replay::ReplayRequest;
pub use rows::{CrosscheckOutcome, CrosscheckResult, CrosscheckRow};
pub use run::{Judged, RunCheck, Runs};
pub use run_rows::{RunOutcome, RunResult, RunRow};
pub use run_scripts::{ScriptCheck, ScriptRun};
pub use workloads::{Listed, WorkloadList};

impl Forms for CrosscheckResult {
    fn text(&self) -> String {
        text::of(self)
    }

    fn csv(&self) -> Result<String, ExportError> {
        csv::of(self)
    }
}
