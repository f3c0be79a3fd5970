//! A machine described by a directory of small text files.
//!
//! ```text
//!   DIR/page_bytes           4096 (may be missing)
//!   DIR/42/{maps,smaps,..}   files of /proc/42, in the kernel's format
//!   DIR/42/pagemap           runs of entries; if missing, reading is refused
//!   DIR/kpageflags           runs of entries; if missing, reading is refused
//!   DIR/sys/..               files of /sys; DIR/meminfo and others: files of /proc
//!   DIR/files                PATH FILESYSTEM [WRITER-PID..]
//!   DIR/there                INODE PATH of files with names that end in (deleted)
//! ```
//!
//! A run of entries is `FIRST COUNT VALUE [STEP] [pmd]` in hexadecimal: entries `FIRST .. FIRST +
//! COUNT` have the values `VALUE, VALUE + STEP, ..`. `end FIRST` marks the end of the file. A run
//! can have any length: entries are computed when they are read. `scan` in a pagemap means that the
//! kernel supports `PAGEMAP_SCAN`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::entry::{PRESENT, SWAPPED};
use super::{Entries, FileFacts, FileRef, Present, System, list, list_folders, read};

#[derive(Clone, Debug)]
pub struct MemSystem {
    dir: PathBuf,
}

impl MemSystem {
    #[must_use]
    pub fn from_dir(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    fn inside(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/proc").or_else(|_| path.strip_prefix("/"));
        self.dir.join(inside.unwrap_or(path))
    }

    /// Returns the words of the line for `path` in `files`.
    fn facts(&self, path: &Path) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(self.dir.join("files"))?;
        let lines = text.lines().map(|line| line.split_whitespace().map(str::to_owned));
        let mut lines = lines.map(Iterator::collect::<Vec<_>>);
        lines
            .find(|fields| fields.len() > 1 && Path::new(&fields[0]) == path)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl System for MemSystem {
    fn page_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join("page_bytes")).unwrap_or_default();
        text.trim().parse().unwrap_or(4096)
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        list(&self.inside(dir))
    }

    fn folders(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        list_folders(&self.inside(dir))
    }

    fn text(&self, path: &Path) -> io::Result<Vec<u8>> {
        read(&self.inside(path))
    }

    fn entries(&self, path: &Path) -> io::Result<Box<dyn Entries>> {
        match fs::read_to_string(self.inside(path)) {
            Ok(text) => Ok(Box::new(EntryRuns::parse(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            Err(error) => Err(error),
        }
    }

    fn file_facts(&self, file: &FileRef) -> io::Result<FileFacts> {
        let fields = self.facts(&file.path)?;
        let is_open_for_write = Some(fields.len() > 2);
        Ok(FileFacts { filesystem: fields[1].clone(), is_open_for_write })
    }

    fn is_there(&self, file: &FileRef) -> bool {
        let text = fs::read_to_string(self.dir.join("there")).unwrap_or_default();
        let line =
            |line: &str| line.split_once(' ').map(|(inode, path)| (inode.parse(), path.into()));
        text.lines().filter_map(line).any(|entry| entry == (Ok(file.inode), file.path.clone()))
    }

    fn writers(&self, file: &FileRef) -> Vec<u32> {
        let fields = self.facts(&file.path).unwrap_or_default();
        fields.iter().skip(2).filter_map(|word| word.parse().ok()).collect()
    }
}

#[derive(Debug, Default)]
struct EntryRuns {
    list: Vec<EntryRun>,
    end: Option<u64>,
    has_scan: bool,
}

#[derive(Debug)]
struct EntryRun {
    first: u64,
    nr: u64,
    value: u64,
    step: u64,
    is_pmd: bool,
}

impl EntryRuns {
    fn parse(text: &str) -> Self {
        let mut runs = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number =
                |at: usize| fields.get(at).and_then(|word| u64::from_str_radix(word, 16).ok());
            match fields.first() {
                Some(&"scan") => runs.has_scan = true,
                Some(&"end") => runs.end = number(1),
                _ => runs.list.extend(number(0).zip(number(1)).zip(number(2)).map(
                    |((first, nr), value)| EntryRun {
                        first,
                        nr,
                        value,
                        step: number(3).unwrap_or(0),
                        is_pmd: fields.last() == Some(&"pmd"),
                    },
                )),
            }
        }
        runs.list.sort_by_key(|run| run.first);
        runs
    }

    fn entry(&self, number: u64) -> u64 {
        // Runs are sorted and do not overlap.
        let at = self.list.partition_point(|run| run.first <= number);
        let run = self.list[..at].last().filter(|run| number - run.first < run.nr);
        run.map_or(0, |run| run.value.wrapping_add((number - run.first).wrapping_mul(run.step)))
    }
}

impl Entries for EntryRuns {
    fn read(&self, first: u64, entries: &mut [u64]) -> io::Result<usize> {
        let before_end = self.end.map_or(u64::MAX, |end| end.saturating_sub(first));
        let nr = usize::try_from(before_end).unwrap_or(usize::MAX).min(entries.len());
        for (number, entry) in (first..).zip(&mut entries[..nr]) {
            *entry = self.entry(number);
        }
        Ok(nr)
    }

    fn scan(&self, pages: Range<u64>, present: &mut Vec<Present>) -> io::Result<()> {
        if !self.has_scan {
            return Err(io::ErrorKind::Unsupported.into());
        }
        for run in self.list.iter().filter(|run| run.value & (PRESENT | SWAPPED) != 0) {
            let end = run.first.saturating_add(run.nr).min(pages.end);
            let inside = run.first.max(pages.start)..end;
            if !inside.is_empty() {
                present.push(Present { pages: inside, is_pmd: run.is_pmd });
            }
        }
        Ok(())
    }
}
