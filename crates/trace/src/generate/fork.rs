//! A process that forks to write snapshots of its memory while it keeps changing the memory, like
//! Redis.
//!
//! For each snapshot, the child reads every page in order and exits. During that time, the parent
//! writes pages chosen by Zipf's law, and the first write to each page copies it. After the child's
//! exit, the parent writes the same number of pages again, and reuses those that were not copied.

use super::{
    BASE, FILESYSTEM, GenerateError, Rng, Sink, Workload, command_of, meta_of, require,
    require_region, scattered,
};
use crate::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use crate::event::{Event, ExitKind, Op, ThreadId, mmap_flags};
use crate::meta::Meta;
use crate::validate::REFERENCE_PAGE_BYTES;

/// Maximum snapshots. Each is a process.
const NR_SNAPSHOTS_MAX: u64 = 10_000;

/// Options of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshots {
    /// Memory of the parent in bytes: a multiple of 4096, at most 1 TiB.
    pub anon_bytes: u64,
    /// Snapshots, 1 to 10,000.
    pub nr_snapshots: u64,
    /// Writes during a snapshot, and again after it, in percent of the pages; at most 100.
    pub write_percent: u64,
    /// Seed of the written pages.
    pub seed: u64,
}

impl Default for Snapshots {
    /// Three snapshots of 64 MiB, with writes to a fifth of the pages during each.
    fn default() -> Self {
        Self { anon_bytes: 64 << 20, nr_snapshots: 3, write_percent: 20, seed: 1 }
    }
}

impl Snapshots {
    fn nr_pages(&self) -> u64 {
        self.anon_bytes / REFERENCE_PAGE_BYTES
    }

    fn write(&self, rng: &mut Rng) -> Event {
        let page = scattered(rng.zipf(self.nr_pages()), self.nr_pages());
        Event::references(0, Op::Write, BASE + page * REFERENCE_PAGE_BYTES, 8)
    }

    fn snapshot(
        &self,
        child: ThreadId,
        rng: &mut Rng,
        sink: &mut Sink<'_>,
    ) -> Result<(), GenerateError> {
        sink(Event { aux: child.into(), ..Event::new(0, Op::Fork) })?;
        let nr_writes = self.nr_pages() * self.write_percent / 100;
        let mut nr_written = 0;
        for page in 0..self.nr_pages() {
            let addr = BASE + page * REFERENCE_PAGE_BYTES;
            sink(Event::references(child, Op::Read, addr, 512))?;
            // Spread evenly over the pages that the child reads.
            while nr_written < nr_writes * (page + 1) / self.nr_pages() {
                sink(self.write(rng))?;
                nr_written += 1;
            }
        }
        sink(Event { flags: ExitKind::Process as u32, ..Event::new(child, Op::Exit) })?;
        (0..nr_writes).try_for_each(|_| sink(self.write(rng)))
    }
}

impl Workload for Snapshots {
    fn validate(&self) -> Result<(), GenerateError> {
        require_region("anon_bytes", self.anon_bytes)?;
        let is_counted = (1..=NR_SNAPSHOTS_MAX).contains(&self.nr_snapshots);
        require(is_counted, "nr_snapshots", self.nr_snapshots, "it must be from 1 to 10,000")?;
        let percent = self.write_percent;
        require(percent <= 100, "write_percent", percent, "it must be at most 100")
    }

    fn meta(&self) -> Meta {
        let options = [
            ("anon-size", self.anon_bytes.to_string()),
            ("snapshots", self.nr_snapshots.to_string()),
            ("write-percent", self.write_percent.to_string()),
            ("seed", self.seed.to_string()),
        ];
        meta_of("fork", command_of("fork", &options, FILESYSTEM), self.seed, Vec::new())
    }

    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        self.validate()?;
        let mut rng = Rng::new(self.seed);
        let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        sink(Event { addr: BASE, len: self.anon_bytes, flags, ..Event::new(0, Op::Mmap) })?;
        for page in 0..self.nr_pages() {
            sink(Event::references(0, Op::Write, BASE + page * REFERENCE_PAGE_BYTES, 64))?;
        }
        for nr in 1..=self.nr_snapshots {
            let child = ThreadId::try_from(nr).unwrap_or(ThreadId::MAX);
            self.snapshot(child, &mut rng, sink)?;
        }
        sink(Event { flags: ExitKind::Process as u32, ..Event::new(0, Op::Exit) })
    }
}
