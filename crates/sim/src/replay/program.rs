//! The recorded program: files, threads, processes, what they have open.
//!
//! Owns their identities. Does not own memory ([`crate::replay::cell`]).

use std::collections::BTreeMap;

use largefolio_mm::units::MmId;
use largefolio_mm::units::PageSize;
use largefolio_mm::vma::OpenId;
use largefolio_trace::{FileId, ThreadId};

use super::files::TraceFiles;
use super::images::LinkedImage;
use super::place::Segments;

/// Process of the replay.
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
    pub(super) processes: Vec<Process>,
    pub(super) threads: Threads,
    /// Pages that the modelled programs are linked for.
    pub(super) link: PageSize,
    /// Whether a segment was placed for larger pages than the recorded ones.
    pub(super) is_replaced: bool,
}

impl Program {
    /// One without files that has not started.
    pub(super) fn new(link: PageSize) -> Self {
        let (files, processes) = (TraceFiles::default(), Vec::new());
        let (linked, threads) = (BTreeMap::new(), Threads::default());
        Self { files, linked, processes, threads, link, is_replaced: false }
    }

    /// Forgets all but the files: the program starts again.
    pub(super) fn restart(&mut self) {
        self.processes.clear();
        self.threads = Threads::default();
    }
}

/// A process of the recorded program.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) mm: MmId,
    /// Recorded ranges and their places.
    pub(super) segments: Segments,
    /// Images that are linked for other pages, by their recorded start.
    images: BTreeMap<u64, PlacedImage>,
    /// Open files by descriptor.
    by_descriptor: BTreeMap<u64, (FileId, OpenId)>,
    /// The last open of a file, by any descriptor.
    by_file: BTreeMap<FileId, OpenId>,
    /// Where the heap starts.
    pub(super) heap: Heap,
    /// Bytes of it when it was last measured ([`super::budget`]).
    pub(super) measured_bytes: u64,
}

/// An image that is linked for other pages than the recorded ones, where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedImage {
    /// Its file.
    pub(super) file: FileId,
    /// Recorded address after it.
    pub(super) end: u64,
    /// Address of its base here.
    pub(super) base: u64,
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
            images: BTreeMap::new(),
            by_descriptor: BTreeMap::new(),
            by_file: BTreeMap::new(),
            heap: Heap::default(),
            measured_bytes: 0,
        }
    }

    /// The same program in a copied address space: what fork makes. Open files are shared.
    pub(super) fn forked(&self, mm: MmId) -> Self {
        Self { mm, measured_bytes: 0, ..self.clone() }
    }

    /// Entries of its maps.
    pub(super) fn nr_entries(&self) -> usize {
        self.segments.len() + self.images.len() + self.by_descriptor.len() + self.by_file.len()
    }

    /// Notes where an image begins, and forgets the one that was recorded there before.
    pub(super) fn placed(&mut self, start: u64, image: PlacedImage) {
        if let Some((before, _)) = self.image_at(start) {
            self.images.remove(&before);
        }
        self.images.insert(start, image);
    }

    /// The image whose recorded range holds `addr`, with its recorded start.
    pub(super) fn image_at(&self, addr: u64) -> Option<(u64, PlacedImage)> {
        let (&start, &image) = self.images.range(..=addr).next_back()?;
        (addr < image.end).then_some((start, image))
    }

    /// Notes an open; what the descriptor was before, which it is no more.
    #[must_use]
    pub(super) fn opened(&mut self, descriptor: u64, file: FileId, open: OpenId) -> Option<OpenId> {
        self.by_file.insert(file, open);
        self.by_descriptor.insert(descriptor, (file, open)).map(|(_, closed)| closed)
    }

    /// Notes a close; what was behind the descriptor, if it was a file.
    #[must_use]
    pub(super) fn closed(&mut self, descriptor: u64) -> Option<OpenId> {
        self.by_descriptor.remove(&descriptor).map(|(_, open)| open)
    }

    /// What is behind its descriptors.
    pub(super) fn opens(&self) -> impl Iterator<Item = OpenId> {
        self.by_descriptor.values().map(|&(_, open)| open)
    }

    /// Closes every descriptor; what was behind them.
    pub(super) fn close_all(&mut self) -> Vec<OpenId> {
        let opens = self.opens().collect();
        self.by_descriptor.clear();
        opens
    }

    /// The open behind a descriptor, as long as it is this file; else the file's last open, be it
    /// closed: descriptors also come by dup and from a parent, which no recorder reports.
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
    /// The process of a thread; none of one that nobody announced.
    pub(super) fn process_of(&self, thread: ThreadId) -> Option<ProcessNr> {
        self.processes.get(&thread).copied()
    }

    /// Threads that ran or run.
    pub(super) fn len(&self) -> usize {
        self.processes.len()
    }

    /// Notes a new thread.
    pub(super) fn started(&mut self, thread: ThreadId, process: ProcessNr) {
        self.processes.insert(thread, process);
    }
}
