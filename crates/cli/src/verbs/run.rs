//! `folio run`.

use std::io;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use largefolio_linux::geometry::Geometry;
use largefolio_linux::remap::Voice;
use largefolio_linux::run::{
    self, ChildEnd, Heap, Launch, ProgramRequest, RegionRules, RegionSum, RunError, Samples,
    Sampling, ThpLimit, Watched,
};
use largefolio_linux::warm::Warmed;
use largefolio_results::figures::{self, printable};

use super::kernel_policy;
use super::values::{self, ProgramArgs};
use crate::console::Console;
use crate::console::{say, warn};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Exit status if the program does not exist, as in shells.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;

/// Start a program with its text, and optionally its heap, in large folios
///
/// --text large refills the page cache of the program and its libraries with 2M folios before the
/// program starts, if their addresses allow one TLB entry to map a large block (2M; on arm64 with
/// 4K pages, 64K). As root, it also refills shorter files that no process uses, with the largest
/// folios that fit. It changes only the cache: memory stays shared, and perf, gdb and core dumps
/// work as before. --text remap moves the text into shared memory with PMD folios before the
/// program begins; all processes that run the same file share one copy. --text auto does so only if
/// the page cache cannot help. --heap SIZE gives glibc's malloc folios of that size while the
/// program runs. It needs root and changes system settings until the program ends: in all programs,
/// memory that requests large folios gets this size and no larger one, and memory that does not
/// request them no longer gets any through thp.enabled=always. If something cannot be done, folio
/// prints one line, and the program runs as it would without folio.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio run -- cc1 -quiet big.i -o /dev/null
  folio run --quiet -- node server.js               folio exits, unless text is moved
  sudo folio run --heap 64K -- ./solver             also puts the heap in 64K folios
  folio run --regions rules -- ./solver             rules: memory>=64M huge
  sudo folio run --policy text.o -- ./solver        on a kernel that can ask a policy
  folio run --thp off -- redis-server               no large folios, whatever the system allows

The summary shows how much of the files was cached in 2M folios before and after, and how much text
was mapped by PMD entries; to find out, folio samples smaps of the program and its children. PMD
entries cannot map a position-independent program that is aligned to 4K; folio align makes a copy
that they can map.

Exit status: the program's (folio dies from the same signal); 126 or 127 if the program cannot be
started, 2 for other errors.")]
pub(crate) struct RunArgs {
    /// How to put the program's text in large folios
    #[arg(long, value_enum, default_value_t = TextMode::Auto)]
    text: TextMode,
    /// Folio size of the heap: off, or a size such as 64K or 2M
    #[arg(long, value_name = "SIZE", default_value = "off", value_parser = heap_size)]
    heap: HeapSize,
    /// Give advice about large folios to the regions in this file: each line has a region (heap,
    /// stack, memory, memory>=64M, or `file:NAME`) and huge, nohuge or collapse
    #[arg(long, value_name = "FILE")]
    regions: Option<PathBuf>,
    /// Let this policy, a name of `folio predict --list` or a BPF object file, choose folio sizes in
    /// all programs while this one runs; needs root and a kernel with kernel/policy
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Large folios of memory that this program and its children may use: off (none), advised (only
    /// where they request them with madvise; Linux 6.18), or inherit (as in this shell)
    #[arg(long, value_enum, conflicts_with_all = ["text", "heap", "regions"])]
    thp: Option<ThpMode>,
    /// List every file and every reason
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print a summary to standard error at the end, even if folio changed nothing [default: only
    /// if it changed something]
    #[arg(long, conflicts_with = "quiet")]
    summary: bool,
    /// Print nothing; the program replaces folio, unless --heap is set or text is moved
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    program: ProgramArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum TextMode {
    /// Leave the text unchanged
    Off,
    /// Use `large` if it can help, else `remap`
    Auto,
    /// Refill the page cache with large folios
    Large,
    /// Copy the text into shared memory with large folios
    Remap,
}

/// The program's own limit of THP, which no system setting can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ThpMode {
    /// None
    Off,
    /// Only where the program requests them
    Advised,
    /// As the process that starts it
    Inherit,
}

impl ThpMode {
    pub(super) const fn limit(self) -> Option<ThpLimit> {
        match self {
            Self::Off => Some(ThpLimit::None),
            Self::Advised => Some(ThpLimit::Advised),
            Self::Inherit => None,
        }
    }
}

impl From<TextMode> for run::Text {
    fn from(mode: TextMode) -> Self {
        match mode {
            TextMode::Off => Self::Off,
            TextMode::Auto => Self::Auto,
            TextMode::Large => Self::Large,
            TextMode::Remap => Self::Remap,
        }
    }
}

/// The requested folio size of the heap in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeapSize(pub(super) Option<u64>);

pub(super) fn heap_size(text: &str) -> Result<HeapSize, String> {
    match text {
        "off" => Ok(HeapSize(None)),
        size => values::folio_size(size).map(|bytes| HeapSize(Some(bytes))),
    }
}

/// How much folio reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verbosity {
    Nothing,
    /// A summary if folio changed something.
    Default,
    Summary,
    All,
}

pub(crate) struct RunPlan {
    request: ProgramRequest,
    limit: Option<ThpLimit>,
    policy: Option<String>,
    verbosity: Verbosity,
}

impl VerbArgs for RunArgs {
    type Plan = RunPlan;

    fn plan(self, _invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let verbosity = if self.quiet {
            Verbosity::Nothing
        } else if self.verbose {
            Verbosity::All
        } else if self.summary {
            Verbosity::Summary
        } else {
            Verbosity::Default
        };
        let voice = if verbosity == Verbosity::All { Voice::Verbose } else { Voice::Silent };
        // Limited THP leaves nothing to do for text.
        let text = if self.thp.is_some() { run::Text::Off } else { self.text.into() };
        let heap_bytes = self.heap.0;
        let regions = self.regions.as_deref().map(RegionRules::read).transpose()?;
        let command = self.program.command;
        let request = ProgramRequest { text, heap_bytes, regions, voice, command };
        let limit = self.thp.and_then(ThpMode::limit);
        Ok(RunPlan { request, limit, policy: self.policy, verbosity })
    }
}

impl VerbPlan for RunPlan {
    /// Prepares and starts the program, and exits as it does. Only the program writes to standard
    /// output.
    fn run(self, _console: &mut Console) -> Result<Exit> {
        if let Some(limit) = self.limit {
            run::limit_thp(limit).map_err(|why| anyhow!(why))?;
        }
        let policy = self.policy.as_deref().map(kernel_policy::attach).transpose()?;
        if self.verbosity != Verbosity::Nothing {
            for point in policy.iter().flat_map(|policy| &policy.unasked) {
                warn(&format!("the kernel decides at {point}: it cannot ask a policy there"));
            }
        }
        let plan = match Launch::new(&self.request) {
            Ok(plan) => plan,
            Err(error) => return not_started(error),
        };
        self.print_notices(&plan);
        if !self.is_watched(&plan) {
            return not_started(plan.exec());
        }
        let is_sampled =
            if self.verbosity == Verbosity::Nothing { Sampling::Off } else { Sampling::On };
        let watched = match plan.watch(is_sampled) {
            Ok(watched) => watched,
            Err(error @ RunError::NoProcess { .. }) if policy.is_none() => {
                let message = printable(&error.to_string());
                warn(&format!("{message}: the program replaces folio, so no summary is printed"));
                return not_started(plan.exec());
            }
            Err(error) => return not_started(error),
        };
        if self.verbosity != Verbosity::Nothing {
            summary(&plan, &watched);
        }
        // Settings are restored before this process ends by a signal.
        drop(plan);
        drop(policy);
        match watched.ended {
            ChildEnd::Code(code) => Ok(Exit::Program(code)),
            ChildEnd::Signal(signal) => {
                run::die_of(signal);
                Ok(Exit::Program(u8::try_from(128 + signal).unwrap_or(u8::MAX)))
            }
        }
    }
}

impl RunPlan {
    /// Returns whether folio keeps running alongside the program, to restore settings or report
    /// results.
    fn is_watched(&self, plan: &Launch) -> bool {
        let is_reported = match self.verbosity {
            Verbosity::Nothing => false,
            Verbosity::Default => {
                !plan.warmed.is_empty() || plan.moved.is_some() || plan.regions.is_some()
            }
            Verbosity::Summary | Verbosity::All => true,
        };
        is_reported || plan.holds_settings() || self.policy.is_some()
    }

    fn print_notices(&self, plan: &Launch) {
        let cost = plan.heap.as_ref().and_then(Heap::cost);
        if self.verbosity != Verbosity::Nothing {
            cost.iter().chain(&plan.enabled).for_each(|line| warn(&printable(line)));
        }
        match self.verbosity {
            Verbosity::Nothing => {}
            Verbosity::Default | Verbosity::Summary => {
                let more = plan.fallbacks.len().saturating_sub(1);
                let more =
                    if more > 0 { format!(" ({more} more: --verbose)") } else { String::new() };
                if let Some(first) = plan.fallbacks.first() {
                    warn(&format!("{}{more}", printable(&first.to_string())));
                }
            }
            Verbosity::All => {
                plan.fallbacks.iter().for_each(|each| warn(&printable(&each.to_string())));
                plan.notes.iter().for_each(|note| say(&format!("folio: {}", printable(note))));
                for file in &plan.warmed {
                    let (path, ms) =
                        (file.path.display().to_string(), file.elapsed.as_secs_f64() * 1e3);
                    let state = in_cache(&[file]);
                    say(&format!("folio: {}: {state}, {ms:.1} ms", printable(&path)));
                }
            }
        }
    }
}

fn not_started(error: RunError) -> Result<Exit> {
    let code = match &error {
        RunError::NotFound(_) => NOT_FOUND,
        RunError::NotExecutable(_) => NOT_EXECUTED,
        RunError::NoProcess { .. } | RunError::Start { .. } => return Err(error.into()),
    };
    say(&format!("folio: error: {}", printable(&error.to_string())));
    Ok(Exit::Program(code))
}

fn in_cache(files: &[&Warmed]) -> String {
    let sum = |of: &dyn Fn(&Warmed) -> Option<u64>| {
        let sum = files.iter().map(|file| of(file)).sum::<Option<u64>>();
        sum.map_or_else(|| "?".to_owned(), figures::bytes)
    };
    let [before, after, possible] = [
        sum(&|file| file.before_bytes),
        sum(&|file| file.after_bytes),
        sum(&|file| Some(file.possible_bytes)),
    ];
    let size = files.first().map_or_else(String::new, |file| large_folios(file));
    format!("in {size} in the page cache {before} -> {after} of {possible}")
}

/// `2M folios`, or `folios of 64K or more` for a short file.
pub(super) fn large_folios(file: &Warmed) -> String {
    let size = figures::size(file.folio_bytes);
    if file.is_short() { format!("folios of {size} or more") } else { format!("{size} folios") }
}

fn summary(plan: &Launch, watched: &Watched) {
    let delay = format!("; start delayed by {:.1} ms", plan.elapsed.as_secs_f64() * 1e3);
    let (short, long): (Vec<_>, Vec<_>) = plan.warmed.iter().partition(|file| file.is_short());
    let count = |nr: usize| if nr == 1 { "1 file".to_owned() } else { format!("{nr} files") };
    if !short.is_empty() {
        let (files, state) = (count(short.len()), in_cache(&short));
        let delay = if long.is_empty() { delay.as_str() } else { "" };
        say(&format!("folio: {files} below 2M: {state}{delay}"));
    }
    if !long.is_empty() {
        let (files, state) = (count(long.len()), in_cache(&long));
        say(&format!("folio: text and constants in {files}: {state}{delay}"));
    }
    say(&format!("folio: {}", describe_samples(&watched.samples, watched.elapsed.as_secs_f64())));
    let moved = plan.moved.as_ref().and_then(|moved| moved.summary().ok());
    if let Some(moved) = moved {
        moved.to_string().lines().for_each(|line| say(&format!("folio: {}", printable(line))));
    }
    let regions = plan.regions.as_ref().and_then(|regions| regions.sums().ok());
    for sum in regions.unwrap_or_default() {
        say(&format!("folio: regions: {}", printable(&describe_regions(&sum))));
    }
    if let Some(heap) = &plan.heap {
        let (size, given) = (figures::size(heap.folio_bytes), figures::bytes(heap.given_bytes()));
        let huge = figures::bytes(watched.samples.anon_huge_bytes);
        say(&format!(
            "folio: heap: {given} allocated in {size} folios while it ran (all processes), up to \
             {huge} of the program's memory mapped by PMD entries"
        ));
    }
}

fn describe_regions(sum: &RegionSum) -> String {
    let RegionSum { rule, nr_regions, bytes, nr_refused, errno } = sum;
    let count = figures::counted(*nr_regions, "region");
    let advised = format!("{rule}: {count}, {} in all processes", figures::bytes(*bytes));
    if *nr_refused == 0 {
        return advised;
    }
    let why = io::Error::from_raw_os_error(*errno);
    format!("{advised}; the kernel refused {}: {why}", figures::grouped(*nr_refused))
}

fn describe_samples(samples: &Samples, seconds: f64) -> String {
    if samples.nr == 0 {
        return format!("ended after {seconds:.2} s, before its mappings were sampled");
    }
    let Samples { nr, nr_processes, text_bytes, text_huge_bytes, text_contpte_bytes, .. } =
        *samples;
    let who =
        if nr_processes == 1 { String::new() } else { format!(" of {nr_processes} processes") };
    let contpte = text_contpte_bytes.map_or_else(String::new, |bytes| {
        let size = figures::size(Geometry::running().contpte_bytes());
        format!("in contpte blocks of {size} {}, ", figures::bytes(bytes))
    });
    format!(
        "text{who} {contpte}mapped by PMD {} of {} resident (the largest of n = {nr} samples in \
         {seconds:.2} s)",
        figures::bytes(text_huge_bytes),
        figures::bytes(text_bytes),
    )
}
