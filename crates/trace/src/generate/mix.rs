//! A program-like mix: text, data files and anonymous memory, with some hot pages and many cold
//! ones.
//!
//! File 0 is text, mapped `r-x` and private. The other files are data, mapped shared and writable.
//! One region is anonymous. Every region has its own 1 TiB slot, starting at [`BASE`]. Each row is
//! a run of references to a page chosen by Zipf's law; a permutation spreads hot pages over their
//! region.

use super::{
    BASE, FILESYSTEM, GenerateError, REGION_BYTES_MAX, Rng, Sink, Workload, command_of, file_of,
    meta_of, require, require_region, scattered,
};
use crate::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::event::{Event, ExitKind, FileId, Op, mmap_flags};
use crate::meta::Meta;
use crate::validate::REFERENCE_PAGE_BYTES;

/// With the anonymous region, the files' slots end below 47 bits of address space.
const NR_FILES_MAX: u64 = 64;

/// Options of the mix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZipfMix {
    /// Text and data files, 1 to 64.
    pub nr_files: u64,
    /// Length of each file in bytes: a multiple of 4096, at most 1 TiB.
    pub file_bytes: u64,
    /// Length of the anonymous region in bytes: a multiple of 4096, at most 1 TiB.
    pub anon_bytes: u64,
    /// Rows of references.
    pub nr_runs: u64,
    /// Maximum references of a run; uniform from 1.
    pub run_max: u64,
    /// Percentage of the runs that execute text.
    pub exec_percent: u64,
    /// Percentage of the other runs that write.
    pub write_percent: u64,
    /// Percentage of the other runs that access anonymous memory; all if there is only one file.
    pub anon_percent: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Filesystem name of the files.
    pub filesystem: String,
}

impl Default for ZipfMix {
    /// A million runs over 32 MiB of text, three data files and 64 MiB of heap, with lackey's
    /// shares for a compiler: half are fetches, and a third of the rest are writes.
    fn default() -> Self {
        Self {
            nr_files: 4,
            file_bytes: 32 << 20,
            anon_bytes: 64 << 20,
            nr_runs: 1_000_000,
            run_max: 20,
            exec_percent: 50,
            write_percent: 33,
            anon_percent: 80,
            seed: 1,
            filesystem: FILESYSTEM.to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Region {
    addr: u64,
    nr_pages: u64,
}

impl Region {
    const fn slot(number: u64, bytes: u64) -> Self {
        Self { addr: BASE + number * REGION_BYTES_MAX, nr_pages: bytes / REFERENCE_PAGE_BYTES }
    }

    fn page(self, rank: u64) -> u64 {
        let page = scattered(rank, self.nr_pages);
        self.addr + page * REFERENCE_PAGE_BYTES
    }
}

impl ZipfMix {
    fn file(&self, file: u64) -> Region {
        Region::slot(file, self.file_bytes)
    }

    fn anon(&self) -> Region {
        Region::slot(self.nr_files, self.anon_bytes)
    }

    fn emit_maps(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        for file in 0..self.nr_files {
            let flags = match file {
                0 => mmap_flags(PROT_READ | PROT_EXEC, MAP_PRIVATE),
                _ => mmap_flags(PROT_READ | PROT_WRITE, MAP_SHARED),
            };
            let region = self.file(file);
            let range = Event { addr: region.addr, len: self.file_bytes, ..map() };
            sink(Event { flags, file: FileId::try_from(file).ok(), ..range })?;
        }
        let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        sink(Event { addr: self.anon().addr, len: self.anon_bytes, flags, ..map() })
    }

    fn run(&self, rng: &mut Rng) -> Event {
        let (op, region) = self.target(rng);
        let addr = region.page(rng.zipf(region.nr_pages));
        Event::references(0, op, addr, 1 + rng.below(self.run_max))
    }

    fn target(&self, rng: &mut Rng) -> (Op, Region) {
        if rng.below(100) < self.exec_percent {
            return (Op::Exec, self.file(0));
        }
        let op = if rng.below(100) < self.write_percent { Op::Write } else { Op::Read };
        if self.nr_files == 1 || rng.below(100) < self.anon_percent {
            return (op, self.anon());
        }
        (op, self.file(1 + rng.zipf(self.nr_files - 1)))
    }
}

fn map() -> Event {
    Event::new(0, Op::Mmap)
}

impl Workload for ZipfMix {
    fn validate(&self) -> Result<(), GenerateError> {
        let is_counted = (1..=NR_FILES_MAX).contains(&self.nr_files);
        require(is_counted, "nr_files", self.nr_files, "it must be from 1 to 64")?;
        require_region("file_bytes", self.file_bytes)?;
        require_region("anon_bytes", self.anon_bytes)?;
        let is_run = (1..=1 << 32).contains(&self.run_max);
        require(is_run, "run_max", self.run_max, "it must be from 1 to 2^32")?;
        for (option, percent) in [
            ("exec_percent", self.exec_percent),
            ("write_percent", self.write_percent),
            ("anon_percent", self.anon_percent),
        ] {
            require(percent <= 100, option, percent, "it must be at most 100")?;
        }
        Ok(())
    }

    fn meta(&self) -> Meta {
        let options = [
            ("files", self.nr_files.to_string()),
            ("file-size", self.file_bytes.to_string()),
            ("anon-size", self.anon_bytes.to_string()),
            ("runs", self.nr_runs.to_string()),
            ("run-max", self.run_max.to_string()),
            ("exec-percent", self.exec_percent.to_string()),
            ("write-percent", self.write_percent.to_string()),
            ("anon-percent", self.anon_percent.to_string()),
            ("seed", self.seed.to_string()),
        ];
        let name_of = |file| if file == 0 { "text".to_owned() } else { format!("data-{file}") };
        let files = (0..self.nr_files.min(NR_FILES_MAX))
            .map(|file| file_of(&name_of(file), self.file_bytes, &self.filesystem));
        let command = command_of("zipf", &options, &self.filesystem);
        meta_of("zipf-mix", command, self.seed, files.collect())
    }

    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        self.validate()?;
        let mut rng = Rng::new(self.seed);
        self.emit_maps(sink)?;
        for _ in 0..self.nr_runs {
            sink(self.run(&mut rng))?;
        }
        sink(Event { flags: ExitKind::Process as u32, ..Event::new(0, Op::Exit) })
    }
}
