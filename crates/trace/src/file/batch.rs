//! Rows in columns: what the reader hands out and the writer collects.
//!
//! Owns the buffers, which a caller reuses from batch to batch. Invariants:
//! - I1: all columns have the same length.
//! - I2: in a batch that [`Reader::next_batch`](super::Reader::next_batch) filled, every op number
//!   is known, every file is [`NO_FILE`] or a row of the file table, and every row passes
//!   [`Event::validate`].

use crate::event::{Event, FileId, LINK_MAX, Op, ThreadId};
use crate::meta::Meta;
use crate::validate::{REFERENCE_PAGE_BYTES, RowFault};

/// What [`Batch::files`] says for a row without a file (-1 in the file).
pub const NO_FILE: FileId = FileId::MAX;

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
    pub(super) threads: Vec<ThreadId>,
    pub(super) ops: Vec<u8>,
    pub(super) addrs: Vec<u64>,
    pub(super) lens: Vec<u64>,
    pub(super) positions: Vec<u64>,
    pub(super) auxes: Vec<u64>,
    pub(super) flags: Vec<u32>,
    pub(super) files: Vec<FileId>,
}

impl Batch {
    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Threads, one per row.
    #[must_use]
    pub fn threads(&self) -> &[ThreadId] {
        &self.threads
    }

    /// Op numbers ([`Op::from_number`]), a row each.
    #[must_use]
    pub fn ops(&self) -> &[u8] {
        &self.ops
    }

    /// Addresses in bytes, one per row.
    #[must_use]
    pub fn addrs(&self) -> &[u64] {
        &self.addrs
    }

    /// Bytes, or number of references, one per row.
    #[must_use]
    pub fn lens(&self) -> &[u64] {
        &self.lens
    }

    /// Positions in bytes or second addresses, one per row.
    #[must_use]
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// The ops' further numbers, one per row.
    #[must_use]
    pub fn auxes(&self) -> &[u64] {
        &self.auxes
    }

    /// Flags, one per row; those of a read or write are its link ([`crate::event`]).
    #[must_use]
    pub fn flags(&self) -> &[u32] {
        &self.flags
    }

    /// Rows of the file table or [`NO_FILE`], a row each.
    #[must_use]
    pub fn files(&self) -> &[FileId] {
        &self.files
    }

    /// Row `i` as an event.
    ///
    /// # Panics
    /// If `i` is not below [`Batch::len`].
    #[must_use]
    pub fn event(&self, i: usize) -> Event {
        let Some(op) = Op::from_number(self.ops[i]) else { unreachable!("I2: op is known") };
        Event {
            thread: self.threads[i],
            op,
            addr: self.addrs[i],
            len: self.lens[i],
            pos: self.positions[i],
            aux: self.auxes[i],
            flags: self.flags[i],
            file: Some(self.files[i]).filter(|&file| file != NO_FILE),
        }
    }

    /// All rows as events, in program order.
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

    /// Drops all rows, keeps the memory.
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

    /// Checks I2 against the files and links that `meta` says there are.
    ///
    /// # Errors
    /// The first row, counted from 0, that breaks a rule, and the rule.
    pub fn validate(&self, meta: &Meta) -> Result<(), (usize, RowFault)> {
        let link_max = if meta.links { LINK_MAX } else { 0 };
        for i in 0..self.len() {
            if !self.is_plain_run(i, link_max) {
                self.validate_row(i, meta).map_err(|fault| (i, fault))?;
            }
        }
        Ok(())
    }

    /// The common case, decided without building an event: a legal run without a file.
    fn is_plain_run(&self, i: usize, link_max: u32) -> bool {
        let is_linkable = self.ops[i] != Op::Exec as u8;
        self.ops[i] <= Op::Write as u8
            && self.flags[i] <= if is_linkable { link_max } else { 0 }
            && self.lens[i] > 0
            && self.addrs[i].is_multiple_of(REFERENCE_PAGE_BYTES)
            && self.files[i] == NO_FILE
    }

    fn validate_row(&self, i: usize, meta: &Meta) -> Result<(), RowFault> {
        let nr_files = meta.files.len();
        if Op::from_number(self.ops[i]).is_none() {
            return Err(RowFault::UnknownOp(self.ops[i]));
        }
        let event = self.event(i);
        match event.file {
            Some(file) if file as usize >= nr_files => Err(RowFault::UnknownFile(file, nr_files)),
            _ if event.op.is_reference() && event.flags != 0 && !meta.links => {
                Err(RowFault::UnknownLink(event.flags))
            }
            _ => event.validate(),
        }
    }
}
