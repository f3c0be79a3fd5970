//! Options for choosing workloads, shared by `crosscheck` and its verbs.

use clap::Args;
use largefolio_lab::crosscheck::record::{Filesystem, Random, Selection, WorkloadSet};

use largefolio_cli::verbs::values;

/// Maximum number of random workloads per run; each takes 1 KiB of memory.
const NR_RANDOM_MAX: u64 = 1_000_000;

/// The options that choose workloads.
#[derive(Args, Debug)]
pub(super) struct SelectArgs {
    /// Filesystems: ext4, xfs, ext4-encrypt (no large folios), btrfs [default: ext4,xfs; with
    /// --random ext4,xfs,btrfs]
    #[arg(long = "fs", value_name = "NAME,..", value_delimiter = ',', value_parser = any_filesystem)]
    filesystems: Vec<Filesystem>,
    /// Readahead windows [default: 128K,512K,2560K,8192K; with --random from 4K to 4M at random]
    #[arg(long = "window", value_name = "SIZE,..", value_delimiter = ',', value_parser = window_kb)]
    windows_kb: Vec<u64>,
    /// Select the workloads whose name contains this; a pattern with * must match the whole name
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
}

/// The options for random workloads.
#[derive(Args, Debug)]
pub(super) struct RandomArgs {
    /// Generate this many random workloads instead of the built-in set
    #[arg(long, value_name = "N", value_parser = values::within::<u64>(0..=NR_RANDOM_MAX))]
    random: Option<u64>,
    /// Seed for the first workload; each following workload uses the next seed
    #[arg(
        long, value_name = "N", default_value_t = 1, requires = "random",
        value_parser = values::number::<u64>,
    )]
    seed: u64,
}

impl RandomArgs {
    pub(super) fn random(&self) -> Option<Random> {
        self.random.map(|nr| Random { nr, seed: self.seed })
    }
}

impl SelectArgs {
    pub(super) fn selection(&self) -> Selection {
        self.or(Selection::default())
    }

    /// Returns the selection for random workloads: no window given means any window.
    pub(super) fn selection_of_random(&self) -> Selection {
        let filesystems = Filesystem::RANDOM.to_vec();
        let (windows_kb, only) = (Vec::new(), None);
        self.or(Selection { set: WorkloadSet::Usual, filesystems, windows_kb, only })
    }

    fn or(&self, default: Selection) -> Selection {
        let mut selection = Selection { only: self.only.clone(), ..default };
        if !self.filesystems.is_empty() {
            selection.filesystems.clone_from(&self.filesystems);
        }
        if !self.windows_kb.is_empty() {
            selection.windows_kb.clone_from(&self.windows_kb);
        }
        selection.filesystems.sort_unstable();
        selection.filesystems.dedup();
        selection.windows_kb.sort_unstable();
        selection.windows_kb.dedup();
        selection
    }
}

pub(super) fn filesystem(name: &str) -> Result<Filesystem, String> {
    one_of(&Filesystem::PROGRAMS, name)
}

fn any_filesystem(name: &str) -> Result<Filesystem, String> {
    one_of(&Filesystem::LIVE, name)
}

fn one_of(known: &[Filesystem], name: &str) -> Result<Filesystem, String> {
    let names: Vec<_> = known.iter().map(|one| one.name()).collect();
    Filesystem::named(name)
        .filter(|one| known.contains(one))
        .ok_or_else(|| format!("known: {}", names.join(", ")))
}

pub(super) fn window_kb(text: &str) -> Result<u64, String> {
    const KB_MAX: u64 = 1 << 20;
    let bytes = values::size(text)?;
    let kb = Some(bytes >> 10).filter(|&kb| bytes.is_multiple_of(1024) && kb <= KB_MAX);
    kb.ok_or_else(|| "expected a multiple of 1K, at most 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_whole_kib() {
        assert_eq!(window_kb("2560K"), Ok(2560));
        assert_eq!(window_kb("0"), Ok(0));
        assert!(window_kb("1000").is_err() && window_kb("2G").is_err());
    }
}
