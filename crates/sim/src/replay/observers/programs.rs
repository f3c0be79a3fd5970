//! Results of traces with several processes: counts per program, and memory in use.
//!
//! A process counts towards the program that it last executed or, before its first execve, towards
//! its parent's program. Memory in use is the page cache plus the private memory on the whole
//! machine, each folio once. The peak is exact. Its composition is measured whenever memory in use
//! has grown by a quarter since the last measurement, so memory in use at the reported moment is at
//! least four fifths of the peak.

use std::collections::BTreeMap;

use largefolio_mm::folio::Owner;
use largefolio_mm::memory::Memory;
use serde::Serialize;

use crate::replay::observers::sizes::FolioSizes;

/// Maximum number of programs with their own counts. Any others share one name.
const NR_PROGRAMS_MAX: usize = 1 << 10;
/// Name for processes without a program, and for programs past the limit.
const OTHERS: &str = "[other programs]";

pub(crate) type ProgramNr = usize;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ManyProcesses {
    pub nr_started: u64,
    pub nr_alive_max: u64,
    pub memory: MemoryUse,
    pub programs: Vec<ProgramOutcome>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProgramOutcome {
    pub path: String,
    /// Processes that executed this program, or ended in it.
    pub nr_processes: u64,
    pub references: u64,
    pub faults: u64,
    /// Faults that waited for a read.
    pub major_faults: u64,
    pub instruction_walks: u64,
    pub data_walks: u64,
    /// Estimated time of its faults (entry, handler, return), level-2 TLB hits and walks; absent if
    /// a cost is unknown. Reads, mapping, clearing and copying are not split by program.
    pub estimate_ns: Option<u64>,
    /// Sum of its address spaces' mappings at their ends.
    pub folios: FolioSizes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUse {
    pub peak_bytes: u64,
    pub peak_references: u64,
    /// A moment with at least 80% of the peak.
    pub peak: MemoryParts,
    /// The end of the trace, before the last processes end.
    pub end: MemoryParts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryParts {
    pub references: u64,
    pub cached_bytes: BTreeMap<u64, u64>,
    pub anon_bytes: BTreeMap<u64, u64>,
}

impl MemoryParts {
    pub(crate) fn of(memory: &Memory, references: u64) -> Self {
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

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cached_bytes.values().chain(self.anon_bytes.values()).sum()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    by_path: BTreeMap<String, ProgramNr>,
    pub(crate) tallies: Vec<ProgramOutcome>,
    nr_alive: u64,
    pub(crate) nr_alive_max: u64,
    pub(crate) nr_executed: u64,
    pub(crate) memory: MemoryUse,
    /// Bytes in use when the composition was last measured.
    pub(crate) looked_at_bytes: u64,
}

impl Programs {
    pub(crate) fn after(before: Self) -> Self {
        let nothing = |tally: ProgramOutcome| ProgramOutcome {
            path: tally.path,
            nr_processes: tally.nr_processes,
            ..ProgramOutcome::default()
        };
        Self { tallies: before.tallies.into_iter().map(nothing).collect(), ..before }
    }

    pub(crate) fn number(&mut self, path: &str) -> ProgramNr {
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

    pub(crate) fn number_of(&mut self, path: Option<&str>) -> ProgramNr {
        self.number(path.unwrap_or(OTHERS))
    }

    pub(crate) fn started(&mut self) {
        self.nr_alive += 1;
        self.nr_alive_max = self.nr_alive_max.max(self.nr_alive);
    }

    pub(crate) fn ended(&mut self, program: ProgramNr) {
        self.nr_alive -= 1;
        self.tallies[program].nr_processes += 1;
    }

    /// Records an execve that leaves program `before`; `counts` = the process executed it itself.
    pub(crate) fn executed(&mut self, before: ProgramNr, counts: bool) {
        self.nr_executed += 1;
        self.tallies[before].nr_processes += u64::from(counts);
    }

    pub(crate) fn add_space(&mut self, program: ProgramNr, folios: &FolioSizes) {
        self.tallies[program].folios.add(folios);
    }
}
