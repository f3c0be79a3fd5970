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
use super::live::repeat;
use super::select::RandomArgs;
use crate::console::Console;
use crate::errors::Exit;

/// List the workloads of packaged kernels, which are those of `crosscheck` and some more
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio crosscheck workloads | grep rand
  folio crosscheck workloads --fs xfs --page 16K --json
  folio crosscheck workloads --random 20 --seed 7      what --random records, as commands")]
pub(super) struct WorkloadsArgs {
    /// Filesystems: ext4, xfs, ext4-encrypt, ext4-slow, btrfs [default: all; of --random
    /// ext4,xfs,btrfs]
    #[arg(long = "fs", value_name = "NAME,..", value_delimiter = ',', value_parser = filesystem)]
    filesystems: Vec<Filesystem>,
    #[command(flatten)]
    random: RandomArgs,
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

    /// The filesystems, each with its workloads.
    fn all(&self) -> Vec<(Filesystem, Vec<Workload>)> {
        let or = |default: &[Filesystem]| {
            if self.filesystems.is_empty() { default.to_vec() } else { self.filesystems.clone() }
        };
        let Some(random) = self.random.random() else {
            let of = |one| (one, packaged(one, self.page));
            return or(&Filesystem::ALL).into_iter().map(of).collect();
        };
        let filesystems = or(&Filesystem::RANDOM);
        let drawn = random.workloads(&filesystems, &[], self.page);
        let of = |one| (one, drawn.iter().filter(|of| of.filesystem == one).cloned().collect());
        filesystems.into_iter().map(of).collect()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for workload in self.all().into_iter().flat_map(|(_, workloads)| workloads) {
            // Writing to a string cannot fail.
            let _ = if let Some(command) = repeat(&workload) {
                writeln!(text, "{command}")
            } else {
                let words = workload.words.iter().map(|(key, value)| format!(" {key}={value}"));
                writeln!(text, "{}{}", workload.name, words.collect::<String>())
            };
        }
        text
    }

    fn json(&self) -> Result<String> {
        let of_workload = |workload: Workload| {
            let words: BTreeMap<_, _> = workload.words.into_iter().collect();
            json!({ "name": workload.name, "window_kb": workload.window_kb,
                "own_bytes": workload.own_bytes, "words": words })
        };
        let of_file = |file: FileSpec| json!({ "name": file.name, "bytes": file.bytes, "is_sparse": file.is_sparse });
        let of_filesystem = |(filesystem, workloads): (Filesystem, Vec<Workload>)| {
            let files: Vec<_> = files(filesystem, self.page).into_iter().map(of_file).collect();
            let workloads: Vec<_> = workloads.into_iter().map(of_workload).collect();
            json!({ "name": filesystem.name(), "files": files, "workloads": workloads })
        };
        let filesystems: Vec<_> = self.all().into_iter().map(of_filesystem).collect();
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
