//! One run of the probe (`probe/probe.c`).
//!
//! Owns the embedded program, its arguments and its exit. The probe prints the recording, or one
//! line that explains the failure.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};

use super::error::CrosscheckError;
use largefolio_linux::signals::Signals;

/// The program, a few tens of KiB: static, without a C library.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/probe"));
/// The polling interval; the shortest workloads take about ten times as long.
const POLL: Duration = Duration::from_millis(2);

const COW_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cow"));

const SCRIPT_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/script"));

pub(super) fn install_script(path: &Path) -> io::Result<()> {
    install_program(path, SCRIPT_PROGRAM)
}

pub(super) fn install(path: &Path) -> io::Result<()> {
    install_program(path, PROGRAM)
}

pub(super) fn install_cow(path: &Path) -> io::Result<()> {
    install_program(path, COW_PROGRAM)
}

fn install_program(path: &Path, program: &[u8]) -> io::Result<()> {
    fs::write(path, program)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

pub(super) enum ProbeEnd {
    Recorded(String),
    Refused(String),
}

/// Runs the program at `path`; a signal stops it.
pub(super) fn run(
    path: &Path,
    arguments: &[String],
    signals: &Signals,
) -> Result<ProbeEnd, CrosscheckError> {
    let (out, stderr) = (buffer()?, buffer()?);
    let shared = |file: &File| file.try_clone().map_err(CrosscheckError::os("run the probe"));
    let child = Command::new(path)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(shared(&out)?)
        .stderr(shared(&stderr)?)
        // Ctrl-C must reach only this process, which stops the probe and removes its traces.
        .process_group(0)
        .spawn()
        .map_err(CrosscheckError::os("run the probe"))?;
    let status = Running(child).wait(signals)?;
    if status.success() {
        return Ok(ProbeEnd::Recorded(text(out)?));
    }
    let stderr = text(stderr)?;
    let stderr = stderr.trim().trim_start_matches("probe: ");
    let stderr = if stderr.is_empty() { status.to_string() } else { stderr.to_owned() };
    Ok(ProbeEnd::Refused(stderr))
}

struct Running(Child);

impl Running {
    fn wait(mut self, signals: &Signals) -> Result<ExitStatus, CrosscheckError> {
        loop {
            if let Some(signal) = signals.received() {
                return Err(CrosscheckError::Interrupted(signal));
            }
            let status = self.0.try_wait().map_err(CrosscheckError::os("wait for the probe"))?;
            if let Some(status) = status {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the probe has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn buffer() -> Result<File, CrosscheckError> {
    let made = memfd_create("largefolio-probe", MemfdFlags::CLOEXEC);
    made.map(File::from).map_err(CrosscheckError::os("make a buffer"))
}

fn text(mut file: File) -> Result<String, CrosscheckError> {
    let mut text = String::new();
    file.rewind()
        .and_then(|()| file.read_to_string(&mut text))
        .map_err(CrosscheckError::os("read the probe's output"))?;
    Ok(text)
}
