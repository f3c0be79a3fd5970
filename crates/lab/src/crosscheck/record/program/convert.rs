//! Converts a run's trace to a recording (`recordings/README.md`).
//!
//! Decides which lines are the program's actions ([`units`]) and which are the kernel's response.
//! Knows nothing about tracefs or ptrace; a trace is text.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use super::areas::{Area, Areas, whole_pages};
use super::line::{Event, Mark, parse};
use constants::Advice;
use largefolio_linux::fault_probe::{FETCH, STORE};
use output::Output;
use units::{Unit, UnitKind};

mod constants;
mod output;
mod retries;
mod units;

/// `MAP_*` and `PROT_WRITE`, as numbered on x86-64 and arm64.
const SHARED: u64 = 1;
const LOCKED: u64 = 0x2000;
const POPULATE: u64 = 0x8000;
const NONBLOCK: u64 = 0x1_0000;
const STORES: u64 = 2;
const CURRENT: u64 = 1;
const FUTURE: u64 = 2;

pub(crate) struct Source<'a> {
    pub(crate) page: u64,
    /// The reads of `execve` in a file: position and length, in order.
    pub(crate) exec_reads: &'a dyn Fn(u64) -> Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {what}")]
pub(crate) struct ConvertError {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) what: String,
}

#[derive(Debug, Default)]
pub(crate) struct Body {
    /// Lines from the first action.
    pub(crate) text: String,
    /// Each file's number in the recording, by inode.
    pub(crate) files: BTreeMap<u64, u32>,
    /// Folios that others removed from the page cache during the run.
    pub(crate) nr_removed: u64,
}

pub(crate) fn convert(trace: &str, source: &Source<'_>) -> Result<Body, ConvertError> {
    let mut lines = Vec::new();
    for (nr, text) in trace.lines().enumerate() {
        lines.extend(
            parse(text, source.page.ilog2()).map_err(|what| ConvertError { line: nr + 1, what })?,
        );
    }
    let mut writer = Writer::new(source);
    for unit in units::gather(retries::without(lines, source.page)) {
        writer.unit(unit);
    }
    let Writer { out, files, nr_removed, .. } = writer;
    Ok(Body { text: out.finish(), files, nr_removed })
}

struct Writer<'a> {
    source: &'a Source<'a>,
    out: Output,
    files: BTreeMap<u64, u32>,
    opens: BTreeMap<u32, u32>,
    nr_removed: u64,
    spaces: BTreeMap<i32, u32>,
    areas: BTreeMap<u32, Areas>,
    /// Page tables of memory without a file: address space and number.
    tables: BTreeSet<(u32, u64)>,
    /// Address spaces that lock future mappings.
    locks_all: BTreeSet<u32>,
    /// Open files made by `execve`, numbered from the top to avoid the marks' numbers.
    nr_kernel_opens: u32,
    nr_areas: u32,
}

const KERNEL_OPENS: u32 = 1 << 15;
/// Why a file is no longer compared, if no call of the program is the cause.
const FOREIGN: &str = "used by another process";

impl<'a> Writer<'a> {
    fn new(source: &'a Source<'a>) -> Self {
        Self {
            source,
            out: Output::default(),
            files: BTreeMap::new(),
            opens: BTreeMap::new(),
            nr_removed: 0,
            spaces: BTreeMap::new(),
            areas: BTreeMap::new(),
            tables: BTreeSet::new(),
            locks_all: BTreeSet::new(),
            nr_kernel_opens: 0,
            nr_areas: 0,
        }
    }

    fn unit(&mut self, unit: Unit) {
        for &inode in &unit.met {
            let file = self.number(inode);
            self.out.act(&format!("~ {file}"));
        }
        match unit.what {
            UnitKind::Alone(mark) => self.mark(&mark),
            UnitKind::Call(libc::SYS_execve | libc::SYS_execveat, marks) => {
                return self.exec(unit.tid, &marks, &unit.events);
            }
            UnitKind::Call(nr, marks) => {
                for mark in &marks {
                    self.mark(mark);
                }
                if !marks.iter().any(has_answer) {
                    self.unanswered(&constants::call(nr), &unit.events);
                } else if !marks.iter().any(may_remove) {
                    self.count_removed(&unit.events);
                }
            }
            UnitKind::Fault { address, code } => {
                self.fault(unit.tid, address, code);
                self.count_removed(&unit.events);
            }
            UnitKind::Foreign => self.foreign(&unit.events),
        }
        for event in &unit.events {
            self.kernel(event);
        }
    }

    /// Excludes the files of events in a call that has no line in the recording.
    fn unanswered(&mut self, call: &str, events: &[Event]) {
        let inodes: BTreeSet<u64> = events.iter().filter_map(Event::inode).collect();
        for inode in inodes {
            self.set_aside(inode, call);
        }
    }

    /// Handles events of other threads: reclaim, or another process that uses the program's file.
    fn foreign(&mut self, events: &[Event]) {
        self.count_removed(events);
        let used: Vec<Event> = events.iter().filter(|event| !is_removal(event)).cloned().collect();
        self.unanswered(FOREIGN, &used);
    }

    /// Counts folios removed by reclaim, which can also run in the program's thread.
    fn count_removed(&mut self, events: &[Event]) {
        self.nr_removed += events.iter().filter(|event| is_removal(event)).count() as u64;
    }

    /// Ends the comparison for a file.
    fn set_aside(&mut self, inode: u64, why: &str) {
        let file = self.number(inode);
        self.out.act(&format!("~ {file} {why}"));
    }

    fn aside_range(&mut self, space: u32, range: &Range<u64>, why: &str) {
        for file in self.areas.entry(space).or_default().files(range) {
            self.out.act(&format!("~ {file} {why}"));
        }
    }

    fn mark(&mut self, mark: &Mark) {
        let page = self.source.page;
        match *mark {
            Mark::Thread { tid, space } => {
                self.spaces.insert(tid, space);
            }
            Mark::Fork { from, to } => {
                let areas = self.areas.get(&from).cloned().unwrap_or_default();
                self.areas.insert(to, areas);
                self.out.act(&format!("H {from} {to}"));
            }
            // Marks that only set the order, or that `exec` handles together.
            Mark::Call { .. }
            | Mark::Return { .. }
            | Mark::Exec { .. }
            | Mark::KernelMap { .. } => {}
            Mark::Open { id, inode } => self.open(id, inode),
            Mark::Map { space, addr, len, .. } => {
                self.map(mark);
                if self.locks_all.contains(&space) {
                    self.aside_range(space, &whole_pages(addr, len, page), "mlockall");
                }
            }
            Mark::Unmap { .. } | Mark::Protect { .. } | Mark::Remap { .. } => self.change(mark),
            Mark::Advise { space, addr, len, advice } => {
                let overlaps =
                    self.areas.entry(space).or_default().overlaps(&whole_pages(addr, len, page));
                match constants::advice(advice).filter(|_| overlaps) {
                    Some(Advice::Known(word)) => {
                        self.out.act_in(space, &format!("V {word} {addr:x} {len}"));
                    }
                    Some(Advice::Aside(why)) => {
                        self.aside_range(space, &whole_pages(addr, len, page), why);
                    }
                    None => {}
                }
            }
            Mark::Fadvise { open, advice, pos, len } => {
                if let Some(word) = constants::file_advice(advice) {
                    self.out.act(&format!("L {word} {open} {pos} {len}"));
                }
            }
            Mark::Io { is_write, open, pos, len } => {
                let letter = if is_write { 'X' } else { 'B' };
                self.out.act(&format!("{letter} {} {} {len} {open}", pos / page, pos % page));
            }
            Mark::Send { open, pos, len } => {
                self.out.act(&format!("s {} {} {len} {open}", pos / page, pos % page));
            }
            Mark::Aside { inode, ref why } => self.set_aside(inode, why),
            Mark::Lock { space, addr, len } => {
                self.aside_range(space, &whole_pages(addr, len, page), "mlock");
            }
            Mark::LockAll { space, flags } => {
                if flags & CURRENT != 0 {
                    self.aside_range(space, &(0..u64::MAX), "mlockall");
                }
                if flags & FUTURE != 0 {
                    self.locks_all.insert(space);
                }
            }
        }
    }

    fn change(&mut self, mark: &Mark) {
        let page = self.source.page;
        let id = self.nr_areas;
        let all = &mut self.areas;
        let action = match *mark {
            Mark::Unmap { space, addr, len } => {
                let is_ours = all.entry(space).or_default().remove(&whole_pages(addr, len, page));
                is_ours.then(|| (space, format!("U {addr:x} {len}")))
            }
            Mark::Protect { space, addr, len, prot } => {
                let is_ours = all.entry(space).or_default().overlaps(&whole_pages(addr, len, page));
                is_ours.then(|| (space, format!("Q {addr:x} {len} {}", constants::prot(prot))))
            }
            Mark::Remap { space, from, len, to, to_len } => {
                let is_ours = all.entry(space).or_default().remap(
                    &whole_pages(from, len, page),
                    &whole_pages(to, to_len, page),
                    id,
                );
                self.nr_areas += u32::from(is_ours);
                is_ours.then(|| (space, format!("J {id} {from:x} {len} {to:x} {to_len}")))
            }
            _ => None,
        };
        if let Some((space, line)) = action {
            self.out.act_in(space, &line);
        }
    }

    fn open(&mut self, id: u32, inode: u64) {
        let file = self.number(inode);
        self.opens.insert(id, file);
        self.out.act(&format!("O {id} {file}"));
    }

    fn number(&mut self, inode: u64) -> u32 {
        let next = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
        *self.files.entry(inode).or_insert(next)
    }

    fn map(&mut self, mark: &Mark) {
        let &Mark::Map { space, addr, len, prot, flags, open, pos } = mark else { return };
        let page = self.source.page;
        let len = len.next_multiple_of(page);
        let file = open.and_then(|open| Some((open, *self.opens.get(&open)?)));
        let areas = self.areas.entry(space).or_default();
        let replaces = areas.remove(&whole_pages(addr, len, page));
        let Some((open, file)) = file else {
            if replaces {
                self.out.act_in(space, &format!("U {addr:x} {len}"));
            }
            return;
        };
        let (id, first) = (self.nr_areas, pos / page);
        self.nr_areas += 1;
        areas.insert(Area { id, start: addr, end: addr + len, pos, file });
        let map = if flags & SHARED != 0 { "shared" } else { "private" };
        let (pages, word) = (len / page, constants::prot(prot));
        self.out.act_in(
            space,
            &format!(
                "N {id} open={open} first={first} pages={pages} prot={word} map={map} \
                 advice=plain addr=0x{addr:x}"
            ),
        );
        if flags & LOCKED != 0 {
            self.out.act(&format!("~ {file} MAP_LOCKED"));
        } else if populates(flags) && flags & SHARED == 0 && prot & STORES != 0 {
            // Every page is copied.
            self.out.act(&format!("~ {file} MAP_POPULATE of a private mapping with stores"));
        } else if populates(flags) {
            self.out.act_in(space, &format!("V populate {addr:x} {len}"));
        }
    }

    /// Handles a page fault. Without a file, only the first fault in each page table counts.
    fn fault(&mut self, tid: i32, address: u64, code: u64) {
        let page = self.source.page;
        let Some(&space) = self.spaces.get(&tid) else { return };
        let Some(areas) = self.areas.get(&space) else { return };
        let Some((id, pos)) = areas.find(address) else {
            // Only the table's existence matters to nearby files: 8-byte entries.
            let table = page / 8 * page;
            if self.tables.insert((space, address / table)) {
                self.out.act_in(space, &format!("a {:x}", address / page * page));
            }
            return;
        };
        let how = match code {
            code if code & STORE != 0 => " w",
            code if code & FETCH != 0 => " x",
            _ => "",
        };
        self.out.act_in(space, &format!("T {} {id}{how}", pos / page));
    }

    /// Writes the reads and mappings of `execve` between the kernel's events, in order.
    fn exec(&mut self, tid: i32, marks: &[Mark], events: &[Event]) {
        let page = self.source.page;
        let is_read = |event: &Event| matches!(event, Event::Collected { .. });
        let after = events.iter().rposition(is_read).map_or(0, |last| last + 1);
        let mut opened = BTreeMap::new();
        let mut reads: BTreeMap<u64, VecDeque<(u64, u64)>> = BTreeMap::new();
        let mut reading = None;
        for event in &events[..after] {
            let Some(inode) = event.inode() else { continue };
            let open = *opened.entry(inode).or_insert_with(|| self.kernel_open(inode));
            if reading != Some(inode) {
                let planned = reads
                    .entry(inode)
                    .or_insert_with(|| (self.source.exec_reads)(inode).into())
                    .pop_front();
                let (pos, len) = planned.unwrap_or_else(|| event.range(page));
                self.out.act(&format!("B {} {} {len} {open}", pos / page, pos % page));
                reading = Some(inode);
            }
            self.kernel(event);
            if is_read(event) {
                reading = None;
            }
        }
        for mark in marks {
            match *mark {
                Mark::Exec { space, .. } => {
                    self.spaces.insert(tid, space);
                }
                Mark::KernelMap { space, addr, len, prot, inode, pos } => {
                    let open = *opened.entry(inode).or_insert_with(|| self.kernel_open(inode));
                    let flags = if prot & 8 != 0 { SHARED } else { 0 };
                    let (prot, open) = (prot & 7, Some(open));
                    self.map(&Mark::Map { space, addr, len, prot, flags, open, pos });
                }
                _ => {}
            }
        }
        for event in &events[after..] {
            match *event {
                Event::Fault { address, code } => self.fault(tid, address, code),
                _ => self.kernel(event),
            }
        }
    }

    fn kernel_open(&mut self, inode: u64) -> u32 {
        self.nr_kernel_opens += 1;
        let id = KERNEL_OPENS + self.nr_kernel_opens;
        self.open(id, inode);
        id
    }

    fn kernel(&mut self, event: &Event) {
        let file = event.inode().and_then(|inode| self.files.get(&inode));
        if let Some(&file) = file {
            self.out.kernel(file, event);
        }
    }
}

fn is_removal(event: &Event) -> bool {
    matches!(event, Event::Removed { .. })
}

/// Whether this mark explains folios that leave the page cache in its call.
fn may_remove(mark: &Mark) -> bool {
    match *mark {
        Mark::Fadvise { advice, .. } => constants::file_advice(advice) == Some("dontneed"),
        Mark::Advise { advice, .. } => matches!(constants::advice(advice), Some(Advice::Aside(_))),
        Mark::Aside { .. } => true,
        _ => false,
    }
}

/// Whether the kernel's actions in the call are compared for this mark, or the mark excludes them.
fn has_answer(mark: &Mark) -> bool {
    match *mark {
        Mark::Io { .. }
        | Mark::Send { .. }
        | Mark::Fadvise { .. }
        | Mark::Aside { .. }
        | Mark::Lock { .. }
        | Mark::LockAll { .. } => true,
        Mark::Advise { advice, .. } => constants::advice(advice).is_some(),
        Mark::Map { flags, .. } => populates(flags) || flags & LOCKED != 0,
        _ => false,
    }
}

/// Whether `mmap` touches every page of the mapping.
fn populates(flags: u64) -> bool {
    flags & POPULATE != 0 && flags & NONBLOCK == 0
}

#[cfg(test)]
mod tests;
