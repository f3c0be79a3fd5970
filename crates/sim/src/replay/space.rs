//! The address spaces of the recorded processes: recorded ranges and their places.
//!
//! Owns a process's memory layout, which processes can share: fork copies it, vfork lends it,
//! execve starts a new one. Does not own the mapped pages (`mm`).

use std::collections::BTreeMap;
use std::ops::Range;

use largefolio_mm::units::MmId;
use largefolio_trace::FileId;

use super::place::Segments;
use super::programs::ProgramNr;

/// Number of an address space, valid from its first user to its last.
pub(super) type SpaceNr = usize;

#[derive(Clone, Debug)]
pub(super) struct AddressSpace {
    pub(super) mm: MmId,
    /// Id that no other address space of the replay ever has.
    pub(super) id: u64,
    /// Number in results of its first process.
    pub(super) owner: usize,
    pub(super) program: ProgramNr,
    pub(super) nr_users: usize,
    pub(super) segments: Segments,
    images: BTreeMap<u64, PlacedImage>,
    pub(super) stacks: Vec<Range<u64>>,
    pub(super) heap: Heap,
    /// Epoch of its current segments ([`super::places`]).
    pub(super) epoch: u64,
    pub(super) measured_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedImage {
    pub(super) file: FileId,
    pub(super) end: u64,
    pub(super) base: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heap {
    pub(super) start: u64,
    pub(super) placed: u64,
}

impl AddressSpace {
    /// Creates an empty address space. `id` is also its first epoch.
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

    pub(super) fn forked(&self, mm: MmId, id: u64, owner: usize) -> Self {
        let (nr_users, measured_bytes) = (1, 0);
        Self { mm, id, owner, nr_users, epoch: id, measured_bytes, ..self.clone() }
    }

    pub(super) fn nr_entries(&self) -> usize {
        self.segments.len() + self.images.len()
    }

    pub(super) fn placed(&mut self, start: u64, image: PlacedImage) {
        if let Some((before, _)) = self.image_at(start) {
            self.images.remove(&before);
        }
        self.images.insert(start, image);
    }

    pub(super) fn image_at(&self, addr: u64) -> Option<(u64, PlacedImage)> {
        let (&start, &image) = self.images.range(..=addr).next_back()?;
        (addr < image.end).then_some((start, image))
    }
}
