//! A table that reuses its indices, so it has as many slots as were in use at one time.
//!
//! Invariant S1: an index is valid from [`Slab::insert`] to [`Slab::remove`]. After that it can
//! refer to another item.

use std::ops::{Index, IndexMut};

#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
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
    pub(super) fn insert(&mut self, thing: T) -> usize {
        if let Some(nr) = self.free.pop() {
            self.places[nr] = Some(thing);
            return nr;
        }
        self.places.push(Some(thing));
        self.places.len() - 1
    }

    pub(super) fn remove(&mut self, nr: usize) -> Option<T> {
        let thing = self.places.get_mut(nr)?.take();
        if thing.is_some() {
            self.free.push(nr);
        }
        thing
    }

    pub(super) fn get(&self, nr: usize) -> Option<&T> {
        self.places.get(nr)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, nr: usize) -> Option<&mut T> {
        self.places.get_mut(nr)?.as_mut()
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
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
