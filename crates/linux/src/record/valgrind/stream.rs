//! The log of lackey, line by line, into the book.
//!
//! Owns the assembly of lines, the current thread and the collapse of references. Lines are of
//! three kinds: accesses (nearly all), system calls ([`super::calls`]), and thread switches:
//!
//! ```text
//! --9544--   SCHED[2]:  acquired lock (thread_wrapper(starting new thread))
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use largefolio_trace::event::SHARES_MEMORY;
use largefolio_trace::import::lackey::{Line, parse_line};
use largefolio_trace::runs::RunBuffer;
use largefolio_trace::{Event, ExitKind, Op, ThreadId, TraceError};

use super::calls::Calls;
use crate::proc::Task;
use crate::proc::maps::Vma;
use crate::record::book::Book;
use crate::record::layout;
use crate::record::outcome::{Ended, Progress};
use crate::system::Live;

/// Rows collected before they are passed on.
const ROWS_MAX: usize = 8192;

/// Longest line kept while its end has not come.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Where valgrind puts the program's stack: it ends at 0x1fff001000.
const STACK: std::ops::Range<u64> = 0x1f_0000_0000..0x20_0000_0000;

/// A log being read.
pub(super) struct Stream<'book, 'sink> {
    book: &'book mut Book<'sink>,
    calls: Calls,
    program: PathBuf,
    pid: u32,
    /// Ids by valgrind's thread numbers, which are used again.
    threads: BTreeMap<u32, ThreadId>,
    /// Valgrind's number of the running thread.
    current: u32,
    /// Bytes of a line whose end has not come.
    partial: Vec<u8>,
    runs: RunBuffer,
    rows: Vec<Event>,
    has_layout: bool,
}

impl<'book, 'sink> Stream<'book, 'sink> {
    /// The log of valgrind process `pid`, which runs `program`.
    pub(super) fn new(book: &'book mut Book<'sink>, pid: u32, program: &Path) -> Self {
        book.nr_processes = 1;
        let first = book.add_thread();
        Self {
            book,
            calls: Calls::new(pid),
            program: program.to_path_buf(),
            pid,
            threads: BTreeMap::from([(1, first)]),
            current: 1,
            partial: Vec::new(),
            runs: RunBuffer::default(),
            rows: Vec::new(),
            has_layout: false,
        }
    }

    /// Whether the program ran.
    pub(super) fn has_started(&self) -> bool {
        self.has_layout
    }

    /// State for the user.
    pub(super) fn progress(&self, elapsed: Duration) -> Progress {
        Progress {
            nr_before: 0,
            nr_references: self.book.nr_references(),
            trace_bytes: self.book.trace_bytes(),
            nr_threads: self.book.nr_threads(),
            nr_processes: 1,
            elapsed,
            standstill: None,
            unrecorded: None,
        }
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let mut pending = std::mem::take(&mut self.partial);
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, tail) = rest.split_at(end);
            rest = tail.get(1..).unwrap_or_default();
            if pending.is_empty() {
                self.line(line)?;
            } else {
                pending.extend_from_slice(line);
                self.line(&pending)?;
                pending.clear();
            }
        }
        pending.extend_from_slice(rest);
        if pending.len() > LINE_BYTES_MAX {
            pending.clear();
        }
        self.partial = pending;
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), TraceError> {
        let Ok(line) = std::str::from_utf8(line) else { return Ok(()) };
        if matches!(line.as_bytes(), [b' ' | b'I', ..])
            && let Ok(Line::Access(access)) = parse_line(line)
        {
            if !self.has_layout {
                self.take_layout();
            }
            let thread = self.thread();
            for event in access.references(thread) {
                self.runs.push(event, &mut self.rows);
            }
            return if self.rows.len() >= ROWS_MAX { self.pass_on() } else { Ok(()) };
        }
        // A switch may follow the call on its own line: "Success(0x348f) --9544--   SCHED[1]: ..".
        let (call, switch) = match line.find("SCHED[") {
            Some(start) => {
                let call = line.get(..start).unwrap_or_default().trim_end();
                let call = call.rsplit_once("--").map_or("", |(head, _)| head);
                let call = call.rsplit_once("--").map_or("", |(head, _)| head);
                (call.trim_end(), line.get(start..).unwrap_or_default())
            }
            None => (line, ""),
        };
        if !call.is_empty() {
            self.call(call)?;
        }
        self.switch(switch)
    }

    fn call(&mut self, line: &str) -> Result<(), TraceError> {
        // fork, vfork and posix_spawn: "(58) sys_fork ( ) fork: process 12 created child 34".
        if line.contains("created child") {
            self.book.warn("A child was not recorded; QEMU records children.");
        }
        let events = match parse_line(line) {
            Ok(Line::Syscall(call)) => self.calls.take(&call, &mut self.book.files),
            Ok(Line::Result(outcome)) => self.calls.take_result(outcome, &mut self.book.files),
            _ => return Ok(()),
        };
        if let Some(start) = self.calls.take_heap_start() {
            self.book.brk = start;
        }
        let Some(event) = events else { return Ok(()) };
        self.runs.flush(&mut self.rows);
        self.pass_on()?;
        let thread = self.threads.get(&event.thread).copied().unwrap_or(0);
        self.book.push(Event { thread, ..event })?;
        if event.op == Op::Exit {
            self.threads.remove(&event.thread);
        }
        Ok(())
    }

    /// `SCHED[2]:  acquired lock (..)`.
    fn switch(&mut self, text: &str) -> Result<(), TraceError> {
        let Some((number, what)) =
            text.strip_prefix("SCHED[").and_then(|text| text.split_once("]:"))
        else {
            return Ok(());
        };
        let Ok(number) = number.parse::<u32>() else { return Ok(()) };
        if !what.trim_start().starts_with("acquired lock") {
            return Ok(());
        }
        if !self.threads.contains_key(&number) {
            let parent = self.thread();
            let child = self.book.add_thread();
            self.runs.flush(&mut self.rows);
            self.pass_on()?;
            self.book.push_fork(parent, child, SHARES_MEMORY)?;
            self.threads.insert(number, child);
        }
        self.current = number;
        Ok(())
    }

    fn thread(&self) -> ThreadId {
        self.threads.get(&self.current).copied().unwrap_or(0)
    }

    fn pass_on(&mut self) -> Result<(), TraceError> {
        self.book.push_references(&self.rows)?;
        self.rows.clear();
        Ok(())
    }

    /// The mappings at the first access. Valgrind does not wait for us, so a few of the loader's
    /// own mappings may be there already; only what the program's ELF files and stack explain is
    /// taken.
    fn take_layout(&mut self) {
        self.has_layout = true;
        let maps = Task::of(&Live, self.pid).maps().unwrap_or_default();
        let program = self.program.canonicalize().unwrap_or_default();
        let interpreter = crate::record::elf::Elf::read(&program)
            .and_then(|elf| elf.interpreter)
            .and_then(|path| path.canonicalize().ok());
        let is_own =
            |line: &Vma| *line.name() == *program || interpreter.as_deref() == Some(&*line.name());
        let is_stack =
            |line: &Vma| STACK.contains(&line.range.start) && line.path.as_os_str().is_empty();
        let lines: Vec<Vma> = maps
            .vmas
            .into_iter()
            .filter(|line| is_own(line) || is_stack(line))
            .map(|line| if is_stack(&line) { Vma { path: "[stack]".into(), ..line } } else { line })
            .collect();
        let initial = layout::of_program_lines(&lines, &program, &mut self.book.files);
        self.book.layout = initial.layout;
        self.book.brk = initial.brk;
    }

    /// The last rows and the program's exit; how it ended, for the footer.
    pub(super) fn finish(&mut self, ended: Ended) -> Result<String, TraceError> {
        // An execve that succeeds is the last line, without an end.
        let rest = std::mem::take(&mut self.partial);
        self.line(&rest)?;
        self.runs.flush(&mut self.rows);
        self.pass_on()?;
        let (kind, status) = match ended {
            _ if self.calls.execve().is_some() => (ExitKind::Execve, 0),
            Ended::Code(code) => (ExitKind::Process, code.into()),
            Ended::Signal(signal) => (ExitKind::Signal, signal.into()),
        };
        let first = self.threads.values().next().copied().unwrap_or(0);
        self.book.push_exit(first, kind, status)?;
        let Some(path) = self.calls.execve() else { return Ok(ended.to_string()) };
        let text = format!("execve {path}");
        self.book.warn(format!(
            "The program became {path} (execve), which was not recorded; record that program \
             itself."
        ));
        Ok(text)
    }
}
