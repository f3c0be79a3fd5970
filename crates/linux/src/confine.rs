//! Sandboxes a process before it reads untrusted files.
//!
//! If folio runs as root, a mistake in a parser exposes the whole system. Before it opens such a
//! file, a verb that only reads therefore gives up its privileges permanently: it can no longer
//! open other files (Landlock), execute, connect, or use more private memory than the machine has.
//!
//! Invariants:
//! - F1: privileges are dropped and never gained. [`Confined`] reports those that the kernel cannot
//!   restrict.
//! - F2: a rule applies to the object that was found and checked ([`PathHandle`]), even if another
//!   object takes its name.
//! - F3: only the calling thread and its later children are confined.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use largefolio_trace::disk::{PathHandle, Place};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::proc::OF_CPUS;

/// The newest restrictions. An older kernel supports fewer.
const NEWEST: ABI = ABI::V6;

#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Files to read. A directory includes everything below it.
    pub read: Vec<PathBuf>,
    /// Files to write. Files can be read, created, written and removed in their directories and
    /// below, because Landlock's rights cover trees.
    pub write: Vec<PathBuf>,
    pub fill: Option<PathBuf>,
    /// A directory below which empty ones may be removed. It is the parent of `fill`, which is
    /// removed again if the work fails.
    pub empty: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    Whole,
    Partly,
    /// Only memory: the kernel has no Landlock, or it is disabled.
    MemoryOnly,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("Landlock: {0}")]
    Landlock(#[from] RulesetError),
    #[error("limit on private memory: {0}")]
    Memory(#[from] io::Error),
}

/// Drops all rights except those on `files`, for this thread and everything that it starts.
///
/// # Errors
/// A refused restriction that the kernel supports. Only memory is restricted then.
pub fn to(files: &Files) -> Result<Confined, ConfineError> {
    limit_memory()?;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    let mut reads = files.read.iter().map(PathBuf::as_path).chain(OF_CPUS.map(Path::new));
    let rules = reads.try_fold(rules, |rules, path| allowed(rules, path, reading()))?;
    let rules = files.write.iter().try_fold(rules, |rules, path| written(rules, path))?;
    let rules = match &files.fill {
        Some(folder) => allowed(rules, folder, changing() | renaming())?,
        None => rules,
    };
    let rules = match &files.empty {
        Some(folder) => allowed(rules, folder, AccessFs::RemoveDir.into())?,
        None => rules,
    };
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Confined::Whole,
        RulesetStatus::PartiallyEnforced => Confined::Partly,
        RulesetStatus::NotEnforced => Confined::MemoryOnly,
    })
}

fn reading() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

/// Allows creating, replacing and removing files, but no links, devices or sockets. A file with a
/// temporary name is opened for reading too.
fn changing() -> BitFlags<AccessFs> {
    reading() | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile
}

/// Allows renaming anything except a device, because obstacles in a data set are moved away.
fn renaming() -> BitFlags<AccessFs> {
    AccessFs::MakeDir
        | AccessFs::MakeFifo
        | AccessFs::MakeSock
        | AccessFs::MakeSym
        | AccessFs::RemoveDir
}

/// Adds a rule with `rights` on `path`. A missing file needs no rule: opening it fails anyway.
fn allowed(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathHandle::of(path) {
        Ok(handle) => with(rules, &handle, rights),
        Err(_) => Ok(rules),
    }
}

fn with(
    rules: RulesetCreated,
    handle: &PathHandle,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let is_dir = handle.metadata().is_dir();
    let rights = if is_dir { rights } else { rights & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(handle, rights))
}

/// Adds a rule for a result at `path`, written in its directory or into an existing object.
fn written(rules: RulesetCreated, path: &Path) -> Result<RulesetCreated, RulesetError> {
    let Ok(place) = Place::of(path) else { return Ok(rules) };
    let handle = place.written();
    if handle.metadata().is_dir() {
        return with(rules, handle, changing());
    }
    // A pipe has no place in a filesystem and can always be opened.
    let name = fs::read_link(handle.handle()).unwrap_or_default();
    let name = name.as_os_str().as_bytes();
    if !name.starts_with(b"/") || name.starts_with(b"/memfd:") {
        return Ok(rules);
    }
    with(rules, handle, AccessFs::ReadFile | AccessFs::WriteFile)
}

/// Limits private memory to the machine's, and disables core files, which could hold the contents
/// read.
fn limit_memory() -> io::Result<()> {
    let memory = rustix::system::sysinfo();
    let bytes_max = memory.totalram.saturating_mul(memory.mem_unit.into());
    lower(Resource::Data, bytes_max)?;
    lower(Resource::Core, 0)
}

fn lower(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let lowered = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    let limit = Rlimit { current: lowered(now.current), maximum: lowered(now.maximum) };
    Ok(setrlimit(resource, limit)?)
}
