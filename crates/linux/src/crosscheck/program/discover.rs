//! Which files a program reads: a first run, with nothing changed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::descriptors::{behind, fdinfo};
use super::tracer::{Birth, Call, Watch};

/// Collects the regular files a program opens only for reading, executes or maps.
#[derive(Debug, Default)]
pub(crate) struct Discover {
    read: BTreeSet<PathBuf>,
    written: BTreeSet<PathBuf>,
}

/// Where files are the kernel's own inventions.
const VIRTUAL: [&str; 3] = ["/proc", "/sys", "/dev"];

impl Discover {
    /// Files that can be replaced by copies: read, and not written by the program.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let is_real = |path: &&PathBuf| {
            !VIRTUAL.iter().any(|root| path.starts_with(root))
                && !self.written.contains(*path)
                && path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0)
        };
        self.read.iter().filter(is_real).cloned().collect()
    }
}

impl Watch for Discover {
    fn starts(&mut self, _: i32) -> io::Result<()> {
        Ok(())
    }

    fn enters(&mut self, _: i32, _: &Call) -> io::Result<()> {
        Ok(())
    }

    fn leaves(&mut self, tid: i32, call: &Call, result: i64) -> io::Result<()> {
        if !super::marks::is_open(call.nr) || result < 0 {
            return Ok(());
        }
        let fd = i32::try_from(result).unwrap_or(-1);
        let Some(found) = behind(tid, fd) else { return Ok(()) };
        let mode = fdinfo(tid, fd, "flags")? & 3;
        let is_read = mode == u64::try_from(libc::O_RDONLY).unwrap_or(0);
        if is_read {
            self.read.insert(found.path)
        } else {
            self.written.insert(found.path)
        };
        Ok(())
    }

    fn executes(&mut self, tid: i32) -> io::Result<()> {
        let maps = std::fs::read_to_string(format!("/proc/{tid}/maps"))?;
        let paths = maps.lines().filter_map(|line| line.splitn(6, ' ').nth(5));
        let paths = paths.map(|path| Path::new(path.trim()));
        self.read.extend(paths.filter(|path| path.is_absolute()).map(Path::to_owned));
        Ok(())
    }

    fn ends(&mut self, _: i32) {}

    fn births(&mut self, _: i32, _: i32, _: Birth) -> io::Result<()> {
        Ok(())
    }
}
