//! `PAGEMAP_SCAN` (Linux 6.7): page states without privileges.

use crate::fd::Fd;
use crate::range::Range;
use crate::sys::{Result, call};

/// Bits of the ioctl.
pub mod category {
    /// The shared zero page, of either size.
    pub const ZERO: u64 = 1 << 5;
    /// Mapped by a PMD entry.
    pub const HUGE: u64 = 1 << 6;
}

const REGIONS: usize = 16;

/// Pages with the same categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// Argument of the ioctl.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    nr_regions: u64,
    max_pages: u64,
    inverted: u64,
    mask: u64,
    any_of: u64,
    returned: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 0xc060_6610;

/// Calls `each` with every region of the range that has one of the categories. `pagemap` is a
/// descriptor of `/proc/self/pagemap`.
///
/// # Errors
/// The kernel's: `ENOTTY` before Linux 6.7.
pub fn scan(pagemap: &Fd, range: Range, any_of: u64, mut each: impl FnMut(Region)) -> Result<()> {
    let mut regions = [Region { start: 0, end: 0, categories: 0 }; REGIONS];
    let (mut start, end) = (range.start() as u64, range.end() as u64);
    while start < end {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start,
            end,
            walk_end: 0,
            regions: regions.as_mut_ptr().addr() as u64,
            nr_regions: regions.len() as u64,
            max_pages: 0,
            inverted: 0,
            mask: 0,
            any_of,
            returned: any_of,
        };
        let arguments = [pagemap.word(), PAGEMAP_SCAN, (&raw mut scan).addr(), 0, 0, 0];
        // SAFETY: `scan` is the ioctl's argument and points to `regions`; both outlive the call.
        let nr = unsafe { call(libc::SYS_ioctl, arguments) }?;
        regions.iter().take(nr).for_each(|region| each(*region));
        if scan.walk_end <= start {
            break;
        }
        start = scan.walk_end;
    }
    Ok(())
}
