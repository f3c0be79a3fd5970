//! Describes running processes: their mappings and resident pages.
//!
//! ```text
//!   maps      -> image (program, loader, stack), then brk and mmap rows
//!   smaps     -> madvise rows
//!   pagemap   -> one reference per present page, by address
//! ```
//!
//! Owns the rows that describe the time before the recording. The memory's real history is unknown,
//! so a replay gives it the folios that it would get if touched in address order.

use std::ops::Range;

use largefolio_trace::event::abi;
use largefolio_trace::{Event, Op, ThreadId, TraceError};

use super::files::Inodes;
use super::image;
use super::kernel_event::Mapped;
use super::tasks::Tasks;
use crate::geometry::page_bytes;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::proc::smaps::{self, Smap};
use crate::system::entry::{GUARD, OF_FILE, PRESENT, SWAPPED};
use crate::system::{Entries, Live};

const NR_ENTRIES: usize = 4096;
/// A larger mapping is read only if the kernel lists its present pages.
const UNSCANNED_BYTES_MAX: u64 = 64 << 30;
const MADV_HUGEPAGE: u64 = 14;
const MADV_NOHUGEPAGE: u64 = 15;

pub(super) struct AttachedProcess {
    pub(super) pid: u32,
    vmas: Vec<Vma>,
    smaps: Vec<Smap>,
    program: std::path::PathBuf,
    command: Vec<String>,
}

impl AttachedProcess {
    pub(super) fn new(pid: u32) -> Option<Self> {
        let task = Task::of(&Live, pid);
        let vmas = task.maps().ok()?.vmas;
        let smaps = task.smaps().unwrap_or_default();
        let program = crate::proc::fd::program(pid)?;
        let command = task.command();
        (!vmas.is_empty()).then_some(Self { pid, vmas, smaps, program, command })
    }

    /// Adds its program, loader and stack: for the first process in the footer, else as an execve.
    pub(super) fn begin(&self, tasks: &mut Tasks<'_, '_>) -> Result<ThreadId, TraceError> {
        let lines: Vec<Vma> = self.vmas.iter().filter(|vma| self.is_image(vma)).cloned().collect();
        for vma in &self.vmas {
            note(&mut tasks.inodes, tasks.book, self.pid, vma);
        }
        let mut image = image::of_lines(&lines, &self.program, tasks.book);
        let heap = self.heap();
        image.brk = heap.start;
        let first = tasks.add_process(self.pid, heap.end);
        if first == 0 {
            tasks.book.layout = image.layout;
            tasks.book.brk = image.brk;
        } else {
            tasks.book.push_fork(0, first, 0)?;
            tasks.execve(self.pid, first, self.command.clone(), image)?;
        }
        if let Some(process) = tasks.process_mut(self.pid) {
            process.is_blind = false;
        }
        Ok(first)
    }

    pub(super) fn go_on(
        &self,
        tasks: &mut Tasks<'_, '_>,
        first: ThreadId,
    ) -> Result<(), TraceError> {
        let heap = self.heap();
        if heap.end > heap.start {
            let event = Event { addr: heap.start, pos: heap.end, ..Event::new(first, Op::Brk) };
            tasks.book.push(event)?;
        }
        self.map(tasks, first)?;
        self.advise(tasks, first)?;
        self.touch(tasks, first)?;
        self.protect(tasks, first)
    }

    fn heap(&self) -> Range<u64> {
        let heap = self.vmas.iter().filter(|vma| vma.is_heap());
        let (mut start, mut end) = (0, 0);
        for vma in heap {
            start = if end == 0 { vma.range.start } else { start };
            end = vma.range.end;
        }
        start..end
    }

    /// Whether the image contains it: the program, the loader's first mapping, and kernel mappings.
    fn is_image(&self, vma: &Vma) -> bool {
        vma.path == self.program
            || vma.path.file_name().is_some_and(|name| {
                name.as_encoded_bytes().starts_with(b"ld-")
                    || name.as_encoded_bytes().starts_with(b"ld.")
            })
            || image::is_of_execve(vma, &[])
    }

    /// Adds rows for mappings. Consecutive mappings of a file are a reservation and its parts.
    fn map(&self, tasks: &mut Tasks<'_, '_>, first: ThreadId) -> Result<(), TraceError> {
        let is_rest = |vma: &&Vma| {
            !self.is_image(vma) && !vma.path.to_string_lossy().starts_with('[') && !self.is_bss(vma)
        };
        let rest: Vec<&Vma> = self.vmas.iter().filter(is_rest).collect();
        for group in rest.chunk_by(|one, next| belongs(one, next)) {
            let (Some(head), Some(last)) = (group.first(), group.last()) else { continue };
            for (nr, vma) in group.iter().enumerate() {
                let file = note(&mut tasks.inodes, tasks.book, self.pid, vma);
                if vma.has_file() && file.is_none() {
                    tasks.book.warn(
                        "A mapping of a device, or of a file on a filesystem without a page cache, \
                         was omitted.",
                    );
                    continue;
                }
                let sharing = if vma.is_shared() { abi::MAP_SHARED } else { abi::MAP_PRIVATE };
                let anon = if file.is_none() { abi::MAP_ANONYMOUS } else { 0 };
                let fixed = if nr == 0 { 0 } else { abi::MAP_FIXED };
                let end = if nr == 0 { last.range.end } else { vma.range.end };
                let pos = if file.is_some() { vma.pos } else { 0 };
                let (addr, len) = (vma.range.start, end - vma.range.start);
                let prot = if nr == 0 { self.prot(head) } else { self.prot(vma) };
                let event = Event { addr, len, pos, file, ..Event::new(first, Op::Mmap) };
                tasks.book.push_mmap(event, prot, sharing | anon | fixed)?;
            }
        }
        Ok(())
    }

    /// Returns the protection its pages needed: a loader may have made written pages read-only.
    fn prot(&self, vma: &Vma) -> u32 {
        let was_written = !vma.is_shared()
            && smaps::find(&self.smaps, vma.range.start).is_some_and(|smap| smap.anon_bytes > 0);
        vma.prot() | if was_written { abi::PROT_WRITE } else { 0 }
    }

    /// Restores the protection of mappings with such pages.
    fn protect(&self, tasks: &mut Tasks<'_, '_>, first: ThreadId) -> Result<(), TraceError> {
        for vma in self.vmas.iter().filter(|vma| self.prot(vma) != vma.prot()) {
            let (addr, len, flags) = (vma.range.start, vma.len_bytes(), vma.prot());
            let event = Event { addr, len, flags, ..Event::new(first, Op::Mprotect) };
            tasks.book.push(event)?;
        }
        Ok(())
    }

    fn is_bss(&self, vma: &Vma) -> bool {
        let before = self.vmas.iter().take_while(|one| one.range.start < vma.range.start);
        !vma.has_file()
            && vma.path.as_os_str().is_empty()
            && before.last().is_some_and(|one| {
                one.range.end == vma.range.start && one.has_file() && self.is_image(one)
            })
    }

    fn advise(&self, tasks: &mut Tasks<'_, '_>, first: ThreadId) -> Result<(), TraceError> {
        for smap in &self.smaps {
            let advice = match (smap.is_huge, smap.is_no_huge) {
                (true, _) => MADV_HUGEPAGE,
                (_, true) => MADV_NOHUGEPAGE,
                _ => continue,
            };
            let (addr, len) = (smap.vma.range.start, smap.vma.len_bytes());
            tasks.book.push(Event { addr, len, aux: advice, ..Event::new(first, Op::Madvise) })?;
        }
        Ok(())
    }

    fn touch(&self, tasks: &mut Tasks<'_, '_>, first: ThreadId) -> Result<(), TraceError> {
        let Ok(pagemap) = Task::of(&Live, self.pid).pagemap() else {
            tasks.book.warn("A process ended before its memory could be read; it is missing.");
            return Ok(());
        };
        for vma in self.vmas.iter().filter(|vma| vma.prot() != 0) {
            if !touch_one(tasks, first, pagemap.as_ref(), vma)? {
                tasks.book.warn(
                    "The resident pages of a very large mapping could not be read: the kernel \
                     cannot report them (Linux 6.7 and later can).",
                );
            }
        }
        Ok(())
    }
}

fn touch_one(
    tasks: &mut Tasks<'_, '_>,
    first: ThreadId,
    pagemap: &dyn Entries,
    vma: &Vma,
) -> Result<bool, TraceError> {
    let page_bytes = page_bytes() as u64;
    let pages = vma.pages(page_bytes);
    let mut ranges = Vec::new();
    if vma.len_bytes() > UNSCANNED_BYTES_MAX {
        let mut present = Vec::new();
        if pagemap.scan(pages, &mut present).is_err() {
            return Ok(false);
        }
        ranges.extend(present.into_iter().map(|extent| extent.pages));
    } else {
        ranges.push(pages);
    }
    let (mut entries, mut rows) = (vec![0; NR_ENTRIES], Vec::with_capacity(NR_ENTRIES));
    for range in ranges {
        let mut page = range.start;
        while page < range.end {
            let nr = usize::try_from(range.end - page).map_or(NR_ENTRIES, |nr| nr.min(NR_ENTRIES));
            let Ok(nr_read @ 1..) = pagemap.read(page, &mut entries[..nr]) else { break };
            rows.clear();
            let there = (page..).zip(&entries[..nr_read]);
            rows.extend(there.filter_map(|(page, entry)| {
                let op = op_of(*entry, vma)?;
                Some(Event::references(first, op, page.checked_mul(page_bytes)?, 1))
            }));
            tasks.book.push_references(&rows)?;
            page += nr_read as u64;
        }
    }
    Ok(true)
}

/// Returns the access that made a page present. Anonymous memory was written.
fn op_of(entry: u64, vma: &Vma) -> Option<Op> {
    match (entry & (PRESENT | SWAPPED) != 0, entry & OF_FILE != 0) {
        // A guard page is only a marker without memory.
        _ if entry & GUARD != 0 => None,
        (false, _) => None,
        (true, false) => Some(Op::Write),
        (true, true) if vma.is_exec() => Some(Op::Exec),
        (true, true) if vma.is_shared() && vma.is_nameless_shared() => Some(Op::Write),
        (true, true) => Some(Op::Read),
    }
}

fn note(
    inodes: &mut Inodes,
    book: &mut crate::record::book::Book<'_>,
    pid: u32,
    vma: &Vma,
) -> Option<u32> {
    let path = vma.name().into_owned();
    let (major, minor) = vma.device;
    let mapped = Mapped {
        pid,
        addr: vma.range.start,
        len: vma.len_bytes(),
        pos: vma.pos,
        device: libc::makedev(major, minor),
        inode: vma.inode,
        prot: vma.prot(),
        path,
    };
    if vma.has_file() { inodes.of_mapping(&mut book.files, &mapped) } else { None }
}

/// Whether a mapping belongs to the same image as the one before it.
fn belongs(one: &Vma, next: &Vma) -> bool {
    let is_same_file = one.has_file() && next.inode == one.inode && next.device == one.device;
    is_same_file
        && !next.is_shared()
        && next.range.start - one.range.start >= next.pos.saturating_sub(one.pos)
        && next.range.start - one.range.end < 64 << 20
        && next.pos > one.pos
        || one.has_file()
            && !one.is_shared()
            && !next.has_file()
            && next.path.as_os_str().is_empty()
            && one.permissions[1] == b'w'
            && next.range.start == one.range.end
}
