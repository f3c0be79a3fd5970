//! A policy's maps: its state between calls.
//!
//! An entry keeps its slot while it exists, so pointers to it stay valid. Slots depend only on the
//! order of insertions and deletions.
//!
//! Owns keys, values and slots. Does not know addresses.

use std::collections::HashMap;

/// Overhead of a hash-map entry beyond key and value: its slot, counted twice because the table may
/// just have grown, and its key's allocation.
const HASHED_BYTES: usize = 112;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MapSpec {
    pub(super) name: String,
    pub(super) kind: MapKind,
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) nr_max: usize,
}

impl MapSpec {
    pub(super) fn bytes_max(&self) -> usize {
        let of_entry = match self.kind {
            MapKind::Array | MapKind::Ring => self.value_bytes,
            MapKind::Hash | MapKind::OfCgroups => {
                self.key_bytes.saturating_add(self.value_bytes).saturating_add(HASHED_BYTES)
            }
        };
        of_entry.saturating_mul(self.nr_max)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    /// By a 32-bit index; every entry exists from the start, zeroed.
    Array,
    Hash,
    /// An entry per cgroup, by its 32-bit number.
    OfCgroups,
    /// A ring, which stays empty.
    Ring,
}

#[derive(Clone, Debug)]
pub(super) struct Map {
    spec: MapSpec,
    values: Vec<u8>,
    places: HashMap<Box<[u8]>, usize>,
    /// Freed slots, most recent last.
    free: Vec<usize>,
    nr_used: usize,
}

mod flags {
    pub(super) const ANY: u64 = 0;
    pub(super) const NOEXIST: u64 = 1;
    pub(super) const EXIST: u64 = 2;
}

pub(super) mod errno {
    pub(in super::super) const ENOENT: i64 = -2;
    pub(in super::super) const E2BIG: i64 = -7;
    pub(in super::super) const EEXIST: i64 = -17;
    pub(in super::super) const EINVAL: i64 = -22;
}

impl Map {
    pub(super) fn new(spec: &MapSpec) -> Self {
        let values = vec![0; spec.value_bytes * spec.nr_max];
        let (places, free) = (HashMap::new(), Vec::new());
        Self { spec: spec.clone(), values, places, free, nr_used: 0 }
    }

    pub(super) const fn spec(&self) -> &MapSpec {
        &self.spec
    }

    pub(super) fn values(&self) -> &[u8] {
        &self.values
    }

    pub(super) fn values_mut(&mut self) -> &mut [u8] {
        &mut self.values
    }

    pub(super) fn lookup(&self, key: &[u8]) -> Option<usize> {
        let place = match self.spec.kind {
            MapKind::Array => {
                let nr = u32::from_le_bytes(key.try_into().ok()?) as usize;
                (nr < self.spec.nr_max).then_some(nr)?
            }
            MapKind::Hash | MapKind::OfCgroups => *self.places.get(key)?,
            MapKind::Ring => return None,
        };
        Some(place * self.spec.value_bytes)
    }

    /// Sets the entry of `key` in place. Returns 0, or a number of [`errno`].
    ///
    /// Differs: a pointer to a hash-map entry sees the new value. A kernel allocates a new entry,
    /// and old pointers keep the old one.
    pub(super) fn update(&mut self, key: &[u8], value: &[u8], flag: u64) -> i64 {
        if !matches!(flag, flags::ANY | flags::NOEXIST | flags::EXIST) {
            return errno::EINVAL;
        }
        let offset_of_key = self.lookup(key);
        let offset = match (offset_of_key, flag) {
            // An array cannot grow, whatever the flags.
            (None, _) if matches!(self.spec.kind, MapKind::Array | MapKind::Ring) => {
                return errno::E2BIG;
            }
            (Some(_), flags::NOEXIST) => return errno::EEXIST,
            (Some(offset), _) => offset,
            (None, flags::EXIST) => return errno::ENOENT,
            (None, _) => match self.add(key) {
                Some(offset) => offset,
                None => return errno::E2BIG,
            },
        };
        self.values[offset..][..value.len()].copy_from_slice(value);
        0
    }

    /// Allocates a slot for a new key of a hash map; `None` if it is full.
    fn add(&mut self, key: &[u8]) -> Option<usize> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.nr_used < self.spec.nr_max => {
                self.nr_used += 1;
                self.nr_used - 1
            }
            None => return None,
        };
        self.places.insert(key.into(), place);
        Some(place * self.spec.value_bytes)
    }

    /// Removes the entry of `key`. Returns 0, or a number of [`errno`].
    pub(super) fn delete(&mut self, key: &[u8]) -> i64 {
        match (self.spec.kind, self.places.remove(key)) {
            (MapKind::Array | MapKind::Ring, _) => errno::EINVAL,
            (MapKind::Hash | MapKind::OfCgroups, None) => errno::ENOENT,
            (MapKind::Hash | MapKind::OfCgroups, Some(place)) => {
                self.free.push(place);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(kind: MapKind) -> Map {
        let name = String::from("m");
        Map::new(&MapSpec { name, kind, key_bytes: 4, value_bytes: 8, nr_max: 2 })
    }

    #[test]
    fn a_hash_map_holds_so_many_entries_and_uses_places_again() {
        let mut map = map(MapKind::Hash);
        let (one, two, three) = ([1; 4], [2; 4], [3; 4]);
        assert_eq!(map.update(&one, &[1; 8], 2), errno::ENOENT);
        assert_eq!(map.update(&one, &[1; 8], 1), 0);
        assert_eq!(map.update(&one, &[1; 8], 1), errno::EEXIST);
        assert_eq!(map.update(&one, &[1; 8], 7), errno::EINVAL);
        assert_eq!(map.update(&two, &[2; 8], 0), 0);
        assert_eq!(map.update(&three, &[3; 8], 0), errno::E2BIG);
        assert_eq!((map.lookup(&one), map.lookup(&two)), (Some(0), Some(8)));
        assert_eq!((map.delete(&one), map.delete(&one)), (0, errno::ENOENT));
        assert_eq!(map.update(&three, &[3; 8], 0), 0);
        assert_eq!(map.lookup(&three), Some(0));
        assert_eq!(map.values(), [[3; 8], [2; 8]].concat());
    }

    #[test]
    fn entries_of_an_array_exist_from_the_start() {
        let mut map = map(MapKind::Array);
        assert_eq!(map.lookup(&1_u32.to_le_bytes()), Some(8));
        assert_eq!(map.lookup(&2_u32.to_le_bytes()), None);
        // The order of checks: unknown flags, range, existence.
        let [last, beyond] = [1_u32, 2].map(u32::to_le_bytes);
        let results =
            |map: &mut Map, key: &[u8]| [0, 1, 2, 3].map(|flag| map.update(key, &[3; 8], flag));
        assert_eq!(results(&mut map, &last), [0, errno::EEXIST, 0, errno::EINVAL]);
        assert_eq!(
            results(&mut map, &beyond),
            [errno::E2BIG, errno::E2BIG, errno::E2BIG, errno::EINVAL]
        );
        assert_eq!(map.delete(&1_u32.to_le_bytes()), errno::EINVAL);
    }
}
