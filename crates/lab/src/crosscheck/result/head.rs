//! The first keys of a result with one row for each recording or program.

use std::path::Path;

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Head {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    /// `uname -r` of the running kernel; empty for a replay.
    pub(super) kernel: String,
    /// The directory with the kept recordings.
    pub(super) kept: Option<String>,
}

impl Head {
    pub(super) fn new(schema_version: u32, kernel: &str, command_line: Vec<String>) -> Self {
        let tool_version = env!("CARGO_PKG_VERSION");
        Self { schema_version, tool_version, command_line, kernel: kernel.to_owned(), kept: None }
    }

    pub(super) fn keep_in(&mut self, keep: Option<&Path>) {
        self.kept = keep.map(|keep| keep.display().to_string());
    }
}
