//! The recorded program: files, threads, processes, what they have open.
//!
//! Owns their identities. Does not own memory ([`crate::replay::cell`]). Whatever ends is forgotten,
//! so that what is kept grows with the processes that live at one time, not with the trace.

use std::collections::BTreeMap;

use largefolio_mm::units::{MmId, PageSize};
use largefolio_mm::vma::OpenId;
use largefolio_trace::{FileId, ThreadId};

use super::files::TraceFiles;
use super::images::LinkedImage;
use super::programs::ProgramNr;
use super::slab::Slab;
use super::space::{AddressSpace, SpaceNr};

/// Process of the replay, while it lives.
pub(super) type ProcessNr = usize;

/// The descriptor of opens that were not recorded. One holds them all: the last keeps it, and what
/// was behind it before is closed.
pub(super) const NO_DESCRIPTOR: u64 = u64::MAX;

/// The program as it stands.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) files: TraceFiles,
    /// Images that are linked for other pages than the recorded ones.
    pub(super) linked: BTreeMap<FileId, LinkedImage>,
    pub(super) processes: Slab<Process>,
    pub(super) spaces: Slab<AddressSpace>,
    /// Numbers of address spaces by that of their mm; the last one's, where it was used again.
    ids_by_mm: Vec<u64>,
    pub(super) threads: Threads,
    /// Processes so far.
    pub(super) nr_started: usize,
    /// Pages that the recorded programs are linked for.
    pub(super) recorded: PageSize,
    /// Pages that the modelled programs are linked for.
    pub(super) link: PageSize,
    /// Whether a segment was placed for larger pages than the recorded ones.
    pub(super) is_replaced: bool,
}

impl Program {
    /// One without files that has not started.
    /// `recorded`: pages that the recorded programs are linked for; `link`: those of the machine's.
    pub(super) fn new(recorded: PageSize, link: PageSize) -> Self {
        Self {
            recorded,
            files: TraceFiles::default(),
            linked: BTreeMap::new(),
            processes: Slab::default(),
            spaces: Slab::default(),
            ids_by_mm: Vec::new(),
            threads: Threads::default(),
            nr_started: 0,
            link: link.max(recorded),
            is_replaced: false,
        }
    }

    /// Forgets all but the files: the program starts again.
    pub(super) fn restart(&mut self) {
        self.processes = Slab::default();
        self.spaces = Slab::default();
        self.threads = Threads::default();
        self.nr_started = 0;
    }

    /// Whether segments move to where they would be if linked for larger pages.
    pub(super) fn moves(&self) -> bool {
        self.link != self.recorded
    }

    /// The address space of a process.
    pub(super) fn space(&self, process: ProcessNr) -> &AddressSpace {
        &self.spaces[self.processes[process].space]
    }

    /// The address space of a process.
    pub(super) fn space_mut(&mut self, process: ProcessNr) -> &mut AddressSpace {
        &mut self.spaces[self.processes[process].space]
    }

    /// Adds an address space.
    pub(super) fn add_space(&mut self, space: AddressSpace) -> SpaceNr {
        let mm = space.mm.0 as usize;
        if mm >= self.ids_by_mm.len() {
            self.ids_by_mm.resize(mm + 1, 0);
        }
        self.ids_by_mm[mm] = space.id;
        self.spaces.insert(space)
    }

    /// Number of the address space that has an mm, or had it last.
    pub(super) fn id_of(&self, mm: MmId) -> u64 {
        self.ids_by_mm.get(mm.0 as usize).copied().unwrap_or_default()
    }

    /// Adds a process, which counts as a user of its address space from the start.
    pub(super) fn start(&mut self, process: Process) -> ProcessNr {
        self.nr_started += 1;
        self.processes.insert(process)
    }

    /// Gives a process its next thread.
    pub(super) fn start_thread(&mut self, thread: ThreadId, process: ProcessNr) {
        self.threads.started(thread, process);
        self.processes[process].threads.push(thread);
    }
}

/// A process of the recorded program.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// As results count processes: 0 is the first one.
    pub(super) nr: usize,
    /// What it has of memory.
    pub(super) space: SpaceNr,
    /// What it executed last, or its parent did.
    pub(super) program: ProgramNr,
    /// Whether it executed it itself; the first process did before the trace.
    pub(super) has_executed: bool,
    /// Threads that were announced.
    pub(super) threads: Vec<ThreadId>,
    /// Open files by descriptor.
    by_descriptor: BTreeMap<u64, Opened>,
    /// The last open of a file, by any descriptor.
    by_file: BTreeMap<FileId, OpenId>,
    /// Bytes of it when it was last measured ([`super::budget`]).
    pub(super) measured_bytes: u64,
}

/// What is behind a descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    pub(super) file: FileId,
    pub(super) open: OpenId,
    /// Whether an execve closes it.
    pub(super) closes_on_exec: bool,
}

impl Process {
    pub(super) fn new(nr: usize, space: SpaceNr, program: ProgramNr) -> Self {
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

    /// Its child `nr` in another address space, or in the same. Open files are shared.
    pub(super) fn forked(&self, nr: usize, space: SpaceNr) -> Self {
        let (by_descriptor, by_file) = (self.by_descriptor.clone(), self.by_file.clone());
        let (program, has_executed) = (self.program, false);
        let (threads, measured_bytes) = (Vec::new(), 0);
        Self { nr, space, program, has_executed, threads, by_descriptor, by_file, measured_bytes }
    }

    /// Entries of its maps.
    pub(super) fn nr_entries(&self) -> usize {
        self.by_descriptor.len() + self.by_file.len() + self.threads.len()
    }

    /// Notes an open; what the descriptor was before, which it is no more.
    #[must_use]
    pub(super) fn opened(&mut self, descriptor: u64, opened: Opened) -> Option<OpenId> {
        self.by_file.insert(opened.file, opened.open);
        self.by_descriptor.insert(descriptor, opened).map(|closed| closed.open)
    }

    /// Notes a close; what was behind the descriptor, if it was a file.
    #[must_use]
    pub(super) fn closed(&mut self, descriptor: u64) -> Option<OpenId> {
        self.by_descriptor.remove(&descriptor).map(|closed| closed.open)
    }

    /// What is behind its descriptors.
    pub(super) fn opens(&self) -> impl Iterator<Item = OpenId> {
        self.by_descriptor.values().map(|opened| opened.open)
    }

    /// Opens that it may name again.
    pub(super) fn known_opens(&self) -> impl Iterator<Item = OpenId> {
        self.opens().chain(self.by_file.values().copied())
    }

    /// Closes every descriptor; what was behind them.
    pub(super) fn close_all(&mut self) -> Vec<OpenId> {
        let opens = self.opens().collect();
        self.by_descriptor.clear();
        opens
    }

    /// Closes what an execve closes, and opens that were not recorded: those of the program and its
    /// interpreter are other ones now. What was behind them.
    pub(super) fn close_on_exec(&mut self) -> Vec<OpenId> {
        let is_closed =
            |descriptor: u64, opened: &Opened| opened.closes_on_exec || descriptor == NO_DESCRIPTOR;
        let closed = self.by_descriptor.extract_if(.., |&fd, opened| is_closed(fd, opened));
        let closed = closed.map(|(_, opened)| opened.open).collect();
        self.by_file = self.by_descriptor.values().map(|known| (known.file, known.open)).collect();
        closed
    }

    /// The open behind a descriptor, as long as it is this file; else the file's last open, be it
    /// closed: descriptors also come by dup and from a parent, which no recorder reports.
    pub(super) fn open_of(&self, file: FileId, descriptor: Option<u64>) -> Option<OpenId> {
        descriptor
            .and_then(|descriptor| self.by_descriptor.get(&descriptor))
            .filter(|known| known.file == file)
            .map(|known| known.open)
            .or_else(|| self.by_file.get(&file).copied())
    }
}

/// Which process each thread belongs to.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    by_id: Vec<Membership>,
}

/// What is known of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Membership {
    /// No row announced it.
    #[default]
    Unknown,
    /// Its process lives.
    Of(ProcessNr),
    /// Its process ended, or went on without it in another program.
    Ended,
}

impl Threads {
    /// The process of a thread.
    pub(super) fn of(&self, thread: ThreadId) -> Membership {
        self.by_id.get(thread as usize).copied().unwrap_or_default()
    }

    /// Threads that ran or run, as far as their ids go.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    fn started(&mut self, thread: ThreadId, process: ProcessNr) {
        let nr = thread as usize;
        if nr >= self.by_id.len() {
            self.by_id.resize(nr + 1, Membership::Unknown);
        }
        self.by_id[nr] = Membership::Of(process);
    }

    /// A thread of `process` has ended; whether it was one.
    pub(super) fn ended(&mut self, thread: ThreadId, process: ProcessNr) -> bool {
        let is_of_it = self.of(thread) == Membership::Of(process);
        if is_of_it {
            self.by_id[thread as usize] = Membership::Ended;
        }
        is_of_it
    }
}
