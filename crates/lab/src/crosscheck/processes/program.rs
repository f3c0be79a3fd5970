//! A program of a few processes: their actions step by step, in one order.
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
//!   program 19 pages=1280 sizes=2048 khugepaged=511,256,0     khugepaged's limits (`khugepaged`)
//!   0 scan                                                    one wakeup
//! ```
//!
//! Owns the operations and their text. The same text runs on a kernel (`probe/cow.c`) and in the
//! memory manager.

use std::fmt;

use largefolio_mm::map::Madvice;
use largefolio_mm::mapping::tree;
use largefolio_mm::mempolicy::MemPolicy;
use largefolio_mm::units::{NodeId, Order};
use largefolio_mm::vma::{Lock, Prot, Sharing};

use super::huge::{HugeMapping, HugePages, Trim};
use super::khugepaged::ScanLimits;
use super::limit::Limit;
use super::nodes::{Binding, MoveTo, ends_of, node_of, nodes_of, policy_of, policy_text};
use super::range::{NR_PAGES_MAX, PageRange, SIZE_KIB_MAX, slot_of};
use super::shmem::ShmemSettings;
use super::zswap::{Stuffing, ZswapLimits};
use crate::crosscheck::text::{Pairs, ParseError, Parsed, each_line, number, number_to, unknown};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessProgram {
    /// The program's seed, which is also its name.
    pub seed: u64,
    pub(super) nr_pages: u64,
    /// Folio sizes enabled for advised areas, in KiB.
    pub sizes_kib: Vec<u64>,
    pub(super) own_file: Option<OwnFile>,
    pub huge: Option<HugePages>,
    pub(super) khugepaged: Option<ScanLimits>,
    pub(super) limit: Option<Limit>,
    pub(super) zswap: Option<ZswapLimits>,
    pub(super) shmem: Option<ShmemSettings>,
    /// Nodes of the machine; pages are compared with theirs.
    pub(super) nodes: Option<u64>,
    /// Whether NUMA balancing marks pages when a step says so. Pages are read only by the steps.
    pub(super) is_balanced: bool,
    pub(super) steps: Vec<ProcessStep>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnFile {
    pub(super) kind: FileKind,
    pub(super) nr_pages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// `memfd_create`.
    Memfd,
    Tmpfs,
    /// A filesystem on disk; the file has zeros and is not cached.
    Disk,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProcessStep {
    /// The process, below [`NR_SLOTS`](super::range::NR_SLOTS).
    pub(super) slot: usize,
    pub(super) op: ProcessOp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AreaSource {
    Anon,
    /// Shared anonymous memory.
    Shared,
    /// A System V segment.
    Segment,
    /// Anonymous memory with `MAP_STACK`.
    Stack,
    /// A file in memory of `FILE_PAGES` cached base pages, from page `first % (FILE_PAGES / 2)`.
    File,
}

pub(super) const FILE_PAGES: u64 = 256;
/// The word for programs with hints.
const BALANCED: &str = "balanced";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessOp {
    /// Maps a writable area in a free range and applies folio advice.
    Map(PageRange, AreaSource, Option<Madvice>),
    /// Maps the program's own file, from the given file page, in a free range.
    Share(PageRange, u64, OwnMapping),
    MapHuge(PageRange, HugeMapping),
    /// A call whose range excludes one base page of these huge pages.
    Trim(PageRange, Trim),
    /// Loads from each page in ascending order until one fails.
    Read(PageRange),
    /// Stores to each page in ascending order until one fails.
    Write(PageRange),
    Unmap(PageRange),
    /// `MADV_DONTNEED`.
    Drop(PageRange),
    Free(PageRange),
    Cold(PageRange),
    Pageout(PageRange),
    Collapse(PageRange),
    /// `MADV_COLLAPSE_TO` this order (`kernel/text_collapse/ABI`).
    CollapseTo(PageRange, Order),
    /// `FALLOC_FL_PUNCH_HOLE` for these pages of the program's own file.
    Punch(PageRange),
    /// Makes a pipe refer to a page (`vmsplice`).
    Pin(u64),
    Unpin,
    /// `mlock2`, or `munlock`.
    Lock(PageRange, Lock),
    /// `mlockall`, or `munlockall`.
    LockAll(LockAll),
    /// `pread` from the program's own file, one call per page.
    Load(PageRange),
    Open,
    Close,
    /// `pwrite` to the program's own file, one call per page.
    Put(PageRange),
    Sync,
    /// One `pwrite` to the own file, for all these pages.
    Fill(PageRange, FillStart),
    /// `ftruncate` makes the own file this many pages long.
    Size(u64),
    /// `fallocate` for these pages in the own file.
    Reserve(PageRange),
    Protect(PageRange, Prot),
    /// `MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`.
    Advise(PageRange, Madvice),
    /// `mremap` to a page of the window, replacing existing mappings.
    Remap(PageRange, u64),
    /// `fork`; the child gets this slot.
    Fork(usize),
    Exit,
    /// Runs on a CPU of this node.
    Node(NodeId),
    /// `set_mempolicy`.
    Policy(Option<MemPolicy>),
    /// `mbind`.
    Bind(PageRange, Binding),
    /// `move_pages`.
    Move(PageRange, MoveTo),
    /// `migrate_pages` from one node to another.
    Migrate([NodeId; 2]),
    /// NUMA balancing marks the process's pages.
    Hint,
    /// Stores to every byte of each page.
    Stuff(PageRange, Stuffing),
    /// Switches zswap on or off.
    Zswap(bool),
    Scan,
    /// Clears the accessed bits of the process (`clear_refs`). Nothing is read until the next scan.
    Idle,
}

/// `mlockall`: existing and later mappings. Neither is `munlockall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockAll {
    pub(super) kind: Lock,
    pub(super) now: bool,
    pub(super) later: bool,
}

/// Where a write of several pages begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FillStart {
    Page,
    /// In the middle of the first page; it ends in the middle of the page after the last.
    Middle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OwnMapping {
    pub(super) sharing: Sharing,
    pub(super) prot: Prot,
}

impl FileKind {
    const ALL: [Self; 3] = [Self::Memfd, Self::Tmpfs, Self::Disk];

    const fn name(self) -> &'static str {
        match self {
            Self::Memfd => "memfd",
            Self::Tmpfs => "tmpfs",
            Self::Disk => "disk",
        }
    }
}

impl AreaSource {
    const LETTERS: [(Self, char); 4] =
        [(Self::File, 'f'), (Self::Shared, 's'), (Self::Segment, 'v'), (Self::Stack, 'k')];

    fn of(word: &str) -> Self {
        let named = Self::LETTERS.into_iter().find(|(_, letter)| word.contains(*letter));
        named.map_or(Self::Anon, |(source, _)| source)
    }

    fn letter(self) -> Option<char> {
        Self::LETTERS.into_iter().find(|(source, _)| *source == self).map(|(_, letter)| letter)
    }

    pub(super) const fn file_page(first: u64) -> u64 {
        first % (FILE_PAGES / 2)
    }
}

impl OwnMapping {
    fn of(word: &str) -> Self {
        let sharing = if word.contains('p') { Sharing::Private } else { Sharing::Shared };
        let prot = match (word.contains('x'), word.contains('r')) {
            (true, _) => Prot::READ_EXEC,
            (false, true) => Prot::READ,
            (false, false) => Prot::READ_WRITE,
        };
        Self { sharing, prot }
    }
}

impl fmt::Display for OwnMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.sharing == Sharing::Shared { "s" } else { "p" })?;
        f.write_str(match (self.prot.can_exec, self.prot.can_write) {
            (true, _) => "x",
            (false, true) => "",
            (false, false) => "r",
        })
    }
}

const fn lock_letter(lock: Lock) -> &'static str {
    match lock {
        Lock::All => "a",
        Lock::OnFault => "o",
        Lock::None => "-",
    }
}

fn lock_of(word: &str) -> Lock {
    match (word.contains('a'), word.contains('o')) {
        (true, _) => Lock::All,
        (false, true) => Lock::OnFault,
        (false, false) => Lock::None,
    }
}

impl LockAll {
    fn of(word: &str) -> Self {
        let (now, later) = (word.contains('c'), word.contains('f'));
        Self { kind: lock_of(word), now, later }
    }
}

impl fmt::Display for LockAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, now, later } = *self;
        f.write_str(lock_letter(kind))?;
        f.write_str(if now { "c" } else { "" })?;
        f.write_str(if later { "f" } else { "" })
    }
}

fn advice_of(word: &str) -> Option<Madvice> {
    match (word.contains('h'), word.contains('n')) {
        (true, _) => Some(Madvice::Hugepage),
        (false, true) => Some(Madvice::Nohugepage),
        (false, false) => None,
    }
}

const fn letter(advice: Option<Madvice>) -> &'static str {
    match advice {
        Some(Madvice::Hugepage) => "h",
        Some(Madvice::Nohugepage) => "n",
        _ => "",
    }
}

impl fmt::Display for ProcessStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.slot, self.op)
    }
}

impl fmt::Display for ProcessOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Map(PageRange { first, nr }, source, advice) => {
                let none = advice.is_none().then_some('-');
                let source = source.letter().or(none).map(String::from).unwrap_or_default();
                write!(f, "map {first} {nr} {source}{}", letter(advice))
            }
            Self::MapHuge(PageRange { first, nr }, how) => write!(f, "map {first} {nr} {how}"),
            Self::Trim(PageRange { first, nr }, trim) => write!(f, "trim {first} {nr} {trim}"),
            Self::Share(PageRange { first, nr }, from, how) => {
                write!(f, "share {first} {nr} {from} {how}")
            }
            Self::Load(pages) => write!(f, "load {pages}"),
            Self::Open => write!(f, "open"),
            Self::Close => write!(f, "close"),
            Self::Put(pages) => write!(f, "put {pages}"),
            Self::Sync => write!(f, "sync"),
            Self::Fill(pages, FillStart::Page) => write!(f, "fill {pages}"),
            Self::Fill(pages, FillStart::Middle) => write!(f, "fill {pages} h"),
            Self::Size(nr_pages) => write!(f, "size {nr_pages}"),
            Self::Reserve(pages) => write!(f, "reserve {pages}"),
            Self::Free(pages) => write!(f, "free {pages}"),
            Self::Cold(pages) => write!(f, "cold {pages}"),
            Self::Pageout(pages) => write!(f, "pageout {pages}"),
            Self::Collapse(pages) => write!(f, "collapse {pages}"),
            // A range of one page has no length otherwise.
            Self::CollapseTo(PageRange { first, nr }, order) => {
                write!(f, "collapse {first} {nr} {}", order.get())
            }
            Self::Punch(pages) => write!(f, "punch {pages}"),
            Self::Pin(page) => write!(f, "pin {page}"),
            Self::Unpin => write!(f, "unpin"),
            Self::Lock(pages, lock) => write!(f, "lock {pages} {}", lock_letter(lock)),
            Self::LockAll(all) => write!(f, "lockall {all}"),
            Self::Read(pages) => write!(f, "read {pages}"),
            Self::Write(pages) => write!(f, "write {pages}"),
            Self::Unmap(pages) => write!(f, "unmap {pages}"),
            Self::Drop(pages) => write!(f, "drop {pages}"),
            Self::Protect(pages, prot) => {
                let word = match (prot.can_write, prot.can_read) {
                    (true, _) => "rw",
                    (false, true) => "r",
                    (false, false) => "-",
                };
                write!(f, "protect {pages} {word}")
            }
            Self::Advise(pages, advice) => {
                write!(f, "advise {pages} {}", letter(Some(advice)))
            }
            Self::Remap(PageRange { first, nr }, to) => write!(f, "remap {first} {nr} {to}"),
            Self::Fork(child) => write!(f, "fork {child}"),
            Self::Exit => write!(f, "exit"),
            Self::Node(node) => write!(f, "node {}", node.0),
            Self::Policy(policy) => write!(f, "policy {}", policy_text(policy)),
            Self::Bind(pages, binding) => write!(f, "bind {pages} {}", binding.text()),
            Self::Move(pages, to) => write!(f, "move {pages} {}", to.text()),
            Self::Migrate([from, to]) => write!(f, "migrate n{}{}", from.0, to.0),
            Self::Hint => write!(f, "hint"),
            Self::Stuff(pages, stuffing) => write!(f, "stuff {pages} {}", stuffing.letter()),
            Self::Zswap(is_on) => write!(f, "zswap {}", u8::from(is_on)),
            Self::Scan => write!(f, "scan"),
            Self::Idle => write!(f, "idle"),
        }
    }
}

impl fmt::Display for ProcessProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.sizes_kib.iter().map(u64::to_string).collect();
        let sizes = if sizes.is_empty() { "-".to_owned() } else { sizes.join(",") };
        write!(f, "program {} pages={} sizes={sizes}", self.seed, self.nr_pages)?;
        if let Some(shmem) = &self.shmem {
            write!(f, " {shmem}")?;
        }
        if let Some(OwnFile { kind, nr_pages }) = self.own_file {
            write!(f, " {}={nr_pages}", kind.name())?;
        }
        if let Some(limits) = self.khugepaged {
            write!(f, " khugepaged={limits}")?;
        }
        if let Some(huge) = self.huge {
            write!(f, " {huge}")?;
        }
        if let Some(limit) = self.limit {
            write!(f, " {limit}")?;
        }
        if let Some(zswap) = self.zswap {
            write!(f, " {zswap}")?;
        }
        if let Some(nr) = self.nodes {
            write!(f, " nodes={nr}")?;
        }
        if self.is_balanced {
            write!(f, " {BALANCED}")?;
        }
        writeln!(f)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl ProcessStep {
    /// Reads `SLOT OPERATION ..`.
    pub(super) fn of(fields: &[&str]) -> Parsed<Self> {
        let [slot, name, rest @ ..] = fields else { return unknown(fields) };
        let op = match (*name, rest) {
            ("fork", [child, ..]) => ProcessOp::Fork(slot_of(child)?),
            ("exit", _) => ProcessOp::Exit,
            ("node", [node, ..]) => ProcessOp::Node(node_of(node)?),
            ("policy", [how, ..]) => ProcessOp::Policy(policy_of(how)?),
            ("migrate", [how, ..]) => ProcessOp::Migrate(ends_of(how)?),
            ("hint", _) => ProcessOp::Hint,
            ("scan", _) => ProcessOp::Scan,
            ("idle", _) => ProcessOp::Idle,
            ("unpin", _) => ProcessOp::Unpin,
            ("lockall", [how, ..]) => ProcessOp::LockAll(LockAll::of(how)),
            ("open", _) => ProcessOp::Open,
            ("close", _) => ProcessOp::Close,
            ("sync", _) => ProcessOp::Sync,
            ("size", [pages, ..]) => ProcessOp::Size(number_to(NR_PAGES_MAX, pages)?),
            ("zswap", [is_on, ..]) => ProcessOp::Zswap(number_to(1, is_on)? == 1),
            ("pin", [page, ..]) => ProcessOp::Pin(number_to(NR_PAGES_MAX - 1, page)?),
            (_, [first, nr, rest @ ..]) if nr.starts_with(|first: char| first.is_ascii_digit()) => {
                ProcessOp::of(name, PageRange::of(first, nr)?, rest)?
            }
            (_, [first, rest @ ..]) => ProcessOp::of(name, PageRange::of(first, "1")?, rest)?,
            _ => return unknown(fields),
        };
        Ok(Self { slot: slot_of(slot)?, op })
    }
}

impl ProcessOp {
    pub(super) const fn is_about_nodes(self) -> bool {
        matches!(
            self,
            Self::Node(_)
                | Self::Policy(_)
                | Self::Bind(..)
                | Self::Move(..)
                | Self::Migrate(_)
                | Self::Hint
        )
    }

    fn of(name: &str, pages: PageRange, rest: &[&str]) -> Parsed<Self> {
        let how = rest.last().copied().unwrap_or_default();
        let advice = advice_of(how);
        let page = || {
            let word = rest.first().copied().unwrap_or_default();
            number_to(NR_PAGES_MAX - pages.nr, word)
        };
        Ok(match name {
            "map" if how.contains('g') => Self::MapHuge(pages, HugeMapping::of(how)),
            "trim" => Self::Trim(pages, Trim::of(how)?),
            "map" => Self::Map(pages, AreaSource::of(how), advice),
            "share" => {
                let word = rest.first().copied().unwrap_or_default();
                Self::Share(pages, number_to(NR_PAGES_MAX - 1, word)?, OwnMapping::of(how))
            }
            "read" => Self::Read(pages),
            "write" => Self::Write(pages),
            "stuff" => Self::Stuff(pages, Stuffing::of(how)?),
            "unmap" => Self::Unmap(pages),
            "drop" => Self::Drop(pages),
            "free" => Self::Free(pages),
            "cold" => Self::Cold(pages),
            "pageout" => Self::Pageout(pages),
            "collapse" => match rest.first() {
                Some(word) => Self::CollapseTo(pages, order_of(word)?),
                None => Self::Collapse(pages),
            },
            "punch" => Self::Punch(pages),
            "bind" => Self::Bind(pages, Binding::of(how)?),
            "move" => Self::Move(pages, MoveTo::of(how)?),
            "lock" => Self::Lock(pages, lock_of(how)),
            "load" => Self::Load(pages),
            "put" => Self::Put(pages),
            "fill" if how.contains('h') => Self::Fill(pages, FillStart::Middle),
            "fill" => Self::Fill(pages, FillStart::Page),
            "reserve" => Self::Reserve(pages),
            "protect" if how.contains('w') => Self::Protect(pages, Prot::READ_WRITE),
            "protect" if how.contains('r') => Self::Protect(pages, Prot::READ),
            "protect" => Self::Protect(pages, Prot::NONE),
            "advise" => Self::Advise(pages, advice.ok_or("advise needs h or n")?),
            "remap" => Self::Remap(pages, page()?),
            _ => return Err(format!("{name:?} is not an operation")),
        })
    }
}

fn order_of(word: &str) -> Parsed<Order> {
    let order = number_to(tree::MAX_ORDER.get().into(), word)?;
    u8::try_from(order).map(Order::new).map_err(|_| format!("{word} is not an order"))
}

impl ProcessProgram {
    pub(super) fn of(fields: &[&str]) -> Parsed<Self> {
        let ["program", seed, pages, sizes, rest @ ..] = fields else { return unknown(fields) };
        let limits = |word: &&str| word.strip_prefix("khugepaged=").map(ScanLimits::of);
        let khugepaged = rest.iter().find_map(limits).transpose()?;
        let limit = rest.iter().find_map(|word| Limit::of(word)).transpose()?;
        let zswap = rest.iter().find_map(|word| ZswapLimits::of(word)).transpose()?;
        let shmem = rest.iter().find_map(|word| ShmemSettings::of(word)).transpose()?;
        let nodes = rest.iter().find_map(|word| nodes_of(word)).transpose()?;
        let is_balanced = rest.contains(&BALANCED);
        let is_own = |word: &&str| {
            *word != BALANCED
                && limits(word).is_none()
                && Limit::of(word).is_none()
                && ZswapLimits::of(word).is_none()
                && ShmemSettings::of(word).is_none()
                && nodes_of(word).is_none()
        };
        let own: Vec<&str> = rest.iter().copied().filter(is_own).collect();
        let pairs = Pairs::of(&[*pages, *sizes]);
        let nr_pages = window_of(pairs.get("pages").ok_or("a program needs pages=")?)?;
        let sizes = pairs.get("sizes").ok_or("a program needs sizes=")?;
        let sizes = sizes.split(',').filter(|word| *word != "-");
        let sizes_kib = sizes.map(|kib| number_to(SIZE_KIB_MAX, kib)).collect::<Parsed<_>>()?;
        let (own_file, huge) = match own[..] {
            [] => (None, None),
            [own] => match own.strip_prefix("huge=") {
                Some(huge) => (None, Some(HugePages::of(huge)?)),
                None => (Some(OwnFile::of(own)?), None),
            },
            _ => return unknown(fields),
        };
        let seed = number(seed)?;
        let named = Self { seed, nr_pages, sizes_kib, ..Self::default() };
        Ok(Self { own_file, huge, khugepaged, limit, zswap, shmem, nodes, is_balanced, ..named })
    }

    /// Whether it sets the folio sizes of shared memory.
    #[must_use]
    pub const fn sets_shmem(&self) -> bool {
        self.shmem.is_some()
    }

    /// Whether it uses NUMA nodes.
    #[must_use]
    pub const fn has_nodes(&self) -> bool {
        self.nodes.is_some()
    }

    #[must_use]
    pub const fn wakes_khugepaged(&self) -> bool {
        self.khugepaged.is_some()
    }

    /// Reads the programs of a text called `name`, skipping lines that begin with `#`.
    ///
    /// # Errors
    /// The first malformed line, or a step before the first program.
    pub fn all_of(name: &str, text: &str) -> Result<Vec<Self>, ParseError> {
        let mut all: Vec<Self> = Vec::new();
        each_line(name, text, &mut |fields| {
            if fields[0] == "program" {
                all.push(Self::of(fields)?);
            } else if !fields[0].starts_with('#') {
                let program = all.last_mut().ok_or("a step before the first program")?;
                program.steps.push(ProcessStep::of(fields)?);
            }
            Ok(())
        })?;
        Ok(all)
    }
}

impl OwnFile {
    /// Reads `memfd=NR`, `tmpfs=NR` or `disk=NR`.
    fn of(word: &str) -> Parsed<Self> {
        let pair = word.split_once('=');
        let step_name = pair.and_then(|(name, nr)| {
            let kind = FileKind::ALL.into_iter().find(|kind| kind.name() == name)?;
            Some((kind, nr))
        });
        let (kind, nr) = step_name.ok_or_else(|| format!("{word:?} is not a file of a program"))?;
        Ok(Self { kind, nr_pages: window_of(nr)? })
    }
}

fn window_of(word: &str) -> Parsed<u64> {
    Ok(PageRange::of("0", word)?.nr)
}
