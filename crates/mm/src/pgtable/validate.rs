//! Checks a page table's invariants.

use thiserror::Error;

use crate::units::Vpn;

use super::PageTable;
use super::directory::PmdSlot;
use super::pte::Pte;

/// A broken invariant of a [`PageTable`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// A contiguous bit outside a whole, aligned block of consecutive page frames.
    #[error("I1: the contiguous bit is set at {vpn} without a whole aligned block: {pte:?}")]
    I1 {
        /// The page.
        vpn: Vpn,
        /// Its entry.
        pte: Pte,
    },
    /// PTEs of a folded block with different flags.
    #[error("I2: the folded PTE at {vpn} differs from the first in its block: {pte:?}")]
    I2 {
        /// The page.
        vpn: Vpn,
        /// Its entry.
        pte: Pte,
    },
    /// A PMD leaf with an unaligned page frame.
    #[error("I3: the PMD leaf at {vpn} is not aligned: {pte:?}")]
    I3 {
        /// First page of the slot.
        vpn: Vpn,
        /// Its entry.
        pte: Pte,
    },
    /// A counter that disagrees with the entries.
    #[error("I4: {counter} is {counted}, but the entries add up to {counts}")]
    I4 {
        /// The field of [`super::Stats`], or the internal count.
        counter: &'static str,
        /// The counter's value.
        counted: u64,
        /// The value found by a scan.
        counts: u64,
    },
    /// A PTE table that two slots name.
    #[error("I5: PTE table {id} is linked from two PMD slots, one of them at {vpn}")]
    I5 {
        /// The table.
        id: u32,
        /// First page of the second slot.
        vpn: Vpn,
    },
}

#[derive(Default)]
struct EntryCounts {
    nr_ptes: u64,
    nr_pmd_leaves: u64,
    nr_contpte_blocks: u64,
    tables: Vec<u32>,
}

impl PageTable {
    /// Checks every invariant. The cost grows with the PTE tables in use.
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        let mut counts = EntryCounts::default();
        let mut at = Vpn(0);
        while let Some(part) = self.next_part(at, Self::VPN_END) {
            match part.slot {
                PmdSlot::Leaf(pte) if !self.pmd_order.is_aligned(pte.pfn().0) => {
                    return Err(Violation::I3 { vpn: part.vpn, pte });
                }
                PmdSlot::Leaf(_) => counts.nr_pmd_leaves += 1,
                PmdSlot::Table(id) => self.check_table(part.vpn, id, &mut counts)?,
                PmdSlot::Empty => unreachable!("next_part returns used slots"),
            }
            at = part.end;
        }
        self.check_counters(&counts)
    }

    fn check_table(&self, vpn: Vpn, id: u32, counts: &mut EntryCounts) -> Result<(), Violation> {
        if counts.tables.contains(&id) {
            return Err(Violation::I5 { id, vpn });
        }
        counts.tables.push(id);
        let ptes = self.tables.ptes(id);
        counts.nr_ptes += ptes.iter().filter(|pte| pte.is_present()).count() as u64;
        let Some(order) = self.contpte_order else {
            let folded = (0..).zip(ptes).find(|(_, pte)| pte.is_contpte());
            return folded
                .map_or(Ok(()), |(by, &pte)| Err(Violation::I1 { vpn: vpn.plus(by), pte }));
        };
        for (nr, block) in (0..).zip(ptes.chunks_exact(order.nr_pages() as usize)) {
            if block.iter().any(|pte| pte.is_contpte()) {
                check_block(vpn.plus(nr << order.get()), block)?;
                counts.nr_contpte_blocks += 1;
            }
        }
        Ok(())
    }

    fn check_counters(&self, counts: &EntryCounts) -> Result<(), Violation> {
        let stats = self.stats();
        let pairs = [
            ("nr_ptes", stats.nr_ptes, counts.nr_ptes),
            ("nr_pmd_leaves", stats.nr_pmd_leaves, counts.nr_pmd_leaves),
            ("nr_contpte_blocks", stats.nr_contpte_blocks, counts.nr_contpte_blocks),
            ("nr_tables", stats.nr_tables, counts.tables.len() as u64),
            ("region nr_used", 0, self.directory.first_miscounted().map_or(0, |_| 1)),
            ("table nr_present", 0, self.tables.first_miscounted().map_or(0, |_| 1)),
        ];
        match pairs.into_iter().find(|(_, counted, scan)| counted != scan) {
            Some((counter, value, scan)) => {
                Err(Violation::I4 { counter, counted: value, counts: scan })
            }
            None => Ok(()),
        }
    }
}

fn check_block(vpn: Vpn, block: &[Pte]) -> Result<(), Violation> {
    let first = block[0];
    let is_aligned = first.pfn().0.is_multiple_of(block.len() as u64);
    for (by, &pte) in (0..).zip(block) {
        let vpn = vpn.plus(by);
        if !pte.is_contpte() || !is_aligned || pte.pfn() != first.pfn().plus(by) {
            return Err(Violation::I1 { vpn, pte });
        }
        if pte != first.advanced(by) {
            return Err(Violation::I2 { vpn, pte });
        }
    }
    Ok(())
}
