//! Records with QEMU and the plugin.
//!
//! Owns the run: the private directory with the socket and the tail files, the child, and the
//! completed trace.

mod connection;
pub(crate) mod holes;
mod ledger;
mod packet;
mod process;
mod session;
mod tails;
mod variables;
#[expect(dead_code, reason = "the other side of the wire uses the rest")]
pub(super) mod wire;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use largefolio_trace::Writer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;

use self::connection::{is_refused, listen};
use self::ledger::Ledger;
#[cfg(fuzzing)]
pub use self::ledger::fuzzed::recorded_from;
use self::session::Session;
use super::book::Book;
use super::child::wait_unrecorded;
use super::error::RecordError;
use super::files::Files;
use super::finish::{self, Finish};
use super::outcome::{Progress, RecordOutcome, RecorderKind};
use super::plan::Recording;
use super::tools::{self, Emulator};
use crate::program::arch::Arch;
use crate::signals::{self, Signals};

/// A memory filesystem: tails are written constantly and must not reach a disk.
const MEMORY_DIRECTORY: &str = "/dev/shm";

const DIRECTORY_PREFIX: &str = "folio-";

impl Recording {
    /// Runs the program under the recorder and writes the trace. Calls `progress` about ten times a
    /// second.
    ///
    /// # Errors
    /// [`RecordError::Output`], [`RecordError::Os`] or [`RecordError::RecorderFailed`] before the
    /// program does anything; [`RecordError::Trace`] if the trace cannot be completed.
    pub fn run(&self, progress: &mut dyn FnMut(Progress)) -> Result<RecordOutcome, RecordError> {
        let Emulator { qemu, plugin } = &self.emulator;
        let started = Instant::now();
        let mut writer = Writer::create(&self.output, finish::meta(self, RecorderKind::Qemu))?;
        sweep();
        let directory = private_directory().map_err(RecordError::os("make a private directory"))?;
        let listener = listen(&directory.path().join(wire::SOCKET_NAME))
            .and_then(|listener| admit_other_users(directory.path()).map(|()| listener))
            .map_err(RecordError::os("listen for the recorder"))?;
        let signals = Signals::watch().map_err(RecordError::os("watch signals"))?;
        let mut command = command(self, qemu, plugin, directory.path());
        let mut child = command.spawn().map_err(RecordError::os("start QEMU"))?;
        // Each process has a connection. The program keeps the old limit.
        let _limit = ManyDescriptors::allow();

        let mut book = Book::new(&mut writer);
        book.files = Files::below(self.program.root.clone());
        book.scripts.clone_from(&self.program.scripts);
        let program = self.program.elf.clone();
        let mut ledger = Ledger::new(&mut book, directory.path().to_path_buf(), program);
        let mut session = Session::new(&mut ledger, listener, child.id());
        let result = session.run(&mut child, &signals, progress);
        let (has_started, is_misunderstood) = (session.has_started(), session.is_misunderstood());
        drop(session);
        // The sockets are closed: the plugin stops sending.
        let status = result
            .inspect_err(|error| wait_unrecorded(error, &mut child, &signals, started, progress))?;
        // If QEMU cannot load the program, it ends before the first instruction.
        if !has_started || ledger.book.layout.is_empty() {
            if let Some(signal) = signals.received() {
                return Err(RecordError::Interrupted(signal));
            }
            if is_misunderstood {
                return Err(RecordError::OtherPlugin(plugin.clone()));
            }
            let command = format!("{command:?}");
            let status = status.to_string();
            return Err(RecordError::RecorderFailed { recorder: "QEMU", status, command });
        }
        let ended = finish::ended_of(status);
        ledger.end_all(ended)?;
        let ended_text = ledger.ended_text(ended);
        let is_crash = signals.received().is_none() && ledger.is_emulators_end(ended);
        let warnings = is_crash.then(|| EMULATOR_ENDED.to_owned()).into_iter().collect();
        let facts = Finish::of_book(&mut book, ended_text, warnings);
        facts.complete(writer, ended, RecorderKind::Qemu, started)
    }
}

const EMULATOR_ENDED: &str = "QEMU ended before the program did: the trace stops there, and the \
    exit code is QEMU's. Record again; if this happens every time, try \
    another QEMU (LARGEFOLIO_QEMU) or --live.";

/// Raises the descriptor limit to its maximum until it is dropped.
struct ManyDescriptors(Rlimit);

impl ManyDescriptors {
    fn allow() -> Self {
        let before = getrlimit(Resource::Nofile);
        // If this fails, further connections wait until others end.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
        Self(before)
    }
}

impl Drop for ManyDescriptors {
    fn drop(&mut self) {
        let _ = setrlimit(Resource::Nofile, self.0);
    }
}

const TUNABLES: &str = "GLIBC_TUNABLES";

/// Removes the directories of killed recordings: their sockets refuse connections.
fn sweep() {
    for entry in std::fs::read_dir(MEMORY_DIRECTORY).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_named = entry.file_name().to_string_lossy().starts_with(DIRECTORY_PREFIX);
        if is_named && is_refused(&path.join(wire::SOCKET_NAME)) {
            // Other users' directories cannot be removed.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

fn private_directory() -> std::io::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(DIRECTORY_PREFIX);
    // tempfile makes directories with mode 0700.
    builder.tempdir_in(MEMORY_DIRECTORY).or_else(|_| builder.tempdir())
}

/// Lets other users connect. A service that root starts continues as another user, and its children
/// connect as that user. The directory's name is visible in QEMU's arguments, so any process can
/// connect. The kernel tells which process did, and the session reads only processes that it saw
/// start.
fn admit_other_users(directory: &Path) -> std::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let mode = std::fs::Permissions::from_mode;
    std::fs::set_permissions(directory.join(wire::SOCKET_NAME), mode(0o666))?;
    // They create their tails there and cannot remove other users' tails.
    std::fs::set_permissions(directory, mode(0o1733))
}

fn command(plan: &Recording, qemu: &Path, plugin: &Path, directory: &Path) -> Command {
    let program = &plan.program.elf;
    let (qemu, plugin, directory) = (absolute(qemu), absolute(plugin), absolute(directory));
    let real = program.canonicalize().unwrap_or_else(|_| absolute(program));
    let root = plan.program.root.directory();
    let settings = [("self", &*plugin), ("dir", &*directory), ("qemu", &*qemu), ("exe", &*real)];
    let mut option = tools::escape_commas(plugin.as_os_str());
    for (key, path) in settings.into_iter().chain(root.map(|root| ("root", root))) {
        option.push(format!(",{key}="));
        option.push(tools::escape_commas(path.as_os_str()));
    }
    let arguments: &[OsString] = &plan.program.arguments;
    let (zeroth, rest) = arguments.split_at(arguments.len().min(1));
    let mut command = Command::new(&qemu);
    command.args(["-B", wire::GUEST_BASE]).args(plan.program.arch.options());
    if let Some(root) = root {
        command.arg("-L").arg(root);
    }
    command.arg("-plugin").arg(option);
    if let Some(name) = zeroth.first() {
        command.arg("-0").arg(name);
    }
    command.arg(absolute(program)).args(rest);
    for (name, value) in std::env::vars_os() {
        if variables::acts_on_emulator(name.as_bytes()) {
            command.env_remove(&name).env(shielded(&name), value);
        }
    }
    let tunables = tunables(plan.program.arch, std::env::var_os(TUNABLES));
    command.env(shielded(OsStr::new(TUNABLES)), tunables);
    signals::hand_on(&mut command);
    // SAFETY: the function only makes a system call.
    unsafe { command.pre_exec(keep_addresses) };
    command
}

fn shielded(name: &OsStr) -> OsString {
    let mut shielded = OsString::from_vec(variables::SHIELD.to_vec());
    shielded.push(name);
    shielded
}

/// Sets a tunable of the program's glibc; `own` are the user's. One that the user chose stays.
///
/// - arm64: on the CPU named here, glibc clears memory with stores. On others it uses `DC ZVA`,
///   which QEMU does not report.
/// - x86-64: QEMU presents an AMD CPU with an L2 of 512 KiB. From this size on, glibc would copy
///   backward between equally aligned pages, which no CPU with fast `rep movsb` does: readahead
///   then sees a random access pattern. With this threshold it copies forward.
fn tunables(arch: Arch, own: Option<OsString>) -> OsString {
    let (name, value) = match arch {
        Arch::Arm64 => ("glibc.cpu.name", "kunpeng920"),
        Arch::X86_64 => ("glibc.cpu.x86_non_temporal_threshold", "0x80000"),
    };
    let mut tunables = own.unwrap_or_default();
    if !tunables.to_string_lossy().contains(name) {
        if !tunables.is_empty() {
            tunables.push(":");
        }
        tunables.push(format!("{name}={value}"));
    }
    tunables
}

/// QEMU 10.0 lets the kernel choose addresses. Without randomization, a program that is executed
/// again has the same image. If a sandbox refuses this, each execution has its own image.
#[expect(clippy::unnecessary_wraps, reason = "what pre_exec takes")]
fn keep_addresses() -> std::io::Result<()> {
    const QUERY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: changes nothing.
    let set = unsafe { libc::personality(QUERY) };
    if let Ok(set) = libc::c_ulong::try_from(set) {
        let without_chance = set | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
        // SAFETY: sets flags of this process, which becomes QEMU.
        unsafe { libc::personality(without_chance) };
    }
    Ok(())
}

/// QEMU treats a leading `-` as an option.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}
