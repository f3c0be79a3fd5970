//! Selects the workloads to record, and gives the reason for each skipped workload.
//!
//! Making a plan changes nothing and needs no privileges; [`Facts`] describe the machine.

mod custom;
mod pattern;
mod random;

use super::error::CrosscheckError;
use super::facts::{DEFAULT_AROUND_BYTES, Facts, Thp};
use super::group::Limits;
use super::mkfs;
use super::workloads::{Filesystem, OF_LISTS, Workload, limited, with_window};

pub use custom::Custom;
pub(super) use custom::OWN_FILE;
pub use random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadSet {
    /// The grid over windows.
    Usual,
    /// Workloads in a memory cgroup with a limit, each with its own window.
    Limited,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    pub set: WorkloadSet,
    pub filesystems: Vec<Filesystem>,
    /// Readahead windows in KiB, in order.
    pub windows_kb: Vec<u64>,
    /// Part of a name, or a name with `*`.
    pub only: Option<String>,
}

impl Default for Selection {
    fn default() -> Self {
        let filesystems = vec![Filesystem::Ext4, Filesystem::Xfs];
        let windows_kb = vec![128, 512, 2560, 8192];
        Self { set: WorkloadSet::Usual, filesystems, windows_kb, only: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub filesystem: Filesystem,
    pub workloads: Vec<Workload>,
}

impl Group {
    #[must_use]
    pub fn own_bytes(&self) -> u64 {
        self.workloads.iter().map(|workload| workload.own_bytes).max().unwrap_or(0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub filesystem: Filesystem,
    pub window_kb: u64,
    pub name: String,
    /// The reason, as the end of "skipped: ..".
    pub reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadPlan {
    pub groups: Vec<Group>,
    pub skipped: Vec<Skipped>,
    /// Warnings for the user, one sentence each with its remedy.
    pub warnings: Vec<String>,
}

impl WorkloadPlan {
    /// Chooses workloads; `command` is the command line to repeat as root.
    ///
    /// # Errors
    /// Not root, no filesystem that can be made, or nothing selected.
    pub fn new(
        selection: &Selection,
        facts: &Facts,
        command: &str,
    ) -> Result<Self, CrosscheckError> {
        let mut plan = Self::empty(facts, command)?;
        for filesystem in plan.usable(&selection.filesystems, facts)? {
            plan.choose(filesystem, selection, facts);
        }
        if plan.groups.is_empty() {
            return Err(CrosscheckError::NothingSelected(plan.why_nothing(selection)));
        }
        Ok(plan)
    }

    /// Records one user-defined workload on each filesystem with each window.
    ///
    /// # Errors
    /// See [`WorkloadPlan::new`].
    pub fn custom(
        custom: &Custom,
        selection: &Selection,
        facts: &Facts,
        command: &str,
    ) -> Result<Self, CrosscheckError> {
        let mut plan = Self::empty(facts, command)?;
        for filesystem in plan.usable(&selection.filesystems, facts)? {
            let of = |&window_kb| custom.workload(filesystem, window_kb);
            let workloads = selection.windows_kb.iter().map(of).collect();
            plan.groups.push(Group { filesystem, workloads });
        }
        Ok(plan)
    }

    /// Draws workloads from a seed. If the selection has no windows, they are drawn too.
    ///
    /// # Errors
    /// See [`WorkloadPlan::new`].
    pub fn random(
        random: Random,
        selection: &Selection,
        facts: &Facts,
        command: &str,
    ) -> Result<Self, CrosscheckError> {
        let mut plan = Self::empty(facts, command)?;
        plan.usable(&selection.filesystems, facts)?;
        let all = random.workloads(&selection.filesystems, &selection.windows_kb, facts.page_bytes);
        for &filesystem in &selection.filesystems {
            let workloads = all.iter().filter(|one| one.filesystem == filesystem).cloned();
            plan.keep(filesystem, workloads.collect(), facts);
        }
        if plan.groups.is_empty() {
            return Err(CrosscheckError::NothingSelected(plan.why_nothing(selection)));
        }
        Ok(plan)
    }

    #[must_use]
    pub fn nr_workloads(&self) -> usize {
        self.groups.iter().map(|group| group.workloads.len()).sum()
    }

    fn empty(facts: &Facts, command: &str) -> Result<Self, CrosscheckError> {
        if !facts.is_root {
            return Err(CrosscheckError::NotRoot(command.to_owned()));
        }
        let mut warnings = Vec::new();
        if facts.fault_around_bytes.is_none() {
            warnings.push(format!(
                "this kernel does not show fault_around_bytes (debugfs is absent or locked down); \
                    folio assumes the default of {}K",
                DEFAULT_AROUND_BYTES >> 10
            ));
        }
        Ok(Self { groups: Vec::new(), skipped: Vec::new(), warnings })
    }

    fn usable(
        &mut self,
        filesystems: &[Filesystem],
        facts: &Facts,
    ) -> Result<Vec<Filesystem>, CrosscheckError> {
        let (usable, absent): (Vec<_>, Vec<_>) =
            filesystems.iter().partition(|&&one| facts.formatter(one).is_some());
        let mut reasons: Vec<String> = absent.into_iter().map(mkfs::missing).collect();
        if usable.is_empty() {
            return Err(CrosscheckError::NoFilesystem(reasons.join("; ")));
        }
        self.warnings.append(&mut reasons);
        Ok(usable)
    }

    fn choose(&mut self, filesystem: Filesystem, selection: &Selection, facts: &Facts) {
        let is_wanted = |one: &Workload| {
            selection.only.as_ref().is_none_or(|only| pattern::fits(only, &one.name))
        };
        if selection.set == WorkloadSet::Limited {
            let all = limited(filesystem, facts.page_bytes).into_iter();
            self.keep(filesystem, all.filter(is_wanted).collect(), facts);
            return;
        }
        let mut workloads = Vec::new();
        let is_single = filesystem == Filesystem::Ext4Encrypt;
        let windows_kb = if is_single { &[128][..] } else { &selection.windows_kb };
        for &window_kb in windows_kb {
            let all = with_window(filesystem, window_kb, facts.page_bytes);
            workloads.extend(all.into_iter().filter(is_wanted));
        }
        self.keep(filesystem, workloads, facts);
    }

    fn keep(&mut self, filesystem: Filesystem, workloads: Vec<Workload>, facts: &Facts) {
        if facts.formatter(filesystem).is_none() {
            return;
        }
        let mut kept = Vec::new();
        for workload in workloads {
            if let Some(reason) = obstacle(&workload, facts) {
                let Workload { window_kb, name, .. } = workload;
                self.skipped.push(Skipped { filesystem, window_kb, name, reason });
            } else {
                kept.push(workload);
            }
        }
        if !kept.is_empty() {
            self.groups.push(Group { filesystem, workloads: kept });
        }
    }

    fn why_nothing(&self, selection: &Selection) -> String {
        match (self.skipped.first(), &selection.only) {
            (Some(first), _) => {
                format!("all {} are skipped: {}", self.skipped.len(), first.reason)
            }
            (None, Some(only)) => {
                format!(
                    "no name contains {only:?}; `folio-lab crosscheck workloads` lists the names"
                )
            }
            (None, None) => "no window was given (--window 128K), or --random is 0".to_owned(),
        }
    }
}

fn obstacle(workload: &Workload, facts: &Facts) -> Option<&'static str> {
    let around = workload.word("around").and_then(|bytes| bytes.parse().ok());
    let is_around = facts.fault_around_bytes.unwrap_or(DEFAULT_AROUND_BYTES);
    match facts.thp {
        _ if around.is_some_and(|wanted: u64| wanted != is_around) => {
            Some("needs a different fault_around_bytes, which is a system-wide setting")
        }
        _ if facts.has_generations
            && facts.page_bytes > 4096
            && workload.name.contains(OF_LISTS) =>
        {
            Some(
                "needs 0 in /sys/kernel/mm/lru_gen/enabled: MGLRU counts accesses that the LRU \
                 lists do not",
            )
        }
        _ if workload.word("limit").is_some() && facts.limits == Limits::Absent => {
            Some("needs memory cgroups, but cgroup.subtree_control in /sys/fs/cgroup lacks memory")
        }
        _ if workload.word("cgroup").is_some() => Some("needs its own memory cgroup"),
        Thp::Never if workload.is_huge() => {
            Some("needs madvise or always in /sys/kernel/mm/transparent_hugepage/enabled")
        }
        Thp::Absent if workload.is_huge() => Some("needs a kernel with transparent huge pages"),
        _ => None,
    }
}
