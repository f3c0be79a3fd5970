//! Pages of only zeros in large folios.
//!
//! A page is read only if it was present just before (in steps of 128 pages), so looking brings no
//! page into memory, apart from one that the kernel swaps out in between.

use crate::pages::{Page, Pages};
use crate::range::Range;
use crate::sys::{Errno, Result, page_bytes, read_memory};

/// Larger pages are read in pieces of this size.
const PIECE_BYTES: usize = 4096;

/// Memory in large folios, and how much of it holds only zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waste {
    /// Bytes in large folios: those under PMD entries, with `CAP_SYS_ADMIN` of any size.
    pub large_bytes: u64,
    /// Bytes of them in pages of only zeros.
    pub zero_bytes: u64,
    /// Bytes of them that the process may not read (`PROT_NONE`).
    pub unreadable_bytes: u64,
    /// Whether folios of any size were seen, and not only those under PMD entries.
    pub has_all_sizes: bool,
}

/// Looks for all-zero pages in the large folios of a range.
///
/// # Errors
/// `EOPNOTSUPP` if the kernel does not show which memory is in large folios (before Linux 6.7,
/// without root), and the kernel's.
pub fn waste(range: Range) -> Result<Waste> {
    let mut pages = Pages::open()?;
    let mut sum = Waste::default();
    let mut failed = None;
    pages.visit(range, &mut |start, pages| {
        if failed.is_none() {
            failed = sum.count(start, pages).err();
        }
    })?;
    sum.has_all_sizes = pages.has_orders();
    match failed {
        Some(error) => Err(error),
        None if !pages.has_scan() && !pages.has_orders() => Err(Errno(libc::EOPNOTSUPP)),
        None => Ok(sum),
    }
}

impl Waste {
    pub(crate) fn count(&mut self, start: usize, pages: &[Page]) -> Result<()> {
        let bytes = page_bytes();
        for (nr, page) in pages.iter().enumerate() {
            let is_large = page.is_huge || page.order.is_some_and(|order| order > 0);
            if !is_large || !page.is_present || page.is_zero {
                continue;
            }
            self.large_bytes += bytes as u64;
            match is_zero(start + nr * bytes, bytes) {
                Ok(true) => self.zero_bytes += bytes as u64,
                Ok(false) => {}
                Err(Errno(libc::EFAULT)) => self.unreadable_bytes += bytes as u64,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_zero(page: usize, page_bytes: usize) -> Result<bool> {
    let mut buffer = [0; PIECE_BYTES];
    let mut done = 0;
    while done < page_bytes {
        let nr = read_memory(page + done, &mut buffer)?;
        let read = buffer.get(..nr).unwrap_or(&[]);
        if nr == 0 || read.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        done += nr;
    }
    Ok(true)
}
