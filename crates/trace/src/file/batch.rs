//! Rows stored as columns, filled by the reader or by callers.
//!
//! Owns the buffers, which a caller reuses from batch to batch. Invariants:
//! - I1: all columns have the same length.
//! - I2: in a batch from [`Reader::next_batch`](super::Reader::next_batch), every op number is
//!   known, every file is [`NO_FILE`] or a row of the file table, and every row passes
//!   [`Event::validate`].

use std::ops::Range;

use super::values::Values;
use crate::event::{Event, FileId, LINK_MAX, Op, ThreadId};
use crate::meta::Meta;
use crate::validate::{REFERENCE_PAGE_BYTES, RowFault};

/// Value of [`Batch::files`] for a row without a file (-1 in the file).
pub const NO_FILE: FileId = FileId::MAX;

/// Rows checked together. A system call among them costs a check row by row.
const NR_CHECKED: usize = 256;

/// Rows as a structure of arrays.
///
/// ```
/// use largefolio_trace::{Batch, Event, Op};
/// let mut batch = Batch::default();
/// batch.push(&Event::references(3, Op::Write, 0x7000, 5));
/// assert_eq!((batch.len(), batch.ops()[0], batch.lens()[0]), (1, Op::Write as u8, 5));
/// assert_eq!(batch.event(0), Event::references(3, Op::Write, 0x7000, 5));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub(super) threads: Values<ThreadId>,
    pub(super) ops: Values<u8>,
    pub(super) addrs: Values<u64>,
    pub(super) lens: Values<u64>,
    pub(super) positions: Values<u64>,
    pub(super) auxes: Values<u64>,
    pub(super) flags: Values<u32>,
    pub(super) files: Values<FileId>,
}

impl Batch {
    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Returns whether the batch has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.len() == 0
    }

    /// Returns the threads, one per row.
    #[must_use]
    pub fn threads(&self) -> &[ThreadId] {
        self.threads.as_slice()
    }

    /// Returns the thread of all rows if the file stores it once; else `None`, even for one thread.
    #[must_use]
    pub fn thread(&self) -> Option<ThreadId> {
        self.threads.uniform().filter(|_| !self.is_empty())
    }

    /// Returns the op numbers ([`Op::from_number`]), one per row.
    #[must_use]
    pub fn ops(&self) -> &[u8] {
        self.ops.as_slice()
    }

    /// Returns the addresses in bytes, one per row.
    #[must_use]
    pub fn addrs(&self) -> &[u64] {
        self.addrs.as_slice()
    }

    /// Returns the bytes or numbers of references, one per row.
    #[must_use]
    pub fn lens(&self) -> &[u64] {
        self.lens.as_slice()
    }

    /// Returns the positions in bytes or second addresses, one per row.
    #[must_use]
    pub fn positions(&self) -> &[u64] {
        self.positions.as_slice()
    }

    /// Returns the ops' additional numbers, one per row.
    #[must_use]
    pub fn auxes(&self) -> &[u64] {
        self.auxes.as_slice()
    }

    /// Returns the flags, one per row. A read's or write's flags are its link ([`crate::event`]).
    #[must_use]
    pub fn flags(&self) -> &[u32] {
        self.flags.as_slice()
    }

    /// Returns the rows of the file table or [`NO_FILE`], one per row.
    #[must_use]
    pub fn files(&self) -> &[FileId] {
        self.files.as_slice()
    }

    /// Returns row `i` as an event.
    ///
    /// # Panics
    /// If `i` is not below [`Batch::len`].
    #[must_use]
    pub fn event(&self, i: usize) -> Event {
        let Some(op) = Op::from_number(self.ops()[i]) else { unreachable!("I2: op is known") };
        Event {
            thread: self.threads()[i],
            op,
            addr: self.addrs()[i],
            len: self.lens()[i],
            pos: self.positions()[i],
            aux: self.auxes()[i],
            flags: self.flags()[i],
            file: Some(self.files()[i]).filter(|&file| file != NO_FILE),
        }
    }

    /// Returns all rows as events, in program order.
    #[must_use]
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        (0..self.len()).map(|i| self.event(i))
    }

    /// Appends a row.
    pub fn push(&mut self, event: &Event) {
        self.threads.push(event.thread);
        self.ops.push(event.op as u8);
        self.addrs.push(event.addr);
        self.lens.push(event.len);
        self.positions.push(event.pos);
        self.auxes.push(event.aux);
        self.flags.push(event.flags);
        self.files.push(event.file.unwrap_or(NO_FILE));
    }

    /// Drops all rows but keeps the memory.
    pub fn clear(&mut self) {
        self.threads.clear();
        self.ops.clear();
        self.addrs.clear();
        self.lens.clear();
        self.positions.clear();
        self.auxes.clear();
        self.flags.clear();
        self.files.clear();
    }

    /// Checks I2 against the files and links in `meta`.
    ///
    /// # Errors
    /// The first illegal row, counted from 0, and the broken rule.
    pub fn validate(&self, meta: &Meta) -> Result<(), (usize, RowFault)> {
        let link_max = if meta.links { LINK_MAX } else { 0 };
        for start in (0..self.len()).step_by(NR_CHECKED) {
            let rows = start..self.len().min(start + NR_CHECKED);
            if !self.are_plain_runs(rows.clone(), link_max) {
                for i in rows {
                    self.validate_row(i, meta).map_err(|fault| (i, fault))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn nr_references(&self) -> u64 {
        let is_reference = |&op: &u8| op <= Op::Write as u8;
        let runs = self.ops().iter().zip(self.lens()).filter(|(op, _)| is_reference(op));
        runs.fold(0, |sum: u64, (_, len)| sum.saturating_add(*len))
    }

    /// Returns whether all rows are legal runs without a file. Checks many rows without a branch.
    fn are_plain_runs(&self, rows: Range<usize>, link_max: u32) -> bool {
        let ops = &self.ops()[rows.clone()];
        let op_max = ops.iter().fold(0, |max, &op| op.max(max));
        let faults_of_addr =
            self.addrs()[rows.clone()].iter().fold(0, |faults, &addr| faults | addr)
                & (REFERENCE_PAGE_BYTES - 1);
        // The subtraction sets the top bit only for a length of zero.
        let faults_of_len = self.lens()[rows.clone()]
            .iter()
            .fold(0, |faults, &len| faults | (len.wrapping_sub(1) & !len));
        let has_no_files = self.files.uniform() == Some(NO_FILE)
            || self.files()[rows.clone()].iter().fold(NO_FILE, |all, &file| all & file) == NO_FILE;
        let are_links = self.flags.uniform() == Some(0)
            || ops.iter().zip(&self.flags()[rows]).fold(true, |are_links, (&op, &link)| {
                are_links & (link <= if op == Op::Exec as u8 { 0 } else { link_max })
            });
        op_max <= Op::Write as u8
            && faults_of_addr == 0
            && faults_of_len >> 63 == 0
            && has_no_files
            && are_links
    }

    fn validate_row(&self, i: usize, meta: &Meta) -> Result<(), RowFault> {
        let nr_files = meta.files.len();
        if Op::from_number(self.ops()[i]).is_none() {
            return Err(RowFault::UnknownOp(self.ops()[i]));
        }
        let event = self.event(i);
        match event.file {
            Some(file) if file as usize >= nr_files => Err(RowFault::UnknownFile(file, nr_files)),
            _ if event.op.is_reference() && event.flags != 0 && !meta.links => {
                Err(RowFault::UnknownLink(event.flags))
            }
            _ if event.op == Op::Execve && event.aux >= meta.execs.len() as u64 => {
                Err(RowFault::UnknownExec(event.aux, meta.execs.len()))
            }
            _ => event.validate(),
        }
    }
}
