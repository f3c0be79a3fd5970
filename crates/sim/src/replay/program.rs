//! The recorded program: threads, processes, open files.
//!
//! Owns who is who. Does not own memory ([`crate::replay::cell`]).

use std::collections::BTreeMap;

use largefolio_mm::space::MmId;
use largefolio_mm::vma::OpenId;
use largefolio_trace::{FileId, ThreadId};

use super::place::Segments;

/// Process of the replay.
pub(super) type ProcessNr = usize;

/// One process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Its address space.
    pub(super) mm: MmId,
    /// Recorded ranges and their places.
    pub(super) segments: Segments,
    /// Open files by descriptor.
    by_descriptor: BTreeMap<u64, (FileId, OpenId)>,
    /// The last open of a file, by any descriptor.
    by_file: BTreeMap<FileId, OpenId>,
    /// Where the heap starts.
    pub(super) heap: Heap,
}

/// The heap of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heap {
    /// Recorded first address.
    pub(super) start: u64,
    /// Place of `start`.
    pub(super) placed: u64,
}

impl Process {
    pub(super) fn new(mm: MmId) -> Self {
        Self {
            mm,
            segments: Segments::default(),
            by_descriptor: BTreeMap::new(),
            by_file: BTreeMap::new(),
            heap: Heap::default(),
        }
    }

    /// The same program in a copied address space: what fork makes. Open files are shared.
    pub(super) fn forked(&self, mm: MmId) -> Self {
        Self { mm, ..self.clone() }
    }

    /// Notes an open.
    pub(super) fn opened(&mut self, descriptor: u64, file: FileId, open: OpenId) {
        self.by_descriptor.insert(descriptor, (file, open));
        self.by_file.insert(file, open);
    }

    /// The open behind a descriptor, as long as it is this file; else the file's last open. A
    /// recorder need not report close, so a descriptor may have moved on.
    pub(super) fn open_of(&self, file: FileId, descriptor: Option<u64>) -> Option<OpenId> {
        descriptor
            .and_then(|descriptor| self.by_descriptor.get(&descriptor))
            .filter(|(known, _)| *known == file)
            .map(|(_, open)| *open)
            .or_else(|| self.by_file.get(&file).copied())
    }
}

/// Which process each thread belongs to.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    processes: BTreeMap<ThreadId, ProcessNr>,
}

impl Threads {
    /// The process of a thread; a thread nobody announced belongs to the first process.
    pub(super) fn process_of(&self, thread: ThreadId) -> ProcessNr {
        self.processes.get(&thread).copied().unwrap_or(0)
    }

    /// Notes a new thread.
    pub(super) fn started(&mut self, thread: ThreadId, process: ProcessNr) {
        self.processes.insert(thread, process);
    }
}
