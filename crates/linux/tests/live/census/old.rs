//! The running machine as a kernel before 6.7 shows it: without `PAGEMAP_SCAN`.

use std::io;
use std::path::Path;

use largefolio_linux::system::{Entries, FileFacts, FileRef, Live, System};

pub(crate) struct OldKernel;

/// Entries whose `scan` is the trait's refusal.
struct Unscanned(Box<dyn Entries>);

impl Entries for Unscanned {
    fn read(&self, first: u64, entries: &mut [u64]) -> io::Result<usize> {
        self.0.read(first, entries)
    }
}

impl System for OldKernel {
    fn page_bytes(&self) -> u64 {
        Live.page_bytes()
    }

    fn pids(&self) -> io::Result<Vec<u32>> {
        Live.pids()
    }

    fn text(&self, path: &Path) -> io::Result<Vec<u8>> {
        Live.text(path)
    }

    fn pagemap(&self, pid: u32) -> io::Result<Box<dyn Entries>> {
        Ok(Box::new(Unscanned(Live.pagemap(pid)?)))
    }

    fn kpageflags(&self) -> io::Result<Box<dyn Entries>> {
        Live.kpageflags()
    }

    fn file_facts(&self, file: &FileRef) -> io::Result<FileFacts> {
        Live.file_facts(file)
    }

    fn writers(&self, file: &FileRef) -> Vec<u32> {
        Live.writers(file)
    }
}
