//! Owner ids: the small numbers that identify an mm in an owner word (docs/behaviour F.1.2).
//!
//! Corresponds to: `mm_alloc_id`, `mm_free_id`.

use std::collections::BTreeSet;

use super::layout::Layout;
use super::state::MmOwnerId;

/// Live mms use every id of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "live processes use all {nr_ids} owner ids; a process must end before another one can start"
)]
pub struct IdsExhausted {
    /// Ids in the layout.
    pub nr_ids: u32,
}

/// Allocates the lowest free id for a new mm, and frees it when the mm ends.
///
/// Invariants:
/// - I1: every id below `next` is either in use or in `free`; no id from `next` on is.
/// - I2: `next <= id_max + 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerIds {
    /// Lowest id never allocated.
    next: u32,
    /// Freed ids below `next`.
    free: BTreeSet<u32>,
    id_max: u32,
}

impl OwnerIds {
    /// All ids of layout `L`, free.
    #[must_use]
    pub fn new<L: Layout>() -> Self {
        Self { next: 1, free: BTreeSet::new(), id_max: L::ID_MAX }
    }

    /// Allocates the lowest free id.
    ///
    /// # Errors
    /// If all ids are in use. Nothing changes.
    pub fn alloc(&mut self) -> Result<MmOwnerId, IdsExhausted> {
        let id = match self.free.pop_first() {
            Some(id) => id,
            None if self.next <= self.id_max => {
                self.next += 1;
                self.next - 1
            }
            None => return Err(IdsExhausted { nr_ids: self.id_max }),
        };
        let Some(id) = MmOwnerId::new(id) else { unreachable!("I1: ids start at 1") };
        Ok(id)
    }

    /// Frees `id`. Everything the mm mapped must be unmapped, so that no folio still names the id.
    ///
    /// # Panics
    /// If `id` is not in use.
    pub fn free(&mut self, id: MmOwnerId) {
        let is_live = id.get() < self.next && self.free.insert(id.get());
        assert!(is_live, "owner id {} was released but not in use", id.get());
        while self.next > 1 && self.free.remove(&(self.next - 1)) {
            self.next -= 1;
        }
    }

    /// Ids in use.
    #[must_use]
    pub fn nr_live(&self) -> u64 {
        u64::from(self.next - 1) - self.free.len() as u64
    }

    /// Checks I1 and I2.
    ///
    /// # Errors
    /// The id that breaks one.
    pub fn validate(&self) -> Result<(), u32> {
        if self.next - 1 > self.id_max {
            return Err(self.next - 1);
        }
        match self.free.iter().find(|&&id| id == 0 || id >= self.next) {
            Some(&id) => Err(id),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Narrow, Wide};
    use super::*;

    #[test]
    fn the_lowest_free_id_comes_first() {
        let mut ids = OwnerIds::new::<Wide>();
        let all: Vec<_> = (0..4).map(|_| ids.alloc().unwrap()).collect();
        assert_eq!(all.iter().map(|id| id.get()).collect::<Vec<_>>(), [1, 2, 3, 4]);
        ids.free(all[2]);
        ids.free(all[0]);
        assert_eq!(ids.alloc().unwrap().get(), 1);
        assert_eq!(ids.alloc().unwrap().get(), 3);
        assert_eq!(ids.alloc().unwrap().get(), 5);
        assert_eq!(ids.nr_live(), 5);
        ids.validate().unwrap();
    }

    #[test]
    fn ids_of_the_narrow_layout_run_out_and_leave_everything_as_it_was() {
        let mut ids = OwnerIds::new::<Narrow>();
        for _ in 1..1 << 15 {
            ids.alloc().unwrap();
        }
        let before = ids.clone();
        assert_eq!(ids.alloc(), Err(IdsExhausted { nr_ids: (1 << 15) - 1 }));
        assert_eq!(ids, before);
        ids.free(MmOwnerId::new(77).unwrap());
        assert_eq!(ids.alloc().unwrap().get(), 77);
        ids.validate().unwrap();
    }

    #[test]
    #[should_panic(expected = "was released but not in use")]
    fn an_id_is_given_back_once() {
        let mut ids = OwnerIds::new::<Wide>();
        let (id, _other) = (ids.alloc().unwrap(), ids.alloc().unwrap());
        ids.free(id);
        ids.free(id);
    }
}
