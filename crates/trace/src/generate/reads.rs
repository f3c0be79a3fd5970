//! Sequential and random reads of a file: workloads for readahead.
//!
//! Owns two workloads that share their access methods. They open the file and read it in pieces of
//! `read_bytes` with pread or through a shared mapping at [`BASE`], then exit.

use super::{
    BASE, FILESYSTEM, GenerateError, Rng, Sink, Workload, command_of, file_of, meta_of, require,
    require_region,
};
use crate::event::abi::{MAP_SHARED, PROT_READ};
use crate::event::{Event, ExitKind, Op, mmap_flags};
use crate::meta::Meta;
use crate::validate::{CALL_BYTES_MAX, REFERENCE_PAGE_BYTES};

const DESCRIPTOR: u64 = 3;

/// How a piece is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadWay {
    /// One pread per piece.
    Pread,
    /// One reference to each page of the piece, through a mapping.
    Mapped,
}

impl ReadWay {
    fn option(self) -> Option<(&'static str, String)> {
        (self == Self::Mapped).then(|| ("mapped", String::new()))
    }

    fn emit_open(self, file_bytes: u64, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        sink(Event { pos: DESCRIPTOR, file: Some(0), ..Event::new(0, Op::Open) })?;
        if self == Self::Pread {
            return Ok(());
        }
        let flags = mmap_flags(PROT_READ, MAP_SHARED);
        let range = Event { addr: BASE, len: file_bytes, ..Event::new(0, Op::Mmap) };
        sink(Event { flags, file: Some(0), ..range })
    }

    fn emit_piece(self, pos: u64, bytes: u64, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        if self == Self::Pread {
            let read = Event { len: bytes, pos, aux: DESCRIPTOR, ..Event::new(0, Op::Pread) };
            return sink(Event { file: Some(0), ..read });
        }
        let mut pages = pos / REFERENCE_PAGE_BYTES..=(pos + bytes - 1) / REFERENCE_PAGE_BYTES;
        pages.try_for_each(|page| {
            sink(Event::references(0, Op::Read, BASE + page * REFERENCE_PAGE_BYTES, 1))
        })
    }
}

/// Options of reading a file sequentially.
///
/// ```
/// use largefolio_trace::generate::{SequentialReads, Workload};
/// let reads = SequentialReads { file_bytes: 1 << 20, read_bytes: 96 << 10, ..Default::default() };
/// // open, ten reads of 96 KiB and one of the 64 KiB that are left, exit
/// assert_eq!(reads.events()?.len(), 1 + 11 + 1);
/// # Ok::<(), largefolio_trace::generate::GenerateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequentialReads {
    /// Length of the file: a multiple of 4096, at most 1 TiB.
    pub file_bytes: u64,
    /// Length of a piece, 1 to `file_bytes`; the last can be shorter.
    pub read_bytes: u64,
    /// How a piece is read.
    pub way: ReadWay,
    /// Filesystem name of the file.
    pub filesystem: String,
}

impl Default for SequentialReads {
    /// 256 MiB in pieces of 128 KiB, as `cp` reads.
    fn default() -> Self {
        Self {
            file_bytes: 256 << 20,
            read_bytes: 128 << 10,
            way: ReadWay::Pread,
            filesystem: FILESYSTEM.to_owned(),
        }
    }
}

/// Options of reading random pieces of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RandomReads {
    /// Length of the file: a multiple of 4096, at most 1 TiB.
    pub file_bytes: u64,
    /// Length of a piece, 1 to `file_bytes`. Pieces are aligned to it and end inside the file.
    pub read_bytes: u64,
    /// Number of pieces read.
    pub nr_reads: u64,
    /// How a piece is read.
    pub way: ReadWay,
    /// Seed of the positions.
    pub seed: u64,
    /// Filesystem name of the file.
    pub filesystem: String,
}

impl Default for RandomReads {
    /// 100,000 reads of 4 KiB from 1 GiB, as a database reads.
    fn default() -> Self {
        Self {
            file_bytes: 1 << 30,
            read_bytes: 4096,
            nr_reads: 100_000,
            way: ReadWay::Pread,
            seed: 1,
            filesystem: FILESYSTEM.to_owned(),
        }
    }
}

fn validate_sizes(file_bytes: u64, read_bytes: u64, way: ReadWay) -> Result<(), GenerateError> {
    require_region("file_bytes", file_bytes)?;
    let is_legal = (1..=file_bytes).contains(&read_bytes);
    require(is_legal, "read_bytes", read_bytes, "it must be from 1 to file_bytes")?;
    let is_one_call = way == ReadWay::Mapped || read_bytes <= CALL_BYTES_MAX;
    let rule = "one call transfers at most 2147479552 bytes; with --mapped there is no such limit";
    require(is_one_call, "read_bytes", read_bytes, rule)
}

fn exit() -> Event {
    Event { flags: ExitKind::Process as u32, ..Event::new(0, Op::Exit) }
}

impl Workload for SequentialReads {
    fn validate(&self) -> Result<(), GenerateError> {
        validate_sizes(self.file_bytes, self.read_bytes, self.way)
    }

    fn meta(&self) -> Meta {
        let mut options = vec![
            ("file-size", self.file_bytes.to_string()),
            ("read-size", self.read_bytes.to_string()),
        ];
        options.extend(self.way.option());
        let file = file_of("data", self.file_bytes, &self.filesystem);
        let command = command_of("sequential", &options, &self.filesystem);
        meta_of("sequential-reads", command, 0, vec![file])
    }

    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        self.validate()?;
        self.way.emit_open(self.file_bytes, sink)?;
        let mut pos = 0;
        while pos < self.file_bytes {
            let bytes = self.read_bytes.min(self.file_bytes - pos);
            self.way.emit_piece(pos, bytes, sink)?;
            pos += bytes;
        }
        sink(exit())
    }
}

impl Workload for RandomReads {
    fn validate(&self) -> Result<(), GenerateError> {
        validate_sizes(self.file_bytes, self.read_bytes, self.way)
    }

    fn meta(&self) -> Meta {
        let mut options = vec![
            ("file-size", self.file_bytes.to_string()),
            ("read-size", self.read_bytes.to_string()),
            ("reads", self.nr_reads.to_string()),
            ("seed", self.seed.to_string()),
        ];
        options.extend(self.way.option());
        let file = file_of("data", self.file_bytes, &self.filesystem);
        let command = command_of("random", &options, &self.filesystem);
        meta_of("random-reads", command, self.seed, vec![file])
    }

    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        self.validate()?;
        let mut rng = Rng::new(self.seed);
        self.way.emit_open(self.file_bytes, sink)?;
        let nr_pieces = self.file_bytes / self.read_bytes;
        for _ in 0..self.nr_reads {
            let pos = rng.below(nr_pieces) * self.read_bytes;
            self.way.emit_piece(pos, self.read_bytes, sink)?;
        }
        sink(exit())
    }
}
