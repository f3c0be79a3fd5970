//! What a process may still touch once it reads files that others made: what it was given, no more.
//!
//! As root, a mistake in a parser would have the whole system in its hands. So a verb that only reads
//! gives up, for good and before it opens such a file, the right to open anything else (Landlock),
//! to execute, to connect, and to have more private memory than the machine has.
//!
//! Invariants:
//! - F1: rights are only given up. What the kernel does not know stays as it was ([`Confined`] says so).
//! - F2: a rule is for the object that was found and judged ([`Found`]), whatever takes its name later.
//! - F3: only the calling thread and its later children are confined: call it before there are others.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use largefolio_trace::disk::{Found, Place};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::proc::OF_CPUS;

/// The newest rights that are given up; an older kernel knows fewer of them.
const NEWEST: ABI = ABI::V6;

/// What may still be touched.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Files to read; of a directory everything below it.
    pub read: Vec<PathBuf>,
    /// Files to write, whole: files may be read, made, written and removed in their directories, and
    /// below them, because rights are those of a tree.
    pub write: Vec<PathBuf>,
    /// A directory to read and fill.
    pub fill: Option<PathBuf>,
    /// A directory below which empty ones may be removed: that which is filled was made in it, and
    /// goes again if nothing comes of it.
    pub empty: Option<PathBuf>,
}

/// How much was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    /// Everything that is named here.
    Whole,
    /// What this kernel knows of it.
    Partly,
    /// Memory alone: the kernel has no Landlock, or it is switched off.
    MemoryOnly,
}

/// Why it could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A rule or the rule set was refused.
    #[error("Landlock: {0}")]
    Landlock(#[from] RulesetError),
    /// The limit of memory was refused.
    #[error("limit of private memory: {0}")]
    Memory(#[from] io::Error),
}

/// Gives up all rights but those on `files`, for this thread and all that it starts.
///
/// # Errors
/// What the kernel refuses though it knows it; nothing is given up then but memory.
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

/// Files come, are replaced and go; links, devices and sockets are not made. A file is opened to be
/// read as well where it has a temporary name.
fn changing() -> BitFlags<AccessFs> {
    reading() | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile
}

/// What stands in the way in a data set is set aside, whatever it is but a device.
fn renaming() -> BitFlags<AccessFs> {
    AccessFs::MakeDir
        | AccessFs::MakeFifo
        | AccessFs::MakeSock
        | AccessFs::MakeSym
        | AccessFs::RemoveDir
}

/// `rules` with `rights` on `path`. A missing file needs no rule: opening it fails anyway.
fn allowed(
    rules: RulesetCreated,
    path: &Path,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match Found::of(path) {
        Ok(found) => with(rules, &found, rights),
        Err(_) => Ok(rules),
    }
}

fn with(
    rules: RulesetCreated,
    found: &Found,
    rights: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let is_dir = found.metadata().is_dir();
    let rights = if is_dir { rights } else { rights & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(found, rights))
}

/// `rules` with a result at `path`: written in its directory, or into what stands there already.
fn written(rules: RulesetCreated, path: &Path) -> Result<RulesetCreated, RulesetError> {
    let Ok(place) = Place::of(path) else { return Ok(rules) };
    let found = place.written();
    if found.metadata().is_dir() {
        return with(rules, found, changing());
    }
    // A pipe has no place in a filesystem, and may always be opened.
    let name = fs::read_link(found.handle()).unwrap_or_default();
    let name = name.as_os_str().as_bytes();
    if !name.starts_with(b"/") || name.starts_with(b"/memfd:") {
        return Ok(rules);
    }
    with(rules, found, AccessFs::ReadFile | AccessFs::WriteFile)
}

/// No more private memory than the machine has, and no core file of what was read.
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
