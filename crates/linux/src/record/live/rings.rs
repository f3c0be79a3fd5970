//! Reads the kernel's trace buffers, one descriptor per processor. They must be closed before the
//! instance is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;

use super::format::Formats;
use super::kernel_event::Timed;
use super::page;
use crate::tracefs::Instance;

/// Enough for the largest sub-buffer that can be configured.
const PAGE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Rings {
    cpus: Vec<File>,
    formats: Formats,
    page: Vec<u8>,
}

impl Rings {
    pub(super) fn open(instance: &Instance, formats: Formats) -> io::Result<Self> {
        let mut cpus = Vec::new();
        for entry in fs::read_dir(instance.path().join("per_cpu"))? {
            let path = entry?.path().join("trace_pipe_raw");
            let nonblock = libc::O_NONBLOCK;
            cpus.push(OpenOptions::new().read(true).custom_flags(nonblock).open(path)?);
        }
        Ok(Self { cpus, formats, page: vec![0; PAGE_BYTES_MAX] })
    }

    pub(super) fn has_reads(&self) -> bool {
        self.formats.has_reads
    }

    pub(super) fn take(&mut self, events: &mut Vec<Timed>) -> io::Result<()> {
        let Self { cpus, formats, page: bytes } = self;
        for cpu in cpus {
            loop {
                let nr_bytes = match cpu.read(bytes) {
                    Ok(0) => break,
                    Ok(nr_bytes) => nr_bytes,
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                page::events(&bytes[..nr_bytes], &mut |time_ns, data| {
                    if let Some((tid, event)) = formats.decode(data) {
                        events.push(Timed { time_ns, tid, event });
                    }
                });
            }
        }
        Ok(())
    }
}
