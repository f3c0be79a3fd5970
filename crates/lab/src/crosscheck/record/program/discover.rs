//! Finds the files that a program reads, in a first run that changes nothing.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::descriptors::{behind, flags};
use super::tracer::{Birth, Call, Observer};
use largefolio_linux::proc::{self, Task};
use largefolio_linux::system::Live;

/// Collects the regular files that a program opens only for reading, executes or maps.
#[derive(Debug, Default)]
pub(crate) struct Discover {
    /// When the run began. Files changed later are the program's own work.
    began: Option<SystemTime>,
    read: BTreeSet<PathBuf>,
    written: BTreeSet<PathBuf>,
}

/// The clock for file times lags by at most this much.
const CLOCK: Duration = Duration::from_millis(10);

impl Discover {
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let is_real = |path: &&PathBuf| {
            !proc::is_virtual(path)
                && !self.written.contains(*path)
                && path.metadata().is_ok_and(|metadata| {
                    metadata.is_file() && metadata.len() > 0 && !self.is_own_work(&metadata)
                })
        };
        self.read.iter().filter(is_real).cloned().collect()
    }
}

impl Discover {
    fn is_own_work(&self, metadata: &Metadata) -> bool {
        let seconds = u64::try_from(metadata.ctime()).unwrap_or(0);
        let nanos = u32::try_from(metadata.ctime_nsec()).unwrap_or(0);
        let changed = UNIX_EPOCH + Duration::new(seconds, nanos);
        self.began.is_some_and(|began| changed + CLOCK > began)
    }
}

impl Observer for Discover {
    fn starts(&mut self, _: i32) -> io::Result<()> {
        self.began = Some(SystemTime::now());
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
        let Some(file) = behind(tid, fd) else { return Ok(()) };
        let mode = flags(tid, fd)? & 3;
        let is_read = mode == u64::try_from(libc::O_RDONLY).unwrap_or(0);
        if is_read {
            self.read.insert(file.path)
        } else {
            self.written.insert(file.path)
        };
        Ok(())
    }

    fn executes(&mut self, tid: i32) -> io::Result<()> {
        let maps = Task::of(&Live, tid).maps()?;
        let named = maps.vmas.into_iter().filter(|vma| vma.path.is_absolute() && !vma.is_deleted);
        self.read.extend(named.map(|vma| vma.path));
        Ok(())
    }

    fn ends(&mut self, _: i32) {}

    fn births(&mut self, _: i32, _: i32, _: Birth) -> io::Result<()> {
        Ok(())
    }
}
