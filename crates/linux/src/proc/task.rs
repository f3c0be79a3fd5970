//! A process or thread in `/proc`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::kernel::KSM;
use super::maps::{self, Maps, Vma};
use super::pinned::Pinned;
use super::smaps::{self, Merging, Smap};
use super::stat::{MemoryState, Stat, TaskFaults};
use super::value;
use crate::system::{self, Entries, FileRef, System, ids};

/// In `ksm_stat` after `PR_SET_MEMORY_MERGE`.
const MERGES_ALL: &[u8] = b"ksm_merge_any: yes";

/// `/proc/PID`. It may not exist: reading an exited process returns errors.
#[derive(Clone)]
pub struct Task<'a> {
    system: &'a dyn System,
    dir: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub page_table_bytes: u64,
    pub pinned: Pinned,
}

impl<'a> Task<'a> {
    pub fn of(system: &'a dyn System, id: impl Display) -> Self {
        Self { system, dir: PathBuf::from(format!("/proc/{id}")) }
    }

    pub fn own(system: &'a dyn System) -> Self {
        Self::of(system, "self")
    }

    /// Returns the file of its mapping at `range` ([`system::mapped_file`]).
    pub(crate) fn mapped_file(&self, range: &Range<u64>) -> PathBuf {
        system::mapped_file(&self.dir, range)
    }

    fn text(&self, name: &str) -> io::Result<Vec<u8>> {
        self.system.text(&self.dir.join(name))
    }

    #[must_use]
    pub fn exists(&self) -> bool {
        self.text("comm").is_ok()
    }

    pub fn maps(&self) -> io::Result<Maps> {
        let mut maps = maps::parse(&self.text("maps")?, self.system.page_bytes());
        self.restore_names(maps.vmas.iter_mut());
        Ok(maps)
    }

    /// Restores the names of existing files if the kernel's mark for deleted files is part of the
    /// name.
    fn restore_names<'v>(&self, vmas: impl Iterator<Item = &'v mut Vma>) {
        let mut known = BTreeMap::new();
        for vma in vmas.filter(|vma| vma.is_deleted && !vma.is_nameless_shared()) {
            let name = vma.name().into_owned();
            let file =
                FileRef { path: name.clone(), device: vma.device, inode: vma.inode, mapped: None };
            let is_there =
                known.entry((vma.device, vma.inode)).or_insert_with(|| self.system.is_there(&file));
            if *is_there {
                (vma.path, vma.is_deleted) = (name, false);
            }
        }
    }

    /// Reads smaps; the kernel walks all its pages for this. Empty if the process has no memory.
    ///
    /// # Errors
    /// If the kernel does not show them.
    pub fn smaps(&self) -> io::Result<Vec<Smap>> {
        let mut smaps = smaps::parse(&self.text("smaps")?);
        self.restore_names(smaps.iter_mut().map(|smap| &mut smap.vma));
        Ok(smaps)
    }

    /// Reads the sums over all its mappings.
    ///
    /// # Errors
    /// If it has no memory, or the kernel does not show it.
    pub fn smaps_rollup(&self) -> io::Result<Smap> {
        let sums = smaps::parse(&self.text("smaps_rollup")?).into_iter().next();
        sums.ok_or_else(|| io::Error::other("smaps_rollup is empty"))
    }

    /// Reads smaps, and whether the process has THP disabled.
    pub(crate) fn advice(&self) -> io::Result<Vec<Smap>> {
        let mut smaps = self.smaps()?;
        let is_disabled = self.is_thp_disabled();
        let is_any_mergeable = smaps.iter().any(|smap| smap.is_mergeable);
        let merging = if is_any_mergeable { self.merging() } else { Merging::No };
        for smap in &mut smaps {
            smap.is_disabled = is_disabled;
            if smap.is_mergeable {
                smap.merging = merging;
            }
        }
        Ok(smaps)
    }

    /// Returns which call asked KSM to merge the mergeable mappings, if it runs.
    fn merging(&self) -> Merging {
        let is_on = self.system.text(Path::new(KSM)).is_ok_and(|run| run.trim_ascii() == b"1");
        let of_process = self.text("ksm_stat").is_ok_and(|stat| {
            stat.split(|byte| *byte == b'\n').any(|line| line.starts_with(MERGES_ALL))
        });
        match (is_on, of_process) {
            (false, _) => Merging::No,
            (true, false) => Merging::Advised,
            (true, true) => Merging::Process,
        }
    }

    /// Whether the process or its parent disabled THP with prctl(2).
    pub(crate) fn is_thp_disabled(&self) -> bool {
        self.status("THP_enabled").as_deref() == Some("0")
    }

    pub(crate) fn pagemap(&self) -> io::Result<Box<dyn Entries>> {
        self.system.entries(&self.dir.join("pagemap"))
    }

    pub(crate) fn memory(&self) -> io::Result<Box<dyn Entries>> {
        self.system.entries(&self.dir.join("mem"))
    }

    pub(crate) fn comm(&self) -> String {
        let name = self.text("comm").unwrap_or_default();
        String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
    }

    /// Returns the name it was started by, without folders and arguments; empty if unreadable.
    pub(crate) fn command_name(&self) -> String {
        let line = self.text("cmdline").unwrap_or_default();
        let end = line.iter().position(|byte| b"\0 ".contains(byte)).unwrap_or(line.len());
        let word = String::from_utf8_lossy(&line[..end]);
        let name = word.rsplit('/').next().unwrap_or_default();
        name.trim_start_matches('-').trim_end_matches(':').to_owned()
    }

    /// Returns its command line or title; empty if unreadable.
    pub(crate) fn command(&self) -> Vec<String> {
        let line = self.text("cmdline").unwrap_or_default();
        let line = line.strip_suffix(b"\0").unwrap_or(&line);
        let words = line.split(|byte| *byte == 0);
        words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    /// Returns its raw command line, possibly overwritten by a title; empty if unreadable.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let line = self.text("cmdline").unwrap_or_default();
        // A title leaves zeros in the rest of the space.
        let end = line.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let words = line[..end].split(|&byte| byte == 0).filter(|_| end > 0);
        words.map(|word| OsString::from_vec(word.to_vec())).collect()
    }

    /// Reads its variables as `NAME=VALUE`, each ended by a NUL.
    pub(crate) fn environ(&self) -> io::Result<Vec<u8>> {
        self.text("environ")
    }

    pub(crate) fn auxv(&self) -> io::Result<Vec<u8>> {
        self.text("auxv")
    }

    /// Returns its parent, which may be a reaper.
    pub(crate) fn parent(&self) -> Option<(u32, Self)> {
        let pid = self.status("PPid")?.parse().ok().filter(|&pid: &u32| pid > 0)?;
        Some((pid, Self::of(self.system, pid)))
    }

    pub(crate) fn mounts(&self) -> io::Result<Vec<u8>> {
        self.text("mountinfo")
    }

    pub(crate) fn cgroups(&self) -> io::Result<Vec<u8>> {
        self.text("cgroup")
    }

    /// Returns its cgroup: in version 2 if it has one there, else in the systemd or memory tree.
    pub(crate) fn cgroup(&self) -> Option<String> {
        let text = self.cgroups().ok()?;
        let line = |tree: &[u8]| {
            let mut lines = text.split(|byte| *byte == b'\n');
            lines.find_map(|line| {
                line[line.iter().position(|byte| *byte == b':')?..].strip_prefix(tree)
            })
        };
        let trees: [&[u8]; 3] = [b"::", b":name=systemd:", b":memory:"];
        let mut groups = trees.into_iter().filter_map(line).filter(|group| *group != b"/");
        groups.next().map(|group| String::from_utf8_lossy(group).into_owned())
    }

    /// Returns the faults of all its threads, without its children's.
    #[must_use]
    pub fn own_faults(&self) -> Option<TaskFaults> {
        Some(self.stat()?.own_faults)
    }

    /// Returns the bytes that it read from disks, with the children that it waited for.
    #[must_use]
    pub fn read_bytes(&self) -> Option<u64> {
        value(&self.text("io").ok()?, "read_bytes")?.parse().ok()
    }

    pub(crate) fn stat(&self) -> Option<Stat> {
        Stat::parse(&self.text("stat").ok()?)
    }

    pub(crate) fn memory_state(&self) -> Option<MemoryState> {
        MemoryState::parse(&self.text("stat").ok()?)
    }

    pub fn status(&self, field: &str) -> Option<String> {
        value(&self.text("status").ok()?, field).map(str::to_owned)
    }

    /// Returns its resident pages from `statm`; the kernel's count lags a few pages per CPU.
    pub fn nr_resident_pages(&self) -> io::Result<u64> {
        let text = self.text("statm")?;
        let words = std::str::from_utf8(&text).unwrap_or_default().split_ascii_whitespace();
        Ok(words.skip(1).find_map(|pages| pages.parse().ok()).unwrap_or(0))
    }

    pub(crate) fn threads(&self) -> Vec<u32> {
        ids(&self.system.names(&self.dir.join("task")).unwrap_or_default())
    }

    pub(crate) fn fdinfo(&self, fd: u32) -> io::Result<Vec<u8>> {
        self.text(&format!("fdinfo/{fd}"))
    }

    pub(crate) fn held(&self) -> Held {
        let text = self.text("status").unwrap_or_default();
        let bytes = |field| {
            let kib =
                value(&text, field).and_then(|value| value.strip_suffix("kB")?.trim().parse().ok());
            kib.map_or(0, |kib: u64| kib.saturating_mul(1 << 10))
        };
        Held { page_table_bytes: bytes("VmPTE"), pinned: Pinned::of(self, bytes("VmPin")) }
    }

    pub(crate) fn descriptors(&self) -> Vec<u32> {
        ids(&self.system.names(&self.dir.join("fd")).unwrap_or_default())
    }

    /// Lists the live processes that its threads started.
    pub(crate) fn children(&self) -> Vec<u32> {
        let mut children = Vec::new();
        for thread in self.threads() {
            let path = self.dir.join("task").join(thread.to_string()).join("children");
            let text = self.system.text(&path).unwrap_or_default();
            let words = text.split(u8::is_ascii_whitespace).filter_map(|w| str::from_utf8(w).ok());
            children.extend(words.filter_map(|word| word.parse::<u32>().ok()));
        }
        children
    }
}
