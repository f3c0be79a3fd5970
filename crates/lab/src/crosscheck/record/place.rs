//! A private filesystem, and the workloads recorded on it.
//!
//! Owns the order of set-up and tear-down: [`Recorder`] has the state shared by all filesystems,
//! [`RecordingPlace`] one filesystem with its files.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::device::{Device, max_sectors_kb};
use super::error::CrosscheckError;
use super::facts::{DEFAULT_AROUND_BYTES, Facts, first_cpu};
use super::group::{MemoryGroup, nr_refresh_faults};
use super::mkfs;
use super::plan::OWN_FILE;
use super::probe::{self, ProbeEnd};
use super::tracefs;
use super::workloads::{FileSpec, Filesystem, Workload, files};
use largefolio_linux::mount::Detached;
use largefolio_linux::setting::{Setting, thp};
use largefolio_linux::signals::Signals;
use largefolio_linux::tracefs::Instance;

/// Microseconds after each step for its I/O to end; the probe's own default.
const PAUSE_US: u64 = 1500;
const LONG_PAUSE_FACTOR: u64 = 20;
/// Attempts to drop the cache: a page in another CPU's batch cannot be dropped immediately.
const NR_COOLINGS: usize = 4;
/// Time for each CPU to drain its batches.
const COOLING: Duration = Duration::from_millis(50);
/// Each page starts with a return instruction, so it can be called.
#[cfg(target_arch = "x86_64")]
const RETURN: [u8; 4] = [0xc3, 0, 0, 0];
#[cfg(not(target_arch = "x86_64"))]
const RETURN: [u8; 4] = [0xc0, 0x03, 0x5f, 0xd6];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// 1.5 ms, or the workload's own pause.
    Usual,
    /// Twenty times as long, for a busy machine.
    Long,
}

#[derive(Debug)]
pub struct Recorder {
    facts: Facts,
    instance: Instance,
    signals: Signals,
    cpu: usize,
    asleep: Option<[Setting; 2]>,
}

impl Recorder {
    /// Watches signals and makes the tracefs instance.
    ///
    /// # Errors
    /// The refusal, with its remedy; nothing remains on the system.
    pub fn new(facts: Facts) -> Result<Self, CrosscheckError> {
        let signals = Signals::watch().map_err(CrosscheckError::os("watch signals"))?;
        let instance = tracefs::instance()?;
        let cpu = first_cpu()?;
        Ok(Self { facts, instance, signals, cpu, asleep: None })
    }

    /// Disables khugepaged until this is dropped, on kernels with a khugepaged that collapses files
    /// on filesystems with large folios.
    ///
    /// # Errors
    /// A setting that cannot be changed.
    pub fn send_khugepaged_to_sleep(&mut self) -> Result<(), CrosscheckError> {
        self.asleep = Some(thp::send_khugepaged_to_sleep()?);
        Ok(())
    }

    /// Makes a filesystem in memory with room for a file of `own_bytes`.
    ///
    /// # Errors
    /// The refusal, with its remedy; nothing remains on the system.
    pub fn place(
        &self,
        filesystem: Filesystem,
        own_bytes: u64,
    ) -> Result<RecordingPlace<'_>, CrosscheckError> {
        let made = RecordingPlace::new(self, filesystem, own_bytes);
        // Ctrl-C also reaches the formatter. Report the signal, not the formatter's failure.
        match self.signals.received() {
            Some(signal) => Err(CrosscheckError::Interrupted(signal)),
            None => made,
        }
    }
}

/// A mounted filesystem with files. Dropping it unmounts and removes it.
#[derive(Debug)]
pub struct RecordingPlace<'a> {
    recorder: &'a Recorder,
    filesystem: Filesystem,
    // Declared before the device, so the mount is dropped first.
    mount: Detached,
    device: Device,
    window: PathBuf,
    files: Vec<FileSpec>,
    made: BTreeSet<String>,
    /// Files with pages that no longer start with [`RETURN`].
    soiled: BTreeSet<String>,
}

impl<'a> RecordingPlace<'a> {
    fn new(
        recorder: &'a Recorder,
        filesystem: Filesystem,
        own_bytes: u64,
    ) -> Result<Self, CrosscheckError> {
        let tool = recorder.facts.formatter(filesystem);
        let tool = tool.ok_or_else(|| CrosscheckError::NoFilesystem(mkfs::missing(filesystem)))?;
        let mut device = Device::new(own_bytes)?;
        mkfs::make(filesystem, &device.path(), tool)?;
        device.set_max_sectors_kb()?;
        let mount = Detached::new(filesystem.driver(), Some(&device.path()))
            .map_err(|source| CrosscheckError::Mount { filesystem: filesystem.name(), source })?;
        let files = files(filesystem, recorder.facts.page_bytes);
        let window = device.window_of(filesystem)?;
        let probe = mount.path().join("probe");
        probe::install(&probe).map_err(CrosscheckError::file(probe))?;
        let (made, soiled) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { recorder, filesystem, mount, device, window, files, made, soiled })
    }

    /// Runs one workload and returns its recording.
    ///
    /// # Errors
    /// [`CrosscheckError::Probe`] if only this workload failed; other errors affect all workloads.
    pub fn record(&mut self, workload: &Workload, pause: Pause) -> Result<String, CrosscheckError> {
        self.prepare(workload)?;
        self.device.set(&self.window, workload.window_kb)?;
        let arguments = self.arguments(workload, pause);
        let path = self.mount.path().join("probe");
        let mut message = String::new();
        for _ in 0..NR_COOLINGS {
            let group = workload.word("limit").map(MemoryGroup::with_limit).transpose()?;
            let mut arguments = arguments.clone();
            if let Some(group) = &group {
                arguments.push(format!("group={}", group.path().display()));
                arguments.push(format!("refresh={}", nr_refresh_faults()));
            }
            match probe::run(&path, &arguments, &self.recorder.signals)? {
                ProbeEnd::Recorded(text) => return Ok(text),
                ProbeEnd::Refused(reason) => message = reason,
            }
            if !message.starts_with("still cached") {
                break;
            }
            std::thread::sleep(COOLING);
        }
        Err(CrosscheckError::Probe { workload: workload.name.clone(), message })
    }

    fn arguments(&self, workload: &Workload, pause: Pause) -> Vec<String> {
        let facts = &self.recorder.facts;
        let file = self.mount.path().join(workload.file());
        let settle = workload.word("settle").and_then(|us| us.parse().ok()).unwrap_or(PAUSE_US);
        let settle = if pause == Pause::Long { settle * LONG_PAUSE_FACTOR } else { settle };
        let mut arguments = vec![
            format!("file={}", file.display()),
            format!("trace={}", self.recorder.instance.path().display()),
            format!("fs={}", self.filesystem),
            format!("ra={}", workload.window_kb),
            format!("sectors={}", max_sectors_kb(self.filesystem)),
            format!("around={}", facts.fault_around_bytes.unwrap_or(DEFAULT_AROUND_BYTES)),
            format!("variant={}", facts.variant()),
            format!("settle={settle}"),
            format!("cpu={}", self.recorder.cpu),
        ];
        let is_ours = |key: &str| matches!(key, "file" | "settle" | "around" | "limit");
        let rest = workload.settings.iter().filter(|(key, _)| !is_ours(key));
        arguments.extend(rest.map(|(key, value)| format!("{key}={value}")));
        arguments
    }

    fn prepare(&mut self, workload: &Workload) -> Result<(), CrosscheckError> {
        let name = workload.file();
        let own = FileSpec { name: OWN_FILE, bytes: workload.own_bytes, is_sparse: false };
        let is_own = name == own.name;
        let known = self.files.iter().find(|spec| spec.name == name).copied();
        let Some(spec) = known.or(is_own.then_some(own)) else {
            unreachable!("plans name known files only")
        };
        let path = self.mount.path().join(name);
        let is_called = workload.word("prot") == Some("rxc");
        // A random workload needs a new file, free of leftovers from earlier writes.
        let is_stale = spec.is_sparse && has_grown(&path, spec)
            || is_own && has_length(&path, spec.bytes) == Some(false)
            || (is_called || is_own) && self.soiled.contains(name);
        if is_stale || !self.made.contains(name) {
            make(&path, spec).map_err(CrosscheckError::file(&path))?;
            self.made.insert(name.to_owned());
            self.soiled.remove(name);
        }
        if workload.word("prot") == Some("rw") || workload.word("ops").is_some() {
            self.soiled.insert(name.to_owned());
        }
        File::open(&path).and_then(|file| file.sync_all()).map_err(CrosscheckError::file(&path))
    }
}

fn has_grown(path: &Path, spec: FileSpec) -> bool {
    fs::metadata(path)
        .map_or(true, |metadata| metadata.len() != spec.bytes || metadata.blocks() > 0)
}

fn has_length(path: &Path, bytes: u64) -> Option<bool> {
    fs::metadata(path).map(|metadata| metadata.len() == bytes).ok()
}

fn make(path: &PathBuf, spec: FileSpec) -> io::Result<()> {
    if path.exists() {
        fs::remove_file(path)?;
    }
    let mut file = File::create(path)?;
    if spec.is_sparse {
        file.set_len(spec.bytes)?;
    } else {
        let piece = RETURN.repeat(1 << 18);
        let mut left = spec.bytes;
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
            file.write_all(&piece[..len])?;
            left -= len as u64;
        }
    }
    file.sync_all()
}
