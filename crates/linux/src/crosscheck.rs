//! The running kernel recorded, to be compared with the model.

mod program;

pub use program::{DiskKind, ProgramError, ProgramPlan, ProgramRecording, record_program};
