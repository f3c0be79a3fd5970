//! `folio-lab crosscheck workloads`: lists the workloads.

use anyhow::Result;
use clap::Args;
use largefolio_lab::crosscheck::record::Filesystem;
use largefolio_lab::crosscheck::result::{Listed, WorkloadList};

use super::select::RandomArgs;
use largefolio_cli::console::Console;
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::values;

/// List the workloads for packaged kernels: those that `crosscheck` runs and some more
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab crosscheck workloads | grep rand
  folio-lab crosscheck workloads --fs xfs --page 16K --json
  folio-lab crosscheck workloads --random 20 --seed 7      the --random workloads as commands")]
pub(super) struct WorkloadsArgs {
    /// Filesystems: ext4, xfs, ext4-encrypt, ext4-slow, btrfs [default: all; with --random
    /// ext4,xfs,btrfs]
    #[arg(long = "fs", value_name = "NAME,..", value_delimiter = ',', value_parser = filesystem)]
    filesystems: Vec<Filesystem>,
    #[command(flatten)]
    random: RandomArgs,
    /// List the workloads that run in a memory cgroup whose limit is below what they need
    #[arg(long, conflicts_with = "random")]
    limited: bool,
    /// Base page size
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = values::page_bytes)]
    page: u64,
    /// Write JSON, including the files that the workloads use
    #[arg(long)]
    json: bool,
}

pub(crate) struct WorkloadsPlan {
    list: WorkloadList,
    is_json: bool,
}

impl WorkloadsArgs {
    pub(super) fn plan(self) -> WorkloadsPlan {
        let listed = match self.random.random() {
            Some(random) => Listed::Drawn(random),
            None if self.limited => Listed::Limited,
            None => Listed::Packaged,
        };
        let list = WorkloadList::new(&self.filesystems, listed, self.page);
        WorkloadsPlan { list, is_json: self.json }
    }
}

impl WorkloadsPlan {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let text = if self.is_json { self.list.json()? } else { self.list.text() };
        console.deliver(text.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}

fn filesystem(name: &str) -> Result<Filesystem, String> {
    let known = Filesystem::ALL.map(Filesystem::name);
    Filesystem::named(name).ok_or_else(|| format!("known: {}", known.join(", ")))
}
