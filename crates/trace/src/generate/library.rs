//! A program that runs code in a shared library: series 003, text as huge folios.
//!
//! File 0 is the program: one text segment at [`PROGRAM`], loaded by the kernel. File 1 is the
//! library, mapped the way a loader does it: opened for reading, segments mapped privately at fixed
//! addresses, closed.
//!
//! ```text
//!   file position   0          A           A + text, up to A
//!                   | headers  | text      | data
//!   protection      | r--      | r-x       | rw-
//!   address         L          L + A       ..          A = --max-page-size
//!                                                      2M: L is a multiple of 2 MiB
//!                                                      4K: L is five pages past one
//! ```
//!
//! A linker with `-z max-page-size=2M` and a loader that respects it put text where PMD entries can
//! map it (docs/behaviour J.4, K.4.2). If the library is linked for 4 KiB pages, address and file
//! position are not congruent, so no kernel can map the text with PMD entries.
//!
//! Each call is a run of fetches from one page, either in the program or in the library; the page
//! is chosen by Zipf's law and spread by a permutation. After a share of the calls, a process may
//! open the library for writing, as an installer does, and close it later.

use super::{
    BASE, FILESYSTEM, GenerateError, REGION_BYTES_MAX, Rng, Sink, Workload, command_of, file_of,
    meta_of, require, require_region,
};
use crate::event::abi::{MAP_FIXED, MAP_PRIVATE, O_RDWR, PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::event::{Event, ExitKind, FileId, Op, mmap_flags};
use crate::meta::{LayoutEntry, LayoutKind, Meta};
use crate::validate::REFERENCE_PAGE_BYTES;

/// Where x86-64 linkers put position-dependent programs: two 2 MiB PMD ranges above 0.
pub(super) const PROGRAM: u64 = 0x40_0000;

/// Length of the library's headers, and of its data.
const HEADER_BYTES: u64 = 4096;
const DATA_BYTES: u64 = 64 << 10;

/// An image linked for 4 KiB pages is this far past 2 MiB. Any number but multiples of 512 works.
const NR_OFF_PAGES: u64 = 5;

const OF_PROGRAM: FileId = 0;
const OF_LIBRARY: FileId = 1;

const LOADER: u64 = 3;
const WRITER: u64 = 4;

/// Step from rank to page, as in the mix: a prime larger than any number of pages.
const SPREAD: u64 = 0x9e37_79b1;

/// The page size that the library is linked for (`-z max-page-size`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkedFor {
    /// 4 KiB: the default of x86-64 linkers.
    Base,
    /// 2 MiB.
    Huge,
}

impl LinkedFor {
    const fn bytes(self) -> u64 {
        match self {
            Self::Base => 4 << 10,
            Self::Huge => 2 << 20,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Base => "4k",
            Self::Huge => "2m",
        }
    }

    const fn address(self) -> u64 {
        match self {
            Self::Base => BASE + NR_OFF_PAGES * REFERENCE_PAGE_BYTES,
            Self::Huge => BASE,
        }
    }
}

/// Options of the workload.
///
/// ```
/// use largefolio_trace::generate::{Library, Workload};
/// let library = Library { nr_calls: 100, opened_at: Some(50), ..Library::default() };
/// // open, three segments, close, 100 calls and an open in their middle, exit
/// assert_eq!(library.events()?.len(), 1 + 3 + 1 + 100 + 1 + 1);
/// # Ok::<(), largefolio_trace::generate::GenerateError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Text of the library in bytes: a multiple of 4096, at most 1 TiB.
    pub text_bytes: u64,
    /// Text of the program in bytes: a multiple of 4096, at most 1 GiB.
    pub program_bytes: u64,
    /// The page size that the library is linked for.
    pub linked_for: LinkedFor,
    /// Runs of fetches.
    pub nr_calls: u64,
    /// Maximum fetches of a run; uniform from 1.
    pub run_max: u64,
    /// Percentage of the calls that stay in the program.
    pub program_percent: u64,
    /// Percentage of the calls after which a process opens the library for writing.
    pub opened_at: Option<u64>,
    /// Percentage of the calls after which that process closes it.
    pub closed_at: Option<u64>,
    /// Seed of the calls.
    pub seed: u64,
    /// Filesystem name of the files.
    pub filesystem: String,
}

impl Default for Library {
    /// 8 MiB of library text and 2 MiB of program text, linked for huge pages, and two million
    /// calls of up to 137 fetches. With base pages 0.86% of the fetches miss the first TLB of an
    /// Altra, close to the published run (0.854%, docs/behaviour J.4).
    fn default() -> Self {
        Self {
            text_bytes: 8 << 20,
            program_bytes: 2 << 20,
            linked_for: LinkedFor::Huge,
            nr_calls: 2_000_000,
            run_max: 137,
            program_percent: 10,
            opened_at: None,
            closed_at: None,
            seed: 1,
            filesystem: FILESYSTEM.to_owned(),
        }
    }
}

struct Segment {
    pos: u64,
    len: u64,
    prot: u32,
}

impl Library {
    fn segments(&self) -> [Segment; 3] {
        let align = self.linked_for.bytes();
        let data = (align + self.text_bytes).next_multiple_of(align);
        [
            Segment { pos: 0, len: HEADER_BYTES, prot: PROT_READ },
            Segment { pos: align, len: self.text_bytes, prot: PROT_READ | PROT_EXEC },
            Segment { pos: data, len: DATA_BYTES, prot: PROT_READ | PROT_WRITE },
        ]
    }

    fn emit_load(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        let file = Some(OF_LIBRARY);
        sink(Event { pos: LOADER, file, ..Event::new(0, Op::Open) })?;
        for Segment { pos, len, prot } in self.segments() {
            let addr = self.linked_for.address() + pos;
            let flags = mmap_flags(prot, MAP_PRIVATE | MAP_FIXED);
            sink(Event { addr, len, pos, flags, file, ..Event::new(0, Op::Mmap) })?;
        }
        sink(Event { pos: LOADER, ..Event::new(0, Op::Close) })
    }

    fn emit_writer(&self, call: u64, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        let is_at =
            |percent: Option<u64>| percent.map(|percent| self.call_at(percent)) == Some(call);
        if is_at(self.opened_at) {
            let open = Event { pos: WRITER, flags: O_RDWR, ..Event::new(0, Op::Open) };
            sink(Event { file: Some(OF_LIBRARY), ..open })?;
        }
        if is_at(self.closed_at) {
            sink(Event { pos: WRITER, ..Event::new(0, Op::Close) })?;
        }
        Ok(())
    }

    fn call_at(&self, percent: u64) -> u64 {
        let call = u128::from(self.nr_calls) * u128::from(percent) / 100;
        u64::try_from(call).unwrap_or(self.nr_calls)
    }

    fn call(&self, rng: &mut Rng) -> Event {
        let (start, bytes) = if rng.below(100) < self.program_percent {
            (PROGRAM, self.program_bytes)
        } else {
            (self.linked_for.address() + self.linked_for.bytes(), self.text_bytes)
        };
        let nr_pages = bytes / REFERENCE_PAGE_BYTES;
        let page = rng.zipf(nr_pages) * SPREAD % nr_pages;
        let addr = start + page * REFERENCE_PAGE_BYTES;
        Event::references(0, Op::Exec, addr, 1 + rng.below(self.run_max))
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = vec![
            ("text-size", self.text_bytes.to_string()),
            ("program-size", self.program_bytes.to_string()),
            ("max-page-size", self.linked_for.name().to_owned()),
            ("calls", self.nr_calls.to_string()),
            ("run-max", self.run_max.to_string()),
            ("program-percent", self.program_percent.to_string()),
        ];
        let percent = |name, at: Option<u64>| at.map(|percent| (name, percent.to_string()));
        options.extend(percent("opened-at", self.opened_at));
        options.extend(percent("closed-at", self.closed_at));
        options.push(("seed", self.seed.to_string()));
        options
    }
}

/// Largest program: it must end below an emulator's position-independent programs.
const PROGRAM_BYTES_MAX: u64 = 1 << 30;

impl Workload for Library {
    fn validate(&self) -> Result<(), GenerateError> {
        require_region("text_bytes", self.text_bytes)?;
        let page = REFERENCE_PAGE_BYTES;
        let is_program = (page..=PROGRAM_BYTES_MAX).contains(&self.program_bytes)
            && self.program_bytes.is_multiple_of(page);
        let rule = "it must be a multiple of 4096 from 4096 to 1 GiB";
        require(is_program, "program_bytes", self.program_bytes, rule)?;
        let is_run = (1..=1 << 32).contains(&self.run_max);
        require(is_run, "run_max", self.run_max, "it must be from 1 to 2^32")?;
        let percent = self.program_percent;
        require(percent <= 100, "program_percent", percent, "it must be at most 100")?;
        let opened = self.opened_at.unwrap_or(0);
        require(opened < 100, "opened_at", opened, "it must be below 100")?;
        let closed = self.closed_at.unwrap_or(99);
        let is_closed = self.closed_at.is_none() || self.opened_at.is_some();
        let is_later = is_closed && closed < 100 && closed > opened;
        require(is_later, "closed_at", closed, "it must be above opened_at and below 100")
    }

    fn meta(&self) -> Meta {
        let [.., data] = self.segments();
        let library = file_of("library", data.pos + data.len, &self.filesystem);
        let program = file_of("program", self.program_bytes, &self.filesystem);
        let command = command_of("library", &self.options(), &self.filesystem);
        let text = LayoutEntry {
            addr: PROGRAM,
            len: self.program_bytes,
            prot: PROT_READ | PROT_EXEC,
            file: Some(OF_PROGRAM),
            pos: 0,
            kind: LayoutKind::Program,
        };
        let meta = meta_of("library", command, self.seed, vec![program, library]);
        Meta { layout: vec![text], ..meta }
    }

    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        self.validate()?;
        let mut rng = Rng::new(self.seed);
        self.emit_load(sink)?;
        for call in 0..self.nr_calls {
            self.emit_writer(call, sink)?;
            sink(self.call(&mut rng))?;
        }
        sink(Event { flags: ExitKind::Process as u32, ..Event::new(0, Op::Exit) })
    }
}

/// Headers, text and data, each rounded up, end below 47 bits of address space.
const _: () = assert!(BASE + REGION_BYTES_MAX + (16 << 20) < 1 << 47);

#[cfg(test)]
mod tests {
    use super::*;

    fn text(library: &Library) -> Event {
        let is_text = |event: &&Event| event.op == Op::Mmap && event.flags >> 28 & PROT_EXEC != 0;
        let events = library.events().unwrap();
        events.iter().find(is_text).copied().unwrap()
    }

    #[test]
    fn only_a_library_linked_for_huge_pages_can_be_mapped_by_them() {
        let huge = text(&Library { nr_calls: 1, ..Library::default() });
        assert_eq!((huge.addr % (2 << 20), huge.pos % (2 << 20)), (0, 0));
        let base = Library { linked_for: LinkedFor::Base, nr_calls: 1, ..Library::default() };
        let base = text(&base);
        assert_ne!(base.addr % (2 << 20), base.pos % (2 << 20));
        assert_eq!((base.addr % 4096, base.pos % 4096), (0, 0));
    }

    #[test]
    fn somebody_opens_the_library_for_write_in_the_middle() {
        let library = Library {
            nr_calls: 1000,
            opened_at: Some(40),
            closed_at: Some(60),
            ..Library::default()
        };
        let events = library.events().unwrap();
        let is_call = |event: &&Event| event.op == Op::Exec;
        let calls_before = |find: &dyn Fn(&Event) -> bool| {
            let at = events.iter().rposition(find).unwrap();
            events[..at].iter().filter(is_call).count()
        };
        assert_eq!(calls_before(&|event| event.op == Op::Open && event.flags == O_RDWR), 400);
        assert_eq!(calls_before(&|event| event.op == Op::Close), 600);
    }

    #[test]
    fn options_are_checked() {
        let is_refused = |library: Library| library.validate().is_err();
        assert!(is_refused(Library { text_bytes: 4095, ..Library::default() }));
        assert!(is_refused(Library { program_bytes: 0, ..Library::default() }));
        assert!(is_refused(Library { closed_at: Some(10), ..Library::default() }));
        let library = Library { opened_at: Some(60), closed_at: Some(60), ..Library::default() };
        assert!(is_refused(library));
        assert!(Library::default().validate().is_ok());
    }
}
