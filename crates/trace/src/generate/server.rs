//! A pre-forking server: workers inherit text and memory and answer requests concurrently.
//!
//! A request goes to a random worker, which executes text, reads and writes the inherited heap, and
//! writes its own memory. Zipf's law selects the pages. A worker that has answered its share of
//! requests exits, and the parent forks a replacement. With shared memory, the requests also read
//! and write that, as a database's do, and a process unmaps it before it exits.
//!
//! ```text
//!   slot 0   text, file 0, r-x private          the same page cache for all
//!   slot 1   heap, filled before the forks      shared until written
//!   slot 2   a worker's own memory              one for each worker
//!   slot 3   shared memory, if any              the same pages for all
//! ```

use super::{
    BASE, FILESYSTEM, GenerateError, REGION_BYTES_MAX, Rng, Sink, Workload, command_of, file_of,
    meta_of, require, require_region, scattered,
};
use crate::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::event::{Event, ExitKind, Op, ThreadId, mmap_flags};
use crate::meta::Meta;
use crate::validate::REFERENCE_PAGE_BYTES;

const NR_WORKERS_MAX: u64 = 10_000;
/// Maximum requests: each could be the last of a worker.
const NR_REQUESTS_MAX: u64 = 1 << 31;

const NR_TEXT: u64 = 24;
const NR_READS: u64 = 12;
const NR_WRITES: u64 = 2;
const NR_OWN: u64 = 6;
const NR_SHARED_READS: u64 = 12;
const NR_SHARED_WRITES: u64 = 4;
const SHARED: u64 = 3;
const RUN_MAX: u64 = 40;

/// Options of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Workers at a time, 1 to 10,000.
    pub nr_workers: u64,
    /// Length of the text in bytes: a multiple of 4096, at most 1 TiB.
    pub text_bytes: u64,
    /// Length of the inherited heap in bytes, with the same limits.
    pub heap_bytes: u64,
    /// Length of a worker's own memory in bytes, with the same limits.
    pub own_bytes: u64,
    /// Length of the memory that all processes share in bytes, with the same limits; 0 = none.
    pub shared_bytes: u64,
    /// Total requests.
    pub nr_requests: u64,
    /// Requests after which a worker is replaced; 0 = never.
    pub nr_requests_per_worker: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Filesystem name of the text.
    pub filesystem: String,
}

impl Default for Server {
    /// Eight workers that share 16 MiB of text and 64 MiB of heap.
    fn default() -> Self {
        Self {
            nr_workers: 8,
            text_bytes: 16 << 20,
            heap_bytes: 64 << 20,
            own_bytes: 8 << 20,
            shared_bytes: 0,
            nr_requests: 20_000,
            nr_requests_per_worker: 0,
            seed: 1,
            filesystem: FILESYSTEM.to_owned(),
        }
    }
}

impl Server {
    /// Maximum rows of a request. A worker's last request adds its exit, a fork and a mapping, and
    /// an unmapping of shared memory.
    #[must_use]
    pub const fn nr_rows_per_request_max(shared_bytes: u64) -> u64 {
        let shared = if shared_bytes > 0 { NR_SHARED_READS + NR_SHARED_WRITES + 1 } else { 0 };
        NR_TEXT + NR_READS + NR_WRITES + NR_OWN + 3 + shared
    }
}

struct Worker {
    thread: ThreadId,
    nr_answered: u64,
}

struct Running<'a, 'b> {
    server: &'a Server,
    rng: Rng,
    nr_threads: ThreadId,
    sink: &'a mut Sink<'b>,
}

const fn memory_flags(sharing: u32) -> u32 {
    mmap_flags(PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS)
}

const fn slot(number: u64) -> u64 {
    BASE + number * REGION_BYTES_MAX
}

impl Running<'_, '_> {
    fn map(
        &mut self,
        thread: ThreadId,
        (number, len): (u64, u64),
        flags: u32,
        file: Option<u32>,
    ) -> Result<(), GenerateError> {
        (self.sink)(Event { addr: slot(number), len, flags, file, ..Event::new(thread, Op::Mmap) })
    }

    fn rows(
        &mut self,
        (thread, op): (ThreadId, Op),
        nr: u64,
        (number, bytes): (u64, u64),
    ) -> Result<(), GenerateError> {
        let nr_pages = bytes / REFERENCE_PAGE_BYTES;
        for _ in 0..nr {
            let page = scattered(self.rng.zipf(nr_pages), nr_pages);
            let addr = slot(number) + page * REFERENCE_PAGE_BYTES;
            let nr_references = 1 + self.rng.below(RUN_MAX);
            (self.sink)(Event::references(thread, op, addr, nr_references))?;
        }
        Ok(())
    }

    fn worker(&mut self) -> Result<Worker, GenerateError> {
        self.nr_threads += 1;
        let thread = self.nr_threads;
        (self.sink)(Event { aux: thread.into(), ..Event::new(0, Op::Fork) })?;
        self.map(thread, (2, self.server.own_bytes), memory_flags(MAP_PRIVATE), None)?;
        Ok(Worker { thread, nr_answered: 0 })
    }

    fn request(&mut self, thread: ThreadId) -> Result<(), GenerateError> {
        let server = self.server;
        let (text, heap, own) =
            ((0, server.text_bytes), (1, server.heap_bytes), (2, server.own_bytes));
        self.rows((thread, Op::Exec), NR_TEXT, text)?;
        self.rows((thread, Op::Read), NR_READS, heap)?;
        self.rows((thread, Op::Write), NR_WRITES, heap)?;
        self.rows((thread, Op::Write), NR_OWN, own)?;
        if server.shared_bytes == 0 {
            return Ok(());
        }
        let shared = (SHARED, server.shared_bytes);
        self.rows((thread, Op::Read), NR_SHARED_READS, shared)?;
        self.rows((thread, Op::Write), NR_SHARED_WRITES, shared)
    }

    fn end(&mut self, thread: ThreadId) -> Result<(), GenerateError> {
        let len = self.server.shared_bytes;
        if len > 0 {
            (self.sink)(Event { addr: slot(SHARED), len, ..Event::new(thread, Op::Munmap) })?;
        }
        (self.sink)(Event { flags: ExitKind::Process as u32, ..Event::new(thread, Op::Exit) })
    }

    fn run(&mut self) -> Result<(), GenerateError> {
        let server = self.server;
        let text_flags = mmap_flags(PROT_READ | PROT_EXEC, MAP_PRIVATE);
        self.map(0, (0, server.text_bytes), text_flags, Some(0))?;
        self.map(0, (1, server.heap_bytes), memory_flags(MAP_PRIVATE), None)?;
        for page in 0..server.heap_bytes / REFERENCE_PAGE_BYTES {
            let addr = slot(1) + page * REFERENCE_PAGE_BYTES;
            (self.sink)(Event::references(0, Op::Write, addr, 16))?;
        }
        if server.shared_bytes > 0 {
            self.map(0, (SHARED, server.shared_bytes), memory_flags(MAP_SHARED), None)?;
        }
        let mut workers = Vec::new();
        for _ in 0..server.nr_workers {
            workers.push(self.worker()?);
        }
        for _ in 0..server.nr_requests {
            let nr = usize::try_from(self.rng.below(server.nr_workers)).unwrap_or(0);
            self.request(workers[nr].thread)?;
            workers[nr].nr_answered += 1;
            if workers[nr].nr_answered == server.nr_requests_per_worker {
                self.end(workers[nr].thread)?;
                workers[nr] = self.worker()?;
            }
        }
        workers.iter().try_for_each(|worker| self.end(worker.thread))?;
        self.end(0)
    }
}

impl Workload for Server {
    fn validate(&self) -> Result<(), GenerateError> {
        let is_counted = (1..=NR_WORKERS_MAX).contains(&self.nr_workers);
        require(is_counted, "nr_workers", self.nr_workers, "it must be from 1 to 10,000")?;
        require_region("text_bytes", self.text_bytes)?;
        require_region("heap_bytes", self.heap_bytes)?;
        require_region("own_bytes", self.own_bytes)?;
        if self.shared_bytes > 0 {
            require_region("shared_bytes", self.shared_bytes)?;
        }
        let nr = self.nr_requests;
        require(nr <= NR_REQUESTS_MAX, "nr_requests", nr, "it must be at most 2^31")
    }

    fn meta(&self) -> Meta {
        let shared = ("shared-size", self.shared_bytes.to_string());
        let mut options = vec![
            ("workers", self.nr_workers.to_string()),
            ("text-size", self.text_bytes.to_string()),
            ("heap-size", self.heap_bytes.to_string()),
            ("own-size", self.own_bytes.to_string()),
            ("requests", self.nr_requests.to_string()),
            ("requests-per-worker", self.nr_requests_per_worker.to_string()),
            ("seed", self.seed.to_string()),
        ];
        options.extend((self.shared_bytes > 0).then_some(shared));
        let files = vec![file_of("text", self.text_bytes, &self.filesystem)];
        meta_of("server", command_of("server", &options, &self.filesystem), self.seed, files)
    }

    fn emit(&self, sink: &mut Sink<'_>) -> Result<(), GenerateError> {
        self.validate()?;
        let rng = Rng::new(self.seed);
        Running { server: self, rng, nr_threads: 0, sink }.run()
    }
}
