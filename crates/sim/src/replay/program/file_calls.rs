//! Replays file events: open, close, read and write calls, and execution of a file.
//!
//! Owns which recorded opens count as writers, and for how long (docs/behaviour H.1.4, H.2.1). An
//! open is a writer if its `O_*` flags request writing, or if a write call or a writable shared
//! mapping uses it. The open ends when every process has closed its descriptors and no mapping uses
//! it. Duplicated descriptors are not recorded: a writer that survives in a duplicate is forgotten
//! when the first descriptor closes. Opening the traced program for writing fails, because it is
//! running.

use largefolio_mm::io::{Fadvice, WriteData};
use largefolio_mm::units::{ByteRange, Vaddr};
use largefolio_mm::vma::OpenId;
use largefolio_trace::event::abi::{O_ACCMODE, O_CLOEXEC};
use largefolio_trace::event::io;
use largefolio_trace::{Event, FileId, Op};

use crate::gaps::{IGNORED, NO_COPY_UP, OVERLAY};
use crate::replay::cell::{Cell, NR_OPENS_MIN};
use crate::replay::error::CellError;
use crate::replay::program::{Opened, ProcessNr};

impl Cell {
    /// Replays an open that the recorded kernel granted. If the modelled kernel refuses it because
    /// a process runs the file, it becomes an open for reading.
    pub(crate) fn open(&mut self, process: ProcessNr, event: &Event) {
        let Some(file) = event.file else { return };
        let mapping = self.program.files[file].mapping;
        let is_write = event.flags & O_ACCMODE != 0;
        if is_write && self.meta.files.get(file as usize).is_some_and(|f| f.through == OVERLAY) {
            self.counted.met.call("write to a lower layer of an overlay".to_owned(), NO_COPY_UP);
        }
        let open = if !is_write {
            self.change(|memory| memory.open(mapping))
        } else {
            self.change(|memory| {
                let granted = memory.open_for_write(mapping);
                granted.unwrap_or_else(|_| memory.open(mapping))
            })
        };
        let closes_on_exec = event.flags & O_CLOEXEC != 0;
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
        let descriptor = matches!(event.op, Op::Pread | Op::Pwrite).then_some(event.aux);
        let open = match self.program.processes[process].open_of(file, descriptor) {
            Some(open) => open,
            None => self.open_for_map(process, file),
        };
        match event.op {
            Op::Pread => {
                let pos = self.linked_pos(file, event.pos);
                self.change(|memory| memory.pread(open, pos, event.len))?;
                let size_bytes = self.program.files[file].size_bytes;
                let nr_words = self.counted.touched.mark(file, pos, event.len, size_bytes);
                self.count_steps(nr_words);
            }
            Op::Pwrite => {
                self.write_through(open);
                match self.data_of(process, event) {
                    Some(data) => {
                        self.change(|memory| memory.pwrite_from(open, event.pos, event.len, data))?
                    }
                    None => self.change(|memory| memory.pwrite(open, event.pos, event.len))?,
                }
                // Takes the size from the model, in which an empty write does not extend a file.
                self.program.files[file].size_bytes =
                    self.memory.core().mapping(mapping).size_bytes;
            }
            Op::Truncate => {
                self.change(|memory| memory.truncate(mapping, event.len));
                self.program.files[file].size_bytes = event.len;
            }
            Op::Fadvise => {
                if let Some(advice) = fadvice(event.aux) {
                    let range = ByteRange { pos: event.pos, len_bytes: event.len };
                    self.change(|memory| memory.fadvise(open, range, advice));
                } else {
                    self.counted.met.call(format!("posix_fadvise({})", event.aux), IGNORED);
                }
            }
            _ => self.change(|memory| memory.drop_cache(mapping)),
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

    /// Makes a descriptor a writer after a write call. Skipped if the descriptor is closed here:
    /// the program wrote through a duplicate, and no later event would end the writer.
    fn write_through(&mut self, open: OpenId) {
        if self.memory.open_file(open).nr_descriptors > 0 {
            // The refusal is counted. The recorded kernel wrote.
            _ = self.change(|memory| memory.write_through(open));
        }
    }
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
