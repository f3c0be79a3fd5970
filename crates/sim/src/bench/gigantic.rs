//! First stores to 1 GiB pages, which only hugetlb has (series 001).
//!
//! Owns the zeroing of such a page under a kernel's rules. Ignores the pool and the page-table
//! entry, whose cost is negligible compared with zeroing 1 GiB.

use largefolio_mm::ram::Ram;
use largefolio_mm::units::Pfn;

use super::ARCH;
use crate::kernel::Kernel;

pub const GIGANTIC_BYTES: u64 = 1 << 30;

/// Zeroes `nr_pages` pages in `ram` as the kernel does at a store to each page's first byte.
///
/// # Panics
/// If `ram` is smaller.
pub fn fault_gigantic(kernel: &Kernel, nr_pages: u64, ram: &mut Ram) {
    let page = kernel.rules.page;
    let order = page.order_of_bytes(GIGANTIC_BYTES);
    let plan = kernel.rules.clear.plan(ARCH, page, order, 0);
    for nr in 0..nr_pages {
        ram.clear_folio(Pfn(nr << order.get()), &plan);
    }
}
