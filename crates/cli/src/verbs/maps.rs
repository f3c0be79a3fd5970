//! `folio maps`: which folio sizes back processes and files, and why they are not larger.
//!
//! Three views: the running system ([`live`]) and the page cache of files, once or repeatedly; and
//! programs on disk (`--elf`), whether or not they are running.

mod diff;
mod live;
mod screen;
mod selection;
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use largefolio_results::maps::{self, ElfResult, MapsRequest, MetricsFormat, Requirement, Show};
use largefolio_results::{Form, Forms as _};
use largefolio_sim::kernel::Kernel;
use largefolio_trace::disk;

use self::live::Output;
use self::selection::SelectionArgs;
use self::watching::WatchingArgs;
use super::confined;
use super::names;
use super::page_file::{self, PageArgs, PageFile};
use super::values::{self, FormArgs};
use crate::console::{self, Console, warn};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Show which folio sizes back processes, files and the page cache, and why they are not larger
///
/// For running processes: bytes by folio size and kind, the largest mappings with their shares,
/// and, for each mapping that could have larger folios, why it does not and how to fix that. A page
/// that several processes share counts once in the totals and once in each process that maps it.
/// Folio sizes need root; without root, folio shows only what smaps reports.
///
/// For programs on disk (--elf): how much of each LOAD segment can be mapped by folios of each
/// size, what prevents more, and which linker option fixes it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio maps 4242                          one process
  sudo folio maps --all --sort small            all processes, most base pages first
  sudo folio maps --name postgres               every process with that name
  sudo folio maps --unit nginx                  a service; --container ID, --cgroup PATH
  sudo folio maps --file /usr/lib/libLLVM.so --page-cache /var/lib/db
  sudo folio maps --all --csv > folios.csv      one row per pid, mapping, kind and size
  sudo folio maps --name redis-server --require 2M:95%   a health check
  sudo folio maps --name redis-server --waste   how much of its large folios it never used
  sudo folio maps --stalls --for 30s            who waited for memory, how long, and why
  sudo folio maps --name postgres --hot         which of its memory is in use, in which folio sizes
  folio maps 4242 --watch=5
  sudo folio maps --all --json > old.json; sudo folio maps --all --diff old.json
  sudo folio maps --all --watch=15 --openmetrics /var/lib/prometheus/node-exporter/folio.prom
  sudo folio maps --all --otlp | curl --data-binary @- -H 'Content-Type: application/json' \\
      http://localhost:4318/v1/metrics
  folio maps --elf build/server --kernel 6.12+page=16K
  sudo folio maps --all --report folios.html also as charts

Terms: a folio is `aligned` if it is fully mapped and its address has the same alignment as its
position in the file or in memory; `unaligned` if it is fully mapped at any other address; `partial`
if only part of it is mapped. `contpte`: naturally aligned blocks (64K with 4K pages, else 2M) that
are fully mapped from one folio; on arm64, one TLB entry can cover each. `PMD`: mapped by one PMD
entry (2M with 4K pages, 32M with 16K, 512M with 64K).

Terms for --elf: a percentage is the share of the segment that naturally aligned folios of that size
can map at any load address. `small`: the segment is smaller than the folio; `ends`: the segment
contains no whole block of that size; `offset`: address and file offset differ modulo the size;
`random`: the load address is randomized in smaller steps; `no folio`: under this kernel, no
filesystem supports such folios. Sizes: 16K for machines that coalesce pages in the TLB, the size of
an arm64 contpte block, and the size that a PMD entry maps. `folio predict` shows which folios a
kernel then allocates and maps.

Exit status: 0 on success; 1 if --require is not met, or if none of the processes given by PID has
memory (kernel threads, zombies); 2 on error, or if something that you named is missing or
unreadable (the rest is still shown).")]
pub(crate) struct MapsArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Show the page cache of these files, whether or not they are mapped
    #[arg(long, value_name = "FILE", num_args = 1..)]
    file: Vec<PathBuf>,
    /// Show the page cache of all files below a directory; may be repeated
    #[arg(long, value_name = "DIR")]
    page_cache: Vec<PathBuf>,
    /// Maximum number of rows per table
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = values::number::<usize>)]
    top: usize,
    /// Also show reasons and remedies for mappings smaller than 4 MiB or 1% of all memory
    #[arg(long)]
    full: bool,
    /// Sort rows by this, largest first
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Size)]
    sort: Sort,
    /// Repeat every TIME (default: 2s) until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
        default_missing_value = "2", value_parser = values::interval)]
    watch: Option<Duration>,
    /// Show what has changed since an output was saved with --json, or between two saved outputs
    #[arg(long, value_names = ["OLD.json", "NEW.json"], num_args = 1..=2,
        conflicts_with_all = ["elf", "watch", "report"])]
    diff: Vec<PathBuf>,
    #[command(flatten)]
    export: ExportArgs,
    /// Exit with status 1 if less than this share of the mapped memory is in folios of this size or
    /// larger, such as 2M:95%, or anon:2M:95% for one kind of memory (text, file, anon, shmem)
    #[arg(long, value_name = "[KIND:]SIZE:PERCENT", value_parser = str::parse::<Requirement>,
        conflicts_with_all = ["elf", "diff", "watch"])]
    require: Option<Requirement>,
    #[command(flatten)]
    watching: WatchingArgs,
    /// Check programs and shared objects on disk; for a directory, all files below it
    #[arg(long, value_name = "FILE", num_args = 1..,
        conflicts_with_all = ["selection", "file", "page_cache", "watch", "top", "sort"])]
    elf: Vec<PathBuf>,
    /// With --elf, use this kernel's rules; accepts edits such as +page=16K [default: the running
    /// kernel]
    #[arg(long, value_name = "KERNEL", value_parser = names::KERNEL, hide_possible_values = true)]
    kernel: Option<String>,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArgs,
}

/// Results other than the table.
#[derive(Args, Debug)]
struct ExportArgs {
    /// Write metrics for Prometheus to a file (- for standard output), in the format that
    /// `node_exporter`'s textfile collector reads; --top limits how many processes, control groups
    /// and files are included
    #[arg(long, value_name = "FILE", conflicts_with_all = ["elf", "diff", "report", "json", "csv"])]
    openmetrics: Option<PathBuf>,
    /// Print the same metrics as OTLP/JSON for an OpenTelemetry collector, one line per reading
    #[arg(long, conflicts_with_all = ["openmetrics", "elf", "diff", "report", "json", "csv"])]
    otlp: bool,
    /// Show how much memory in large private folios holds only zeroes, and what gives it back; with
    /// --openmetrics or --otlp, add it to the metrics. Reads up to 1 GiB of that memory, and brings
    /// no page in
    #[arg(long, conflicts_with_all = ["elf", "diff", "require", "report", "file", "page_cache"])]
    waste: bool,
}

/// The sort key of rows, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Bytes mapped
    Size,
    /// Bytes in base pages
    Small,
    /// Executable mappings of files
    Text,
    /// Other mappings of files
    File,
    /// Private memory
    Anon,
    /// Shared memory
    Shmem,
    /// Bytes mapped by PMD entries
    Pmd,
}

impl From<Sort> for maps::Sort {
    fn from(sort: Sort) -> Self {
        match sort {
            Sort::Size => Self::Size,
            Sort::Small => Self::Small,
            Sort::Text => Self::Text,
            Sort::File => Self::File,
            Sort::Anon => Self::Anon,
            Sort::Shmem => Self::Shmem,
            Sort::Pmd => Self::Pmd,
        }
    }
}

pub(crate) enum MapsPlan {
    Elf(ElfPlan),
    Diff(diff::DiffPlan),
    Live(live::LivePlan),
    Watching(watching::WatchingPlan),
}

pub(crate) struct ElfPlan {
    files: Vec<PathBuf>,
    kernel: Box<Kernel>,
    form: Form,
    page: Option<PageFile>,
    command_line: Vec<String>,
}

impl VerbArgs for MapsArgs {
    type Plan = MapsPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let form = self.form.form();
        if self.watch.is_some() && self.page.is_requested() {
            bail!("--report writes a single result, but --watch repeats; use only one of them");
        }
        if let Some(kernel) = self.kernel.as_ref().filter(|_| self.elf.is_empty()) {
            bail!(
                "--kernel {kernel} works only for programs on disk (--elf FILE); folio maps shows \
                 processes under the running kernel, and folio predict replays a recording under \
                 a different one"
            );
        }
        let page = self.page.file(self.elf.iter().chain(&self.file).map(PathBuf::as_path))?;
        if !self.elf.is_empty() {
            let kernel = maps::elf_kernel(self.kernel.as_deref())?;
            confined::to(&self.elf, page.iter().map(PageFile::path));
            let (files, kernel) = (self.elf, Box::new(kernel));
            return Ok(MapsPlan::Elf(ElfPlan { files, kernel, form, page, command_line }));
        }
        let output = self.export.output(form, page, self.watch)?;
        let watched_pids = if self.watch.is_some() { self.selection.pids.len() } else { 0 };
        let selection = self.selection.selection();
        let show = Show {
            nr_rows: self.top,
            sort: self.sort.into(),
            width: 0,
            prose: None,
            is_full: self.full,
        };
        let nr_judged = if self.diff.is_empty() { output.nr_judged(show) } else { 0 };
        let (files, page_cache) = (self.file, self.page_cache);
        let request = MapsRequest {
            selection,
            files,
            page_cache,
            nr_judged,
            command_line: command_line.clone(),
        };
        if let Some(what) = self.watching.what() {
            return Ok(MapsPlan::Watching(self.watching.plan(what, request, self.top, form)));
        }
        if !self.diff.is_empty() {
            let plan = diff::DiffPlan::of(self.diff, request, show, form)?;
            return Ok(MapsPlan::Diff(plan));
        }
        request.check()?;
        if self.watch.is_some() && form == Form::Csv {
            bail!(
                "--watch repeats a table, or prints one line of JSON per round; CSV would repeat \
                 its header in every round"
            );
        }
        if let Some(seconds) = seconds_taken_for_pid(&command_line).filter(|_| watched_pids > 1) {
            warn(&format!("{seconds} is interpreted as a PID; write --watch={seconds} with a ="));
        }
        let (watch, requirement) = (self.watch, self.require);
        Ok(MapsPlan::Live(live::LivePlan { request, show, watch, output, requirement }))
    }
}

impl ExportArgs {
    fn output(self, form: Form, page: Option<PageFile>, watch: Option<Duration>) -> Result<Output> {
        let has_waste = self.waste;
        Ok(match self.openmetrics {
            Some(file) => {
                if !disk::is_stdout(&file) {
                    page_file::check_writable(&file, "--openmetrics")?;
                }
                let format = MetricsFormat::OpenMetrics;
                Output::Metrics { format, file: Some(file), has_waste }
            }
            None if self.otlp => {
                Output::Metrics { format: MetricsFormat::Otlp, file: None, has_waste }
            }
            None if has_waste => {
                if watch.is_some() {
                    bail!(
                        "--waste reads up to 1 GiB of memory each time; with --watch, it works \
                         only for metrics: --openmetrics FILE or --otlp"
                    );
                }
                Output::Waste(form)
            }
            None => Output::Result { form, page },
        })
    }
}

/// Returns the number after a bare `--watch`, which clap parses as a pid.
fn seconds_taken_for_pid(command_line: &[String]) -> Option<u32> {
    let after = command_line.windows(2).find(|two| two[0] == "--watch")?;
    after[1].parse().ok()
}

impl VerbPlan for MapsPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let plan = match self {
            Self::Live(plan) => return plan.run(console),
            Self::Diff(plan) => return plan.run(console),
            Self::Watching(plan) => return plan.run(console),
            Self::Elf(plan) => plan,
        };
        let result = ElfResult::of(&plan.kernel, &plan.files, plan.command_line);
        console::remark(result.remarks());
        page_file::deliver(console, &result.written(plan.form)?, plan.page.as_ref(), || {
            result.page()
        })?;
        Ok(if result.is_whole() { Exit::Done } else { Exit::Error })
    }
}
