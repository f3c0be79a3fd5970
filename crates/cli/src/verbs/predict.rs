//! `folio predict`.

mod form;
mod list;
mod perf_stat;
pub(super) mod replay;
mod swap;
mod sweep;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use largefolio_results::anchor::{self, AnchorRequest};
use largefolio_results::predict::sweep::SweepRequest;
use largefolio_results::predict::text::Depth;
use largefolio_results::predict::{Goal, Settings};
use largefolio_sim::cost::Walks;
use largefolio_sim::explain;
use largefolio_sim::kernel::{Kernel, with_policies};
use largefolio_sim::machine::{Machine, NR_CPUS_MAX};
use largefolio_sim::policy::KernelPolicy;
use largefolio_sim::replay::clock::NS_PER_REFERENCE;
use largefolio_sim::replay::request::numa::Numa;
use largefolio_sim::replay::request::{AGED_ROUNDS_MAX, Detail};
use largefolio_sim::replay::{
    self as sim, Allocator, Annotation, CacheState, Cgroup, FACTOR_MAX, Fragmented, LinkedChoices,
    SettingChange,
};
use largefolio_sim::size;
use largefolio_trace::OpenTrace;
use largefolio_trace::disk::{self, MadeDirs};
use largefolio_trace::shown;

use super::confined;
use super::names;
use super::page_file::{check_writable, is_same};
use super::running;
use super::values;
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};
use form::{FrameArgs, Sink};
use replay::ReplayPlan;
use swap::SwapSpace;
use sweep::{Summary, SweepPlan};

/// The warning if seeds have no effect.
const IDLE_SEEDS: &str = "seeds have no effect on unfragmented memory; add --fragmentation, such \
                          as --fragmentation 64K:80%, or --aged";

/// Predict how a recorded program behaves under other kernels and machines
///
/// Replays a trace in a model of each kernel on each machine. Reports which is best, by how much,
/// how certain that is, and which rules make the difference. Then prints a table with one column
/// per combination. The first column is the baseline; the others show how they differ from it. The
/// program itself does not run. Every number is an exact count, except the times, which are
/// estimates.
#[derive(Args, Debug)]
#[command(
    after_help = "Use --list to see every kernel, machine and edit.",
    after_long_help = "\
Examples:
  folio predict cc1.folio
  folio predict cc1.folio --kernel this,7.2 --goal memory
  folio predict cc1.folio --kernel 6.12,7.2 --machine altra --full
  folio predict cc1.folio --kernel 6.12,6.12+exec-block=64K --machine altra --fs xfs
  folio predict cc1.folio --kernel 7.2,7.2+page=64K --machine altra,grace-64k --warm
  folio predict cc1.folio --fragmentation 500 --seed 1,2,3 --csv -o cells.csv
  folio predict cc1.folio --kernel 6.18 --memory 256M --aged 20 --fragmentation 64K:50%
  folio predict cc1.folio --kernel 6.12,7.2 --memory 64M,16G --parquet -o cells.parquet
  folio predict cc1.folio --kernel 7.2,7.2+sizes=2M:exec/64K:always --machine altra
  folio predict cc1.folio --kernel 6.12 --annotate cc1=64K --annotate '*.so*=64K'
  folio predict cc1.folio --kernel 6.12 --annotate cc1=collapse:64K
  folio predict cc1.folio --kernel 7.2 --linked 4K,2M
  folio predict cc1.folio --kernel 7.2 --memory 64M,128M,256M --swap 1G
  folio predict cc1.folio --kernel 6.12,7.3 --cgroup 24M --swap zswap:1G,ratio=2.5,pool=30%
  folio predict cc1.folio --kernel 7.2,7.2+lru=lists --cgroup 24M
  folio predict cc1.folio --machine cascadelake --time --nested
  folio predict cc1.folio --kernel 6.18 --at 50%:thp=always
  sudo folio predict job.folio --machine this --anchor
  folio predict cc1.folio --kernel 6.16 --machine altra --policy exec-order
  folio predict cc1.folio --kernel 6.12,7.2 --report cc1.html
  folio predict cc1.folio --kernel 6.12,7.2 --why
  folio predict *.folio --kernel 6.12,7.2 --machine altra,zen4 --sweep results
  folio predict --list

A kernel is a name (6.12), `this` (the running kernel with its settings), a file (./mine.toml) or
any of these with edits: 7.2+page=64K+readahead=1M. An edit uses a short name, or the name of any
rule in a kernel file: 7.2+fault.exec_miss=counted. Some edits create rules that no kernel has:
sizes=64K:always+exec/2M:always uses 64K folios for text and data, 2M folios for data only, and
otherwise base pages; sizes.xfs=.. does this for one filesystem. A machine is a name (altra), a
file, or `this`, which `folio calibrate` writes. --list shows every kernel, machine and edit."
)]
pub(crate) struct PredictArgs {
    /// Trace from `folio record` or `folio trace gen`; several with --sweep
    #[arg(value_name = "TRACE", required_unless_present = "list")]
    trace: Vec<PathBuf>,
    #[command(flatten)]
    columns: ColumnArgs,
    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    program: ProgramArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What to compare: one column for each combination.
#[derive(Args, Debug)]
#[command(next_help_heading = "Kernels and machines")]
struct ColumnArgs {
    /// Kernels, with edits; the first is the baseline [default: this, the next version and the
    /// newest, with this system's settings]
    #[arg(long, value_name = "KERNEL,..", value_delimiter = ',', value_parser = names::KERNEL,
        hide_possible_values = true)]
    kernel: Vec<String>,
    /// Add a column per kernel in which a policy makes the kernel's decisions: a policy that comes
    /// with folio, or a BPF object file (docs/guide/policy.md)
    #[arg(long, value_name = "POLICY,..", value_delimiter = ',', value_parser = names::POLICY,
        hide_possible_values = true)]
    policy: Vec<String>,
    /// Machines [default: this machine if `folio calibrate` has measured it, else the closest known
    /// one]
    #[arg(long, value_name = "MACHINE,..", value_delimiter = ',', value_parser = names::MACHINE,
        hide_possible_values = true)]
    machine: Vec<String>,
    /// Seeds for fragmentation and ageing: one column per seed
    #[arg(
        long, value_name = "N,..", value_delimiter = ',', default_value = "1",
        value_parser = values::number::<u64>,
    )]
    seed: Vec<u64>,
    /// Goal by which the columns are ranked
    #[arg(long, value_name = "time|memory|faults", default_value = "time",
        value_parser = str::parse::<Goal>,
        conflicts_with_all = ["csv", "parquet", "sweep"])]
    goal: Goal,
}

/// The memory when the program starts.
#[derive(Args, Debug)]
#[command(next_help_heading = "Memory")]
struct MemoryArgs {
    /// Physical memory: one column per size
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', default_value = "16G",
        value_parser = size::memory)]
    memory: Vec<u64>,
    /// Swap space, on zram or, with `+reclaim.swap_device=disk`, on a disk; without swap, private
    /// memory is never reclaimed. With zswap:SIZE, zswap compresses pages in memory before they go
    /// to a disk of this size. After it, any of: pool=20% and accept=90%, its largest share of the
    /// memory, and of the pool below which a full one takes pages again; ratio=3, how well pages
    /// compress; raw=5%, the share of pages that do not; max=64M and writeback=off, the limits of
    /// control groups (memory.zswap.max, memory.zswap.writeback); device=zram
    #[arg(long, value_name = "[zswap:]SIZE", default_value = "0", value_parser = str::parse::<SwapSpace>)]
    swap: SwapSpace,
    /// Run everything, or PROGRAM (a name or path; `*` and `?` are allowed) and the processes it
    /// starts, in a control group with memory.max = LIMIT; may be repeated
    #[arg(long, value_name = "[PROGRAM=]LIMIT", value_parser = str::parse::<Cgroup>)]
    cgroup: Vec<Cgroup>,
    /// Change a setting of the running system when the program has made this share of the trace's
    /// rows, such as 50%:thp=always; may be repeated. Memory that is in use by then stays as it is
    #[arg(long, value_name = "SHARE:SETTING", value_parser = str::parse::<SettingChange>)]
    at: Vec<SettingChange>,
    /// Number of huge pages that the kernel reserves at boot for mappings with `MAP_HUGETLB`, such
    /// as 2M=64,1G=1
    #[arg(long, value_name = "SIZE=N,..", value_delimiter = ',', value_parser = pool)]
    hugetlb_pages: Vec<Pool>,
    /// Fragmentation at the start: 64K:80% means that 80% of the free memory is in blocks smaller
    /// than 64K; a plain number is the share of the free memory, in thousandths, that has no room
    /// for a PMD folio
    #[arg(long, value_name = "SIZE:SHARE", default_value = "0",
        value_parser = str::parse::<Fragmented>)]
    fragmentation: Fragmented,
    /// Age memory before the program starts: in N rounds, other programs allocate and free folios
    /// of the sizes that the kernel uses
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = values::within::<u32>(0..=AGED_ROUNDS_MAX))]
    aged: u32,
    #[command(flatten)]
    cache: CacheArgs,
}

/// How the program runs.
#[derive(Args, Debug)]
#[command(next_help_heading = "Program")]
struct ProgramArgs {
    /// Filesystem for all files; `none` is one without large folios [default: as recorded]
    #[arg(long = "fs", value_name = "NAME")]
    filesystem: Option<String>,
    /// Folio size that the loader requests when it maps FILE (a name or path; `*` and `?` are
    /// allowed). It overrides the kernel's rules. With FILE=collapse:SIZE, the loader instead
    /// collapses the text after mapping it. May be repeated
    #[arg(long, value_name = "FILE=SIZE", value_parser = str::parse::<Annotation>)]
    annotate: Vec<Annotation>,
    /// Lay out FILE (a name or path; `*` and `?` are allowed), or all programs and libraries, as if
    /// linked for pages of SIZE (-z max-page-size): one column per size; may be repeated [default:
    /// as recorded]
    #[arg(long, value_name = "[FILE=]SIZE,..", value_parser = str::parse::<LinkedChoices>)]
    linked: Vec<LinkedChoices>,
    /// As if the allocator advised huge pages: for the memory of glibc's malloc (`malloc`:
    /// glibc.malloc.hugetlb=1, the default of glibc 2.43 on arm64), or for all private mappings of 2M
    /// or more (`mappings`: jemalloc with thp:always, mimalloc)
    #[arg(long, value_name = "malloc|mappings", conflicts_with = "sweep", value_parser = str::parse::<Allocator>)]
    advise: Option<Allocator>,
    /// Run the trace's threads on N CPUs [default: the machine's number of CPUs]
    #[arg(long, value_name = "N",
        value_parser = values::within::<u32>(1..=NR_CPUS_MAX))]
    cpus: Option<u32>,
    /// Run the program as numactl does, on a machine with NUMA nodes: on the CPUs of node=N [default:
    /// 0], with a memory policy: bind=N, preferred=N, interleave=N-N, preferred-many=N+N,
    /// weighted-interleave=N-N or local. It moves to another node's CPUs with node=N@SHARE%, and
    /// NUMA balancing marks its pages after each SHARE of the trace with balance=SHARE%
    #[arg(long, value_name = "[node=N,]POLICY", value_parser = str::parse::<Numa>)]
    numa: Option<Numa>,
    /// Time that passes for khugepaged and kcompactd per reference, in nanoseconds; with 0, neither
    /// runs
    #[arg(
        long, value_name = "NS", default_value_t = NS_PER_REFERENCE,
        value_parser = values::number::<u64>,
    )]
    reference_ns: u64,
    /// Run time of the program, such as 12.3s or 250ms; changes are percentages of it [default: the
    /// time that `folio record --runs` measured on this machine's CPU, else an estimate]
    #[arg(long, value_name = "TIME", value_parser = run_time)]
    runtime: Option<f64>,
    /// Output of `perf stat` for this program (text, -x or -j), on a machine with the CPU of the
    /// first --machine. Its time, cycles, TLB misses and cycles of page walks replace those of
    /// `folio record --runs`; one file per run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "anchor"])]
    perf_stat: Vec<PathBuf>,
    /// Estimate for a virtual machine: page walks go through two page tables
    #[arg(long)]
    nested: bool,
    /// First measure how long this program waits for page walks: run the trace's command here, 9
    /// times under each of up to four settings of large folios, without input and output. Keep the result
    /// with the trace, as TRACE.anchor.json; every later prediction for this CPU uses it
    #[arg(long, conflicts_with = "sweep")]
    anchor: bool,
}

/// Where distributions keep programs and libraries.
const PROGRAMS: &str = "/usr";

/// How much work the prediction may take.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
struct LimitArgs {
    /// Stop after this time, such as 2m, and show the columns completed by then
    #[arg(long, value_name = "TIME", value_parser = values::duration, conflicts_with_all = ["sweep", "why"])]
    within: Option<Duration>,
    /// Multiply the limits on the work and memory that a trace may require by N; if a trace exceeds
    /// a limit, the error suggests this option
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = values::within::<u64>(1..=FACTOR_MAX))]
    max_work: u64,
}

/// Which results, where, and in which format.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
struct OutputArgs {
    /// Show which rules make the difference between two kernels, and how much each contributes, for
    /// these results, named as in the CSV, such as `reads` [default: walks, faults, bytes read,
    /// memory, time]
    #[arg(long, value_name = "RESULT,..", value_delimiter = ',', num_args = 0..=1,
        require_equals = true,
        conflicts_with_all = ["sweep", "parquet", "time", "runtime"])]
    why: Option<Vec<String>>,
    #[command(flatten)]
    also: AlsoArgs,
    /// Find the smallest memory limit (memory.max, without swap) in which the program runs, and what
    /// smaller limits cost in time
    #[arg(long, conflicts_with_all = ["sweep", "why", "cgroup", "report", "csv", "parquet", "time"])]
    fit: bool,
    #[command(flatten)]
    depth: DepthArgs,
    #[command(flatten)]
    form: FrameArgs,
    /// Write the result to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write a self-contained HTML file with charts
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Add the results from all traces to the data set in this directory, one row per cell; cells
    /// already there are not computed again
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["csv", "parquet", "output", "report", "time", "runtime"])]
    sweep: Option<PathBuf>,
    /// List the kernels, machines and edits, then exit
    #[arg(long, exclusive = true)]
    list: bool,
}

/// The options that observe more during the replay.
#[derive(Args, Clone, Debug)]
struct AlsoArgs {
    /// Also show where the page walks are: the addresses and the code with the most, and the regions
    /// that save most of them in another column
    #[arg(long = "where", conflicts_with_all = ["sweep", "why"])]
    has_regions: bool,
    /// As root, also read the names of functions from this file, or from files below this directory,
    /// in addition to /usr; may be repeated
    #[arg(long, value_name = "PATH", requires = "has_regions")]
    symbols: Vec<PathBuf>,
    /// Also show how long page faults take (median, 99%, longest), and where the time of the slowest
    /// goes
    #[arg(long = "latency", conflicts_with_all = ["sweep", "why"])]
    has_fault_times: bool,
}

/// The options that choose how much the table shows.
#[derive(Args, Clone, Copy, Debug)]
struct DepthArgs {
    /// Show all numbers, not only the summary
    #[arg(long, conflicts_with_all = ["csv", "json", "parquet", "sweep", "why"])]
    full: bool,
    /// Also show the estimated time by cause, and the constants used in the estimate
    #[arg(long)]
    time: bool,
}

impl From<DepthArgs> for Depth {
    fn from(args: DepthArgs) -> Self {
        match args {
            DepthArgs { full: true, .. } => Self::Full,
            DepthArgs { time: true, .. } => Self::Time,
            DepthArgs { .. } => Self::Brief,
        }
    }
}

#[derive(Args, Clone, Copy, Debug)]
struct CacheArgs {
    /// Start with an empty page cache (the default)
    #[arg(long)]
    cold: bool,
    /// Start with the page cache left behind by an earlier run
    #[arg(long, conflicts_with = "cold")]
    warm: bool,
}

pub(crate) enum PredictPlan {
    List,
    Replay(Box<ReplayPlan>),
    Sweep(Box<SweepPlan>),
}

fn run_time(text: &str) -> Result<f64, String> {
    let possible = values::time_ns(text).filter(|ns| (1e3..=1e18).contains(ns));
    possible.ok_or_else(|| "expected a time such as 12.3s, 250ms or 5m".to_owned())
}

/// A pool of huge pages.
#[derive(Clone, Copy, Debug)]
struct Pool {
    kib: u64,
    nr_pages: u64,
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+hugepages.{}={}", self.kib, self.nr_pages)
    }
}

fn pool(text: &str) -> Result<Pool, String> {
    let parsed = text.split_once('=').and_then(|(bytes, nr)| {
        let kib = size::parse_bytes(bytes).filter(|bytes| bytes.is_power_of_two())? >> 10;
        Some(Pool { kib, nr_pages: nr.parse().ok()? })
    });
    parsed.ok_or_else(|| "expected a size and a number of pages, such as 2M=64".to_owned())
}

/// Returns the word if it is not a file but could be the name of a kernel or machine.
fn kernel_or_machine(path: &Path) -> Option<&str> {
    let name = path.to_str().filter(|_| !path.exists())?;
    (Kernel::parse(name).is_ok() || Machine::named(name).is_ok()).then_some(name)
}

impl VerbArgs for PredictArgs {
    type Plan = PredictPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        if self.output.list {
            return Ok(PredictPlan::List);
        }
        // The files that kernels, machines and policies name are not known yet.
        let everything = [PathBuf::from("/")];
        let made = if let Some(dir) = &self.output.sweep {
            if dir.to_string_lossy().contains("://") {
                bail!(
                    "--sweep takes a directory on this machine, not {}; Python's largefolio.sweep \
                     can write to object storage",
                    shown(dir)
                );
            }
            confined::to_fill(&everything, dir)?
        } else {
            // The program and the settings of --anchor need the rights that this would drop.
            if !self.program.anchor {
                confined::to(&everything, self.results());
            }
            MadeDirs::default()
        };
        let request = self.request()?;
        if let Some(dir) = self.output.sweep.clone() {
            confined::to_fill_made(&self.trace, &dir, &made);
            let summary = if self.output.form.is_json() { Summary::Json } else { Summary::Text };
            let (traces, copies) = (self.trace.clone(), BTreeMap::new());
            let request = SweepRequest { command_line, traces, copies, cells: request };
            return Ok(PredictPlan::Sweep(Box::new(SweepPlan { dir, request, summary, made })));
        }
        let [trace] = self.trace.as_slice() else {
            if let Some(name) = self.trace.iter().find_map(|path| kernel_or_machine(path)) {
                bail!(
                    "{name} is interpreted as a trace; separate kernels and machines with commas, \
                     such as --kernel 6.12,7.2"
                );
            }
            bail!(
                "{} traces do not fit in one table; add --sweep DIR to write one data set, or \
                 name one trace",
                self.trace.len()
            );
        };
        let mut specs = request.specs()?;
        if self.output.why.is_some() {
            explain::check(&request)?;
        }
        let runs = perf_stat::read(&self.program.perf_stat)?;
        let (mut trace, anchor) = self.open(trace, &request, &mut specs)?;
        perf_stat::give(runs, &mut trace, &mut specs)?;
        Ok(PredictPlan::Replay(Box::new(ReplayPlan {
            trace,
            specs,
            anchor,
            settings: Settings::new(&request),
            form: self.output.form.form(self.sink())?,
            depth: self.output.depth.into(),
            goal: self.columns.goal,
            run_time_ns: self.program.runtime,
            within: self.limits.within,
            why: self.output.why.clone(),
            has_fit: self.output.fit,
            output: self.output.output.clone(),
            report: self.output.report.clone(),
            command_line,
            has_idle_seeds: request.has_idle_seeds(),
        })))
    }
}

impl PredictArgs {
    /// Opens the trace and gives the cells its anchor, or prepares to measure it.
    fn open(
        &self,
        path: &Path,
        request: &sim::ReplayRequest,
        specs: &mut [sim::CellSpec],
    ) -> Result<(OpenTrace, Option<AnchorRequest>)> {
        if !self.program.anchor {
            let anchor_file = anchor::path_of(path);
            let kept = anchor_file.exists().then_some(anchor_file);
            let read = [path.to_owned()].into_iter().chain(kept).chain(self.with_names());
            let read: Vec<PathBuf> = read.collect();
            confined::to(&read, self.results());
        }
        // Each pass verifies the checksum; the first one starts now.
        let trace = OpenTrace::open(path)?;
        request.check_trace(trace.meta())?;
        if self.output.also.has_regions && trace.meta().faults_only {
            bail!("--where: this recording has page faults only, and no page walks");
        }
        self.check_outputs(trace.path())?;
        if self.program.anchor {
            let anchor = AnchorRequest::new(&trace, specs)?;
            return Ok((trace, Some(anchor)));
        }
        console::remark(anchor::apply(&trace, specs).as_slice());
        Ok((trace, None))
    }

    /// Returns the files and directories that may have the names of functions.
    fn with_names(&self) -> impl Iterator<Item = PathBuf> {
        let also = &self.output.also;
        let system = also.has_regions.then(|| PathBuf::from(PROGRAMS));
        system.into_iter().chain(also.symbols.iter().cloned())
    }

    fn results(&self) -> impl Iterator<Item = &Path> {
        self.output.output.iter().chain(&self.output.report).map(PathBuf::as_path)
    }

    fn sink(&self) -> Sink {
        match &self.output.output {
            Some(path) if !disk::is_stdout(path) => Sink::File,
            _ => Sink::Stream,
        }
    }

    fn request(&self) -> Result<sim::ReplayRequest> {
        let pools: String = self.memory.hugetlb_pages.iter().map(ToString::to_string).collect();
        let edits = pools + &self.memory.swap.edits;
        let kernels = running::all_with(&self.columns.kernel, &edits, &self.trace)?;
        let policies = self.columns.policy.iter().map(|name| KernelPolicy::named(name));
        let kernels = with_policies(kernels, &policies.collect::<Result<Vec<_>, _>>()?)?;
        let (machines, walks) = running::machines(&self.columns.machine)?;
        Ok(sim::ReplayRequest {
            seeds: self.columns.seed.clone(),
            memory_bytes: self.memory.memory.clone(),
            swap_bytes: self.memory.swap.bytes,
            cgroups: self.memory.cgroup.clone(),
            changes: self.memory.at.clone(),
            fragmentation: self.memory.fragmentation,
            aged_rounds: self.memory.aged,
            filesystem: self.program.filesystem.clone(),
            annotations: self.program.annotate.clone(),
            allocator: self.program.advise,
            linked: self.program.linked.clone(),
            cache: if self.memory.cache.warm { CacheState::Warm } else { CacheState::Cold },
            ns_per_reference: self.program.reference_ns,
            nr_cpus: self.program.cpus,
            numa: self.program.numa,
            walks: if self.program.nested { Walks::Nested } else { walks },
            detail: if self.output.report.is_some() { Detail::Drawn } else { Detail::None },
            has_regions: self.output.also.has_regions,
            has_fault_times: self.output.also.has_fault_times,
            max_work: self.limits.max_work,
            ..sim::ReplayRequest::new(kernels, machines)
        })
    }

    fn check_outputs(&self, trace: &Path) -> Result<()> {
        if let Some(output) = &self.output.output {
            check_output(output, trace, "--output")?;
        }
        if let Some(report) = &self.output.report {
            check_output(report, trace, "--report")?;
            if self.output.output.as_deref().is_some_and(|output| is_same(output, report)) {
                bail!("--output and --report both name {}; use two different files", shown(report));
            }
        }
        Ok(())
    }
}

/// Checks that a result can be written to `output`, the value of `option`, and that it is not the
/// trace.
fn check_output(output: &Path, trace: &Path, option: &str) -> Result<()> {
    if is_same(output, trace) {
        bail!("{} is the input trace; choose another file for the result", shown(output));
    }
    check_writable(output, option)
}

impl VerbPlan for PredictPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        match self {
            Self::List => list::run(console),
            Self::Replay(mut plan) => plan.run(console),
            Self::Sweep(mut plan) => plan.run(console),
        }
    }
}
