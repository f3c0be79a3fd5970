//! The facts about the judged mappings, read once before anything is judged.
//!
//! Owns what `/proc` says about their processes, files and mounts. The contents of memory and the
//! plans of other verbs are read later, during the judgement.

use std::collections::BTreeMap;

use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};

use super::case::{Case, is_shared_memory};
use super::reason::Finding;
use super::tmpfs::{Home, MountTables};
use crate::census::Census;
use crate::census::folios::{Cell, MemoryKind};
use crate::proc::smaps::{self, Smap};
use crate::proc::{Task, host};
use crate::program::start::Disabled;
use crate::system::{FileFacts, FileRef, System};

/// A file's device and inode.
type FileKey = ((u32, u32), u64);

pub(super) struct Facts {
    processes: BTreeMap<u32, ProcessFacts>,
    /// Files that could be reached.
    files: BTreeMap<FileKey, FileFacts>,
    writers: BTreeMap<FileKey, Vec<u32>>,
    mounts: MountTables,
    /// Whether the kernel supports `PR_THP_DISABLE_EXCEPT_ADVISED` (6.18).
    pub(super) may_except_advised: bool,
}

#[derive(Default)]
struct ProcessFacts {
    smaps: Vec<Smap>,
    disabled: Option<Disabled>,
}

impl Facts {
    /// Reads the facts about all findings that contain a whole block.
    pub(super) fn read(system: &dyn System, census: &Census, findings: &[Finding]) -> Self {
        let cases: Vec<Case<'_>> = findings
            .iter()
            .map(|finding| Case::new(census, finding))
            .filter(|case| case.mapping.vma.nr_whole_blocks(case.target_bytes) > 0)
            .collect();
        let mut pids: Vec<u32> = cases.iter().map(|case| case.process.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let of = |&pid: &u32| {
            let task = Task::of(system, pid);
            let smaps = task.advice().unwrap_or_default();
            (pid, ProcessFacts { smaps, disabled: Disabled::of(&task) })
        };
        let processes = pids.par_iter().map(of).collect();
        let mut facts = Self {
            processes,
            files: BTreeMap::new(),
            writers: BTreeMap::new(),
            mounts: MountTables::of(system),
            may_except_advised: host::can_except_advised(system),
        };
        for case in cases.iter().filter(|case| case.mapping.vma.has_file()) {
            facts.read_file(system, case);
        }
        facts
    }

    fn read_file(&mut self, system: &dyn System, case: &Case<'_>) {
        let vma = &case.mapping.vma;
        let key = (vma.device, vma.inode);
        let mapped = Some((case.process.pid, vma.range.clone()));
        let file = FileRef { path: vma.path.clone(), device: vma.device, inode: vma.inode, mapped };
        if !self.files.contains_key(&key)
            && let Ok(facts) = system.file_facts(&file)
        {
            self.files.insert(key, facts);
        }
        let is_shmem = case.mapping.tally.of(MemoryKind::Shmem) != Cell::default();
        if is_shmem || is_shared_memory(vma, self.filesystem(case)) {
            self.mounts.read_for(system, case.process.pid, vma);
        } else if self.file(case).is_some_and(|file| file.is_open_for_write == Some(true)) {
            self.writers.entry(key).or_insert_with(|| system.writers(&file));
        }
    }

    pub(super) fn home(&self, case: &Case<'_>) -> Home {
        self.mounts.home(case.process.pid, &case.mapping.vma)
    }

    /// Returns the mapping's flags and sizes; the default if it is gone.
    pub(super) fn smap(&self, case: &Case<'_>) -> Smap {
        let smap = smaps::find(self.smaps(case.process.pid), case.mapping.vma.range.start);
        smap.cloned().unwrap_or_default()
    }

    pub(super) fn smaps(&self, pid: u32) -> &[Smap] {
        self.processes.get(&pid).map_or(&[], |process| &process.smaps)
    }

    pub(super) fn disabled(&self, case: &Case<'_>) -> Option<&Disabled> {
        self.processes.get(&case.process.pid)?.disabled.as_ref()
    }

    pub(super) fn file(&self, case: &Case<'_>) -> Option<&FileFacts> {
        self.files.get(&(case.mapping.vma.device, case.mapping.vma.inode))
    }

    /// Returns the name of the mapping's filesystem; empty if the file cannot be reached.
    pub(super) fn filesystem(&self, case: &Case<'_>) -> &str {
        self.file(case).map_or("", |file| &file.filesystem)
    }

    /// Returns the processes that have the mapping's file open for writing.
    pub(super) fn writers(&self, case: &Case<'_>) -> &[u32] {
        let key = (case.mapping.vma.device, case.mapping.vma.inode);
        self.writers.get(&key).map_or(&[], Vec::as_slice)
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }
}
