//! Presents the running machine like a kernel before 6.7, without `PAGEMAP_SCAN`.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use largefolio_linux::system::{Entries, FileFacts, FileRef, Live, System};

pub(crate) struct OldKernel;

/// Entries with the trait's default `scan`, which refuses.
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

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        Live.names(dir)
    }

    fn folders(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        Live.folders(dir)
    }

    fn text(&self, path: &Path) -> io::Result<Vec<u8>> {
        Live.text(path)
    }

    fn entries(&self, path: &Path) -> io::Result<Box<dyn Entries>> {
        Ok(Box::new(Unscanned(Live.entries(path)?)))
    }

    fn file_facts(&self, file: &FileRef) -> io::Result<FileFacts> {
        Live.file_facts(file)
    }

    fn is_there(&self, file: &FileRef) -> bool {
        Live.is_there(file)
    }

    fn writers(&self, file: &FileRef) -> Vec<u32> {
        Live.writers(file)
    }
}
