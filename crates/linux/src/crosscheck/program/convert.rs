//! The trace of a run, written as a recording (`recordings/README.md`).
//!
//! Owns the meaning of the order: which line is what the program did, and which is the kernel's
//! answer. Knows nothing of tracefs or ptrace; a trace is text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::areas::{Area, Areas};
use super::line::{Event, Line, Mark, Readahead, parse};

/// Bytes of a base page.
const PAGE: u64 = 4096;
/// log2 of the bytes one page table maps.
const TABLE_SHIFT: u32 = 21;

/// What the conversion knows from elsewhere.
pub(crate) struct Source<'a> {
    /// The reads `execve` makes of a file: position and length, in order.
    pub(crate) exec_reads: &'a dyn Fn(u64) -> Vec<(u64, u64)>,
}

/// A trace that cannot be a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {what}")]
pub(crate) struct ConvertError {
    /// From 1.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
}

/// The body of the recording and the numbers its files have.
#[derive(Debug, Default)]
pub(crate) struct Body {
    /// Lines from the first action on.
    pub(crate) text: String,
    /// Inode to number of the recording.
    pub(crate) files: BTreeMap<u64, u32>,
    /// Folios that left the page cache while the program ran.
    pub(crate) nr_removed: u64,
}

/// Converts a whole trace.
pub(crate) fn convert(trace: &str, source: &Source<'_>) -> Result<Body, ConvertError> {
    let mut writer = Writer::new(source);
    for (nr, text) in trace.lines().enumerate() {
        let line = parse(text).map_err(|what| ConvertError { line: nr + 1, what })?;
        if let Some(line) = line {
            writer.line(line);
        }
    }
    writer.flush();
    Ok(writer.body)
}

/// An `execve` between its entry and the first instruction of the new program.
struct Exec {
    tid: i32,
    events: Vec<Line>,
    mappings: Vec<Mark>,
}

struct Writer<'a> {
    source: &'a Source<'a>,
    body: Body,
    /// Address space of each thread.
    spaces: BTreeMap<i32, u32>,
    areas: BTreeMap<u32, Areas>,
    opens: BTreeMap<u32, u64>,
    /// Page tables that memory of no file has: address space and number.
    tables: BTreeSet<(u32, u64)>,
    /// Open files made by `execve`: numbers from the top, so that they meet none of the marks'.
    nr_kernel_opens: u32,
    nr_areas: u32,
    /// Address space of the lines written last.
    current: u32,
    exec: Option<Exec>,
    /// Thread in a read or write, and faults that happened inside it.
    busy: BTreeMap<i32, Vec<Line>>,
    /// Insertions that follow each other, still to be written: file, first, order, times.
    run: Option<(u32, u64, u8, u64)>,
}

/// First number of an open file that `execve` made.
const KERNEL_OPENS: u32 = 1 << 15;

impl<'a> Writer<'a> {
    fn new(source: &'a Source<'a>) -> Self {
        Self {
            source,
            body: Body::default(),
            spaces: BTreeMap::new(),
            areas: BTreeMap::new(),
            opens: BTreeMap::new(),
            tables: BTreeSet::new(),
            nr_kernel_opens: 0,
            nr_areas: 0,
            current: 0,
            exec: None,
            busy: BTreeMap::new(),
            run: None,
        }
    }

    fn line(&mut self, line: Line) {
        if let Some(exec) = &mut self.exec
            && (line.tid == exec.tid || matches!(line.event, Event::Mark(_)))
        {
            match line.event {
                Event::Mark(Mark::Exec { tid, space }) if tid == exec.tid => self.end_exec(space),
                Event::Mark(mark @ Mark::KernelMap { .. }) => exec.mappings.push(mark),
                Event::Mark(Mark::Thread { tid, space }) => {
                    self.spaces.insert(tid, space);
                }
                _ => exec.events.push(line),
            }
            return;
        }
        match line.event {
            Event::Mark(mark) => self.mark(&mark),
            Event::Fault { .. } if self.busy.contains_key(&line.tid) => {
                if let Some(inside) = self.busy.get_mut(&line.tid) {
                    inside.push(line);
                }
            }
            Event::Fault { address, code } => {
                self.fault(line.tid, address, code);
            }
            event => self.kernel(&event),
        }
    }

    fn mark(&mut self, mark: &Mark) {
        match *mark {
            Mark::Thread { tid, space } => {
                self.spaces.insert(tid, space);
            }
            Mark::Fork { from, to } => {
                let areas = self.areas.get(&from).cloned().unwrap_or_default();
                self.areas.insert(to, areas);
                self.act(&format!("H {from} {to}"));
            }
            Mark::Execve { tid } => {
                self.exec = Some(Exec { tid, events: Vec::new(), mappings: Vec::new() });
            }
            // An execve that was not entered: nothing to order.
            Mark::Exec { .. } | Mark::KernelMap { .. } => {}
            Mark::Open { id, inode } => self.open(id, inode),
            Mark::Map { space, addr, len, prot, flags, open, pos } => {
                let is_shared = flags & 1 != 0;
                self.map(
                    space,
                    (addr, len),
                    (prot, is_shared),
                    open.map(|open| (open, pos / PAGE)),
                );
            }
            Mark::Unmap { space, addr, len } => {
                if self.areas.entry(space).or_default().remove(addr, len) {
                    self.act_in(space, &format!("U {addr:x} {len}"));
                }
            }
            Mark::Protect { space, addr, len, prot } => {
                if self.areas.entry(space).or_default().overlaps(addr, len) {
                    self.act_in(space, &format!("Q {addr:x} {len} {}", prot_word(prot)));
                }
            }
            Mark::Remap { space, from, len, to, to_len } => {
                let id = self.nr_areas;
                if self.areas.entry(space).or_default().remap((from, len), (to, to_len), id) {
                    self.nr_areas += 1;
                    self.act_in(space, &format!("J {id} {from:x} {len} {to:x} {to_len}"));
                }
            }
            Mark::Advise { space, addr, len, advice } => {
                let overlaps = self.areas.entry(space).or_default().overlaps(addr, len);
                if let Some(word) = advice_word(advice).filter(|_| overlaps) {
                    self.act_in(space, &format!("V {word} {addr:x} {len}"));
                }
            }
            Mark::Fadvise { open, advice, pos, len } => {
                if let Some(word) = fadvice_word(advice) {
                    self.act(&format!("L {word} {open} {pos} {len}"));
                }
            }
            Mark::Io { is_write, tid, open, pos, len } => {
                let letter = if is_write { 'X' } else { 'B' };
                self.act(&format!("{letter} {} {} {len} {open}", pos / PAGE, pos % PAGE));
                self.busy.insert(tid, Vec::new());
            }
            Mark::Done { tid } => {
                for line in self.busy.remove(&tid).unwrap_or_default() {
                    if let Event::Fault { address, code } = line.event {
                        self.fault(tid, address, code);
                    }
                }
            }
        }
    }

    fn open(&mut self, id: u32, inode: u64) {
        let file = self.number(inode);
        self.opens.insert(id, inode);
        self.act(&format!("O {id} {file}"));
    }

    /// The number of a file, new ones in the order of first use.
    fn number(&mut self, inode: u64) -> u32 {
        let next = u32::try_from(self.body.files.len()).unwrap_or(u32::MAX);
        *self.body.files.entry(inode).or_insert(next)
    }

    fn map(
        &mut self,
        space: u32,
        (addr, len): (u64, u64),
        (prot, is_shared): (u64, bool),
        file: Option<(u32, u64)>,
    ) {
        let len = len.next_multiple_of(PAGE);
        let areas = self.areas.entry(space).or_default();
        let replaces = areas.remove(addr, len);
        let Some((open, first)) = file else {
            if replaces {
                self.act_in(space, &format!("U {addr:x} {len}"));
            }
            return;
        };
        let id = self.nr_areas;
        self.nr_areas += 1;
        areas.insert(Area { id, start: addr, end: addr + len, first });
        let map = if is_shared { "shared" } else { "private" };
        let (pages, prot) = (len / PAGE, prot_word(prot));
        self.act_in(
            space,
            &format!(
                "N {id} open={open} first={first} pages={pages} prot={prot} map={map} \
                 advice=plain addr=0x{addr:x}"
            ),
        );
    }

    /// A page fault; of those on memory of no file the first in each page table.
    fn fault(&mut self, tid: i32, address: u64, code: u64) {
        let Some(&space) = self.spaces.get(&tid) else { return };
        let Some(areas) = self.areas.get(&space) else { return };
        let Some((id, index)) = areas.find(address) else {
            // Only that there is a page table matters to the files around.
            if self.tables.insert((space, address >> TABLE_SHIFT)) {
                self.act_in(space, &format!("a {:x}", address / PAGE * PAGE));
            }
            return;
        };
        // x86-64: bit 1 a store, bit 4 an instruction fetch.
        let how = match code {
            code if code & 2 != 0 => " w",
            code if code & 16 != 0 => " x",
            _ => "",
        };
        self.act_in(space, &format!("T {index} {id}{how}"));
    }

    /// The reads and mappings of `execve`, in their place between the kernel's events.
    fn end_exec(&mut self, space: u32) {
        let Some(exec) = self.exec.take() else { return };
        let is_read = |line: &Line| matches!(line.event, Event::Collected { .. });
        let after = exec.events.iter().rposition(is_read).map_or(0, |last| last + 1);
        let mut opened = BTreeMap::new();
        let mut reads: BTreeMap<u64, VecDeque<(u64, u64)>> = BTreeMap::new();
        let mut reading = None;
        let mut rest = Vec::new();
        for (nr, line) in exec.events.into_iter().enumerate() {
            if nr >= after {
                rest.push(line);
                continue;
            }
            let Some(inode) = line.event.inode() else { continue };
            let open = *opened.entry(inode).or_insert_with(|| {
                self.nr_kernel_opens += 1;
                let id = KERNEL_OPENS + self.nr_kernel_opens;
                self.open(id, inode);
                id
            });
            if reading != Some(inode) {
                let planned = reads
                    .entry(inode)
                    .or_insert_with(|| (self.source.exec_reads)(inode).into())
                    .pop_front();
                let (pos, len) = planned.unwrap_or_else(|| line.event.range());
                self.act(&format!("B {} {} {len} {open}", pos / PAGE, pos % PAGE));
                reading = Some(inode);
            }
            self.kernel(&line.event);
            if matches!(line.event, Event::Collected { .. }) {
                reading = None;
            }
        }
        for mapping in exec.mappings {
            let Mark::KernelMap { addr, len, prot, inode, page, .. } = mapping else { continue };
            let open = *opened.entry(inode).or_insert_with(|| {
                self.nr_kernel_opens += 1;
                let id = KERNEL_OPENS + self.nr_kernel_opens;
                self.open(id, inode);
                id
            });
            self.map(space, (addr, len), (prot & 7, prot & 8 != 0), Some((open, page)));
        }
        for line in rest {
            self.line(line);
        }
    }

    /// What the kernel did to a file of the program; a filesystem has inodes of its own beside.
    fn kernel(&mut self, event: &Event) {
        let Some(inode) = event.inode() else { return };
        let Some(&file) = self.body.files.get(&inode) else { return };
        if let Event::Inserted { index, order, .. } = *event {
            self.insertion(file, index, order);
            return;
        }
        self.flush();
        self.body.nr_removed += u64::from(matches!(event, Event::Removed { .. }));
        let at = if file == 0 { String::new() } else { format!("@{file} ") };
        let out = &mut self.body.text;
        let written = match event {
            Event::Removed { index, order, .. } => writeln!(out, "{at}D {index} {order}"),
            Event::Handler { index, .. } => writeln!(out, "{at}F {index}"),
            Event::Around { first, last, .. } => writeln!(out, "{at}W {first} {last}"),
            Event::Collected { first, last, .. } => writeln!(out, "{at}G {first} {last}"),
            Event::Readahead { kind, fields, .. } => {
                let name = match kind {
                    Readahead::Order => "order",
                    Readahead::Unbounded => "unbounded",
                    Readahead::Sync => "sync",
                    Readahead::Async => "async",
                };
                let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
                writeln!(out, "{at}S {name} {}", fields.join(" "))
            }
            Event::Inserted { .. } | Event::Mark(_) | Event::Fault { .. } => Ok(()),
        };
        let Ok(()) = written else { unreachable!("writing to a String succeeds") };
    }

    fn insertion(&mut self, file: u32, index: u64, order: u8) {
        if let Some((of, first, same, times)) = &mut self.run
            && (*of, *same, *first + (*times << order)) == (file, order, index)
        {
            *times += 1;
            return;
        }
        self.flush();
        self.run = Some((file, index, order, 1));
    }

    /// Writes the insertions gathered.
    fn flush(&mut self) {
        let Some((file, index, order, times)) = self.run.take() else { return };
        let at = if file == 0 { String::new() } else { format!("@{file} ") };
        let times = if times > 1 { format!(" x{times}") } else { String::new() };
        let written = writeln!(self.body.text, "{at}A {index} {order}{times}");
        let Ok(()) = written else { unreachable!("writing to a String succeeds") };
    }

    fn act(&mut self, line: &str) {
        self.flush();
        self.body.text.push_str(line);
        self.body.text.push('\n');
    }

    /// An action in an address space; `H n` names the one that acts from here on.
    fn act_in(&mut self, space: u32, line: &str) {
        if space != self.current {
            self.current = space;
            self.act(&format!("H {space}"));
        }
        self.act(line);
    }
}

/// `PROT_*` as the recordings write it.
fn prot_word(prot: u64) -> &'static str {
    match prot & 7 {
        0 => "-",
        1 => "r",
        2 | 3 => "rw",
        4 => "x",
        5 => "rx",
        _ => "rwx",
    }
}

/// `MADV_*` that concern files.
fn advice_word(advice: u64) -> Option<&'static str> {
    let advice = i32::try_from(advice).ok()?;
    Some(match advice {
        libc::MADV_NORMAL => "normal",
        libc::MADV_RANDOM => "random",
        libc::MADV_SEQUENTIAL => "seq",
        libc::MADV_WILLNEED => "willneed",
        libc::MADV_DONTNEED => "dontneed",
        libc::MADV_HUGEPAGE => "huge",
        libc::MADV_NOHUGEPAGE => "nohuge",
        libc::MADV_POPULATE_READ => "populate",
        _ => return None,
    })
}

/// `POSIX_FADV_*`.
fn fadvice_word(advice: u64) -> Option<&'static str> {
    Some(match i32::try_from(advice).ok()? {
        libc::POSIX_FADV_NORMAL => "normal",
        libc::POSIX_FADV_RANDOM => "random",
        libc::POSIX_FADV_SEQUENTIAL => "seq",
        libc::POSIX_FADV_WILLNEED => "willneed",
        libc::POSIX_FADV_DONTNEED => "dontneed",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
