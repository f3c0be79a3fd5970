//! `PAGEMAP_SCAN` (Linux 6.7): page states without privileges.

use core::ffi::c_int;

use crate::sys::{Result, call, i32_word};

/// Bits of the ioctl.
pub mod category {
    pub const PRESENT: u64 = 1 << 3;
    pub const SWAPPED: u64 = 1 << 4;
    /// The shared zero page, of either size.
    pub const ZERO: u64 = 1 << 5;
    /// Mapped by a PMD entry.
    pub const HUGE: u64 = 1 << 6;
}

/// Regions per call: 768 bytes of stack.
const REGIONS: usize = 32;

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

const _: () = assert!(size_of::<Scan>() == 96 && size_of::<Region>() == 24);

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 0xc060_6610;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Pages with one of these categories are reported.
    pub any_of: u64,
    /// The categories that a region states.
    pub returned: u64,
}

/// Calls `each` with every wanted region from one address up to the other. `pagemap` is a
/// descriptor of `/proc/PID/pagemap`.
///
/// # Errors
/// The kernel's: `ENOTTY` before Linux 6.7.
pub fn scan(
    pagemap: c_int,
    addresses: core::ops::Range<u64>,
    wanted: Wanted,
    mut each: impl FnMut(Region),
) -> Result<()> {
    let mut regions = [Region { start: 0, end: 0, categories: 0 }; REGIONS];
    let core::ops::Range { mut start, end } = addresses;
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
            any_of: wanted.any_of,
            returned: wanted.returned,
        };
        let arguments = [i32_word(pagemap), PAGEMAP_SCAN, (&raw mut scan).addr(), 0, 0, 0];
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
