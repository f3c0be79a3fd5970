//! What each program did, and what the machine held: results of traces with several processes.
//!
//! A process counts for the program that it executed last; before its first execve, for that of its
//! parent. Three kinds of numbers follow a program: what its rows did (references, walks, faults),
//! what its address spaces mapped when they went, and how many of its processes lived.
//!
//! Memory in use is the page cache and private memory of the whole machine, in folios, each once. Its
//! peak is exact. What it consisted of is looked up whenever a quarter more is in use than at the
//! last look, so the moment shown had at least four fifths of the peak.
//!
//! Owns the definitions. Does not own the counters of TLBs (`hardware`).

use std::collections::BTreeMap;

use largefolio_mm::folio::Owner;
use largefolio_mm::memory::Memory;
use serde::Serialize;

use super::sizes::FolioSizes;

/// Programs that are told apart; what others do is summed up under one name.
const NR_PROGRAMS_MAX: usize = 1 << 10;
/// Name of what has no program, or one too many.
const OTHERS: &str = "[other programs]";

/// Number of a program in [`Programs`].
pub(super) type ProgramNr = usize;

/// The processes of a trace, by program, and the memory of the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ManyProcesses {
    /// Processes that began.
    pub nr_started: u64,
    /// Most that lived at one time.
    pub nr_alive_max: u64,
    /// Memory in use.
    pub memory: MemoryUse,
    /// Programs in the order in which they began.
    pub programs: Vec<ProgramOutcome>,
}

/// What the processes of one program did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProgramOutcome {
    /// Path of the executed file.
    pub path: String,
    /// Processes that executed it, or ended in it.
    pub nr_processes: u64,
    /// References.
    pub references: u64,
    /// Faults of every kind.
    pub faults: u64,
    /// Of these, faults that waited for a read.
    pub major_faults: u64,
    /// Walks for instructions.
    pub instruction_walks: u64,
    /// Walks for data.
    pub data_walks: u64,
    /// Estimated time of its faults (entry, handler, return), level-2 TLB hits and walks; absent
    /// where a cost is not known. Reads, mapping, clearing and copying are not told apart by program.
    pub estimate_ns: Option<u64>,
    /// What its address spaces mapped when they went, all together.
    pub folios: FolioSizes,
}

/// Page cache and private memory of the machine, each folio once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    /// Most bytes in use at one time.
    pub peak_bytes: u64,
    /// References of all processes before that moment.
    pub peak_references: u64,
    /// A moment with at least four fifths of the peak.
    pub peak: MemoryParts,
    /// The end of the trace, before the last processes end.
    pub end: MemoryParts,
}

/// What memory in use consists of at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryParts {
    /// References of all processes before it.
    pub references: u64,
    /// Page cache, by folio size in bytes.
    pub cached_bytes: BTreeMap<u64, u64>,
    /// Private memory, by folio size in bytes.
    pub anon_bytes: BTreeMap<u64, u64>,
}

impl MemoryParts {
    pub(super) fn of(memory: &Memory, references: u64) -> Self {
        let mut parts = Self { references, ..Self::default() };
        let shift = memory.rules().page.shift();
        for (_, folio) in memory.core().folios.iter() {
            let bytes = folio.order.nr_pages() << shift;
            let by_size = match folio.owner {
                Owner::Anon { .. } => &mut parts.anon_bytes,
                _ => &mut parts.cached_bytes,
            };
            *by_size.entry(bytes).or_default() += bytes;
        }
        parts
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cached_bytes.values().chain(self.anon_bytes.values()).sum()
    }
}

/// Counts while a cell runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Programs {
    by_path: BTreeMap<String, ProgramNr>,
    pub(super) tallies: Vec<ProgramOutcome>,
    nr_alive: u64,
    pub(super) nr_alive_max: u64,
    pub(super) nr_executed: u64,
    pub(super) memory: MemoryUse,
    /// Bytes in use at the last look at what they are.
    pub(super) looked_at_bytes: u64,
}

impl Programs {
    /// The same programs and processes, of which nothing is counted so far.
    pub(super) fn after(before: Self) -> Self {
        let nothing = |tally: ProgramOutcome| ProgramOutcome {
            path: tally.path,
            nr_processes: tally.nr_processes,
            ..ProgramOutcome::default()
        };
        Self { tallies: before.tallies.into_iter().map(nothing).collect(), ..before }
    }

    /// The number of a program.
    pub(super) fn number(&mut self, path: &str) -> ProgramNr {
        if let Some(&nr) = self.by_path.get(path) {
            return nr;
        }
        if self.tallies.len() >= NR_PROGRAMS_MAX && path != OTHERS {
            return self.number(OTHERS);
        }
        let nr = self.tallies.len();
        self.by_path.insert(path.to_owned(), nr);
        self.tallies.push(ProgramOutcome { path: path.to_owned(), ..ProgramOutcome::default() });
        nr
    }

    /// The number of a process's program, if that has a name.
    pub(super) fn number_of(&mut self, path: Option<&str>) -> ProgramNr {
        self.number(path.unwrap_or(OTHERS))
    }

    /// A process begins.
    pub(super) fn started(&mut self) {
        self.nr_alive += 1;
        self.nr_alive_max = self.nr_alive_max.max(self.nr_alive);
    }

    /// A process ends in a program.
    pub(super) fn ended(&mut self, program: ProgramNr) {
        self.nr_alive -= 1;
        self.tallies[program].nr_processes += 1;
    }

    /// A process leaves a program for another, which `counts` if it had executed it.
    pub(super) fn executed(&mut self, before: ProgramNr, counts: bool) {
        self.nr_executed += 1;
        self.tallies[before].nr_processes += u64::from(counts);
    }

    /// Memory that an address space maps, which goes now.
    pub(super) fn add_space(&mut self, program: ProgramNr, folios: &FolioSizes) {
        self.tallies[program].folios.add(folios);
    }
}
