//! Collapses one block of another process.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

pub(super) fn collapse(process: &OwnedFd, address: u64, len_bytes: u64) -> Result<(), i32> {
    let number = |value: u64| usize::try_from(value).map_err(|_| libc::EOVERFLOW);
    let range = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(number(address)?),
        iov_len: number(len_bytes)?,
    };
    // SAFETY: the vector is whole. Its addresses are the other process's, whose contents this
    // advice does not change.
    let result = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            &raw const range,
            1_usize,
            libc::MADV_COLLAPSE,
            0_u32,
        )
    };
    if result >= 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}
