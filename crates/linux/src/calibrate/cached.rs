//! Read faults on a file in memory that is partly cached.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::ProtFlags;

use super::CalibrateError;
use super::stubs::file::failed;
use super::stubs::mapping::{Mapping, Source};
use super::work::cpu;
use crate::geometry::page_bytes;

pub const AROUND_BYTES: usize = 64 << 10;

/// Returns the CPU time of one load in every 64 KiB of a fresh mapping of a fresh file with
/// `len_bytes`. In every 64 KiB, `nr_cached` pages are cached, including the first. `nr_cached` is
/// a power of two up to all pages.
///
/// The file is created anew each time: the location of its pages decides a third of the time. Files
/// of 192 MiB, 8 rounds each, 16 cached pages: medians of 3,065, 3,625 and 3,661 ns, each with a
/// spread of at most 7%.
///
/// # Errors
/// A failed system call.
pub(super) fn fault_each_ns(len_bytes: usize, nr_cached: usize) -> Result<f64, CalibrateError> {
    let file = memfd_create("folio-calibrate", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| failed("memfd_create", error))?;
    let step_bytes = AROUND_BYTES / nr_cached.clamp(1, AROUND_BYTES / page_bytes());
    file.set_len(len_bytes as u64).map_err(|error| failed("ftruncate", error))?;
    let page = vec![1; page_bytes()];
    for at in (0..len_bytes).step_by(step_bytes) {
        file.write_all_at(&page, at as u64).map_err(|error| failed("write", error))?;
    }
    let mapping = Mapping::new(Source::Private(&file), len_bytes, ProtFlags::READ)?;
    Ok(cpu(|| mapping.load_each(AROUND_BYTES)).0)
}
