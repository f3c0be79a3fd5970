//! Address search for mappings without a fixed address.
//!
//! Corresponds to: `thp_get_unmapped_area`, `vm_unmapped_area`.
//!
//! A large mapping gets an address congruent to its file offset modulo the PMD size, so a PMD entry
//! can map it (docs/behaviour B.6.3, C.6.4).

use crate::units::{Order, PageSize, Vpn};
use crate::vma::VmaTree;

/// Mappings are placed below this address: the top of a 47-bit address space minus the stack gap.
/// It is not randomised, so every replay has the same addresses.
pub const MMAP_BASE: u64 = 0x7fff_f7ff_0000;

/// Lowest address of a mapping (`mmap_min_addr` is 64 KiB).
const LOWEST: u64 = 1 << 16;

/// A mapping that needs an address.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// Length in base pages.
    pub nr_pages: u64,
    /// What the address must match; `None` = any address.
    pub congruent_to: Option<Congruence>,
}

/// An address congruent to a page offset.
#[derive(Clone, Copy, Debug)]
pub struct Congruence {
    /// The page offset.
    pub pgoff: u64,
    /// Modulo this folio size: the PMD size, or a smaller one for shared memory (Q.3.2).
    pub order: Order,
}

/// Finds the highest free place for `want`; `None` if there is none.
#[must_use]
pub fn find(areas: &VmaTree, page: PageSize, want: Want) -> Option<Vpn> {
    if let Some(Congruence { pgoff, order }) = want.congruent_to
        && let Some(place) = find_any(areas, page, want.nr_pages.checked_add(order.nr_pages())?)
    {
        return Some(congruent_from(place, pgoff, order));
    }
    find_any(areas, page, want.nr_pages)
}

fn congruent_from(place: Vpn, pgoff: u64, order: Order) -> Vpn {
    let mask = order.nr_pages() - 1;
    place.plus(pgoff.wrapping_sub(place.0) & mask)
}

/// Finds the highest free place of `nr_pages` pages aligned to `order`.
#[must_use]
pub fn find_aligned(areas: &VmaTree, page: PageSize, nr_pages: u64, order: Order) -> Option<Vpn> {
    let longest = nr_pages.checked_add(order.nr_pages() - 1)?;
    let place = find_any(areas, page, longest)?;
    Some(Vpn(order.round_down(place.0 + longest - nr_pages)))
}

fn find_any(areas: &VmaTree, page: PageSize, nr_pages: u64) -> Option<Vpn> {
    let mut top = MMAP_BASE >> page.shift();
    let lowest = LOWEST >> page.shift();
    for vma in areas.iter().rev() {
        if vma.start.0 >= top {
            continue;
        }
        if vma.end.0 <= top && top - vma.end.0 >= nr_pages {
            return Some(Vpn(top - nr_pages));
        }
        top = vma.start.0;
    }
    (top.checked_sub(nr_pages)? >= lowest).then(|| Vpn(top - nr_pages))
}

/// Whether a mapping from page offset `pgoff` contains a whole PMD range.
#[must_use]
pub fn spans_pmd(pgoff: u64, nr_pages: u64, pmd: Order) -> bool {
    let Some(end) = pgoff.checked_add(nr_pages) else { return false };
    end > pmd.round_up(pgoff) && end - pmd.round_up(pgoff) >= pmd.nr_pages()
}

#[cfg(test)]
mod tests;
