//! Reads the kernel's trace buffers, one descriptor per processor. They must be closed before the
//! instance is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use super::Instance;
use super::page;

/// Enough for the largest sub-buffer that can be configured.
const PAGE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Rings {
    cpus: Vec<File>,
    page: Vec<u8>,
}

impl Rings {
    pub(crate) fn open(instance: &Instance) -> io::Result<Self> {
        let mut cpus = Vec::new();
        for entry in fs::read_dir(instance.path().join("per_cpu"))? {
            let path = entry?.path().join("trace_pipe_raw");
            let nonblock = libc::O_NONBLOCK;
            cpus.push(OpenOptions::new().read(true).custom_flags(nonblock).open(path)?);
        }
        Ok(Self { cpus, page: vec![0; PAGE_BYTES_MAX] })
    }

    /// Empties the buffers: calls `take` for each event with its time in nanoseconds and its data,
    /// in order for each processor.
    pub(crate) fn take(&mut self, take: &mut dyn FnMut(u64, &[u8])) -> io::Result<()> {
        let Self { cpus, page: bytes } = self;
        for cpu in cpus {
            loop {
                let nr_bytes = match cpu.read(bytes) {
                    Ok(0) => break,
                    Ok(nr_bytes) => nr_bytes,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                page::events(&bytes[..nr_bytes], take);
            }
        }
        Ok(())
    }
}
