//! The recorded program: files, threads, processes and open files.
//!
//! Ended processes are dropped, so memory use depends on the processes alive at the same time, not
//! on the trace's length. Does not own memory ([`crate::replay::cell`]).

pub(crate) mod allocator;
pub(crate) mod file_calls;
pub(crate) mod images;
pub(crate) mod layout;
pub(crate) mod linked;
pub(crate) mod lock;
pub(crate) mod memory_calls;
pub(crate) mod numa;
pub(crate) mod place;
mod policies;
pub(crate) mod processes;
pub(crate) mod realign;
pub(crate) mod relink;
pub(crate) mod remap;
pub(crate) mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use largefolio_mm::units::{MappingId, MmId, PageSize};
use largefolio_mm::vma::OpenId;
use largefolio_trace::{FileId, ThreadId};

use crate::replay::observers::programs::ProgramNr;
use crate::replay::program::images::LinkedImage;
use crate::replay::program::policies::ThreadPolicies;
use crate::replay::program::space::{AddressSpace, Slab, SpaceNr};

pub(crate) type ProcessNr = usize;

/// The shared descriptor of unrecorded opens: a new open closes the previous one.
pub(crate) const NO_DESCRIPTOR: u64 = u64::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) files: TraceFiles,
    /// Files without a name that are still in use.
    pub(crate) unlinked: BTreeSet<FileId>,
    /// Whether the last read by a `copy_file_range` shared blocks. Its write follows.
    pub(crate) copy_shares_blocks: bool,
    pub(crate) linked: BTreeMap<FileId, LinkedImage>,
    pub(crate) processes: Slab<Process>,
    pub(crate) spaces: Slab<AddressSpace>,
    /// Address space ids by mm number. A reused mm holds the latest id.
    ids_by_mm: Vec<u64>,
    pub(crate) threads: Threads,
    pub(crate) nr_started: usize,
    pub(crate) policies: ThreadPolicies,
    pub(crate) recorded: PageSize,
    /// Page size that the modelled programs are linked for.
    pub(crate) link: PageSize,
    /// Whether a segment was placed for larger pages than the recorded ones.
    pub(crate) is_replaced: bool,
}

impl Program {
    /// Creates an empty program. `link` is the page size that the machine's programs are linked
    /// for.
    pub(crate) fn new(recorded: PageSize, link: PageSize) -> Self {
        Self {
            recorded,
            files: TraceFiles::default(),
            unlinked: BTreeSet::new(),
            copy_shares_blocks: false,
            linked: BTreeMap::new(),
            processes: Slab::default(),
            spaces: Slab::default(),
            ids_by_mm: Vec::new(),
            threads: Threads::default(),
            nr_started: 0,
            policies: ThreadPolicies::default(),
            link: link.max(recorded),
            is_replaced: false,
        }
    }

    pub(crate) fn restart(&mut self) {
        self.processes = Slab::default();
        self.spaces = Slab::default();
        self.threads = Threads::default();
        self.nr_started = 0;
        self.policies = ThreadPolicies::default();
    }

    pub(crate) fn moves(&self) -> bool {
        self.link != self.recorded
    }

    pub(crate) fn space(&self, process: ProcessNr) -> &AddressSpace {
        &self.spaces[self.processes[process].space]
    }

    pub(crate) fn space_mut(&mut self, process: ProcessNr) -> &mut AddressSpace {
        &mut self.spaces[self.processes[process].space]
    }

    pub(crate) fn add_space(&mut self, space: AddressSpace) -> SpaceNr {
        let mm = space.mm.0 as usize;
        if mm >= self.ids_by_mm.len() {
            self.ids_by_mm.resize(mm + 1, 0);
        }
        self.ids_by_mm[mm] = space.id;
        self.spaces.insert(space)
    }

    /// Returns the id of the address space that has this mm, or had it last.
    pub(crate) fn id_of(&self, mm: MmId) -> u64 {
        self.ids_by_mm.get(mm.0 as usize).copied().unwrap_or_default()
    }

    /// Adds a process, which counts as a user of its address space from the start.
    pub(crate) fn start(&mut self, process: Process) -> ProcessNr {
        self.nr_started += 1;
        self.processes.insert(process)
    }

    pub(crate) fn start_thread(&mut self, thread: ThreadId, process: ProcessNr) {
        self.threads.started(thread, process);
        self.processes[process].threads.push(thread);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) nr: usize,
    pub(crate) space: SpaceNr,
    pub(crate) program: ProgramNr,
    /// Whether the process executed `program` itself. The first process did so before the trace.
    pub(crate) has_executed: bool,
    pub(crate) threads: Vec<ThreadId>,
    by_descriptor: BTreeMap<u64, Opened>,
    by_file: BTreeMap<FileId, OpenId>,
    pub(crate) measured_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) file: FileId,
    pub(crate) open: OpenId,
    pub(crate) closes_on_exec: bool,
}

impl Process {
    pub(crate) fn new(nr: usize, space: SpaceNr, program: ProgramNr) -> Self {
        Self {
            nr,
            space,
            program,
            has_executed: true,
            threads: Vec::new(),
            by_descriptor: BTreeMap::new(),
            by_file: BTreeMap::new(),
            measured_bytes: 0,
        }
    }

    /// Returns the child `nr` in `space`, which can be the parent's. Open files are shared.
    pub(crate) fn forked(&self, nr: usize, space: SpaceNr) -> Self {
        let (by_descriptor, by_file) = (self.by_descriptor.clone(), self.by_file.clone());
        let (program, has_executed) = (self.program, false);
        let (threads, measured_bytes) = (Vec::new(), 0);
        Self { nr, space, program, has_executed, threads, by_descriptor, by_file, measured_bytes }
    }

    pub(crate) fn nr_entries(&self) -> usize {
        self.by_descriptor.len() + self.by_file.len() + self.threads.len()
    }

    #[must_use]
    pub(crate) fn opened(&mut self, descriptor: u64, opened: Opened) -> Option<OpenId> {
        self.by_file.insert(opened.file, opened.open);
        self.by_descriptor.insert(descriptor, opened).map(|closed| closed.open)
    }

    pub(crate) fn at(&self, descriptor: u64) -> Option<Opened> {
        self.by_descriptor.get(&descriptor).copied()
    }

    #[must_use]
    pub(crate) fn closed(&mut self, descriptor: u64) -> Option<OpenId> {
        self.by_descriptor.remove(&descriptor).map(|closed| closed.open)
    }

    pub(crate) fn opens(&self) -> impl Iterator<Item = OpenId> {
        self.by_descriptor.values().map(|opened| opened.open)
    }

    /// Returns the opens that later events can refer to.
    pub(crate) fn known_opens(&self) -> impl Iterator<Item = OpenId> {
        self.opens().chain(self.by_file.values().copied())
    }

    pub(crate) fn close_all(&mut self) -> Vec<OpenId> {
        let opens = self.opens().collect();
        self.by_descriptor.clear();
        opens
    }

    /// Closes descriptors at an execve, and unrecorded opens, which belong to the old program.
    pub(crate) fn close_on_exec(&mut self) -> Vec<OpenId> {
        let is_closed =
            |descriptor: u64, opened: &Opened| opened.closes_on_exec || descriptor == NO_DESCRIPTOR;
        let closed = self.by_descriptor.extract_if(.., |&fd, opened| is_closed(fd, opened));
        let closed = closed.map(|(_, opened)| opened.open).collect();
        self.by_file = self.by_descriptor.values().map(|known| (known.file, known.open)).collect();
        closed
    }

    /// Returns the descriptor's open if it is this file, else the file's last open, even a closed
    /// one. Descriptors from an unrecorded parent are unknown.
    pub(crate) fn open_of(&self, file: FileId, descriptor: Option<u64>) -> Option<OpenId> {
        descriptor
            .and_then(|descriptor| self.by_descriptor.get(&descriptor))
            .filter(|known| known.file == file)
            .map(|known| known.open)
            .or_else(|| self.by_file.get(&file).copied())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Threads {
    by_id: Vec<Membership>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Membership {
    /// No row announced it.
    #[default]
    Unknown,
    /// Its process lives.
    Of(ProcessNr),
    /// Its process ended, or executed another program from another thread.
    Ended,
}

impl Threads {
    pub(crate) fn of(&self, thread: ThreadId) -> Membership {
        self.by_id.get(thread as usize).copied().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn started(&mut self, thread: ThreadId, process: ProcessNr) {
        let nr = thread as usize;
        if nr >= self.by_id.len() {
            self.by_id.resize(nr + 1, Membership::Unknown);
        }
        self.by_id[nr] = Membership::Of(process);
    }

    /// Ends a thread of `process`. Returns whether it was one.
    pub(crate) fn ended(&mut self, thread: ThreadId, process: ProcessNr) -> bool {
        let is_of_it = self.of(thread) == Membership::Of(process);
        if is_of_it {
            self.by_id[thread as usize] = Membership::Ended;
        }
        is_of_it
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceFile {
    pub(crate) mapping: MappingId,
    /// Current size according to the trace. References past the end use nothing.
    pub(crate) size_bytes: u64,
    /// A device has no page cache; its mappings are anonymous memory here.
    pub(crate) is_device: bool,
    /// Whether the file has a build id: a linker placed its segments.
    pub(crate) is_elf: bool,
    /// Folio size that the loader requests before it reads the file.
    pub(crate) preferred_bytes: Option<u64>,
    /// Folio size that the loader collapses executable mappings to.
    pub(crate) collapse_bytes: Option<u64>,
}

/// The files by their number in the trace. The trace reader has checked the numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct TraceFiles(Vec<TraceFile>);

impl TraceFiles {
    pub(crate) fn push(&mut self, file: TraceFile) {
        self.0.push(file);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn mappings(&self) -> Vec<MappingId> {
        self.0.iter().map(|file| file.mapping).collect()
    }
}

impl Index<FileId> for TraceFiles {
    type Output = TraceFile;

    fn index(&self, file: FileId) -> &TraceFile {
        &self.0[file as usize]
    }
}

impl IndexMut<FileId> for TraceFiles {
    fn index_mut(&mut self, file: FileId) -> &mut TraceFile {
        &mut self.0[file as usize]
    }
}
