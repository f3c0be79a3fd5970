//! The rules for rows and footers.
//!
//! The writer checks its callers and the reader checks files, so code after the reader never checks
//! again. Invariants of a validated trace:
//! - I1: a run of references has a count of at least 1 and starts at a 4 KiB page.
//! - I2: no address or position range of a row or a mapping extends past the end of the 64-bit
//!   space.
//! - I3: a file id is a row of the file table, and every file op names one.
//! - I4: each layout is sorted by address; its mappings are not empty and do not overlap.
//! - I5: a read or write call transfers at most [`CALL_BYTES_MAX`].
//! - I6: the link of a read or write is at most [`LINK_MAX`], and 0 if the footer says that no
//!   links were recorded. Other references have no link.
//! - I7: an execve names one of the footer's executions, and each execution names an image.
//! - I8: the number of references equals the total in the footer, which is below
//!   [`NR_REFERENCES_MAX`].
//! - I9: the counts of rows and references before a recording do not exceed the totals. Only a
//!   trace of page faults has such rows.

use thiserror::Error;

use crate::event::{Event, FileId, LINK_MAX, Op};
use crate::meta::{Attached, LayoutEntry, Meta};

/// Page size of references on every architecture, the smallest base page of the modelled machines.
pub const REFERENCE_PAGE_BYTES: u64 = 4096;

/// A processor would need a century for this many references. Sums stay below 2^63.
pub const NR_REFERENCES_MAX: u64 = 1 << 62;

/// Largest file table. A file id is stored as a signed 32-bit number, and a table of this size
/// already takes tens of megabytes.
pub const NR_FILES_MAX: usize = 1 << 20;

/// Maximum length of the metadata's JSON.
pub const META_BYTES_MAX: usize = 32 << 20;

/// Maximum thread ids in a replay. Ids are dense, so a larger one means a damaged trace.
pub const NR_THREADS_MAX: usize = 1 << 20;

/// Maximum processes alive at one time in a replay, many more than in a large build.
pub const NR_PROCESSES_MAX: usize = 1 << 14;

/// Maximum runs of the plain program in a footer.
pub const NR_RUNS_MAX: usize = 1_000;

/// Maximum rows of [`Meta::execs`]. With commands of 160 bytes they take half of the metadata.
pub const NR_EXECS_MAX: usize = 1 << 16;

/// Maximum rows of [`Meta::images`].
pub const NR_IMAGES_MAX: usize = 1 << 13;

/// Maximum bytes of one read or write call (`MAX_RW_COUNT`: 2 GiB less a page).
pub const CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// A broken rule of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RowFault {
    /// A run without references (I1).
    #[error("a run of references has a count of zero")]
    EmptyRun,
    /// A reference's address is not the start of a page (I1).
    #[error("address {0:#x} of a reference is not the start of a 4 KiB page")]
    Unaligned(u64),
    /// A range passes the end of the 64-bit space (I2).
    #[error("{1:#x} bytes from {0:#x} extend past the end of the 64-bit address space")]
    Overflow(u64, u64),
    /// A call moved too many bytes (I5).
    #[error(
        "a {op} transfers {1} bytes, but one call transfers at most {CALL_BYTES_MAX}",
        op = .0.name()
    )]
    TooLong(Op, u64),
    /// The file id is not in the file table (I3).
    #[error("file {0} is not in the file table of {1} files")]
    UnknownFile(FileId, usize),
    /// A file op names no file (I3).
    #[error("{} needs a file, but the row names none", .0.name())]
    MissingFile(Op),
    /// The link is too large, or the reference cannot have one (I6).
    #[error("a {op} has a link of {1}; only reads and writes can have a link, of at most \
             {LINK_MAX}", op = .0.name())]
    BadLink(Op, u32),
    /// A reference has a link, but the footer says that none were recorded (I6).
    #[error("a reference has a link of {0}, but the metadata says that no links were recorded")]
    UnknownLink(u32),
    /// An execve names an execution that is not in the footer (I7).
    #[error("an execve names execution {0}, which is not in the metadata's table of {1}")]
    UnknownExec(u64, usize),
    /// The op number is not in [`Op::ALL`].
    #[error("op number {0} is unknown")]
    UnknownOp(u8),
}

/// A broken rule of a footer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetaFault {
    /// Too many files.
    #[error("{0} files, but at most {NR_FILES_MAX} are allowed")]
    TooManyFiles(usize),
    /// Too many runs.
    #[error("{0} runs without the recorder, but at most {NR_RUNS_MAX} are allowed")]
    TooManyRuns(usize),
    /// Too many executions or images.
    #[error(
        "{0} executions of {1} images, but at most {NR_EXECS_MAX} executions of {NR_IMAGES_MAX} \
         images are allowed"
    )]
    TooManyExecs(usize, usize),
    /// An execution names an image that is not in the table (I7).
    #[error("execution {0} names image {1}, which is not in the table of images")]
    UnknownImage(usize, u32),
    /// A mapping names a file that is not in the table (I3).
    #[error("mapping {0} of the layout names file {1}, which is not in the file table")]
    UnknownFile(usize, FileId),
    /// A mapping is empty or passes the end of the 64-bit space (I2, I4).
    #[error(
        "mapping {0} of the layout is empty or extends past the end of the 64-bit address space"
    )]
    BadRange(usize),
    /// A mapping starts before the previous one ends (I4).
    #[error("mapping {0} of the layout starts before its predecessor ends")]
    Unsorted(usize),
    /// Too many references (I8).
    #[error("{0} references, but fewer than 2^62 are allowed")]
    TooManyReferences(u64),
    /// More rows or references are marked as before the recording than the trace has (I9).
    #[error(
        "{0} rows with {1} references belong to the time before the recording; only a page-fault \
         trace with at least as many rows and references can contain them"
    )]
    BadAttached(u64, u64),
    /// References are counted in a different page size.
    #[error(
        "page_bytes is {0}, but version 1 counts references in units of {REFERENCE_PAGE_BYTES} \
         bytes"
    )]
    PageBytes(u64),
}

impl Event {
    /// Checks the row against I1, I2, I5, and the parts of I3 and I6 that need no footer.
    ///
    /// # Errors
    /// The first broken rule.
    ///
    /// ```
    /// use largefolio_trace::{Event, Op, validate::RowFault};
    /// assert_eq!(Event::references(0, Op::Read, 0x1000, 2).validate(), Ok(()));
    /// assert_eq!(Event::references(0, Op::Read, 0x1000, 0).validate(), Err(RowFault::EmptyRun));
    /// assert_eq!(Event::new(0, Op::Pread).validate(), Err(RowFault::MissingFile(Op::Pread)));
    /// ```
    pub fn validate(&self) -> Result<(), RowFault> {
        match self.op {
            Op::Exec | Op::Read | Op::Write => self.validate_run(),
            Op::Mmap => fits(self.addr, self.len).and_then(|()| fits(self.pos, self.len)),
            Op::Munmap | Op::Mprotect | Op::Madvise | Op::Collapse | Op::Mlock | Op::Mempolicy => {
                fits(self.addr, self.len)
            }
            Op::Mremap => fits(self.addr, self.len).and_then(|()| fits(self.pos, self.aux)),
            Op::Pread | Op::Pwrite if self.len > CALL_BYTES_MAX => {
                Err(RowFault::TooLong(self.op, self.len))
            }
            Op::Pread | Op::Pwrite | Op::Fadvise | Op::Fallocate => {
                self.validate_has_file().and_then(|()| fits(self.pos, self.len))
            }
            Op::Sync => fits(self.addr, self.len).and_then(|()| fits(self.pos, self.len)),
            Op::Open | Op::Truncate | Op::Unlink => self.validate_has_file(),
            Op::Brk
            | Op::Fork
            | Op::Exit
            | Op::DropCaches
            | Op::Close
            | Op::Execve
            | Op::ThpDisable => Ok(()),
        }
    }

    fn validate_run(&self) -> Result<(), RowFault> {
        if self.len == 0 {
            return Err(RowFault::EmptyRun);
        }
        if !self.addr.is_multiple_of(REFERENCE_PAGE_BYTES) {
            return Err(RowFault::Unaligned(self.addr));
        }
        if self.flags > if self.op == Op::Exec { 0 } else { LINK_MAX } {
            return Err(RowFault::BadLink(self.op, self.flags));
        }
        Ok(())
    }

    fn validate_has_file(&self) -> Result<(), RowFault> {
        if self.file.is_some() { Ok(()) } else { Err(RowFault::MissingFile(self.op)) }
    }
}

fn fits(start: u64, bytes: u64) -> Result<(), RowFault> {
    match start.checked_add(bytes) {
        Some(_) => Ok(()),
        None => Err(RowFault::Overflow(start, bytes)),
    }
}

impl Meta {
    /// Checks the footer against I2, I3, I4 and its part of I7.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn validate(&self) -> Result<(), MetaFault> {
        if self.files.len() > NR_FILES_MAX {
            return Err(MetaFault::TooManyFiles(self.files.len()));
        }
        if self.page_bytes != REFERENCE_PAGE_BYTES {
            return Err(MetaFault::PageBytes(self.page_bytes));
        }
        if self.runs.len() > NR_RUNS_MAX {
            return Err(MetaFault::TooManyRuns(self.runs.len()));
        }
        if self.execs.len() > NR_EXECS_MAX || self.images.len() > NR_IMAGES_MAX {
            return Err(MetaFault::TooManyExecs(self.execs.len(), self.images.len()));
        }
        if self.nr_references >= NR_REFERENCES_MAX {
            return Err(MetaFault::TooManyReferences(self.nr_references));
        }
        if let Some(Attached { nr_rows, nr_pages, .. }) = self.attached
            && (nr_rows > self.nr_rows || nr_pages > self.nr_references || !self.faults_only)
        {
            return Err(MetaFault::BadAttached(nr_rows, nr_pages));
        }
        let is_known = |image: u32| (image as usize) < self.images.len();
        if let Some(row) = self.execs.iter().position(|exec| !is_known(exec.image)) {
            return Err(MetaFault::UnknownImage(row, self.execs[row].image));
        }
        let images = self.images.iter().map(|image| &image.layout);
        for layout in std::iter::once(&self.layout).chain(images) {
            let mut end = 0;
            for (row, mapping) in layout.iter().enumerate() {
                end = self.validate_mapping(row, mapping, end)?;
            }
        }
        Ok(())
    }

    /// Checks one mapping, which must not start before `previous_end`, and returns its end.
    fn validate_mapping(
        &self,
        row: usize,
        mapping: &LayoutEntry,
        previous_end: u64,
    ) -> Result<u64, MetaFault> {
        if let Some(file) = mapping.file
            && file as usize >= self.files.len()
        {
            return Err(MetaFault::UnknownFile(row, file));
        }
        if mapping.addr < previous_end {
            return Err(MetaFault::Unsorted(row));
        }
        let end = mapping.addr.checked_add(mapping.len);
        match (end, mapping.pos.checked_add(mapping.len)) {
            (Some(end), Some(_)) if mapping.len > 0 => Ok(end),
            _ => Err(MetaFault::BadRange(row)),
        }
    }
}
