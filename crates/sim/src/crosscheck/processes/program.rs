//! A program of a few processes: what each of them does, step by step, in one order.
//!
//! ```text
//!   program 17 pages=128 sizes=64        seed, pages of the window, enabled folio sizes in KiB
//!   0 map 0 32 h                         SLOT OPERATION ARGUMENTS; pages count from the window's
//!   0 write 5                            first one
//!   0 fork 1
//!   1 write 5
//!   program 18 pages=1280 sizes=- memfd=1536      the processes share a file of 1536 empty pages
//!   0 share 0 512 512 s                           mapped from its page 512 on
//!   0 collapse 0 512
//! ```
//!
//! Owns the operations and their text. The same text runs on a kernel (`probe/cow.c`) and in the
//! memory manager.

use std::fmt;
use std::str::FromStr;

use super::parse::{ParseError, Words};

/// Processes a program can have.
pub const NR_SLOTS: usize = 4;
/// Pages a program's window can have.
pub const NR_PAGES_MAX: u64 = 8192;

/// Largest folio size: a PMD entry with 64K pages.
const SIZE_KIB_MAX: u64 = 512 << 10;

/// What a few processes do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Seed it was made from; its name.
    pub seed: u64,
    /// Pages of the window that all areas lie in.
    pub nr_pages: u64,
    /// Folio sizes enabled for advised areas, in KiB.
    pub sizes_kib: Vec<u64>,
    /// The file its processes share.
    pub own_file: Option<OwnFile>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A file that belongs to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnFile {
    /// Where it lies.
    pub kind: FileKind,
    /// Its size.
    pub nr_pages: u64,
}

/// Where a program's file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `memfd_create`.
    Memfd,
    /// A mounted tmpfs.
    Tmpfs,
    /// A filesystem on a disk: zeroes, none of them cached.
    Disk,
}

impl FileKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Memfd => "memfd",
            Self::Tmpfs => "tmpfs",
            Self::Disk => "disk",
        }
    }
}

/// One step of one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which process, below [`NR_SLOTS`].
    pub slot: usize,
    /// What it does.
    pub op: Op,
}

/// Consecutive pages of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First page.
    pub first: u64,
    /// Number of pages, at least 1.
    pub nr: u64,
}

impl Range {
    /// The page after the last.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.first + self.nr
    }
}

/// Folio advice of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// None.
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    Nohuge,
}

/// Protection of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `PROT_NONE`.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// What an area maps, privately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeroes.
    Anon,
    /// A file in memory of `FILE_PAGES` cached base pages, from page `first % (FILE_PAGES / 2)`.
    File,
}

/// Pages of the file.
pub(super) const FILE_PAGES: u64 = 256;

impl Source {
    /// Page of the file behind the first page of an area that is mapped at `first`.
    #[must_use]
    pub const fn file_page(first: u64) -> u64 {
        first % (FILE_PAGES / 2)
    }
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Maps an area that may be stored to, where nothing is mapped.
    Map(Range, Source, Advice),
    /// Maps the program's own file from a page of it, where nothing is mapped.
    Share(Range, u64, How),
    /// Loads from each page, in ascending order, until one fails.
    Read(Range),
    /// Stores to each page, in ascending order, until one fails.
    Write(Range),
    /// `munmap`.
    Unmap(Range),
    /// `MADV_DONTNEED`.
    Drop(Range),
    /// `MADV_FREE`.
    Free(Range),
    /// `MADV_COLLAPSE`.
    Collapse(Range),
    /// `FALLOC_FL_PUNCH_HOLE` in the program's own file, whose pages these are.
    Punch(Range),
    /// A pipe refers to a page (`vmsplice`).
    Pin(u64),
    /// The pipe gives back the page it has referred to for longest.
    Unpin,
    /// `pread` of pages of the program's own file, one call each.
    Load(Range),
    /// Opens the program's own file for write.
    Open,
    /// Closes it again.
    Close,
    /// `pwrite` to pages of the program's own file, one call each.
    Put(Range),
    /// `fsync` of the program's own file.
    Sync,
    /// `mprotect`.
    Protect(Range, Access),
    /// `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`.
    Advise(Range, Advice),
    /// `mremap` to a page of the window; what was mapped there goes.
    Remap(Range, u64),
    /// `fork`; the child gets this slot.
    Fork(usize),
    /// The process ends.
    Exit,
}

/// Whether stores to a mapping of the program's own file reach the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// They do.
    Shared,
    /// They make copies.
    Private,
}

/// How the program's own file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// Where stores go.
    pub sharing: Sharing,
    /// What is allowed.
    pub rights: Rights,
}

/// What a mapping of the program's own file allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Loads and stores.
    ReadWrite,
    /// Loads.
    Read,
    /// Loads and jumps.
    ReadExec,
}

impl How {
    fn word(self) -> String {
        let sharing = if self.sharing == Sharing::Shared { "s" } else { "p" };
        let rights = match self.rights {
            Rights::ReadWrite => "",
            Rights::Read => "r",
            Rights::ReadExec => "x",
        };
        format!("{sharing}{rights}")
    }

    fn of_word(word: &str) -> Self {
        let sharing = if word.contains('p') { Sharing::Private } else { Sharing::Shared };
        let rights = match (word.contains('x'), word.contains('r')) {
            (true, _) => Rights::ReadExec,
            (false, true) => Rights::Read,
            (false, false) => Rights::ReadWrite,
        };
        Self { sharing, rights }
    }
}

impl Advice {
    const fn letter(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Huge => "h",
            Self::Nohuge => "n",
        }
    }

    fn of_word(word: &str) -> Self {
        match (word.contains('h'), word.contains('n')) {
            (true, _) => Self::Huge,
            (false, true) => Self::Nohuge,
            (false, false) => Self::None,
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nr == 1 {
            return write!(f, "{}", self.first);
        }
        write!(f, "{} {}", self.first, self.nr)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot;
        match self.op {
            Op::Map(Range { first, nr }, source, advice) => {
                let file = if source == Source::File { "f" } else { "" };
                let dash = if file.is_empty() && advice == Advice::None { "-" } else { "" };
                write!(f, "{slot} map {first} {nr} {file}{}{dash}", advice.letter())
            }
            Op::Share(Range { first, nr }, from, how) => {
                write!(f, "{slot} share {first} {nr} {from} {}", how.word())
            }
            Op::Load(range) => write!(f, "{slot} load {range}"),
            Op::Open => write!(f, "{slot} open"),
            Op::Close => write!(f, "{slot} close"),
            Op::Put(range) => write!(f, "{slot} put {range}"),
            Op::Sync => write!(f, "{slot} sync"),
            Op::Free(range) => write!(f, "{slot} free {range}"),
            Op::Collapse(range) => write!(f, "{slot} collapse {range}"),
            Op::Punch(range) => write!(f, "{slot} punch {range}"),
            Op::Pin(page) => write!(f, "{slot} pin {page}"),
            Op::Unpin => write!(f, "{slot} unpin"),
            Op::Read(range) => write!(f, "{slot} read {range}"),
            Op::Write(range) => write!(f, "{slot} write {range}"),
            Op::Unmap(range) => write!(f, "{slot} unmap {range}"),
            Op::Drop(range) => write!(f, "{slot} drop {range}"),
            Op::Protect(range, access) => {
                let word = match access {
                    Access::None => "-",
                    Access::Read => "r",
                    Access::ReadWrite => "rw",
                };
                write!(f, "{slot} protect {range} {word}")
            }
            Op::Advise(range, advice) => write!(f, "{slot} advise {range} {}", advice.letter()),
            Op::Remap(Range { first, nr }, to) => write!(f, "{slot} remap {first} {nr} {to}"),
            Op::Fork(child) => write!(f, "{slot} fork {child}"),
            Op::Exit => write!(f, "{slot} exit"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.sizes_kib.iter().map(u64::to_string).collect();
        let sizes = if sizes.is_empty() { "-".to_owned() } else { sizes.join(",") };
        write!(f, "program {} pages={} sizes={sizes}", self.seed, self.nr_pages)?;
        if let Some(OwnFile { kind, nr_pages }) = self.own_file {
            write!(f, " {}={nr_pages}", kind.name())?;
        }
        writeln!(f)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl FromStr for Step {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut words = Words::new(text);
        let slot = words.slot()?;
        let name = words.word()?;
        let op = match name {
            "fork" => Op::Fork(words.slot()?),
            "exit" => Op::Exit,
            "unpin" => Op::Unpin,
            "open" => Op::Open,
            "close" => Op::Close,
            "sync" => Op::Sync,
            "pin" => Op::Pin(words.number(NR_PAGES_MAX - 1)?),
            "share" => {
                let range = words.range()?;
                let from = words.number(NR_PAGES_MAX - range.nr)?;
                Op::Share(range, from, How::of_word(words.rest()))
            }
            "remap" => {
                let range = words.range()?;
                Op::Remap(range, words.number(NR_PAGES_MAX - range.nr)?)
            }
            _ => {
                let range = words.range()?;
                ranged(name, range, words.rest()).ok_or_else(|| ParseError::new(text))?
            }
        };
        Ok(Self { slot, op })
    }
}

/// The operation `name` on a range, with the word that follows.
fn ranged(name: &str, range: Range, how: &str) -> Option<Op> {
    let advice = Advice::of_word(how);
    Some(match name {
        "map" if how.contains('f') => Op::Map(range, Source::File, advice),
        "map" => Op::Map(range, Source::Anon, advice),
        "read" => Op::Read(range),
        "write" => Op::Write(range),
        "unmap" => Op::Unmap(range),
        "drop" => Op::Drop(range),
        "free" => Op::Free(range),
        "collapse" => Op::Collapse(range),
        "punch" => Op::Punch(range),
        "load" => Op::Load(range),
        "put" => Op::Put(range),
        "protect" if how.contains('w') => Op::Protect(range, Access::ReadWrite),
        "protect" if how.contains('r') => Op::Protect(range, Access::Read),
        "protect" => Op::Protect(range, Access::None),
        "advise" if advice != Advice::None => Op::Advise(range, advice),
        _ => return None,
    })
}

/// The file that `memfd=NR` or `tmpfs=NR` announces.
fn own_file(word: &str) -> Result<Option<OwnFile>, ()> {
    if word.is_empty() {
        return Ok(None);
    }
    let (name, nr) = word.split_once('=').ok_or(())?;
    let kinds = [FileKind::Memfd, FileKind::Tmpfs, FileKind::Disk];
    let kind = kinds.into_iter().find(|kind| kind.name() == name);
    let nr_pages = nr.parse().ok().filter(|nr| (1..=NR_PAGES_MAX).contains(nr));
    let (kind, nr_pages) = kind.zip(nr_pages).ok_or(())?;
    Ok(Some(OwnFile { kind, nr_pages }))
}

impl Program {
    /// The program a `program` line announces, without its steps.
    ///
    /// # Errors
    /// When the line is not of that form.
    pub fn of_line(line: &str) -> Result<Self, ParseError> {
        let mut words = Words::new(line);
        let wrong = || ParseError::new(line);
        if words.word()? != "program" {
            return Err(wrong());
        }
        let seed = words.number(u64::MAX)?;
        let pages = words.word()?.strip_prefix("pages=").and_then(|nr| nr.parse().ok());
        let nr_pages = pages.filter(|nr| (1..=NR_PAGES_MAX).contains(nr)).ok_or_else(wrong)?;
        let sizes = words.word()?.strip_prefix("sizes=").ok_or_else(wrong)?;
        let kib = sizes.split(',').filter(|word| *word != "-").map(str::parse);
        let sizes_kib: Vec<u64> = kib.collect::<Result<_, _>>().map_err(|_| wrong())?;
        if sizes_kib.iter().any(|&kib| kib > SIZE_KIB_MAX) {
            return Err(wrong());
        }
        let own_file = own_file(words.rest()).map_err(|()| wrong())?;
        Ok(Self { seed, nr_pages, sizes_kib, own_file, steps: Vec::new() })
    }

    /// The programs of a text; lines that begin with `#` are passed over.
    ///
    /// # Errors
    /// The first line that is no step, or a step before the first program.
    pub fn all_of(text: &str) -> Result<Vec<Self>, ParseError> {
        let mut all: Vec<Self> = Vec::new();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            if line.starts_with("program") {
                all.push(Self::of_line(line)?);
            } else {
                let step = line.parse()?;
                all.last_mut().ok_or_else(|| ParseError::new(line))?.steps.push(step);
            }
        }
        Ok(all)
    }
}
