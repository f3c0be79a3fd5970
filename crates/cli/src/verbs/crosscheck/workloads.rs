//! `folio crosscheck workloads`: the set as a list.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use largefolio_linux::crosscheck::workloads::{files, packaged};
use largefolio_linux::crosscheck::{FileSpec, Filesystem, Workload};
use largefolio_report::json;
use serde_json::json;

use super::super::values;
use crate::console::Console;
use crate::errors::Exit;

/// List the workloads of packaged kernels, which are those of `crosscheck` and some more
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio crosscheck workloads | grep rand
  folio crosscheck workloads --fs xfs --page 16K --json")]
pub(super) struct WorkloadsArgs {
    /// Filesystems: ext4, xfs, ext4-encrypt, ext4-slow, btrfs
    #[arg(long = "fs", value_name = "NAME,..", value_delimiter = ',',
        default_value = "ext4,xfs,ext4-encrypt,ext4-slow,btrfs", value_parser = filesystem)]
    filesystems: Vec<Filesystem>,
    /// Base page
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = page)]
    page: u64,
    /// Write JSON, with the files the workloads use
    #[arg(long)]
    json: bool,
}

impl WorkloadsArgs {
    /// Lists.
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let text = if self.json { self.json()? } else { self.text() };
        console.deliver(text.as_bytes(), None)?;
        Ok(Exit::Done)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for &filesystem in &self.filesystems {
            for workload in packaged(filesystem, self.page) {
                let words = workload.words.iter().map(|(key, value)| format!(" {key}={value}"));
                let words: String = words.collect();
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{}{words}", workload.name);
            }
        }
        text
    }

    fn json(&self) -> Result<String> {
        let of_workload = |workload: Workload| {
            let words: BTreeMap<_, _> = workload.words.into_iter().collect();
            json!({ "name": workload.name, "window_kb": workload.window_kb, "words": words })
        };
        let of_file = |file: FileSpec| json!({ "name": file.name, "bytes": file.bytes, "is_sparse": file.is_sparse });
        let of_filesystem = |&filesystem: &Filesystem| {
            let files: Vec<_> = files(filesystem, self.page).into_iter().map(of_file).collect();
            let workloads = packaged(filesystem, self.page).into_iter().map(of_workload);
            let workloads: Vec<_> = workloads.collect();
            json!({ "name": filesystem.name(), "files": files, "workloads": workloads })
        };
        let filesystems: Vec<_> = self.filesystems.iter().map(of_filesystem).collect();
        let list = json!({
            "schema_version": super::report::SCHEMA_VERSION,
            "tool_version": env!("CARGO_PKG_VERSION"),
            "page_bytes": self.page,
            "filesystems": filesystems,
        });
        Ok(json::pretty(&list)?)
    }
}

fn filesystem(name: &str) -> Result<Filesystem, String> {
    let known = Filesystem::ALL.map(Filesystem::name);
    Filesystem::named(name).ok_or_else(|| format!("known: {}", known.join(", ")))
}

fn page(text: &str) -> Result<u64, String> {
    let bytes = values::size(text)?;
    let is_page = bytes.is_power_of_two() && (4096..=65536).contains(&bytes);
    if is_page { Ok(bytes) } else { Err("a base page is 4K, 16K or 64K".to_owned()) }
}
