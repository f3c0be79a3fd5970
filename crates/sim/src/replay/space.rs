//! The address spaces of the recorded processes: recorded ranges and where they lie.
//!
//! Owns what a process has of memory and may share with another: fork copies it, vfork lends it, an
//! execve begins another. Does not own the mapped pages (`mm`).

use std::collections::BTreeMap;
use std::ops::Range;

use largefolio_mm::units::MmId;
use largefolio_trace::FileId;

use super::place::Segments;
use super::programs::ProgramNr;

/// Number of an address space, from its first user to its last.
pub(super) type SpaceNr = usize;

/// An address space of the replay.
#[derive(Clone, Debug)]
pub(super) struct AddressSpace {
    pub(super) mm: MmId,
    /// Number that no other address space of the replay has or had.
    pub(super) id: u64,
    /// The process that it began with, as results count processes.
    pub(super) owner: usize,
    /// The program that it was made for.
    pub(super) program: ProgramNr,
    /// Processes that use it: more than one while vfork lends it.
    pub(super) nr_users: usize,
    /// Recorded ranges and their places.
    pub(super) segments: Segments,
    /// Images that are linked for other pages, by their recorded start.
    images: BTreeMap<u64, PlacedImage>,
    /// Recorded ranges of its stack at the start.
    pub(super) stacks: Vec<Range<u64>>,
    /// Where the heap starts.
    pub(super) heap: Heap,
    /// Since when its segments are what they are ([`super::places`]).
    pub(super) epoch: u64,
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

impl AddressSpace {
    /// One with nothing in it; `id` is its epoch, too.
    pub(super) fn new(mm: MmId, id: u64, owner: usize, program: ProgramNr) -> Self {
        Self {
            mm,
            id,
            owner,
            program,
            nr_users: 1,
            segments: Segments::default(),
            images: BTreeMap::new(),
            stacks: Vec::new(),
            heap: Heap::default(),
            epoch: id,
            measured_bytes: 0,
        }
    }

    /// The same in a copy of its pages: what fork makes.
    pub(super) fn forked(&self, mm: MmId, id: u64, owner: usize) -> Self {
        let (nr_users, measured_bytes) = (1, 0);
        Self { mm, id, owner, nr_users, epoch: id, measured_bytes, ..self.clone() }
    }

    /// Entries of its maps.
    pub(super) fn nr_entries(&self) -> usize {
        self.segments.len() + self.images.len()
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
}
