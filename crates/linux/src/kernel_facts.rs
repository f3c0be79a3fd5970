//! The running kernel's memory management: one reading of everything that decides.
//!
//! ```text
//!   /sys/kernel/mm   THP, khugepaged, generations, pools of huge pages, KSM, features of kernel/
//!   /sys/block, /sys/fs/btrfs   readahead and largest I/O of devices
//!   /proc/sys        vm.*
//!   debugfs          fault_around_bytes, preemption model       root only
//!   /proc            swap space, mounts
//! ```
//!
//! Owns the reading. Does not judge: results compare it with the model's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::mount::Detached;
use crate::proc::kernel::{DEBUGFS, NODES, OTHERS, SWAPS};
use crate::proc::{block, cgroup, host};
use crate::system::{Live, mounts};
use crate::tune::catalog::Catalog;

/// A reading. An absent value could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    pub page_bytes: u64,
    /// Values by name: as in `folio tune`, `vm.NAME`, `ksm.run`, `zswap.enabled`.
    pub settings: BTreeMap<String, String>,
    /// Sizes with a setting of their own, in bytes.
    pub sizes: BTreeSet<u64>,
    /// By name; the requested ones and the usual one.
    pub disks: BTreeMap<String, DiskFacts>,
    /// The device of `/`, or else of any mounted filesystem.
    pub usual_disk: Option<String>,
    /// Whether generations are enabled; `None`: the kernel does not have them.
    pub has_generations: Option<bool>,
    pub fault_around_bytes: Option<u64>,
    /// `none`, `voluntary`, `full` or `lazy`.
    pub preemption: Option<String>,
    /// Free huge pages by size in KiB.
    pub pools: BTreeMap<u64, u64>,
    /// Devices and files with swap space.
    pub swaps: Vec<String>,
    /// Mounted tmpfs with huge folios, and their `huge=`.
    pub huge_tmpfs: Vec<(PathBuf, String)>,
    pub nr_nodes: u64,
    /// Limit of this process's control group.
    pub limit_bytes: Option<u64>,
    /// Settings that another folio has changed for a while.
    pub held: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    pub readahead_kib: Option<u64>,
    pub io_kib: Option<u64>,
}

impl KernelFacts {
    /// Reads everything, and the devices in `disks`.
    #[must_use]
    pub fn read(catalog: &Catalog, disks: &BTreeSet<String>) -> Self {
        let sizes = catalog.sizes();
        let names = [Catalog::names(&sizes), catalog.largefolio_names()].concat();
        let value = |name: &String| Some((name.clone(), catalog.read(name).ok()?.value));
        let others = OTHERS
            .iter()
            .filter_map(|(name, path)| Some(((*name).to_owned(), catalog.read_other(path)?)));
        let usual_disk = catalog.usual_disk();
        let wanted = disks.iter().chain(&usual_disk);
        let mountinfo = catalog.text(Path::new(host::MOUNTS)).unwrap_or_default();
        let debugfs = Debugfs::of(catalog);
        let around = debugfs.text("fault_around_bytes");
        Self {
            page_bytes: rustix::param::page_size() as u64,
            settings: names.iter().filter_map(value).chain(others).collect(),
            sizes,
            disks: wanted.map(|disk| (disk.clone(), DiskFacts::of(catalog, disk))).collect(),
            usual_disk,
            has_generations: catalog
                .text(Path::new(host::GENERATIONS))
                .and_then(|text| host::generations(&text)),
            fault_around_bytes: around.and_then(|text| text.trim().parse().ok()),
            preemption: debugfs.text("sched/preempt").and_then(|text| preemption(&text)),
            pools: catalog.pools(),
            swaps: swaps(&catalog.text(Path::new(SWAPS)).unwrap_or_default()),
            huge_tmpfs: mounts::huge_tmpfs(mountinfo.as_bytes()),
            nr_nodes: catalog
                .text(Path::new(NODES))
                .map_or(1, |text| host::nr_of_list(text.trim())),
            limit_bytes: catalog.is_live().then(|| cgroup::limit_bytes(&Live)).flatten(),
            held: names.into_iter().filter(|name| catalog.is_held(name)).collect(),
        }
    }
}

impl DiskFacts {
    fn of(catalog: &Catalog, disk: &str) -> Self {
        let number = |path: PathBuf| catalog.text(&path)?.trim().parse().ok();
        match disk.strip_prefix(block::OF_BTRFS) {
            // Nothing shows the largest I/O, which is the kernel's default (0.4).
            Some(device) => Self {
                readahead_kib: catalog
                    .btrfs_of(device)
                    .and_then(|folder| number(folder.join("bdi/read_ahead_kb"))),
                io_kib: None,
            },
            None => Self {
                readahead_kib: number(block::of_disk(disk, "queue/read_ahead_kb")),
                io_kib: number(block::of_disk(disk, "queue/max_sectors_kb")),
            },
        }
    }
}

/// debugfs: the mounted one, or one that only this process sees, if mounting is allowed.
struct Debugfs<'a> {
    catalog: &'a Catalog,
    own: Option<Detached>,
}

impl<'a> Debugfs<'a> {
    fn of(catalog: &'a Catalog) -> Self {
        let is_mounted = catalog.text(&Path::new(DEBUGFS).join("fault_around_bytes")).is_some();
        let can_mount = catalog.is_live() && !is_mounted;
        Self { catalog, own: can_mount.then(|| Detached::new("debugfs", None).ok()).flatten() }
    }

    fn text(&self, name: &str) -> Option<String> {
        match &self.own {
            Some(own) => {
                let text = crate::system::read(&own.path().join(name)).ok()?;
                String::from_utf8(text).ok()
            }
            None => self.catalog.text(&Path::new(DEBUGFS).join(name)),
        }
    }
}

/// Returns the word in parentheses: `none voluntary (full) lazy`.
fn preemption(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('(')?;
    Some(rest.split_once(')')?.0.to_owned())
}

/// Returns the first word of each line after the heading.
fn swaps(text: &str) -> Vec<String> {
    let words = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    words.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
