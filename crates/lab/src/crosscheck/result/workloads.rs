//! Lists the packaged or random workloads.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::crosscheck::record::workloads::{files, limited, packaged};
use crate::crosscheck::record::{FileSpec, Filesystem, Random, Workload};
use largefolio_results::{ExportError, json};
use serde_json::json;

use super::live::repeat;
use super::rows::SCHEMA_VERSION;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    Packaged,
    Limited,
    Drawn(Random),
}

pub struct WorkloadList {
    page_bytes: u64,
    all: Vec<(Filesystem, Vec<Workload>)>,
}

impl WorkloadList {
    #[must_use]
    pub fn new(filesystems: &[Filesystem], listed: Listed, page_bytes: u64) -> Self {
        let or = |default: &[Filesystem]| {
            if filesystems.is_empty() { default.to_vec() } else { filesystems.to_vec() }
        };
        let Listed::Drawn(random) = listed else {
            let set = if listed == Listed::Limited { limited } else { packaged };
            let of = |one| (one, set(one, page_bytes));
            let all = or(&Filesystem::ALL).into_iter().map(of).collect();
            return Self { page_bytes, all };
        };
        let filesystems = or(&Filesystem::RANDOM);
        let drawn = random.workloads(&filesystems, &[], page_bytes);
        let of = |one| (one, drawn.iter().filter(|of| of.filesystem == one).cloned().collect());
        let all = filesystems.into_iter().map(of).collect();
        Self { page_bytes, all }
    }

    /// Writes one line per workload: the command that records a random one, the words of any other.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for workload in self.all.iter().flat_map(|(_, workloads)| workloads) {
            let _ = if let Some(command) = repeat(workload) {
                writeln!(text, "{command}")
            } else {
                let words = workload.settings.iter().map(|(key, value)| format!(" {key}={value}"));
                writeln!(text, "{}{}", workload.name, words.collect::<String>())
            };
        }
        text
    }

    /// Indented JSON, with the files the workloads use.
    ///
    /// # Errors
    /// None in practice: the list is names and numbers.
    pub fn json(&self) -> Result<String, ExportError> {
        let of_workload = |workload: &Workload| {
            let words: BTreeMap<_, _> = workload.settings.iter().cloned().collect();
            json!({ "name": workload.name, "window_kb": workload.window_kb,
                "own_bytes": workload.own_bytes, "words": words })
        };
        let of_file = |file: FileSpec| json!({ "name": file.name, "bytes": file.bytes, "is_sparse": file.is_sparse });
        let of_filesystem = |(filesystem, workloads): &(Filesystem, Vec<Workload>)| {
            let files: Vec<_> =
                files(*filesystem, self.page_bytes).into_iter().map(of_file).collect();
            let workloads: Vec<_> = workloads.iter().map(of_workload).collect();
            json!({ "name": filesystem.name(), "files": files, "workloads": workloads })
        };
        let filesystems: Vec<_> = self.all.iter().map(of_filesystem).collect();
        let list = json!({
            "schema_version": SCHEMA_VERSION,
            "tool_version": env!("CARGO_PKG_VERSION"),
            "page_bytes": self.page_bytes,
            "filesystems": filesystems,
        });
        Ok(json::pretty(&list)?)
    }
}
