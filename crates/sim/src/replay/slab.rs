//! A table whose numbers are given again: it has as many places as there were things at one time.
//!
//! Invariant S1: a number names a thing from [`Slab::insert`] to [`Slab::remove`]; whoever keeps it
//! longer than that may name another thing.

use std::ops::{Index, IndexMut};

/// Things by number.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    /// Numbers without a thing; the last is used next.
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a thing; its number.
    pub(super) fn insert(&mut self, thing: T) -> usize {
        if let Some(nr) = self.free.pop() {
            self.places[nr] = Some(thing);
            return nr;
        }
        self.places.push(Some(thing));
        self.places.len() - 1
    }

    /// Takes a thing out, if there is one.
    pub(super) fn remove(&mut self, nr: usize) -> Option<T> {
        let thing = self.places.get_mut(nr)?.take();
        if thing.is_some() {
            self.free.push(nr);
        }
        thing
    }

    /// The thing of a number, if there is one.
    pub(super) fn get(&self, nr: usize) -> Option<&T> {
        self.places.get(nr)?.as_ref()
    }

    /// The thing of a number, if there is one.
    pub(super) fn get_mut(&mut self, nr: usize) -> Option<&mut T> {
        self.places.get_mut(nr)?.as_mut()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All there are, by number.
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
