//! execve: records the new program too.
//!
//! By default QEMU would let the kernel execute the new program, outside of QEMU. This callback
//! runs before QEMU's own call and instead executes QEMU with the new program:
//!
//! ```text
//!   execve(PATH, ARGV, ENVP) --> is it a program? which interpreter? --> execve(QEMU, ..)
//!                                 |  no: nothing is done                      | refused
//!                                 v                                           v
//!                               QEMU's own call: the kernel refuses, or runs it unrecorded
//! ```
//!
//! A signal that QEMU's handler caught in between would be lost, and QEMU's block of all signals
//! would stay. All signals are therefore blocked from the decision on. The next program gets the
//! mask (`blocked=`) and then receives the pending signals.
//!
//! Invariant E1: anything the kernel would refuse is left to the kernel, so the program gets the
//! kernel's own error.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::sysno::Sysno;
use super::{Call, file, guest, low};
use crate::arguments::Arguments;
use crate::head::{self, HEAD_BYTES, Head, INTERPRETERS_MAX};
use crate::variables::{SHIELD, acts_on_emulator};
use crate::wire::{BODY_MAX, Kind, Unrecorded};
use crate::{grace, send, sys, version, wire};

const TOLD_MAX: usize = BODY_MAX / 4;

/// Signals that the comparison of masks ignores: QEMU never blocks SIGBUS and SIGSEGV, KILL and
/// STOP cannot be blocked, and the C library keeps two.
const NOT_COUNTED: u64 =
    1 << (7 - 1) | 1 << (9 - 1) | 1 << (11 - 1) | 1 << (19 - 1) | 1 << 31 | 1 << 32;

enum Left {
    Refused,
    Runs(Unrecorded),
}

struct Target {
    program: PathBuf,
    arguments: Vec<CString>,
    /// The scripts that led to the program.
    scripts: Vec<PathBuf>,
}

pub(super) fn before(call: &Call) {
    let Some(request) = Request::of(call) else { return };
    let held = Held::all();
    let left = match request.target() {
        // QEMU restarts the call, which comes here again.
        Ok(_) if signal_waits(call, held.earlier) => Left::Runs(Unrecorded::NoRecorder),
        Ok(target) => {
            target.tell(call);
            target.execute(&request.variables, held.earlier);
            call.thread.is_executing.set(false);
            send::send(call.tail, Kind::ExecveFailed, [&[], &[]]);
            Left::Runs(Unrecorded::NoRecorder)
        }
        Err(left) => left,
    };
    if let Left::Runs(reason) = left {
        grace::flush_others(call.tail);
        let path = behind_links(&request.path);
        let body = [&(reason as u32).to_le_bytes()[..], path.as_os_str().as_bytes()];
        send::send(call.tail, Kind::ExecveUnrecorded, body);
        call.thread.is_executing.set(true);
    }
}

/// Handles an execve that returned: the process continues unchanged.
pub(super) fn failed(call: &Call) {
    if call.thread.is_executing.take() {
        send::send(call.tail, Kind::ExecveFailed, [&[], &[]]);
    }
}

struct Held {
    earlier: u64,
}

impl Held {
    fn all() -> Self {
        Self { earlier: sys::block_signals(u64::MAX) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        sys::block_signals(self.earlier);
    }
}

/// Returns whether QEMU caught a signal for the program and has not delivered it. QEMU then blocks
/// all other signals and would restart the call. An execve now would lose the signal and keep the
/// block.
fn signal_waits(call: &Call, blocked: u64) -> bool {
    let all = |signals: u64| signals | NOT_COUNTED == u64::MAX;
    all(blocked) && !all(call.thread.blocked.get())
}

pub(super) fn note_blocked(call: &Call) {
    let [how, set, ..] = call.args;
    let Some(signals) = Some(set).filter(|&set| set != 0).and_then(guest::word_at) else { return };
    let blocked = &call.thread.blocked;
    match low(how).cast_signed() {
        libc::SIG_BLOCK => blocked.set(blocked.get() | signals),
        libc::SIG_UNBLOCK => blocked.set(blocked.get() & !signals),
        _ => blocked.set(signals),
    }
}

struct Request {
    path: PathBuf,
    arguments: Vec<CString>,
    variables: Vec<CString>,
}

impl Request {
    /// Returns `None` if the kernel will reject them.
    fn of(call: &Call) -> Option<Self> {
        let [a1, a2, a3, a4, ..] = call.args;
        let (path, vectors) = match call.sysno {
            Sysno::Execve => (path_at(a1), (a2, a3)),
            _ => (path_from(call.descriptor(0), &path_at(a2)), (a3, a4)),
        };
        let (arguments, variables) = vectors;
        let arguments = guest::vector_at(arguments)?;
        let variables = guest::vector_at(variables)?;
        Some(Self { path, arguments, variables })
    }

    fn target(&self) -> Result<Target, Left> {
        let mut path = behind_links(&self.path);
        let own = Arguments::kept().map(|kept| kept.arch);
        let (mut arguments, mut scripts) = (self.arguments.clone(), Vec::new());
        // The kernel adds an empty argument if a program is called without any.
        if arguments.is_empty() {
            arguments.push(CString::default());
        }
        for _ in 0..=INTERPRETERS_MAX {
            let program = in_root(&path);
            let bytes = read_head(&program)?;
            let (interpreter, argument) = match head::head(&bytes) {
                Head::Program(arch) if Some(arch) == own => {
                    check_loader(&bytes)?;
                    return Ok(Target { program, arguments, scripts });
                }
                Head::Script { interpreter, argument } => (interpreter, argument),
                Head::ThirtyTwoBit => return Err(Left::Runs(Unrecorded::ThirtyTwoBit)),
                Head::Program(_) | Head::Foreign(_) | Head::Unknown => {
                    return Err(Left::Runs(Unrecorded::Foreign));
                }
                Head::NoProgram => return Err(Left::Refused),
            };
            if self.path != path && is_descriptor(&self.path) {
                // The kernel would pass the script's name as `/dev/fd/N`.
                return Err(Left::Runs(Unrecorded::Deleted));
            }
            let words = [Some(interpreter), argument, Some(path.as_os_str().as_bytes())];
            let words: Option<Vec<CString>> =
                words.into_iter().flatten().map(|word| CString::new(word).ok()).collect();
            arguments.splice(..1, words.ok_or(Left::Refused)?);
            scripts.push(program);
            path = PathBuf::from(OsStr::from_bytes(interpreter));
        }
        Err(Left::Refused)
    }
}

fn path_at(address: u64) -> PathBuf {
    PathBuf::from(OsString::from_vec(guest::string_at(address)))
}

fn path_from(descriptor: i32, path: &Path) -> PathBuf {
    if path.is_absolute() || descriptor == libc::AT_FDCWD {
        return path.to_path_buf();
    }
    let base = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
    if path.as_os_str().is_empty() { base } else { base.join(path) }
}

fn is_descriptor(path: &Path) -> bool {
    path.starts_with("/proc/self/fd") || path.starts_with("/dev/fd")
}

/// Resolves a link in `/proc`. For QEMU the link could name another file, or be gone once QEMU
/// runs.
fn behind_links(path: &Path) -> PathBuf {
    let own = format!("/proc/{}/exe", std::process::id());
    let is_own = ["/proc/self/exe", "/proc/thread-self/exe", &own];
    if is_own.iter().any(|own| path == Path::new(own)) {
        return Arguments::kept().map(|kept| kept.program.clone()).unwrap_or_default();
    }
    if is_descriptor(path) {
        return std::fs::read_link(path).unwrap_or_else(|_| path.to_path_buf());
    }
    path.to_path_buf()
}

/// Returns the file that a program's path refers to: the one below the root, if it exists.
fn in_root(path: &Path) -> PathBuf {
    let root = Arguments::kept().and_then(|kept| kept.root.as_deref());
    root.filter(|root| path.is_absolute() && !path.starts_with(root))
        .and_then(|root| sys::path_in_root(root, path))
        .unwrap_or_else(|| path.to_path_buf())
}

fn read_head(path: &Path) -> Result<Vec<u8>, Left> {
    if path.as_os_str().as_bytes().ends_with(b" (deleted)") && !path.exists() {
        return Err(Left::Runs(Unrecorded::Deleted));
    }
    let metadata = path.metadata().map_err(|_| Left::Refused)?;
    if !metadata.is_file() || !sys::is_executable(path) {
        return Err(Left::Refused);
    }
    let (user, group) = sys::effective_ids();
    let gets_user = metadata.mode() & libc::S_ISUID != 0 && metadata.uid() != user;
    let group_bits = libc::S_ISGID | libc::S_IXGRP;
    let gets_group = metadata.mode() & group_bits == group_bits && metadata.gid() != group;
    if gets_user || gets_group || user != 0 && sys::has_capabilities(path) {
        return Err(Left::Runs(Unrecorded::SetUserId));
    }
    let mut bytes = Vec::new();
    // The name can refer to another file by now, such as a FIFO.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let read = opened.and_then(|file| file.take(HEAD_BYTES as u64).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|_| Left::Runs(Unrecorded::Unreadable))
}

fn check_loader(bytes: &[u8]) -> Result<(), Left> {
    let loader = head::loader(bytes).map(|path| in_root(Path::new(OsStr::from_bytes(path))));
    if loader.is_none_or(|path| path.exists()) { Ok(()) } else { Err(Left::Refused) }
}

impl Target {
    fn tell(&self, call: &Call) {
        for script in &self.scripts {
            file::head_read(call, script);
        }
        grace::flush_others(call.tail);
        let mut body = real(&self.program).into_os_string().into_vec();
        body.push(0);
        for argument in &self.arguments {
            body.extend_from_slice(argument.as_bytes_with_nul());
        }
        body.truncate(TOLD_MAX);
        send::send(call.tail, Kind::Execve, [&body, &[]]);
        call.thread.is_executing.set(true);
    }

    fn execute(&self, variables: &[CString], blocked: u64) {
        let Some(kept) = Arguments::kept() else { return };
        let owned = |word: &[u8]| CString::new(word).ok();
        let option = kept.option_for(&real(&self.program), blocked).into_vec();
        let zeroth = self.arguments.first().map(CString::as_bytes).unwrap_or_default();
        let program = named(&self.program);
        let qemu = kept.qemu.as_os_str().as_bytes();
        let program = program.as_os_str().as_bytes();
        let base = wire::GUEST_BASE.as_bytes();
        let root = kept.root.as_deref().map(|root| root.as_os_str().as_bytes());
        let mut words: Vec<&[u8]> = vec![qemu, b"-B", base];
        words.extend(kept.arch.options().iter().map(|word| word.as_bytes()));
        words.extend(root.iter().flat_map(|root| [&b"-L"[..], root]));
        words.extend([b"-plugin", &option[..], b"-0", zeroth, program]);
        let owned_words = words.into_iter().map(owned).collect::<Option<Vec<_>>>();
        let Some(mut arguments) = owned_words else { return };
        arguments.extend(self.arguments.iter().skip(1).cloned());
        let Some(qemu) = owned(qemu) else { return };
        let mut variables: Vec<CString> = variables.iter().map(shielded).collect();
        if !version::keeps_order_of_variables() {
            variables.reverse();
        }
        sys::execute(&qemu, &arguments, &variables);
    }
}

fn named(program: &Path) -> PathBuf {
    std::path::absolute(program).unwrap_or_else(|_| Path::new(".").join(program))
}

fn real(program: &Path) -> PathBuf {
    program.canonicalize().unwrap_or_else(|_| named(program))
}

fn shielded(entry: &CString) -> CString {
    if !acts_on_emulator(entry.as_bytes()) {
        return entry.clone();
    }
    let renamed = [SHIELD, entry.as_bytes()].concat();
    CString::new(renamed).unwrap_or_else(|_| entry.clone())
}
