//! `folio predict`.

mod list;

use std::collections::HashSet;
use std::hash::Hash;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use largefolio_report::{Exporter, Html, Json, Report, Settings, Text, Tidy, TraceInfo};
use largefolio_sim::cost::Walks;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::names::nearest;
use largefolio_sim::replay::clock::NS_PER_REFERENCE;
use largefolio_sim::replay::{Annotation, CacheState, CellSpec, replay};
use largefolio_trace::{Meta, Reader};

use super::machines;
use super::page_file::{check_writable, is_same};
use super::values::{self, Form, FormArgs};
use crate::console::{self, Console};
use crate::errors::Exit;

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
  folio predict cc1.folio --kernel 7.2,7.2+sizes=2M:exec/64K:always --machine altra
  folio predict cc1.folio --kernel 6.12 --annotate cc1=64K --annotate '*.so*=64K'
  folio predict cc1.folio --kernel 7.2 --memory 64M,128M,256M --swap 1G
  folio predict cc1.folio --machine cascadelake --time --nested
  folio predict cc1.folio --kernel 6.12,7.2 --report cc1.html
  folio predict --list

A kernel is a name (6.12), a file (./mine.toml) or either with edits: 7.2+page=64K+readahead=1M.
Edits may change rules no kernel has: sizes=64K:always+exec/2M:always uses 64K folios for text and
data, 2M folios for data, and no others but base pages; sizes.xfs=.. says so of one filesystem.
A machine is a name (altra), a file, or `this`, which `folio calibrate` writes. --list shows every kernel, machine and edit."
)]
pub(crate) struct PredictArgs {
    /// Trace, from `folio record` or `folio trace gen`
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    trace: Option<PathBuf>,
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
    form: FormArgs,
    /// File to write the result to [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write one HTML file with pictures, which needs nothing else
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
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
}

/// A replay that can be made.
pub(crate) struct ReplayPlan {
    trace: PathBuf,
    nr_rows: u64,
    specs: Vec<CellSpec>,
    settings: Settings,
    form: Form,
    shows_time: bool,
    output: Option<PathBuf>,
    report: Option<PathBuf>,
    command_line: Vec<String>,
    has_idle_seeds: bool,
}

impl PredictArgs {
    /// Checks names, trace and output.
    pub(crate) fn plan(&self, command_line: Vec<String>) -> Result<PredictPlan> {
        let Some(trace) = self.trace.clone() else {
            return Ok(PredictPlan::List);
        };
        self.check_filesystem()?;
        let specs = self.specs()?;
        let meta = Reader::open(&trace)?.meta().clone();
        self.check_annotations(&meta)?;
        let nr_rows = meta.nr_rows;
        self.check_outputs(&trace)?;
        Ok(PredictPlan::Replay(Box::new(ReplayPlan {
            trace,
            nr_rows,
            specs,
            settings: Settings {
                memory_bytes: self.memory.first().copied().unwrap_or_default(),
                swap_bytes: self.swap,
                unusable_permille: self.fragmentation,
                filesystem: self.filesystem.clone(),
                annotations: self.annotate.iter().map(ToString::to_string).collect(),
            },
            form: self.form.form(),
            shows_time: self.time,
            output: self.output.clone(),
            report: self.report.clone(),
            command_line,
            has_idle_seeds: self.seeds().len() < unique(&self.seed).len(),
        })))
    }

    /// Kernels x machines x memory sizes x seeds, each once.
    fn specs(&self) -> Result<Vec<CellSpec>> {
        let (kernel, machine, seeds) = (unique(&self.kernel), unique(&self.machine), self.seeds());
        let memory = unique(&self.memory);
        let nrs = [kernel.len(), machine.len(), memory.len(), seeds.len()];
        let nr_cells = nrs.into_iter().fold(1, usize::saturating_mul);
        if nr_cells > NR_CELLS_MAX {
            let [nr_kernels, nr_machines, nr_memory, nr_seeds] = nrs;
            bail!(
                "{nr_kernels} kernels x {nr_machines} machines x {nr_memory} memory sizes x \
                 {nr_seeds} seeds are {nr_cells} columns, at most {NR_CELLS_MAX} fit in one \
                 result; ask for fewer at a time"
            );
        }
        let kernels: Vec<Kernel> =
            kernel.into_iter().map(|name| Kernel::parse(name)).collect::<Result<_, _>>()?;
        let machines: Vec<Machine> =
            machine.into_iter().map(|name| machines::load(name)).collect::<Result<_>>()?;
        let mut specs = Vec::new();
        for kernel in &kernels {
            for machine in &machines {
                for &&ram_bytes in &memory {
                    let specs_of = seeds
                        .iter()
                        .map(|&&seed| CellSpec { ram_bytes, ..self.spec(kernel, machine, seed) });
                    specs.extend(specs_of);
                }
            }
        }
        if self.report.is_some() {
            let runs_max = u32::try_from(NR_DRAWN_RUNS_MAX / nr_cells.max(1)).unwrap_or(0);
            for spec in &mut specs {
                spec.detail_runs_max = runs_max;
            }
        }
        for spec in &specs {
            spec.kernel.check_page(spec.page_size())?;
            for annotation in &spec.annotations {
                annotation.check(&spec.kernel, spec.page_size())?;
            }
        }
        Ok(specs)
    }

    /// Seeds of the columns: the first where all would give the same.
    fn seeds(&self) -> Vec<&u64> {
        let mut seeds = unique(&self.seed);
        if self.fragmentation == 0 {
            seeds.truncate(1);
        }
        seeds
    }

    fn spec(&self, kernel: &Kernel, machine: &Machine, seed: u64) -> CellSpec {
        let cache = if self.cache.warm { CacheState::Warm } else { CacheState::Cold };
        CellSpec {
            cache,
            seed,
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

/// Whether a result can be written to `output`, which `option` names, and is not the trace.
fn check_output(output: &Path, trace: &Path, option: &str) -> Result<()> {
    if is_same(output, trace) {
        bail!("{} is the trace itself; choose another file for the result", output.display());
    }
    check_writable(output, option)
}

impl PredictPlan {
    /// Does it.
    pub(crate) fn run(&self, console: &mut Console) -> Result<Exit> {
        match self {
            Self::List => list::run(console),
            Self::Replay(plan) => plan.run(console),
        }
    }
}

impl ReplayPlan {
    fn run(&self, console: &mut Console) -> Result<Exit> {
        if self.has_idle_seeds {
            console::warn(
                "seeds change nothing in unfragmented memory; add --fragmentation, such as \
                 --fragmentation 500",
            );
        }
        let (meta, rows) = self.replay()?;
        let trace = TraceInfo::new(&self.trace.to_string_lossy(), &meta);
        let report = Report::new(self.command_line.clone(), trace, self.settings.clone(), rows);
        let mut result = Vec::new();
        self.exporter().export(&report, &mut result)?;
        if let Some(path) = &self.report {
            let mut page = Vec::new();
            Html.export(&report, &mut page)?;
            console.deliver(&page, Some(path))?;
        }
        console.deliver(&result, self.output.as_deref())?;
        Ok(Exit::Done)
    }

    fn replay(&self) -> Result<(Meta, Vec<largefolio_sim::replay::Outcome>)> {
        let is_warm = self.specs.iter().any(|spec| spec.cache == CacheState::Warm);
        let nr_passes = if is_warm { 2 } else { 1 };
        let bar = console::bar(self.nr_rows.saturating_mul(nr_passes), "replaying");
        let (mut before, mut last) = (0, 0);
        let result = replay(&self.trace, &self.specs, &mut |nr_read| {
            if nr_read < last {
                before += last;
            }
            last = nr_read;
            bar.set_position(before + nr_read);
        });
        bar.finish_and_clear();
        Ok(result?)
    }

    fn exporter(&self) -> Box<dyn Exporter> {
        match self.form {
            Form::Json => Box::new(Json),
            Form::Csv => Box::new(Tidy),
            Form::Text => Box::new(Text {
                width: Console::width(),
                is_styled: self.output.is_none() && Console::is_styled(),
                shows_time: self.shows_time,
            }),
        }
    }
}
