//! The state of each page frame: its folio and its flags.
//!
//! Owns the folio's id, `AnonExclusive`, "written", "accessed" and "incompressible" of each frame, in leaves that
//! exist only for used memory. Does not own the folios ([`crate::folio`]) or mapcounts
//! ([`crate::rmap`]).
//!
//! | state | meaning |
//! |---|---|
//! | exclusive | private to one process: a store needs no copy (L.8) |
//! | written | written since the page was zeroed |
//! | accessed | accessed through a page table since reclaim last checked |
//! | incompressible | holds data that zswap cannot compress, as far as a recording says |

use crate::units::Pfn;

const LEAF_SHIFT: u32 = 9;
const LEAF: usize = 1 << LEAF_SHIFT;
const WORDS: usize = LEAF / 64;
const NR_FLAGS: usize = 4;
pub(crate) const NO_FOLIO: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    Exclusive = 0,
    Written = 1,
    Accessed = 2,
    Incompressible = 3,
}

impl Flag {
    pub(crate) const ALL: [Self; NR_FLAGS] =
        [Self::Exclusive, Self::Written, Self::Accessed, Self::Incompressible];
}

#[derive(Clone, Debug)]
struct Leaf {
    folio: [u32; LEAF],
    flags: [[u64; WORDS]; NR_FLAGS],
}

const EMPTY: Leaf = Leaf { folio: [NO_FOLIO; LEAF], flags: [[0; WORDS]; NR_FLAGS] };

#[derive(Clone, Debug, Default)]
pub(crate) struct Frames {
    leaves: Vec<Option<Box<Leaf>>>,
}

struct FramesPart {
    leaf: usize,
    first: usize,
    end: usize,
}

fn parts(pfn: Pfn, nr: u64) -> impl Iterator<Item = FramesPart> {
    let (mut at, end) = (pfn.0, pfn.0 + nr);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let leaf = (at >> LEAF_SHIFT) as usize;
        let first = at as usize & (LEAF - 1);
        let nr = (LEAF - first).min((end - at) as usize);
        at += nr as u64;
        Some(FramesPart { leaf, first, end: first + nr })
    })
}

fn words(part: &FramesPart) -> impl Iterator<Item = (usize, u64)> + use<> {
    let (first, end) = (part.first, part.end);
    (first / 64..end.div_ceil(64)).map(move |word| {
        let low = first.saturating_sub(word * 64).min(64);
        let high = (end - word * 64).min(64);
        let upto = |bits: usize| if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        (word, upto(high) & !upto(low))
    })
}

impl Frames {
    fn leaf_mut(&mut self, leaf: usize) -> &mut Leaf {
        if leaf >= self.leaves.len() {
            self.leaves.resize(leaf + 1, None);
        }
        self.leaves[leaf].get_or_insert_with(|| Box::new(EMPTY))
    }

    #[inline]
    fn leaf(&self, pfn: Pfn) -> Option<(&Leaf, usize)> {
        let leaf = self.leaves.get((pfn.0 >> LEAF_SHIFT) as usize)?.as_ref()?;
        Some((leaf, pfn.0 as usize & (LEAF - 1)))
    }

    #[inline]
    pub(crate) fn folio(&self, pfn: Pfn) -> u32 {
        self.leaf(pfn).map_or(NO_FOLIO, |(leaf, at)| leaf.folio[at])
    }

    pub(crate) fn set_folio(&mut self, pfn: Pfn, nr: u64, id: u32) {
        for part in parts(pfn, nr) {
            self.leaf_mut(part.leaf).folio[part.first..part.end].fill(id);
        }
    }

    pub(crate) fn nr_named(&self) -> u64 {
        let ids = self.leaves.iter().flatten().flat_map(|leaf| leaf.folio);
        ids.filter(|&id| id != NO_FOLIO).count() as u64
    }

    pub(crate) fn set(&mut self, flag: Flag, pfn: Pfn, nr: u64) {
        for part in parts(pfn, nr) {
            let bits = &mut self.leaf_mut(part.leaf).flags[flag as usize];
            words(&part).for_each(|(word, mask)| bits[word] |= mask);
        }
    }

    /// [`Frames::set`] for one frame that has, or had, a folio.
    #[inline]
    pub(crate) fn set_one(&mut self, flag: Flag, pfn: Pfn) {
        let at = pfn.0 as usize & (LEAF - 1);
        if let Some(Some(leaf)) = self.leaves.get_mut((pfn.0 >> LEAF_SHIFT) as usize) {
            leaf.flags[flag as usize][at / 64] |= 1 << (at % 64);
        }
    }

    pub(crate) fn clear(&mut self, flag: Flag, pfn: Pfn, nr: u64) {
        for part in parts(pfn, nr) {
            let bits = &mut self.leaf_mut(part.leaf).flags[flag as usize];
            words(&part).for_each(|(word, mask)| bits[word] &= !mask);
        }
    }

    pub(crate) fn move_flag(&mut self, flag: Flag, from: Pfn, to: Pfn, nr: u64) {
        for by in 0..nr {
            let is_set = self.get(flag, from.plus(by));
            self.clear(flag, to.plus(by), 1);
            if is_set {
                self.set(flag, to.plus(by), 1);
            }
        }
        self.clear(flag, from, nr);
    }

    #[inline]
    pub(crate) fn get(&self, flag: Flag, pfn: Pfn) -> bool {
        self.leaf(pfn)
            .is_some_and(|(leaf, at)| leaf.flags[flag as usize][at / 64] >> (at % 64) & 1 == 1)
    }

    pub(crate) fn count(&self, flag: Flag, pfn: Pfn, nr: u64) -> u64 {
        let count = |part: FramesPart| -> u64 {
            let Some(Some(leaf)) = self.leaves.get(part.leaf) else { return 0 };
            let bits = &leaf.flags[flag as usize];
            words(&part).map(|(word, mask)| u64::from((bits[word] & mask).count_ones())).sum()
        };
        parts(pfn, nr).map(count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_a_range_that_crosses_words_and_leaves() {
        let mut frames = Frames::default();
        frames.set(Flag::Exclusive, Pfn(500), 600);
        assert_eq!(frames.count(Flag::Exclusive, Pfn(0), 2048), 600);
        assert_eq!(frames.count(Flag::Written, Pfn(0), 2048), 0);
        frames.clear(Flag::Exclusive, Pfn(510), 4);
        let kept = [499, 500, 509, 510, 513, 514, 1099, 1100];
        let is_set = kept.map(|pfn| frames.get(Flag::Exclusive, Pfn(pfn)));
        assert_eq!(is_set, [false, true, true, false, false, true, true, false]);
    }
}
