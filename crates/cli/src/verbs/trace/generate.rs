//! `folio trace gen`.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use largefolio_results::figures;
use largefolio_trace::generate::{
    Advice, GenerateError, Library, LinkedFor, RandomReads, ReadWay, RetStubs, SequentialReads,
    Server, Snapshots, SweepOrder, Workload, ZipfMix,
};
use largefolio_trace::shown;

use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::values::{number, size};
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Generate a synthetic trace
///
/// The same options and seed produce the same events on every machine.
#[derive(Args, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  folio trace gen ret-stubs -o stubs.folio
  folio trace gen sequential --file-size 1G --mapped -o seq.folio
  folio trace gen zipf --runs 5000000 --seed 7 -o mix.folio
  folio trace gen library --text-size 8M --opened-at 50 -o library.folio
  folio trace gen server --workers 100 --requests-per-worker 50 -o server.folio
  folio trace gen server --shared-size 128M -o database.folio"
)]
pub(crate) struct GenArgs {
    #[command(subcommand)]
    workload: GenVerb,
}

#[derive(Debug, Subcommand)]
enum GenVerb {
    RetStubs(RetStubsArgs),
    Sequential(SequentialArgs),
    Random(RandomArgs),
    Zipf(ZipfArgs),
    Library(LibraryArgs),
    Fork(ForkArgs),
    Server(ServerArgs),
}

/// Options that every workload accepts.
#[derive(Args, Debug)]
struct CommonArgs {
    /// Filesystem for the files
    #[arg(long = "fs", value_name = "NAME", default_value = "ext4")]
    filesystem: String,
    /// Trace to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// One function per page: a sweep over all of them, then random calls (series 002)
#[derive(Args, Debug)]
struct RetStubsArgs {
    /// Number of functions, each on its own page
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = number::<u64>)]
    pages: u64,
    /// Distance between functions, in bytes
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size)]
    stub_size: u64,
    /// Order in which the sweep visits the pages
    #[arg(long, value_enum, default_value_t = Order::Random)]
    order: Order,
    /// Number of random calls after the sweep
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = number::<u64>)]
    calls: u64,
    /// madvise before the sweep
    #[arg(long, value_enum, default_value_t = Advised::None)]
    advice: Advised,
    /// Seed for the random orders
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>)]
    seed: u64,
    #[command(flatten)]
    common: CommonArgs,
}

/// A file read from its first byte to its last
#[derive(Args, Debug)]
struct SequentialArgs {
    /// Size of the file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    file_size: u64,
    /// Bytes per read
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = size)]
    read_size: u64,
    /// Read through a mapping instead of with pread
    #[arg(long)]
    mapped: bool,
    #[command(flatten)]
    common: CommonArgs,
}

/// Reads at random positions in a file
#[derive(Args, Debug)]
struct RandomArgs {
    /// Size of the file
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    file_size: u64,
    /// Bytes per read
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = size)]
    read_size: u64,
    /// Reads
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = number::<u64>)]
    reads: u64,
    /// Read through a mapping instead of with pread
    #[arg(long)]
    mapped: bool,
    /// Seed for the positions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>)]
    seed: u64,
    #[command(flatten)]
    common: CommonArgs,
}

/// A program: text, data files and heap, each with a few hot and many cold pages
#[derive(Args, Debug)]
struct ZipfArgs {
    /// Number of files: the first is text, the others are data
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number::<u64>)]
    files: u64,
    /// Size of each file
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = size)]
    file_size: u64,
    /// Size of the heap
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    anon_size: u64,
    /// Number of runs; a run references one page repeatedly
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = number::<u64>)]
    runs: u64,
    /// References in the longest run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number::<u64>)]
    run_max: u64,
    /// Percentage of the runs that execute text
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = number::<u64>)]
    exec_percent: u64,
    /// Percentage of the other runs that write
    #[arg(long, value_name = "PERCENT", default_value_t = 33, value_parser = number::<u64>)]
    write_percent: u64,
    /// Percentage of the other runs that access the heap
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = number::<u64>)]
    anon_percent: u64,
    /// Seed for all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>)]
    seed: u64,
    #[command(flatten)]
    common: CommonArgs,
}

/// A program that runs code in a shared library, which another process may open for writing (series
/// 003)
#[derive(Args, Debug)]
struct LibraryArgs {
    /// Size of the library's text
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size)]
    text_size: u64,
    /// Size of the program's own text
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = size)]
    program_size: u64,
    /// Page size for which the library is linked and placed
    #[arg(long, value_enum, default_value_t = MaxPage::Huge)]
    max_page_size: MaxPage,
    /// Number of runs; a run fetches from one page repeatedly
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = number::<u64>)]
    calls: u64,
    /// Fetches in the longest run
    #[arg(long, value_name = "N", default_value_t = 137, value_parser = number::<u64>)]
    run_max: u64,
    /// Percentage of the calls that run the program's own text
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = number::<u64>)]
    program_percent: u64,
    /// Percentage of the calls after which a process opens the library for writing
    #[arg(long, value_name = "PERCENT", value_parser = number::<u64>)]
    opened_at: Option<u64>,
    /// Percentage of the calls after which that process closes the library
    #[arg(long, value_name = "PERCENT", requires = "opened_at", value_parser = number::<u64>)]
    closed_at: Option<u64>,
    /// Seed for the calls
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>)]
    seed: u64,
    #[command(flatten)]
    common: CommonArgs,
}

/// A process that forks children to write snapshots while it keeps changing its memory (series 004)
#[derive(Args, Debug)]
struct ForkArgs {
    /// Size of the process's memory
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    anon_size: u64,
    /// Number of snapshots; each forks a child
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = number::<u64>)]
    snapshots: u64,
    /// Percentage of the pages that are written during a snapshot, and again after it
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = number::<u64>)]
    write_percent: u64,
    /// Seed for the choice of pages to write
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>)]
    seed: u64,
    #[command(flatten)]
    common: CommonArgs,
}

/// A server with forked workers that inherit its text and heap and handle requests concurrently
#[derive(Args, Debug)]
struct ServerArgs {
    /// Number of concurrent workers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = number::<u64>)]
    workers: u64,
    /// Size of the program's text
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size)]
    text_size: u64,
    /// Size of the heap that the workers inherit
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    heap_size: u64,
    /// Size of the memory that each worker maps for itself
    #[arg(long, value_name = "SIZE", default_value = "8M", value_parser = size)]
    own_size: u64,
    /// Size of memory that all processes share, as a database's buffers or a guest's memory; 0 means
    /// none
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size)]
    shared_size: u64,
    /// Total number of requests; each adds 44 rows, and 16 more with shared memory
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = number::<u64>)]
    requests: u64,
    /// Number of requests after which a worker is replaced; 0 means never
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = number::<u64>)]
    requests_per_worker: u64,
    /// Seed for all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u64>)]
    seed: u64,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MaxPage {
    /// 4 KiB: no PMD entry can map its text
    #[value(name = "4k")]
    Base,
    /// 2 MiB
    #[value(name = "2m")]
    Huge,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    Sequential,
    Random,
    Backward,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Advised {
    None,
    Random,
    Sequential,
    Hugepage,
    Nohugepage,
}

pub(crate) struct GenPlan {
    workload: Box<dyn Workload>,
    output: PathBuf,
}

impl VerbArgs for GenArgs {
    type Plan = GenPlan;

    fn plan(self, _invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let (workload, common): (Box<dyn Workload>, CommonArgs) = match self.workload {
            GenVerb::RetStubs(args) => args.workload(),
            GenVerb::Sequential(args) => args.workload(),
            GenVerb::Random(args) => args.workload(),
            GenVerb::Zipf(args) => args.workload(),
            GenVerb::Library(args) => args.workload(),
            GenVerb::Fork(args) => args.workload(),
            GenVerb::Server(args) => args.workload(),
        };
        workload.validate().map_err(describe_error)?;
        Ok(GenPlan { workload, output: common.output })
    }
}

impl VerbPlan for GenPlan {
    fn run(self, _console: &mut Console) -> Result<Exit> {
        let summary = self.workload.write(&self.output).map_err(describe_error)?;
        console::say(&format!(
            "folio: generated {}: {} references in {} rows, {}",
            shown(&summary.path),
            figures::count(summary.nr_references),
            figures::count(summary.nr_rows),
            figures::bytes(summary.file_bytes),
        ));
        Ok(Exit::Done)
    }
}

type WorkloadWithArgs = (Box<dyn Workload>, CommonArgs);

impl RetStubsArgs {
    fn workload(self) -> WorkloadWithArgs {
        let workload = RetStubs {
            nr_pages: self.pages,
            stub_bytes: self.stub_size,
            order: match self.order {
                Order::Sequential => SweepOrder::Sequential,
                Order::Random => SweepOrder::Random,
                Order::Backward => SweepOrder::Backward,
            },
            nr_calls: self.calls,
            advice: match self.advice {
                Advised::None => Advice::None,
                Advised::Random => Advice::Random,
                Advised::Sequential => Advice::Sequential,
                Advised::Hugepage => Advice::HugePage,
                Advised::Nohugepage => Advice::NoHugePage,
            },
            seed: self.seed,
            filesystem: self.common.filesystem.clone(),
        };
        (Box::new(workload), self.common)
    }
}

impl SequentialArgs {
    fn workload(self) -> WorkloadWithArgs {
        let workload = SequentialReads {
            file_bytes: self.file_size,
            read_bytes: self.read_size,
            way: read_way(self.mapped),
            filesystem: self.common.filesystem.clone(),
        };
        (Box::new(workload), self.common)
    }
}

impl RandomArgs {
    fn workload(self) -> WorkloadWithArgs {
        let workload = RandomReads {
            file_bytes: self.file_size,
            read_bytes: self.read_size,
            nr_reads: self.reads,
            way: read_way(self.mapped),
            seed: self.seed,
            filesystem: self.common.filesystem.clone(),
        };
        (Box::new(workload), self.common)
    }
}

impl ZipfArgs {
    fn workload(self) -> WorkloadWithArgs {
        let workload = ZipfMix {
            nr_files: self.files,
            file_bytes: self.file_size,
            anon_bytes: self.anon_size,
            nr_runs: self.runs,
            run_max: self.run_max,
            exec_percent: self.exec_percent,
            write_percent: self.write_percent,
            anon_percent: self.anon_percent,
            seed: self.seed,
            filesystem: self.common.filesystem.clone(),
        };
        (Box::new(workload), self.common)
    }
}

impl LibraryArgs {
    fn workload(self) -> WorkloadWithArgs {
        let workload = Library {
            text_bytes: self.text_size,
            program_bytes: self.program_size,
            linked_for: match self.max_page_size {
                MaxPage::Base => LinkedFor::Base,
                MaxPage::Huge => LinkedFor::Huge,
            },
            nr_calls: self.calls,
            run_max: self.run_max,
            program_percent: self.program_percent,
            opened_at: self.opened_at,
            closed_at: self.closed_at,
            seed: self.seed,
            filesystem: self.common.filesystem.clone(),
        };
        (Box::new(workload), self.common)
    }
}

impl ForkArgs {
    fn workload(self) -> WorkloadWithArgs {
        let workload = Snapshots {
            anon_bytes: self.anon_size,
            nr_snapshots: self.snapshots,
            write_percent: self.write_percent,
            seed: self.seed,
        };
        (Box::new(workload), self.common)
    }
}

impl ServerArgs {
    fn workload(self) -> WorkloadWithArgs {
        let workload = Server {
            nr_workers: self.workers,
            text_bytes: self.text_size,
            heap_bytes: self.heap_size,
            own_bytes: self.own_size,
            shared_bytes: self.shared_size,
            nr_requests: self.requests,
            nr_requests_per_worker: self.requests_per_worker,
            seed: self.seed,
            filesystem: self.common.filesystem.clone(),
        };
        (Box::new(workload), self.common)
    }
}

fn read_way(is_mapped: bool) -> ReadWay {
    if is_mapped { ReadWay::Mapped } else { ReadWay::Pread }
}

fn describe_error(error: GenerateError) -> anyhow::Error {
    let GenerateError::Option { option, value, rule } = error else { return error.into() };
    let name = option.strip_prefix("nr_").unwrap_or(option).replace("_bytes", "-size");
    anyhow!("--{} is {value}: {rule}", name.replace('_', "-"))
}
