//! A real program on the running kernel, recorded with all its files.
//!
//! ```text
//!   first run: which files does it read?          (discover)
//!   copies of them on a fresh filesystem,
//!   mounted over the originals where only the program sees it   (disk)
//!   second run, every file cold, under ptrace: faults and page cache from tracefs,
//!   system calls as marks in the same buffer      (tracer, marks, instance)
//!   the trace written as a recording              (line, areas, convert)
//! ```
//!
//! Owns the recording. Replay and comparison are `largefolio_sim::crosscheck`'s.

mod areas;
mod convert;
mod descriptors;
mod discover;
mod disk;
mod elf;
mod error;
mod instance;
mod line;
mod marks;
mod tracer;

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

pub use disk::DiskKind;
pub use error::ProgramError;

use convert::Source;
use discover::Discover;
use disk::{Disk, Mount};
use instance::Instance;
use marks::Marks;

/// What to record.
#[derive(Clone, Debug)]
pub struct ProgramPlan {
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// `ext4` or `xfs`.
    pub filesystem: String,
    /// Readahead window in KiB.
    pub window_kib: u64,
    /// Device below the filesystem.
    pub disk: DiskKind,
}

/// A recording of a program.
#[derive(Clone, Debug)]
pub struct ProgramRecording {
    /// The recording (`recordings/README.md`).
    pub text: String,
    /// How the program ended.
    pub status: ExitStatus,
    /// Files it used.
    pub nr_files: usize,
    /// Folios somebody else took out of the page cache meanwhile (reclaim, DAMON, `drop_caches`).
    pub nr_removed: u64,
    /// Calls that move file pages in ways a recording cannot say, with their number.
    pub unknown: BTreeMap<&'static str, u64>,
}

/// A run during which reclaim took folios of the program away is recorded again, so often.
const NR_TRIES: usize = 5;

/// Device, filesystem and the copies on it.
struct Stage {
    // In the order in which they must end.
    binds: Vec<Mount>,
    mount: Option<Mount>,
    disk: Disk,
    directory: tempfile::TempDir,
    filesystem: String,
    copies: Vec<(PathBuf, PathBuf)>,
}

/// Records a program: a first run finds its files, the second is recorded.
///
/// # Errors
/// What the system refuses; see [`ProgramError`]. A program that fails is no error.
pub fn record_program(plan: &ProgramPlan) -> Result<ProgramRecording, ProgramError> {
    if !rustix::process::geteuid().is_root() {
        return Err(ProgramError::NotRoot);
    }
    if !cfg!(target_arch = "x86_64") {
        return Err(ProgramError::NotHere);
    }
    let plan = plan.clone();
    // Mounts are private to a thread, and so is the parenthood of a traced process.
    let thread = std::thread::spawn(move || record_here(&plan));
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn record_here(plan: &ProgramPlan) -> Result<ProgramRecording, ProgramError> {
    let program = program_of(&plan.command)?;
    let mut discover = Discover::default();
    tracer::run(&program, None, &mut discover).map_err(ProgramError::os("run the program"))?;
    let files = discover.files();
    if files.is_empty() {
        return Err(ProgramError::NoFiles);
    }
    disk::private_mounts()?;
    let mut stage = Stage::new(plan, &files)?;
    let mut recording = None;
    for _ in 0..NR_TRIES {
        stage.remount(plan.window_kib)?;
        let made = run_on(&stage, plan, &program)?;
        if made.nr_removed == 0 {
            return Ok(made);
        }
        recording = Some(made);
    }
    let Some(recording) = recording else { unreachable!("it is tried at least once") };
    Ok(recording)
}

impl Stage {
    fn new(plan: &ProgramPlan, files: &[PathBuf]) -> Result<Self, ProgramError> {
        let directory = tempfile::Builder::new()
            .prefix("largefolio-")
            .tempdir()
            .map_err(ProgramError::os("create a directory"))?;
        let sizes = files.iter().filter_map(|file| file.metadata().ok()).map(|meta| meta.len());
        // XFS takes nothing below 300 MiB.
        let bytes = (sizes.sum::<u64>() * 2 + (512 << 20)).next_multiple_of(1 << 20);
        let disk = Disk::new(plan.disk, bytes, &directory.path().join("image"))?;
        disk.format(&plan.filesystem)?;
        let at = directory.path().join("files");
        fs::create_dir(&at).map_err(ProgramError::os("create a directory"))?;
        let mount = Mount::device(&disk, &plan.filesystem, &at)?;
        let mut copies = Vec::new();
        for (nr, file) in files.iter().enumerate() {
            let copy = at.join(format!("{nr}"));
            copy_file(file, &copy)?;
            copies.push((copy, file.clone()));
        }
        let (binds, mount) = (Vec::new(), Some(mount));
        let filesystem = plan.filesystem.clone();
        Ok(Self { binds, mount, disk, directory, filesystem, copies })
    }

    /// Mounts the filesystem again, which empties its page cache, and the copies over the files.
    fn remount(&mut self, window_kib: u64) -> Result<(), ProgramError> {
        self.binds.clear();
        self.mount = None;
        self.disk.set_window_kib(window_kib)?;
        let at = self.directory.path().join("files");
        self.mount = Some(Mount::device(&self.disk, &self.filesystem, &at)?);
        for (copy, file) in &self.copies {
            self.binds.push(Mount::bind(copy, file)?);
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        while self.binds.pop().is_some() {}
    }
}

/// Copies content, mode and time of change: Python compares the time with that in its caches.
fn copy_file(from: &Path, to: &Path) -> Result<(), ProgramError> {
    let failed = || ProgramError::os("copy a file of the program");
    fs::copy(from, to).map_err(failed())?;
    let found = from.metadata().map_err(failed())?;
    let file = fs::File::open(to).map_err(failed())?;
    let time = found.modified().map_err(failed())?;
    file.set_times(fs::FileTimes::new().set_modified(time)).map_err(failed())?;
    file.sync_all().map_err(failed())
}

fn run_on(
    stage: &Stage,
    plan: &ProgramPlan,
    program: &tracer::Program,
) -> Result<ProgramRecording, ProgramError> {
    let at = stage.directory.path().join("files");
    let found = at.metadata().map_err(ProgramError::os("look at the filesystem"))?;
    let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
    let cpu = 0;
    let instance = Instance::new(u64::from(major) << 20 | u64::from(minor), cpu)?;
    let marker = instance.marker()?;
    let mut follow = |tids: &_| instance.follow(tids);
    let mut marks = Marks::new(marker, found.dev(), &mut follow);
    let status = tracer::run(program, Some(cpu), &mut marks)
        .map_err(ProgramError::os("run the program"))?;
    let trace = instance.stop()?;
    if let Some(path) = std::env::var_os("LARGEFOLIO_KEEP_TRACE") {
        let _ = fs::write(path, &trace);
    }
    let (files, unknown) = (std::mem::take(&mut marks.files), std::mem::take(&mut marks.unknown));
    let exec_reads = |inode| {
        let path = files.get(&inode).map(|used| used.path.clone()).unwrap_or_default();
        let is_interpreter = path.to_string_lossy().contains("/ld-linux");
        elf::reads(&path, is_interpreter)
    };
    let body = convert::convert(&trace, &Source { exec_reads: &exec_reads })?;
    let mut text = header(stage, plan, instance.events)?;
    for (inode, number) in &body.files {
        let used = files.get(inode);
        let bytes = used.map_or(0, |used| used.bytes);
        let path = used.map_or(Path::new("?"), |used| &used.path).display();
        text.push_str(&format!("I {number} {bytes} {path}\n"));
    }
    text.push_str(&body.text);
    text.push_str("E 0\n");
    Ok(ProgramRecording { text, status, nr_files: body.files.len(), nr_removed: body.nr_removed, unknown })
}

fn header(stage: &Stage, plan: &ProgramPlan, events: u64) -> Result<String, ProgramError> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")
        .map_err(ProgramError::os("read the kernel release"))?;
    let release = release.trim();
    let name = Path::new(plan.command.first().map_or(OsStr::new(""), |name| name));
    let name = name.file_name().unwrap_or_default().to_string_lossy().replace(' ', "_");
    let io = match plan.disk {
        DiskKind::Synchronous => "within",
        DiskKind::Loop => "later",
    };
    Ok(format!(
        "# kernel={release} variant=live arch=x86-64 fs={} page=4096 ra_pages={} \
         max_sectors_kb={} events={events} lost=0 settle=0 io={io} program={name}\n",
        plan.filesystem,
        plan.window_kib / 4,
        stage.disk.max_io_kib()?,
    ))
}

/// Finds the program as a shell would.
fn program_of(command: &[OsString]) -> Result<tracer::Program, ProgramError> {
    let name = command.first().cloned().unwrap_or_default();
    let missing = || ProgramError::NotFound(name.to_string_lossy().into_owned());
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
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
    Ok(tracer::Program::new(text(path.as_os_str())?, arguments?, environment))
}
