//! Records a real program on the running kernel, with all its files.
//!
//! ```text
//!   first run: find the files it reads            (discover)
//!   copies of them on a fresh filesystem, mounted
//!   over the originals, visible only to the program             (disk)
//!   second run, every file cold, under ptrace: faults and page cache from tracefs,
//!   system calls as marks in the same buffer      (tracer, marks, events)
//!   the trace written as a recording              (line, areas, convert)
//! ```
//!
//! Owns the recording. `largefolio_sim::crosscheck` owns replay and comparison.

mod areas;
mod births;
mod convert;
mod descriptors;
mod discover;
mod disk;
mod events;
mod kept;
mod line;
mod marks;
mod observe;
mod run_place;
mod stage;
mod tracer;

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use largefolio_trace::shown;

pub use disk::Disk;
pub use observe::{Observed, Placement, Resident};
pub use run_place::{OwnFile, PlainOptions, PlainRun, RunPlace, RunPlan};

use convert::{Body, Source};
use discover::Discover;
use events::Events;
use kept::Kept;
use marks::{Marks, Used};
use stage::Stage;
use tracer::TracedProgram;

use super::error::CrosscheckError;
use super::facts::{DEFAULT_AROUND_BYTES, Facts, first_cpu};
use super::mkfs;
use super::workloads::Filesystem;
use largefolio_linux::elf::exec_reads::exec_reads;
use largefolio_linux::proc::host;
use largefolio_linux::setting::{Setting, thp};
use largefolio_linux::signals::Signals;

#[derive(Clone, Debug)]
pub struct ProgramPlan {
    pub command: Vec<OsString>,
    pub filesystem: Filesystem,
    pub window_kb: u64,
    pub disk: Disk,
}

#[derive(Clone, Debug)]
pub struct ProgramRecording {
    pub text: String,
    pub status: ExitStatus,
    pub nr_files: usize,
    /// Folios that others removed from the page cache (reclaim, DAMON, `drop_caches`).
    pub nr_removed: u64,
}

/// If folios were removed during a run, it is repeated at most this often.
const NR_TRIES: usize = 5;

#[derive(Debug)]
pub struct ProgramRecorder {
    facts: Facts,
    signals: Signals,
    asleep: Option<[Setting; 2]>,
}

impl ProgramRecorder {
    /// Checks the requirements of every recording and watches signals.
    ///
    /// # Errors
    /// The refusal, with its remedy. `as_root` is a command line that would work.
    pub fn new(facts: Facts, as_root: &str) -> Result<Self, CrosscheckError> {
        if !facts.is_root {
            return Err(CrosscheckError::NotRoot(as_root.to_owned()));
        }
        let signals = Signals::watch().map_err(CrosscheckError::os("watch signals"))?;
        Ok(Self { facts, signals, asleep: None })
    }

    /// Disables khugepaged until this is dropped.
    ///
    /// # Errors
    /// A setting that cannot be changed.
    pub fn send_khugepaged_to_sleep(&mut self) -> Result<(), CrosscheckError> {
        self.asleep = Some(thp::send_khugepaged_to_sleep()?);
        Ok(())
    }

    /// Records a program: the first run finds its files, the second is recorded.
    ///
    /// # Errors
    /// The refusal, with its remedy; nothing remains on the system. A program that fails is not an
    /// error.
    pub fn record(&self, plan: &ProgramPlan) -> Result<ProgramRecording, CrosscheckError> {
        if self.facts.formatter(plan.filesystem).is_none() {
            return Err(CrosscheckError::NoFilesystem(mkfs::missing(plan.filesystem)));
        }
        // Mounts are private to a thread, and only the tracing thread may wait for its tracees.
        let result = self.on_own_thread(|| record_here(plan, &self.facts));
        match self.signals.received() {
            Some(signal) => Err(CrosscheckError::Interrupted(signal)),
            None => result,
        }
    }
}

fn record_here(plan: &ProgramPlan, facts: &Facts) -> Result<ProgramRecording, CrosscheckError> {
    let program = program_of(&plan.command)?;
    if !host::has_pids_of_machine() {
        return Err(CrosscheckError::PidNamespace);
    }
    let mut discover = Discover::default();
    tracer::run(&program, None, &mut discover).map_err(CrosscheckError::os("run the program"))?;
    let files = discover.files();
    if files.is_empty() {
        return Err(CrosscheckError::NoFiles(name_of(plan)));
    }
    // Started before the mounts become private, so they do not see them.
    let (kept, mut events) = (Kept::new(plan.disk.is_zram())?, Events::new()?);
    disk::private_mounts()?;
    let mut stage = Stage::new(plan.filesystem, facts, &files, kept)?;
    let mut nr_tries = 0;
    loop {
        stage.remount(plan.window_kb)?;
        let recording = run_on(&stage, &mut events, plan, facts, &program)?;
        nr_tries += 1;
        if recording.nr_removed == 0 || nr_tries == NR_TRIES {
            return Ok(recording);
        }
    }
}

fn run_on(
    stage: &Stage,
    events: &mut Events,
    plan: &ProgramPlan,
    facts: &Facts,
    program: &TracedProgram,
) -> Result<ProgramRecording, CrosscheckError> {
    let metadata = stage.files.metadata().map_err(CrosscheckError::file(&stage.files))?;
    let cpu = first_cpu()?;
    events.prepare(metadata.dev(), cpu)?;
    let mut follow = |tids: &_| events.follow(tids);
    let mut marks = Marks::new(events.marker()?, metadata.dev(), &mut follow);
    let status = tracer::run(program, Some(cpu), &mut marks)
        .map_err(CrosscheckError::os("run the program"))?;
    let files = std::mem::take(&mut marks.files);
    let reads_of = |inode| {
        let path = files.get(&inode).map_or(Path::new(""), |used| used.path.as_path());
        exec_reads(path, path.to_string_lossy().contains("/ld-linux"))
    };
    let trace = events.stop()?;
    let body = convert::convert(&trace, &Source { page: facts.page_bytes, exec_reads: &reads_of })
        .map_err(|error| CrosscheckError::Trace(error.to_string()))?;
    let text = header(stage, plan, facts, events.known)? + &with_files(&body, &files);
    let (nr_files, nr_removed) = (body.files.len(), body.nr_removed);
    Ok(ProgramRecording { text, status, nr_files, nr_removed })
}

fn with_files(body: &Body, files: &BTreeMap<u64, Used>) -> String {
    let mut text = String::new();
    for (inode, number) in &body.files {
        let (bytes, path) =
            files.get(inode).map_or((0, Path::new("?")), |used| (used.bytes, used.path.as_path()));
        let _ = writeln!(text, "I {number} {bytes} {}", shown(path));
    }
    text + &body.text + "E 0\n"
}

fn header(
    stage: &Stage,
    plan: &ProgramPlan,
    facts: &Facts,
    events: u64,
) -> Result<String, CrosscheckError> {
    Ok(format!(
        "# kernel={} variant={} arch={} fs={} page={} ra_pages={} max_sectors_kb={} \
         fault_around_bytes={} events={events} lost=0 settle=0 io={} program={}\n",
        facts.release,
        facts.variant(),
        if cfg!(target_arch = "x86_64") { "x86-64" } else { "arm64" },
        plan.filesystem,
        facts.page_bytes,
        (plan.window_kb << 10) / facts.page_bytes,
        stage.block.max_sectors_kb()?,
        facts.fault_around_bytes.unwrap_or(DEFAULT_AROUND_BYTES),
        if stage.block.reads_within_call() { "within" } else { "later" },
        name_of(plan),
    ))
}

fn name_of(plan: &ProgramPlan) -> String {
    name_of_command(&plan.command)
}

fn name_of_command(command: &[OsString]) -> String {
    let name = Path::new(command.first().map_or(OsStr::new("-"), |name| name));
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    name.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
}

fn program_of(command: &[OsString]) -> Result<TracedProgram, CrosscheckError> {
    let name = command.first().cloned().unwrap_or_default();
    let missing = || CrosscheckError::NoProgram(name.to_string_lossy().into_owned());
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    let path = if name.as_bytes().contains(&b'/') {
        Some(PathBuf::from(&name)).filter(is_program)
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|dir| dir.join(&name)).find(is_program)
    };
    let path = path.ok_or_else(missing)?;
    let text = |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| missing());
    let arguments: Result<_, _> = command.iter().map(|word| text(word)).collect();
    let environment: Vec<CString> = std::env::vars_os()
        .filter_map(|(mut key, value)| {
            key.push("=");
            key.push(value);
            CString::new(key.as_bytes()).ok()
        })
        .collect();
    Ok(TracedProgram::new(text(path.as_os_str())?, arguments?, environment))
}
