//! `folio predict`.

mod form;
mod list;
mod replay;
mod sweep;

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::hash::Hash;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use largefolio_report::Settings;
use largefolio_report::sweep::Request;
use largefolio_sim::cost::Walks;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::names::nearest;
use largefolio_sim::replay::clock::NS_PER_REFERENCE;
use largefolio_sim::replay::{Annotation, CacheState, CellSpec};
use largefolio_sim::sweep::Grid;
use largefolio_trace::{Meta, Reader};

use super::machines;
use super::values;
use crate::console::Console;
use crate::errors::Exit;
use form::{FrameArgs, Sink};
use replay::ReplayPlan;
use sweep::{Summary, SweepPlan};

/// What is said of seeds that are all the same.
const IDLE_SEEDS: &str = "seeds change nothing in unfragmented memory; add --fragmentation, such as \
                          --fragmentation 500";

/// Columns of one result: more are a mistake, and each takes memory of its own.
const NR_CELLS_MAX: usize = 256;

/// Runs of folios in a page, all columns together: with the paths that draw them 2 MiB.
const NR_DRAWN_RUNS_MAX: usize = 1 << 16;

/// The filesystem that has no large folios under any kernel.
const NO_LARGE_FOLIOS: &str = "none";

/// Predict what kernels and machines do with a recorded program
///
/// Replays a trace in a model of the memory management of each kernel on each machine and prints
/// one column for each combination; changes are against the first. Nothing runs on this kernel.
/// Every number is counted but the estimated times, which --time shows and JSON and CSV always have.
#[derive(Args, Debug)]
#[command(
    after_help = "Use --list to see every kernel, machine and edit.",
    after_long_help = "\
Examples:
  folio predict cc1.folio
  folio predict cc1.folio --kernel 6.12,6.12+exec-block=64K --machine altra
  folio predict cc1.folio --kernel 7.2,7.2+page=64K --machine altra,grace-64k --warm
  folio predict cc1.folio --fragmentation 500 --seed 1,2,3 --csv -o cells.csv
  folio predict cc1.folio --kernel 6.12,7.2 --memory 64M,16G --parquet -o cells.parquet
  folio predict cc1.folio --kernel 7.2,7.2+sizes=2M:exec/64K:always --machine altra
  folio predict cc1.folio --kernel 6.12 --annotate cc1=64K --annotate '*.so*=64K'
  folio predict cc1.folio --kernel 7.2 --memory 64M,128M,256M --swap 1G
  folio predict cc1.folio --machine cascadelake --time --nested
  folio predict cc1.folio --kernel 6.12,7.2 --report cc1.html
  folio predict *.folio --kernel 6.12,7.2 --machine altra,zen4 --sweep results
  folio predict --list

A kernel is a name (6.12), a file (./mine.toml) or either with edits: 7.2+page=64K+readahead=1M.
Edits may change rules no kernel has: sizes=64K:always+exec/2M:always uses 64K folios for text and
data, 2M folios for data, and no others but base pages; sizes.xfs=.. says so of one filesystem.
A machine is a name (altra), a file, or `this`, which `folio calibrate` writes. --list shows every kernel, machine and edit."
)]
pub(crate) struct PredictArgs {
    /// Trace, from `folio record` or `folio trace gen`; several with --sweep
    #[arg(value_name = "TRACE", required_unless_present = "list", conflicts_with = "list")]
    trace: Vec<PathBuf>,
    /// Kernels, with edits; the first is the reference
    #[arg(long, value_name = "KERNEL,..", value_delimiter = ',', default_value = "6.12,6.18,7.2")]
    kernel: Vec<String>,
    /// Machines
    #[arg(long, value_name = "MACHINE,..", value_delimiter = ',', default_value = "altra")]
    machine: Vec<String>,
    #[command(flatten)]
    cache: CacheArgs,
    /// Seeds of the fragmentation: a column each
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1")]
    seed: Vec<u64>,
    /// Physical memory: a column each
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', default_value = "16G",
        value_parser = values::memory)]
    memory: Vec<u64>,
    /// Swap space; without any, private memory is never reclaimed
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = values::swap)]
    swap: u64,
    /// Thousandths of the free memory in which no PMD folio fits at the start
    #[arg(long, value_name = "PERMILLE", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(0..=1000))]
    fragmentation: u32,
    /// Filesystem of all files, or `none` for one without large folios [default: as recorded]
    #[arg(long = "fs", value_name = "NAME")]
    filesystem: Option<String>,
    /// Folio size that the loader asks for when it maps FILE (a name or path, `*` and `?` allowed),
    /// over the kernel's own rules; once for each
    #[arg(long, value_name = "FILE=SIZE", value_parser = str::parse::<Annotation>)]
    annotate: Vec<Annotation>,
    /// Time of a reference on khugepaged's clock, in nanoseconds; 0 = it never runs
    #[arg(long, value_name = "NS", default_value_t = NS_PER_REFERENCE)]
    reference_ns: u64,
    /// Show estimated time by cause, and the constants it rests on
    #[arg(long)]
    time: bool,
    /// Estimate for a virtual machine: walks go through two page tables
    #[arg(long)]
    nested: bool,
    #[command(flatten)]
    form: FrameArgs,
    /// File to write the result to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write one HTML file with pictures, which needs nothing else
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Directory of a data set that the results of all traces are added to, one row a cell; what it
    /// has already is not done again
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["csv", "parquet", "output", "report", "time", "list"])]
    sweep: Option<PathBuf>,
    /// List the kernels, machines and edits, and end
    #[arg(long)]
    list: bool,
}

#[derive(Args, Clone, Copy, Debug)]
struct CacheArgs {
    /// Start with an empty page cache (the default)
    #[arg(long)]
    cold: bool,
    /// Start with the page cache an earlier run left
    #[arg(long, conflicts_with = "cold")]
    warm: bool,
}

/// What is to be done.
pub(crate) enum PredictPlan {
    /// Say what there is.
    List,
    /// Replay.
    Replay(Box<ReplayPlan>),
    /// Replay many into a data set.
    Sweep(Box<SweepPlan>),
}

impl PredictArgs {
    /// Checks names, trace and output.
    pub(crate) fn plan(&self, command_line: Vec<String>) -> Result<PredictPlan> {
        if self.list {
            return Ok(PredictPlan::List);
        }
        self.check_filesystem()?;
        let grid = self.grid()?;
        if let Some(dir) = self.sweep.clone() {
            let summary = if self.form.is_json() { Summary::Json } else { Summary::Text };
            let request = Request { command_line, traces: self.trace.clone(), grid };
            return Ok(PredictPlan::Sweep(Box::new(SweepPlan { dir, request, summary })));
        }
        let [trace] = self.trace.as_slice() else {
            bail!(
                "{} traces do not fit in one table; add --sweep DIR for one data set of all, or \
                 give one trace",
                self.trace.len()
            );
        };
        let meta = Reader::open(trace)?.meta().clone();
        self.check_annotations(&meta)?;
        self.check_outputs(trace)?;
        Ok(PredictPlan::Replay(Box::new(ReplayPlan {
            trace: trace.clone(),
            nr_rows: meta.nr_rows,
            specs: self.specs(&grid)?,
            settings: Settings {
                memory_bytes: self.memory.first().copied().unwrap_or_default(),
                swap_bytes: self.swap,
                unusable_permille: self.fragmentation,
                filesystem: self.filesystem.clone(),
                annotations: self.annotate.iter().map(ToString::to_string).collect(),
                reference_ns: self.reference_ns,
            },
            form: self.form.form(self.sink())?,
            shows_time: self.time,
            output: self.output.clone(),
            report: self.report.clone(),
            command_line,
            has_idle_seeds: grid.has_idle_seeds(),
        })))
    }

    const fn sink(&self) -> Sink {
        if self.output.is_some() { Sink::File } else { Sink::Stream }
    }

    /// Kernels x machines x memory sizes x seeds, each once.
    fn grid(&self) -> Result<Grid> {
        let kernels = unique(&self.kernel).into_iter().map(|name| Kernel::parse(name));
        let kernels: Vec<Kernel> = kernels.collect::<Result<_, _>>()?;
        let machines = unique(&self.machine).into_iter().map(|name| machines::load(name));
        let machines: Vec<Machine> = machines.collect::<Result<_>>()?;
        let (Some(kernel), Some(machine)) = (kernels.first(), machines.first()) else {
            bail!("no kernel or no machine was given");
        };
        let base = self.spec(kernel, machine);
        let memory_bytes = unique(&self.memory).into_iter().copied().collect();
        let seeds = unique(&self.seed).into_iter().copied().collect();
        Ok(Grid { kernels, machines, memory_bytes, seeds, base })
    }

    /// The columns of one result.
    fn specs(&self, grid: &Grid) -> Result<Vec<CellSpec>> {
        let mut specs = grid.cells(NR_CELLS_MAX)?;
        if self.report.is_some() {
            let runs_max = u32::try_from(NR_DRAWN_RUNS_MAX / specs.len().max(1)).unwrap_or(0);
            for spec in &mut specs {
                spec.detail_runs_max = runs_max;
            }
        }
        Ok(specs)
    }

    fn spec(&self, kernel: &Kernel, machine: &Machine) -> CellSpec {
        let cache = if self.cache.warm { CacheState::Warm } else { CacheState::Cold };
        CellSpec {
            cache,
            swap_bytes: self.swap,
            unusable_permille: self.fragmentation,
            filesystem: self.filesystem.clone(),
            annotations: self.annotate.clone(),
            ns_per_reference: self.reference_ns,
            walks: if self.nested { Walks::Nested } else { Walks::Native },
            ..CellSpec::new(kernel.clone(), machine.clone())
        }
    }

    /// An annotation of a file the program never maps would silently do nothing.
    fn check_annotations(&self, meta: &Meta) -> Result<()> {
        let is_idle =
            |annotation: &&Annotation| !meta.files.iter().any(|file| annotation.fits(&file.path));
        match self.annotate.iter().find(is_idle) {
            Some(idle) => bail!(
                "--annotate {idle}: no file of the trace has such a name; `folio trace info` lists \
                 them"
            ),
            None => Ok(()),
        }
    }

    /// Before minutes of replay: whether the results will have places of their own.
    fn check_outputs(&self, trace: &Path) -> Result<()> {
        if let Some(output) = &self.output {
            check_output(output, trace, "--output")?;
        }
        if let Some(report) = &self.report {
            check_output(report, trace, "--report")?;
            if self.output.as_deref().is_some_and(|output| is_same(output, report)) {
                bail!(
                    "--output and --report both name {}; give each a file of its own",
                    report.display()
                );
            }
        }
        Ok(())
    }

    /// A name no kernel knows would silently have no large folios.
    fn check_filesystem(&self) -> Result<()> {
        let Some(name) = self.filesystem.as_deref().filter(|name| *name != NO_LARGE_FOLIOS) else {
            return Ok(());
        };
        let known = list::filesystems();
        if known.contains(name) {
            return Ok(());
        }
        let hint = nearest(name, known.iter().map(String::as_str));
        bail!(
            "no kernel has large folios on a filesystem called '{name}'; {hint}; \
             `--fs {NO_LARGE_FOLIOS}` stands for all that have none"
        )
    }
}

/// Each of `items` once, in the order of the first mention.
fn unique<T: Eq + Hash>(items: &[T]) -> Vec<&T> {
    let mut seen = HashSet::new();
    items.iter().filter(|&item| seen.insert(item)).collect()
}

/// Whether two paths name one file, be it there or not.
fn is_same(a: &Path, b: &Path) -> bool {
    let same = |a: &Path, b: &Path| Some(fs::canonicalize(a).ok()? == fs::canonicalize(b).ok()?);
    same(a, b).unwrap_or(a == b)
}

/// Whether a result can be written to `output`, which `option` names, and is not the trace.
fn check_output(output: &Path, trace: &Path, option: &str) -> Result<()> {
    if is_same(output, trace) {
        bail!("{} is the trace itself; choose another file for the result", output.display());
    }
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty());
    let writable = if output.exists() {
        OpenOptions::new().append(true).open(output).map(drop)
    } else {
        tempfile::tempfile_in(parent.unwrap_or(Path::new("."))).map(drop)
    };
    writable.with_context(|| {
        format!("cannot write {}; choose another place with {option}", output.display())
    })
}

impl PredictPlan {
    /// Does it.
    pub(crate) fn run(&self, console: &mut Console) -> Result<Exit> {
        match self {
            Self::List => list::run(console),
            Self::Replay(plan) => plan.run(console),
            Self::Sweep(plan) => plan.run(console),
        }
    }
}
