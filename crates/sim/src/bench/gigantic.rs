//! First stores to pages of 1 GiB, which only hugetlb has (series 001).
//!
//! Owns what the rules of a kernel decide about such a page: how it is zeroed. Does not own the pool
//! that it comes from, or its entry: neither takes time worth measuring beside 1 GiB of zeroes.

use largefolio_mm::ram::Ram;
use largefolio_mm::units::Pfn;

use super::ARCH;
use crate::kernel::Kernel;

/// Bytes of a page.
pub const GIGANTIC_BYTES: u64 = 1 << 30;

/// Zeroes `nr_pages` pages in `ram` as the kernel does when the first byte of each is stored to.
///
/// # Panics
/// When `ram` is smaller.
pub fn fault_gigantic(kernel: &Kernel, nr_pages: u64, ram: &mut Ram) {
    let page = kernel.rules.page;
    let order = page.order_of_bytes(GIGANTIC_BYTES);
    let plan = kernel.rules.clear.plan(ARCH, page, order, 0);
    for nr in 0..nr_pages {
        ram.clear_folio(Pfn(nr << order.get()), &plan);
    }
}
