//! A naive model of the page table, written from docs/behaviour C.1 alone: one ordered map from
//! virtual page to entry; every rule is applied page by page. Each entry of a folded block has its
//! own accessed and dirty bits, as hardware allows; reading returns their OR.

use std::collections::{BTreeMap, BTreeSet};

pub const WRITABLE: u8 = 1;
pub const DIRTY: u8 = 2;
pub const YOUNG: u8 = 4;
/// Never folded or batched.
pub const SPECIAL: u8 = 8;

const ACCESS: u8 = DIRTY | YOUNG;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NaivePte {
    pub pfn: u64,
    pub flags: u8,
    pub is_folded: bool,
}

/// Consecutive pages: first virtual page, first page frame, number, flags.
pub type Piece = (u64, u64, u64, u8);

/// First page frame and order.
pub type Folio = (u64, u8);

#[derive(Clone, Debug, Default)]
pub struct NaivePageTable {
    ptes: BTreeMap<u64, NaivePte>,
    pmds: BTreeMap<u64, (u64, u8)>,
    tables: BTreeSet<u64>,
    slot: u64,
    block: u64,
    pub nr_folds: u64,
    pub nr_unfolds: u64,
}

impl NaivePageTable {
    #[must_use]
    pub fn new(slot: u64, block: u64) -> Self {
        Self { slot, block, ..Self::default() }
    }

    #[must_use]
    pub fn read(&self, vpn: u64) -> Option<NaivePte> {
        if let Some(&(pfn, flags)) = self.pmds.get(&(vpn / self.slot)) {
            return Some(NaivePte { pfn: pfn + vpn % self.slot, flags, is_folded: false });
        }
        let pte = *self.ptes.get(&vpn)?;
        let access = if pte.is_folded { self.block_access(vpn) } else { 0 };
        Some(NaivePte { flags: pte.flags | access, ..pte })
    }

    /// Leaves that overlap `vpn..end`: first page, page frame, number of pages, flags.
    #[must_use]
    pub fn leaves(&self, vpn: u64, end: u64) -> Vec<Piece> {
        let mut leaves = Vec::new();
        let mut at = vpn;
        while at < end {
            let size = self.leaf_size(at);
            let first = at / size * size;
            if let Some(pte) = self.read(first).filter(|_| self.read(at).is_some()) {
                leaves.push((first, pte.pfn, size, pte.flags));
            }
            at = first + size;
        }
        leaves
    }

    fn leaf_size(&self, vpn: u64) -> u64 {
        if self.pmds.contains_key(&(vpn / self.slot)) {
            return self.slot;
        }
        if self.ptes.get(&vpn).is_some_and(|pte| pte.is_folded) { self.block } else { 1 }
    }

    #[must_use]
    pub fn has_leaf(&self, vpn: u64) -> bool {
        self.pmds.contains_key(&(vpn / self.slot))
    }

    #[must_use]
    pub fn is_slot_empty(&self, vpn: u64) -> bool {
        !self.has_leaf(vpn) && !self.tables.contains(&(vpn / self.slot))
    }

    /// Largest aligned group around `vpn` with consecutive page frames, at most `cap` pages.
    #[must_use]
    pub fn run(&self, vpn: u64, cap: u64, must_access_match: bool) -> u64 {
        let Some(here) = self.read(vpn) else { return 0 };
        let mask = if must_access_match { 0xff } else { !ACCESS };
        let mut best = 1;
        let mut size = 2;
        while size <= cap {
            let first = vpn / size * size;
            let is_alike = |other: u64| {
                self.read(other).is_some_and(|pte| {
                    pte.pfn + vpn == here.pfn + other && pte.flags & mask == here.flags & mask
                })
            };
            let is_aligned = here.pfn % size == vpn % size;
            if is_aligned && (first..first + size).all(is_alike) {
                best = size;
            }
            size *= 2;
        }
        best
    }

    /// Maps `nr` pages of `folio`.
    ///
    /// # Panics
    /// Panics if one of them is already mapped.
    pub fn map(&mut self, (vpn, pfn, nr, flags): Piece, folio: Folio) {
        self.tables.insert(vpn / self.slot);
        for by in 0..nr {
            let pte = NaivePte { pfn: pfn + by, flags, is_folded: false };
            assert!(self.ptes.insert(vpn + by, pte).is_none());
        }
        if nr == 1 {
            return self.after_single_set(vpn, folio);
        }
        for by in 0..nr {
            let at = vpn + by;
            let fits = at % self.block == 0 && (pfn + by) % self.block == 0;
            if self.block > 1 && fits && by + self.block <= nr && flags & SPECIAL == 0 {
                self.fold(at);
            }
        }
    }

    /// Maps a slot by one leaf.
    ///
    /// # Panics
    /// Panics if the slot is in use.
    pub fn map_pmd(&mut self, vpn: u64, pfn: u64, flags: u8) {
        assert!(self.is_slot_empty(vpn));
        self.pmds.insert(vpn / self.slot, (pfn, flags));
    }

    pub fn replace(&mut self, vpn: u64, pfn: u64, flags: u8, folio: Folio) {
        self.unfold(vpn);
        self.ptes.insert(vpn, NaivePte { pfn, flags, is_folded: false });
        self.after_single_set(vpn, folio);
    }

    pub fn add_flags(&mut self, vpn: u64, flags: u8) {
        if let Some((_, old)) = self.pmds.get_mut(&(vpn / self.slot)) {
            *old |= flags;
            return;
        }
        if flags & WRITABLE & !self.ptes[&vpn].flags != 0 {
            self.unfold(vpn);
        }
        if let Some(pte) = self.ptes.get_mut(&vpn) {
            pte.flags |= flags;
        }
    }

    pub fn clear_young(&mut self, vpn: u64) -> bool {
        let was_young = self.read(vpn).is_some_and(|pte| pte.flags & YOUNG != 0);
        if let Some((_, old)) = self.pmds.get_mut(&(vpn / self.slot)) {
            *old &= !YOUNG;
        }
        let size = self.leaf_size(vpn);
        let first = vpn / size * size;
        for (_, pte) in self.ptes.range_mut(first..first + size) {
            pte.flags &= !YOUNG;
        }
        was_young
    }

    /// Clears `vpn..end`. Returns batches of PTEs by folio and whole leaves, in address order.
    pub fn clear(&mut self, vpn: u64, end: u64, folio_of: impl Fn(u64) -> Folio) -> Vec<Piece> {
        self.unfold_edges(vpn, end);
        let mut pieces: Vec<Piece> = Vec::new();
        for at in vpn..end {
            if let Some((pfn, flags)) = self.pmds.remove(&(at / self.slot)) {
                pieces.push((at, pfn, self.slot, flags));
                continue;
            }
            let Some(pte) = self.read(at) else { continue };
            let special = pte.flags & SPECIAL;
            let joins = |&(first, pfn, nr, flags): &Piece| {
                first + nr == at
                    && pfn + nr == pte.pfn
                    && first / self.slot == at / self.slot
                    && (special | flags & SPECIAL) == 0
                    && folio_of(pfn) == folio_of(pte.pfn)
            };
            match pieces.last_mut() {
                Some(piece) if joins(piece) => {
                    piece.2 += 1;
                    piece.3 |= pte.flags;
                }
                _ => pieces.push((at, pte.pfn, 1, pte.flags)),
            }
        }
        self.ptes.retain(|&at, _| !(vpn..end).contains(&at));
        pieces
    }

    pub fn wrprotect(&mut self, vpn: u64, end: u64) {
        self.change(vpn, end, 0, WRITABLE);
    }

    /// Changes flags of `vpn..end`; folds a block when its last PTE is rewritten.
    pub fn protect(
        &mut self,
        (vpn, end): (u64, u64),
        (set, clear): (u8, u8),
        folio_of: impl Fn(u64) -> Folio,
    ) {
        self.change(vpn, end, set, clear);
        for at in vpn..end {
            if let Some(pte) = self.ptes.get(&at).copied() {
                self.after_single_set(at, folio_of(pte.pfn));
            }
        }
    }

    fn change(&mut self, vpn: u64, end: u64, set: u8, clear: u8) {
        self.unfold_edges(vpn, end);
        for slot in vpn / self.slot..end.div_ceil(self.slot) {
            if let Some((_, flags)) = self.pmds.get_mut(&slot) {
                *flags = *flags & !clear | set;
            }
        }
        for (_, pte) in self.ptes.range_mut(vpn..end) {
            pte.flags = pte.flags & !clear | set;
        }
    }

    pub fn split_pmd(&mut self, vpn: u64) -> bool {
        let Some((pfn, flags)) = self.pmds.remove(&(vpn / self.slot)) else { return false };
        let first = vpn / self.slot * self.slot;
        let order = u8::try_from(self.slot.ilog2()).unwrap_or(u8::MAX);
        self.map((first, pfn, self.slot, flags), (pfn, order));
        true
    }

    pub fn move_range(&mut self, (vpn, end): (u64, u64), to: u64, folio_of: impl Fn(u64) -> Folio) {
        self.unfold_edges(vpn, end);
        let mut at = vpn;
        while at < end {
            let target = to + (at - vpn);
            let slot_end = (at / self.slot + 1) * self.slot;
            let is_whole = at.is_multiple_of(self.slot) && slot_end <= end;
            if is_whole && target.is_multiple_of(self.slot) && self.is_slot_empty(target) {
                self.move_slot(at, target);
            } else {
                if self.tables.contains(&(at / self.slot)) {
                    let last = target + (slot_end.min(end) - at) - 1;
                    self.tables.extend([target / self.slot, last / self.slot]);
                }
                for page in at..slot_end.min(end) {
                    self.unfold(page);
                    if let Some(pte) = self.ptes.remove(&page) {
                        let piece = (to + (page - vpn), pte.pfn, 1, pte.flags);
                        self.map(piece, folio_of(pte.pfn));
                    }
                }
            }
            at = slot_end;
        }
    }

    fn move_slot(&mut self, from: u64, to: u64) {
        if let Some(leaf) = self.pmds.remove(&(from / self.slot)) {
            self.pmds.insert(to / self.slot, leaf);
        }
        if self.tables.remove(&(from / self.slot)) {
            self.tables.insert(to / self.slot);
        }
        for by in 0..self.slot {
            if let Some(pte) = self.ptes.remove(&(from + by)) {
                self.ptes.insert(to + by, pte);
            }
        }
    }

    /// Frees the empty tables that are entirely inside `vpn..end`.
    pub fn free_empty_tables(&mut self, vpn: u64, end: u64) -> u64 {
        let (slot, ptes) = (self.slot, &self.ptes);
        let before = self.tables.len();
        self.tables.retain(|&nr| {
            let (first, last) = (nr * slot, (nr + 1) * slot);
            first < vpn || last > end || ptes.range(first..last).next().is_some()
        });
        (before - self.tables.len()) as u64
    }

    fn after_single_set(&mut self, vpn: u64, (folio, order): Folio) {
        let first = vpn / self.block * self.block;
        let here = self.ptes[&vpn];
        let is_last = vpn % self.block == self.block - 1 && here.pfn % self.block == self.block - 1;
        if self.block == 1 || !is_last || here.is_folded || here.flags & SPECIAL != 0 {
            return;
        }
        let is_right = |at: u64| {
            self.ptes.get(&at).is_some_and(|pte| {
                pte.pfn + (vpn - at) == here.pfn
                    && pte.flags & !ACCESS == here.flags & !ACCESS
                    && (folio..folio + (1 << order)).contains(&pte.pfn)
            })
        };
        if (first..=vpn).all(is_right) {
            self.fold(first);
        }
    }

    fn fold(&mut self, first: u64) {
        for (_, pte) in self.ptes.range_mut(first..first + self.block) {
            pte.is_folded = true;
        }
        self.nr_folds += 1;
    }

    fn block_access(&self, vpn: u64) -> u8 {
        let first = vpn / self.block * self.block;
        self.ptes.range(first..first + self.block).fold(0, |all, (_, pte)| all | pte.flags & ACCESS)
    }

    fn unfold(&mut self, vpn: u64) {
        if !self.ptes.get(&vpn).is_some_and(|pte| pte.is_folded) {
            return;
        }
        let access = self.block_access(vpn);
        let first = vpn / self.block * self.block;
        for (_, pte) in self.ptes.range_mut(first..first + self.block) {
            pte.is_folded = false;
            pte.flags |= access;
        }
        self.nr_unfolds += 1;
    }

    fn unfold_edges(&mut self, vpn: u64, end: u64) {
        for at in vpn..end {
            let first = at / self.block * self.block;
            if first < vpn || first + self.block > end {
                self.unfold(at);
            }
        }
    }
}
