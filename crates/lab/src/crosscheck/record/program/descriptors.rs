//! Maps each process's descriptors to open files.
//!
//! Readahead state belongs to the open file: descriptors made by `dup` or inherited share it, two
//! opens of one path do not (docs/behaviour B.7.1).

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::tracer::Birth;
use largefolio_linux::proc::{Task, fd};
use largefolio_linux::system::Live;

/// A regular file, by its inode on the watched filesystem.
pub(crate) type Inode = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// The recording's number.
    pub(crate) id: u32,
    pub(crate) inode: Inode,
}

/// A thread's process: its address space and its descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TracedProcess {
    pub(crate) space: u32,
    table: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Descriptors {
    processes: BTreeMap<i32, TracedProcess>,
    tables: Vec<BTreeMap<i32, Open>>,
    nr_spaces: u32,
    nr_opens: u32,
}

impl Descriptors {
    pub(crate) fn start(&mut self, tid: i32) -> TracedProcess {
        self.tables.push(BTreeMap::new());
        let process = TracedProcess { space: self.new_space(), table: self.tables.len() - 1 };
        self.processes.insert(tid, process);
        process
    }

    pub(crate) fn new_space(&mut self) -> u32 {
        self.nr_spaces += 1;
        self.nr_spaces - 1
    }

    pub(crate) fn new_open(&mut self, inode: Inode) -> Open {
        self.nr_opens += 1;
        Open { id: self.nr_opens - 1, inode }
    }

    pub(crate) fn process(&self, tid: i32) -> Option<TracedProcess> {
        self.processes.get(&tid).copied()
    }

    pub(crate) fn birth(&mut self, tid: i32, child: i32, how: Birth) -> Option<TracedProcess> {
        let parent = self.process(tid)?;
        let process = if is_thread_of(child, tid) {
            parent
        } else {
            self.tables.push(self.tables[parent.table].clone());
            let space = if how == Birth::Vfork { parent.space } else { self.new_space() };
            TracedProcess { space, table: self.tables.len() - 1 }
        };
        self.processes.insert(child, process);
        Some(process)
    }

    /// A process executed a program and has a new address space.
    pub(crate) fn execute(&mut self, tid: i32) -> Option<TracedProcess> {
        let space = self.new_space();
        let process = self.processes.get_mut(&tid)?;
        process.space = space;
        Some(*process)
    }

    /// Returns the open file of a descriptor, if its opening was seen.
    pub(crate) fn get(&self, tid: i32, fd: i32) -> Option<Open> {
        self.tables[self.process(tid)?.table].get(&fd).copied()
    }

    /// Sets a descriptor's open file; `None` if the file does not matter.
    pub(crate) fn set(&mut self, tid: i32, fd: i32, open: Option<Open>) {
        let Some(process) = self.process(tid) else { return };
        let table = &mut self.tables[process.table];
        match open {
            Some(open) => table.insert(fd, open),
            None => table.remove(&fd),
        };
    }
}

fn is_thread_of(child: i32, parent: i32) -> bool {
    let group = |tid: i32| Task::of(&Live, tid).status("Tgid");
    group(child).is_some_and(|own| Some(own) == group(parent))
}

#[derive(Clone, Debug)]
pub(crate) struct Behind {
    /// The device number, as in `stat`.
    pub(crate) device: u64,
    pub(crate) inode: Inode,
    pub(crate) bytes: u64,
    pub(crate) path: PathBuf,
}

pub(crate) fn behind(tid: i32, fd: i32) -> Option<Behind> {
    let (metadata, path) = fd::regular(tid, fd)?;
    Some(Behind { device: metadata.dev(), inode: metadata.ino(), bytes: metadata.size(), path })
}

pub(crate) fn position(tid: i32, fd: i32) -> io::Result<u64> {
    fd::info(&Live, tid, fd)?.pos.ok_or_else(|| not_told("pos", tid, fd))
}

pub(crate) fn flags(tid: i32, fd: i32) -> io::Result<u64> {
    fd::info(&Live, tid, fd)?.flags.ok_or_else(|| not_told("flags", tid, fd))
}

fn not_told(field: &str, tid: i32, fd: i32) -> io::Error {
    io::Error::other(format!("no {field} in /proc/{tid}/fdinfo/{fd}"))
}
