//! PTE tables: one arena of equal-sized tables, which reuses freed tables first.
//!
//! Invariants:
//! - T1: a table's `nr_present` counts its present PTEs.
//! - T2: a free table holds no PTE.

use crate::units::Order;

use super::pte::Pte;

#[derive(Clone, Debug)]
pub(super) struct Tables {
    /// Table `id` is `ptes[id << order ..][.. 1 << order]`.
    ptes: Vec<Pte>,
    nr_present: Vec<u32>,
    free: Vec<u32>,
    order: Order,
}

impl Tables {
    pub(super) const fn new(order: Order) -> Self {
        Self { ptes: Vec::new(), nr_present: Vec::new(), free: Vec::new(), order }
    }

    pub(super) fn alloc(&mut self) -> u32 {
        if let Some(id) = self.free.pop() {
            return id;
        }
        let Ok(id) = u32::try_from(self.nr_present.len()) else { panic!("2^32 PTE tables") };
        self.nr_present.push(0);
        self.ptes.resize(self.ptes.len() + (1 << self.order.get()), Pte::NONE);
        id
    }

    pub(super) fn free(&mut self, id: u32) {
        assert_eq!(self.nr_present(id), 0, "T2: freed PTE table {id} still maps pages");
        self.free.push(id);
    }

    pub(super) const fn nr_held(&self) -> usize {
        self.ptes.len()
    }

    pub(super) const fn nr_used(&self) -> usize {
        self.nr_present.len() - self.free.len()
    }

    pub(super) fn nr_present(&self, id: u32) -> u32 {
        self.nr_present[id as usize]
    }

    #[inline]
    pub(super) fn pte(&self, id: u32, position: usize) -> Pte {
        self.ptes[((id as usize) << self.order.get()) + position]
    }

    #[inline]
    pub(super) fn ptes(&self, id: u32) -> &[Pte] {
        let first = (id as usize) << self.order.get();
        &self.ptes[first..first + (1 << self.order.get())]
    }

    /// The PTEs for rewriting: the number of present ones must not change.
    #[inline]
    pub(super) fn ptes_mut(&mut self, id: u32) -> &mut [Pte] {
        let first = (id as usize) << self.order.get();
        &mut self.ptes[first..first + (1 << self.order.get())]
    }

    pub(super) fn fill(&mut self, id: u32, position: usize, ptes: impl Iterator<Item = Pte>) {
        let mut nr = 0;
        for (place, pte) in self.ptes_mut(id)[position..].iter_mut().zip(ptes) {
            debug_assert!(place.is_none() && pte.is_present(), "filling a PTE that is already set");
            *place = pte;
            nr += 1;
        }
        self.nr_present[id as usize] += nr;
    }

    pub(super) fn clear(&mut self, id: u32, position: usize, nr: usize) {
        let ptes = &mut self.ptes_mut(id)[position..position + nr];
        debug_assert!(ptes.iter().all(|pte| pte.is_present()), "clearing an empty PTE");
        ptes.fill(Pte::NONE);
        self.nr_present[id as usize] -= nr as u32;
    }

    pub(super) fn first_miscounted(&self) -> Option<u32> {
        let nr_tables = self.nr_present.len() as u32;
        let count = |id| self.ptes(id).iter().filter(|pte| pte.is_present()).count();
        (0..nr_tables)
            .find(|&id| count(id) != self.nr_present(id) as usize)
            .or_else(|| self.free.iter().copied().find(|&id| self.nr_present(id) != 0))
    }
}
