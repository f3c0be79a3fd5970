//! Warnings about values that a plan does not change.

use serde::Serialize;

use super::catalog::Catalog;
use crate::proc::thp::RED_HAT_THP;
use crate::shell::as_root;

/// A larger readahead, in KiB, is unusual. Kernels start with 128, from Linux 6.17 on rotating
/// disks with 4096. Some cloud `NVMe` disks announce an optimal size that the kernel turns into
/// 65536.
const READAHEAD_USUAL_MAX: u64 = 8192;
const READAHEAD_PROPOSED: u64 = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// Name in the catalog, or the file of a setting outside of it.
    pub name: String,
    /// Current value, empty if it was not read.
    pub now: String,
    pub reason: String,
    pub command: String,
}

/// Warns about unusually large readahead of disks with a mounted filesystem and of their hidden
/// paths.
pub(super) fn of_readahead(catalog: &Catalog) -> Vec<Warning> {
    let disks = catalog.disks();
    let paths = catalog.hidden_paths(&disks);
    let of = |disk: String| {
        let name = format!("readahead.{disk}");
        let now = catalog.read(&name).ok()?.value;
        let kib = now.parse::<u64>().ok().filter(|kib| *kib > READAHEAD_USUAL_MAX)?;
        let size = if kib % 1024 == 0 { format!("{}M", kib / 1024) } else { format!("{kib}K") };
        let reason = format!(
            "a readahead window of {size} is unusually large: when memory is short, random file \
             reads can read 50 to 500 times as much as they use; 128 to {READAHEAD_PROPOSED} is \
             usual (--persist keeps the setting with a udev rule)"
        );
        let command =
            as_root(&format!("folio tune --set {name}={READAHEAD_PROPOSED} --yes --persist"));
        Some(Warning { name, now, reason, command })
    };
    disks.into_iter().chain(paths).filter_map(of).collect()
}

pub(super) fn of_other_names(catalog: &Catalog) -> Option<Warning> {
    let now = catalog.read_other(&format!("{RED_HAT_THP}/enabled"))?;
    Some(Warning {
        name: format!("{RED_HAT_THP}/enabled"),
        now,
        reason: "this kernel keeps its transparent huge page settings there, as Red Hat \
                 Enterprise Linux 6 does; folio does not change them"
            .to_owned(),
        command: String::new(),
    })
}
