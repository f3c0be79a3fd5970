//! Replays file events: open, close, read and write calls, sync, fallocate, unlink, and execution
//! of a file.
//!
//! Owns which recorded opens count as writers, and for how long (docs/behaviour H.1.4, H.2.1). An
//! open is a writer if its `O_*` flags request writing, or if a write call or a writable shared
//! mapping uses it. The open ends when every process has closed its descriptors and no mapping uses
//! it. Before schema version 7, duplicated descriptors were not recorded: a writer that survives in
//! a duplicate is then forgotten when the first descriptor closes. Opening the traced program for
//! writing fails, because it is running.

use largefolio_mm::fault::Access;
use largefolio_mm::io::{Fadvice, Fallocate, FileSize, WriteData};
use largefolio_mm::units::{AddrRange, ByteRange, MappingId, Vaddr};
use largefolio_mm::vma::OpenId;
use largefolio_trace::event::abi::{
    FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_ZERO_RANGE, O_ACCMODE, O_CLOEXEC, O_TRUNC,
};
use largefolio_trace::event::io;
use largefolio_trace::{Event, FileId, LayoutEntry, Op};

use crate::gaps::{IGNORED, NO_COPY_UP, OVERLAY};
use crate::replay::cell::{Cell, NR_OPENS_MIN};
use crate::replay::error::CellError;
use crate::replay::program::{NO_DESCRIPTOR, Opened, ProcessNr, TraceFile};

impl Cell {
    /// Replays an open that the recorded kernel granted. If the modelled kernel refuses it because
    /// a process runs the file, it becomes an open for reading.
    pub(crate) fn open(&mut self, process: ProcessNr, event: &Event) {
        let Some(file) = event.file else { return };
        let closes_on_exec = event.flags & O_CLOEXEC != 0;
        let duplicated = event.aux.checked_sub(1).and_then(|old| {
            self.program.processes[process].at(old).filter(|opened| opened.file == file)
        });
        if let Some(opened) = duplicated {
            self.change(|memory| memory.share_open(opened.open));
            self.note_open(process, event.pos, Opened { closes_on_exec, ..opened });
            return;
        }
        let mapping = self.program.files[file].mapping;
        let is_write = event.flags & O_ACCMODE != 0;
        if is_write && self.meta.files.get(file as usize).is_some_and(|f| f.through == OVERLAY) {
            self.counted.met.call("write to a lower layer of an overlay".to_owned(), NO_COPY_UP);
        }
        let open = self.change(|memory| {
            let granted = is_write.then(|| memory.open_for_write(mapping));
            granted.and_then(Result::ok).unwrap_or_else(|| memory.open(mapping))
        });
        if event.flags & O_TRUNC != 0 && self.program.files[file].size_bytes > 0 {
            self.change(|memory| memory.truncate(mapping, 0));
            self.program.files[file].size_bytes = 0;
        }
        self.note_open(process, event.pos, Opened { file, open, closes_on_exec });
    }

    pub(crate) fn note_open(&mut self, process: ProcessNr, descriptor: u64, opened: Opened) {
        if let Some(closed) = self.program.processes[process].opened(descriptor, opened) {
            self.change(|memory| memory.close(closed));
        }
    }

    pub(crate) fn close(&mut self, process: ProcessNr, descriptor: u64) {
        if let Some(open) = self.program.processes[process].closed(descriptor) {
            self.change(|memory| memory.close(open));
        }
    }

    pub(crate) fn close_all(&mut self, process: ProcessNr) {
        for open in self.program.processes[process].close_all() {
            self.change(|memory| memory.close(open));
        }
    }

    /// Drops opens that no later event can refer to, once their number has doubled.
    pub(crate) fn sweep_opens(&mut self) {
        if self.memory.nr_opens() < self.nr_opens_max {
            return;
        }
        let held: Vec<OpenId> =
            self.program.processes.iter().flat_map(|(_, process)| process.known_opens()).collect();
        self.count_steps(held.len());
        self.change(|memory| memory.forget_opens(held));
        self.nr_opens_max = NR_OPENS_MIN.max(2 * self.memory.nr_opens());
    }

    /// Makes a file the program of a process. A file that is open for writing gets no protection.
    pub(crate) fn run(&mut self, process: ProcessNr, file: FileId) {
        // The refusal is counted. The recorded kernel ran the program.
        let (mm, file) = (self.program.space(process).mm, self.program.files[file].mapping);
        _ = self.change(|memory| memory.run(mm, file));
    }

    /// Reads the headers that an execve reads before it maps a program, through the open files that the
    /// mappings will use (docs/behaviour A.3.5). A running process that was attached to has done so
    /// before the trace.
    pub(crate) fn read_headers(
        &mut self,
        process: ProcessNr,
        layout: &[LayoutEntry],
    ) -> Result<(), CellError> {
        if self.meta.attached.is_some() && !self.counted.has_begun {
            return Ok(());
        }
        let mm = self.program.space(process).mm;
        self.change(|memory| memory.enter(mm));
        let meta = std::sync::Arc::clone(&self.meta);
        for (file, reads) in meta.exec_reads(layout) {
            let TraceFile { mapping, size_bytes, .. } = self.program.files[file];
            let open = self.change(|memory| memory.open(mapping));
            self.note_open(process, NO_DESCRIPTOR, Opened { file, open, closes_on_exec: true });
            for (pos, len) in reads {
                let pos = self.linked_pos(file, pos);
                self.change(|memory| memory.pread(open, pos, len))?;
                let nr_words = self.counted.touched.mark(file, pos, len, size_bytes);
                self.count_steps(nr_words);
            }
        }
        Ok(())
    }

    pub(crate) fn file_event(
        &mut self,
        process: ProcessNr,
        event: &Event,
    ) -> Result<(), CellError> {
        let Some(file) = event.file else {
            self.count_steps(self.program.files.len());
            let files = self.program.files.mappings();
            self.change(|memory| files.into_iter().for_each(|file| memory.drop_cache(file)));
            return Ok(());
        };
        self.counted.met.file_call(file);
        let mm = self.program.space(process).mm;
        self.change(|memory| memory.enter(mm));
        let mapping = self.program.files[file].mapping;
        let range = ByteRange { pos: event.pos, len_bytes: event.len };
        match event.op {
            Op::Pread | Op::Pwrite | Op::Fadvise => self.use_open(process, file, event)?,
            Op::Truncate => self.change(|memory| memory.truncate(mapping, event.len)),
            Op::Sync => self.change(|memory| memory.sync_range(mapping, range)),
            Op::Fallocate => {
                let (what, size) = fallocate(event.aux);
                self.change(|memory| memory.fallocate(mapping, range, what, size));
            }
            Op::Unlink => {
                self.program.unlinked.insert(file);
                self.change(|memory| memory.unlink(mapping));
            }
            _ => self.change(|memory| memory.drop_cache(mapping)),
        }
        // Takes the size from the model, in which an empty write does not extend a file.
        self.program.files[file].size_bytes = self.memory.core().mapping(mapping).size_bytes;
        Ok(())
    }

    /// Replays a call that depends on the open file.
    fn use_open(
        &mut self,
        process: ProcessNr,
        file: FileId,
        event: &Event,
    ) -> Result<(), CellError> {
        let descriptor = (event.op != Op::Fadvise).then_some(event.aux);
        let open = match self.program.processes[process].open_of(file, descriptor) {
            Some(open) => open,
            None => self.open_for_map(process, file),
        };
        match event.op {
            Op::Pread => {
                let pos = self.linked_pos(file, event.pos);
                self.read_call(open, &Event { pos, ..*event })?;
                let size_bytes = self.program.files[file].size_bytes;
                let nr_words = self.counted.touched.mark(file, pos, event.len, size_bytes);
                self.count_steps(nr_words);
            }
            Op::Pwrite => {
                self.write_through(open);
                let file = self.memory.open_file(open).mapping;
                if self.means(file, event) == Means::Direct {
                    self.pin_data(process, event);
                }
                let data = self.data_of(process, event);
                self.write_call(open, event, data)?;
            }
            _ => {
                if let Some(advice) = fadvice(event.aux) {
                    let range = ByteRange { pos: event.pos, len_bytes: event.len };
                    self.change(|memory| memory.fadvise(open, range, advice));
                } else {
                    self.counted.met.call(format!("posix_fadvise({})", event.aux), IGNORED);
                }
            }
        }
        Ok(())
    }

    /// Returns where a write call's data is, if one segment contains it.
    fn data_of(&self, process: ProcessNr, event: &Event) -> Option<WriteData> {
        let space = self.program.space(process);
        let is_plain = event.flags & (io::DIRECT | io::PIPE | io::COPY) == 0 && event.addr != 0;
        let segment = space.segments.find(event.addr).filter(|_| is_plain)?;
        let end = event.addr.checked_add(event.len)?;
        let addr = Vaddr(segment.place(event.addr));
        (end <= segment.end).then_some(WriteData { mm: space.mm, addr })
    }

    /// Pins the data of a direct write while the device reads it: the process first gets a page of
    /// its own for each page that may be shared (E.1.2).
    fn pin_data(&mut self, process: ProcessNr, event: &Event) {
        if event.addr == 0 {
            return;
        }
        let (mm, page_bytes) = (self.program.space(process).mm, self.page().bytes());
        let parts = self.parts(process, event.addr, event.addr.saturating_add(event.len));
        for part in parts {
            let (first, end) = (part.placed & !self.mask(), part.placed + (part.end - part.start));
            let mut pins = Vec::new();
            for addr in (first..end).step_by(usize::try_from(page_bytes).unwrap_or(usize::MAX)) {
                let pinned = self.change(|memory| memory.pin(mm, Vaddr(addr), Access::Read));
                let Ok(pin) = pinned else { break };
                pins.push(pin);
            }
            self.count_steps(pins.len());
            for pin in pins {
                self.change(|memory| memory.unpin(pin));
            }
        }
    }

    fn read_call(&mut self, open: OpenId, event: &Event) -> Result<(), CellError> {
        let range = ByteRange { pos: event.pos, len_bytes: event.len };
        let file = self.memory.open_file(open).mapping;
        let means = self.means(file, event);
        self.program.copy_shares_blocks = means == Means::Shared;
        match means {
            Means::Direct => self.change(|memory| memory.read_direct(open, range)),
            Means::Shared => self.change(|memory| memory.sync_range(file, range)),
            Means::Pipe => self.change(|memory| memory.sendfile(open, event.pos, event.len))?,
            Means::Cache => {
                self.change(|memory| memory.pread(open, event.pos, event.len))?;
            }
        }
        Ok(())
    }

    fn write_call(
        &mut self,
        open: OpenId,
        event: &Event,
        data: Option<WriteData>,
    ) -> Result<(), CellError> {
        let range = ByteRange { pos: event.pos, len_bytes: event.len };
        let file = self.memory.open_file(open).mapping;
        match self.means(file, event) {
            Means::Direct => self.change(|memory| memory.write_direct(open, range)),
            Means::Shared => self.change(|memory| memory.share_blocks(file, range)),
            Means::Pipe => {
                let source = event.addr;
                self.change(|memory| memory.write_from_pipe(open, range, source))?;
            }
            Means::Cache => match data {
                Some(data) => {
                    self.change(|memory| memory.pwrite_from(open, event.pos, event.len, data))?;
                }
                None => self.change(|memory| memory.pwrite(open, event.pos, event.len))?,
            },
        }
        if event.flags & io::SYNC != 0 {
            self.change(|memory| memory.sync_range(file, range));
        }
        Ok(())
    }

    fn means(&self, file: MappingId, event: &Event) -> Means {
        let mapping = self.memory.core().mapping(file);
        let is_aligned = (event.pos | event.addr).is_multiple_of(BLOCK_BYTES);
        let end = event.pos.saturating_add(event.len);
        // Only the last block of both files is shared if the copy contains a part of it.
        let is_last =
            end >= mapping.size_bytes && (event.op == Op::Pread || self.program.copy_shares_blocks);
        let is_whole = event.len.is_multiple_of(BLOCK_BYTES) || is_last;
        match event.flags {
            flags
                if flags & io::COPY != 0
                    && mapping.disk.shares_blocks
                    && is_aligned
                    && is_whole =>
            {
                Means::Shared
            }
            // Memory ignores O_DIRECT.
            flags if flags & io::DIRECT != 0 && !mapping.is_shmem => Means::Direct,
            flags if flags & (io::COPY | io::PIPE) != 0 => Means::Pipe,
            _ => Means::Cache,
        }
    }

    /// Replays msync, which names memory instead of a file, and calls on every file.
    pub(crate) fn sync(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        if event.file.is_some() {
            return self.file_event(process, event);
        }
        if event.len == 0 {
            self.change(largefolio_mm::memory::Memory::sync_all);
            return Ok(());
        }
        let mm = self.program.space(process).mm;
        for part in self.parts(process, event.addr, event.addr.saturating_add(event.len)) {
            let (addr, len_bytes) = (Vaddr(part.placed), part.end - part.start);
            self.change(|memory| memory.sync_mapped(mm, AddrRange { addr, len_bytes }));
        }
        Ok(())
    }

    /// Replays `MADV_REMOVE`: the mapped parts of files become holes.
    pub(crate) fn remove(&mut self, process: ProcessNr, event: &Event) {
        let mm = self.program.space(process).mm;
        for part in self.parts(process, event.addr, event.addr.saturating_add(event.len)) {
            let (addr, len_bytes) = (Vaddr(part.placed), part.end - part.start);
            self.change(|memory| memory.remove_mapped(mm, AddrRange { addr, len_bytes }));
        }
    }

    /// Frees the files that have neither a name nor a user.
    pub(crate) fn free_unlinked(&mut self) {
        if self.program.unlinked.is_empty() {
            return;
        }
        let files: Vec<FileId> = self.program.unlinked.iter().copied().collect();
        self.count_steps(files.len());
        for file in files {
            let mapping = self.program.files[file].mapping;
            if !self.memory.is_in_use(mapping) {
                self.change(|memory| memory.delete_file(mapping));
                self.program.unlinked.remove(&file);
            }
        }
    }

    /// Makes a descriptor a writer after a write call. Skipped if the descriptor is closed here:
    /// the program wrote through a duplicate, and no later event would end the writer.
    fn write_through(&mut self, open: OpenId) {
        if self.memory.open_file(open).nr_descriptors > 0 {
            // The refusal is counted. The recorded kernel wrote.
            _ = self.change(|memory| memory.write_through(open));
        }
    }
}

/// How a read or write call moves the data here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Cache,
    Pipe,
    Direct,
    /// The two files share the blocks afterwards.
    Shared,
}

/// Filesystems share blocks of this size.
const BLOCK_BYTES: u64 = 4096;

fn fallocate(mode: u64) -> (Fallocate, FileSize) {
    let what = match mode {
        _ if mode & FALLOC_FL_PUNCH_HOLE != 0 => Fallocate::PunchHole,
        _ if mode & FALLOC_FL_COLLAPSE_RANGE != 0 => Fallocate::Remove,
        _ if mode & FALLOC_FL_INSERT_RANGE != 0 => Fallocate::Insert,
        _ if mode & FALLOC_FL_ZERO_RANGE != 0 => Fallocate::Zero,
        _ => Fallocate::Allocate,
    };
    let size = if mode & FALLOC_FL_KEEP_SIZE == 0 { FileSize::Grows } else { FileSize::Kept };
    (what, size)
}

fn fadvice(number: u64) -> Option<Fadvice> {
    Some(match number {
        0 => Fadvice::Normal,
        1 => Fadvice::Random,
        2 => Fadvice::Sequential,
        3 => Fadvice::Willneed,
        4 => Fadvice::Dontneed,
        _ => return None,
    })
}
