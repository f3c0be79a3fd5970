//! Runs programs on a private filesystem: recorded under QEMU, or plainly and observed.
//!
//! ```text
//!   put       the files that a program finds, as data
//!   record    `folio record`: the trace names the files of this filesystem
//!   plain     cold (remounted) or warm (after an earlier run), observed at its end
//! ```
//!
//! The filesystem's metadata is read before a run, so that the bytes that a program reads are data.
//! Invariant R1: each run finds the same files with the same contents, and the same settings.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::thread;
use std::time::Duration;

use largefolio_linux::census::file::{self, CachedFile, Empty};
use largefolio_linux::record::{RecordOutcome, RecordRequest, Recording};
use largefolio_linux::signals::Signals;

use super::super::error::CrosscheckError;
use super::super::facts::first_cpu;
use super::super::group::MemoryGroup;
use super::super::mkfs;
use super::super::probe;
use super::super::wanted::{HeldSettings, WantedSettings};
use super::super::workloads::Filesystem;
use super::discover::Discover;
use super::disk::{self, Disk, Mount};
use super::kept::Kept;
use super::observe::{Observed, Placement, ProgramObserver};
use super::stage::Stage;
use super::{ProgramRecorder, name_of_command, program_of, tracer};

/// The polling interval for signals to forward.
const LOOK: Duration = Duration::from_millis(20);
/// A tmpfs on every system.
const TMPFS: &str = "/dev/shm";

/// Where programs run.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan {
    pub filesystem: Filesystem,
    pub window_kb: u64,
    pub disk: Disk,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainOptions {
    /// The page cache contains the pages of an earlier run.
    pub is_warm: bool,
    /// Limit of the memory cgroup, in bytes.
    pub limit: Option<u64>,
    pub placement: Placement,
}

/// An observed plain run.
#[derive(Clone, Debug)]
pub struct PlainRun {
    pub observed: Observed,
    /// Files of the filesystem at the end, with the names that the program used.
    pub cached: Vec<CachedFile>,
    pub status: ExitStatus,
}

/// A file that a program finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnFile {
    pub name: String,
    pub bytes: u64,
}

#[derive(Debug)]
pub struct RunPlace<'a> {
    stage: Stage,
    plan: RunPlan,
    signals: &'a Signals,
    own: Vec<OwnFile>,
    cpu: usize,
    settings: HeldSettings,
    tmpfs: Option<Mount>,
}

impl ProgramRecorder {
    /// Calls `work` with a place that has copies of `files`, mounted over them.
    ///
    /// # Errors
    /// The refusal, with its remedy, or the error of `work`; nothing remains on the system.
    pub fn run_in_place<T: Send, E: From<CrosscheckError> + Send>(
        &self,
        plan: RunPlan,
        files: &[PathBuf],
        work: impl FnOnce(&mut RunPlace<'_>) -> Result<T, E> + Send,
    ) -> Result<T, E> {
        if self.facts.formatter(plan.filesystem).is_none() {
            return Err(CrosscheckError::NoFilesystem(mkfs::missing(plan.filesystem)).into());
        }
        self.on_own_thread(|| {
            let kept = Kept::new(plan.disk.is_zram())?;
            disk::private_mounts()?;
            let stage = Stage::new(plan.filesystem, &self.facts, files, kept)?;
            let cpu = first_cpu()?;
            let (signals, own) = (&self.signals, Vec::new());
            let settings = HeldSettings::default();
            work(&mut RunPlace { stage, plan, signals, own, cpu, settings, tmpfs: None })
        })
    }

    /// Returns the files that a program reads: it runs once.
    ///
    /// # Errors
    /// If the program cannot run, or reads no file.
    pub fn files_of(&self, command: &[OsString]) -> Result<Vec<PathBuf>, CrosscheckError> {
        let files = self.on_own_thread(|| {
            let mut discover = Discover::default();
            tracer::run(&program_of(command)?, None, &mut discover)
                .map_err(CrosscheckError::os("run the program"))?;
            Ok::<_, CrosscheckError>(discover.files())
        })?;
        if files.is_empty() {
            return Err(CrosscheckError::NoFiles(name_of_command(command)));
        }
        Ok(files)
    }

    /// Calls `work` on another thread, which has its own mounts and tracees, and passes signals on.
    pub(super) fn on_own_thread<T: Send, E: From<CrosscheckError> + Send>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<T, E> {
        thread::scope(|scope| {
            let working = scope.spawn(work);
            while !working.is_finished() {
                thread::sleep(LOOK);
                tracer::pass_on(&self.signals);
            }
            working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl RunPlace<'_> {
    /// The folder of the filesystem, for files of the program's own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.stage.files
    }

    /// The largest request that the device takes.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn max_sectors_kb(&self) -> Result<u64, CrosscheckError> {
        self.stage.block.max_sectors_kb()
    }

    /// Puts the program that runs scripts into the folder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn install_interpreter(&mut self) -> Result<PathBuf, CrosscheckError> {
        let path = self.folder().join("script");
        probe::install_script(&path)
            .and_then(|()| File::open(&path)?.sync_all())
            .map_err(CrosscheckError::file(&path))?;
        self.stage.keep(&path);
        Ok(path)
    }

    /// Sets the readahead window of later runs.
    pub const fn set_window_kb(&mut self, window_kb: u64) {
        self.plan.window_kb = window_kb;
    }

    /// Sets the settings at the start of later runs. The program may change those in `changed`.
    ///
    /// # Errors
    /// A setting that cannot be changed, or a tmpfs that cannot be mounted.
    pub fn set_settings(
        &mut self,
        wanted: &WantedSettings,
        changed: &[PathBuf],
    ) -> Result<(), CrosscheckError> {
        self.tmpfs = None;
        // Releases its locks.
        self.settings = HeldSettings::default();
        self.settings = HeldSettings::new(wanted, changed)?;
        let mounted = wanted.tmpfs().map(|huge| Mount::tmpfs(huge, Path::new(TMPFS)));
        self.tmpfs = mounted.transpose()?;
        Ok(())
    }

    /// Sets the files that each later run finds in addition to copies and programs.
    pub fn put(&mut self, files: Vec<OwnFile>) {
        self.own = files;
    }

    /// Records a run into `output`, with standard output on standard error.
    ///
    /// # Errors
    /// As `folio record`.
    pub fn record(
        &mut self,
        command: &[OsString],
        output: &Path,
    ) -> Result<RecordOutcome, CrosscheckError> {
        self.make_cold()?;
        let request = RecordRequest { command, output: Some(output), root: None };
        let recording = Recording::new(&request)?;
        let _stdout = Redirected::to_stderr()?;
        let outcome = recording.run(&mut |_| {});
        self.settings.reset()?;
        self.check_signals()?;
        Ok(outcome?)
    }

    /// Runs a program plainly and observes it.
    ///
    /// # Errors
    /// If it cannot run or be observed. A program that fails is not an error.
    pub fn plain(
        &mut self,
        command: &[OsString],
        options: PlainOptions,
    ) -> Result<PlainRun, CrosscheckError> {
        self.make_cold()?;
        if options.is_warm {
            self.observed(command, options)?;
        }
        let (observed, status) = self.observed(command, options)?;
        self.check_signals()?;
        Ok(PlainRun { observed, cached: self.cached()?, status })
    }

    fn observed(
        &mut self,
        command: &[OsString],
        options: PlainOptions,
    ) -> Result<(Observed, ExitStatus), CrosscheckError> {
        let PlainOptions { limit, placement, .. } = options;
        let program = program_of(command)?;
        let program = match placement {
            Placement::Random => program,
            Placement::Fixed { .. } => program.with_fixed_addresses(),
        };
        let group = limit.map(|bytes| MemoryGroup::with_limit(&bytes.to_string())).transpose()?;
        let mut join = |tid: i32| match &group {
            Some(group) => fs::write(group.path().join("cgroup.procs"), tid.to_string()),
            None => Ok(()),
        };
        let mut observer = ProgramObserver::new(placement, &mut join);
        let status = tracer::run(&program, Some(self.cpu), &mut observer)
            .map_err(CrosscheckError::os("run the program"));
        self.settings.reset()?;
        Ok((observer.observed, status?))
    }

    fn check_signals(&self) -> Result<(), CrosscheckError> {
        match self.signals.received() {
            Some(signal) => Err(CrosscheckError::Interrupted(signal)),
            None => Ok(()),
        }
    }

    fn make_cold(&mut self) -> Result<(), CrosscheckError> {
        self.check_signals()?;
        self.stage.clean()?;
        for file in &self.own {
            make(&self.stage.files.join(&file.name), file.bytes)?;
        }
        self.stage.remount(self.plan.window_kb)?;
        read_metadata(&self.stage.files)?;
        read_device(&self.stage.block.path())
    }

    fn cached(&self) -> Result<Vec<CachedFile>, CrosscheckError> {
        let failed = CrosscheckError::file(&self.stage.files);
        let paths = file::below(&self.stage.files).map_err(failed)?;
        let cached = file::cached(&paths, Empty::Keep).map_err(|error| CrosscheckError::Os {
            action: "read the page cache",
            source: io::Error::other(error),
        })?;
        if let Some(error) = cached.failed.into_iter().next() {
            let source = io::Error::other(error);
            return Err(CrosscheckError::Os { action: "read the page cache", source });
        }
        let mut files = cached.files;
        for file in &mut files {
            if let Some(original) = self.stage.original_of(&file.path) {
                file.path = original.to_owned();
            }
        }
        Ok(files)
    }
}

/// Makes a file of `bytes` on the disk.
fn make(path: &Path, bytes: u64) -> Result<(), CrosscheckError> {
    let made = || -> io::Result<()> {
        let mut file = File::create_new(path)?;
        io::copy(&mut io::Read::take(io::repeat(1), bytes), &mut file)?;
        file.sync_all()
    };
    made().map_err(CrosscheckError::file(path))
}

/// Reads inodes, extents, and the filesystem's tables of free and of shared blocks.
fn read_metadata(folder: &Path) -> Result<(), CrosscheckError> {
    let failed = || CrosscheckError::file(folder);
    let probe = folder.join(".new");
    let used = || -> io::Result<()> {
        let mut file = File::create_new(&probe)?;
        io::copy(&mut io::Read::take(io::repeat(1), 1 << 16), &mut file)?;
        file.sync_all()?;
        let sharing = folder.join(".shared");
        // Fails on a filesystem that shares no blocks.
        let _ = rustix::fs::ioctl_ficlone(File::create_new(&sharing)?, &file);
        fs::remove_file(&sharing)?;
        file.set_len(1)?;
        fs::remove_file(&probe)
    };
    used().map_err(failed())?;
    for path in file::below(folder).map_err(failed())? {
        let file = File::open(&path).map_err(CrosscheckError::file(&path))?;
        // Fails for an empty file.
        let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0));
    }
    Ok(())
}

/// ext4 keeps its bitmaps at the start of the device, and reads them through the device's own
/// cache.
const BITMAPS_BYTES: u64 = 16 << 20;

fn read_device(device: &Path) -> Result<(), CrosscheckError> {
    let read = || -> io::Result<()> {
        let mut start = io::Read::take(File::open(device)?, BITMAPS_BYTES);
        io::copy(&mut start, &mut io::sink()).map(drop)
    };
    read().map_err(CrosscheckError::file(device))
}

/// Standard output goes to standard error until this is dropped.
struct Redirected(OwnedFd);

impl Redirected {
    fn to_stderr() -> Result<Self, CrosscheckError> {
        let failed = CrosscheckError::os("redirect standard output");
        let saved = match io::stdout().as_fd().try_clone_to_owned() {
            Ok(saved) => Self(saved),
            Err(error) => return Err(failed(error)),
        };
        // SAFETY: takes two numbers.
        if unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) } < 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok(saved)
    }
}

impl Drop for Redirected {
    fn drop(&mut self) {
        // SAFETY: takes two numbers; the first is a descriptor that this value owns.
        unsafe { libc::dup2(self.0.as_raw_fd(), libc::STDOUT_FILENO) };
    }
}
