//! The address spaces of the recorded processes: recorded ranges and their places.
//!
//! Owns a process's memory layout, which processes can share: fork copies it, vfork lends it,
//! execve starts a new one. Does not own the mapped pages (`mm`).

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut, Range};

use largefolio_mm::units::MmId;
use largefolio_trace::FileId;

use crate::replay::observers::programs::ProgramNr;
use crate::replay::observers::sizes::LargestShared;
use crate::replay::program::place::Segments;

/// Number of an address space, valid from its first user to its last.
pub(crate) type SpaceNr = usize;

#[derive(Clone, Debug)]
pub(crate) struct AddressSpace {
    pub(crate) mm: MmId,
    /// Id that no other address space of the replay ever has.
    pub(crate) id: u64,
    /// Number in results of its first process.
    pub(crate) owner: usize,
    pub(crate) program: ProgramNr,
    pub(crate) nr_users: usize,
    pub(crate) segments: Segments,
    images: BTreeMap<u64, PlacedImage>,
    pub(crate) stacks: Vec<Range<u64>>,
    pub(crate) heap: Heap,
    /// Epoch of its current segments ([`super::places`]).
    pub(crate) epoch: u64,
    pub(crate) measured_bytes: u64,
    pub(crate) shared: LargestShared,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedImage {
    pub(crate) file: FileId,
    pub(crate) end: u64,
    pub(crate) base: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heap {
    pub(crate) start: u64,
    pub(crate) placed: u64,
    /// Its end, if the allocator rounds it; 0 = as recorded.
    pub(crate) end: u64,
}

impl AddressSpace {
    /// Creates an empty address space. `id` is also its first epoch.
    pub(crate) fn new(mm: MmId, id: u64, owner: usize, program: ProgramNr) -> Self {
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
            shared: LargestShared::default(),
        }
    }

    pub(crate) fn forked(&self, mm: MmId, id: u64, owner: usize) -> Self {
        let (nr_users, measured_bytes, shared) = (1, 0, LargestShared::default());
        Self { mm, id, owner, nr_users, epoch: id, measured_bytes, shared, ..self.clone() }
    }

    pub(crate) fn nr_entries(&self) -> usize {
        self.segments.len() + self.images.len()
    }

    pub(crate) fn placed(&mut self, start: u64, image: PlacedImage) {
        if let Some((before, _)) = self.image_at(start) {
            self.images.remove(&before);
        }
        self.images.insert(start, image);
    }

    pub(crate) fn image_at(&self, addr: u64) -> Option<(u64, PlacedImage)> {
        let (&start, &image) = self.images.range(..=addr).next_back()?;
        (addr < image.end).then_some((start, image))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    /// Free indices; the last is used next.
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, thing: T) -> usize {
        if let Some(nr) = self.free.pop() {
            self.places[nr] = Some(thing);
            return nr;
        }
        self.places.push(Some(thing));
        self.places.len() - 1
    }

    pub(crate) fn remove(&mut self, nr: usize) -> Option<T> {
        let thing = self.places.get_mut(nr)?.take();
        if thing.is_some() {
            self.free.push(nr);
        }
        thing
    }

    pub(crate) fn get(&self, nr: usize) -> Option<&T> {
        self.places.get(nr)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, nr: usize) -> Option<&mut T> {
        self.places.get_mut(nr)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.places.iter().enumerate().filter_map(|(nr, place)| Some((nr, place.as_ref()?)))
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, nr: usize) -> &T {
        let Some(thing) = self.get(nr) else { unreachable!("S1: nothing has number {nr}") };
        thing
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, nr: usize) -> &mut T {
        let Some(thing) = self.get_mut(nr) else { unreachable!("S1: nothing has number {nr}") };
        thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.remove(a), slab.len()), (None, 1));
        assert_eq!(slab.insert('c'), a);
        assert_eq!(slab.iter().map(|(_, thing)| *thing).collect::<String>(), "cb");
        assert_eq!((slab[b], slab.get(2)), ('b', None));
    }
}
