//! Starting programs whose text is moved onto shared large folios (`folio run --text remap`).
//!
//! Owns the launcher's side: whether it can work here, the directory of shared copies and its
//! cleaning, the environment of the programs, and what they reported. The moving itself is done in
//! each process by the preloaded library (`crates/preload`); docs/design/remap.md has the protocol.
//!
//! ```text
//!   Remap::prepare   library found? store private? a trial copy mapped large and executable?
//!   Remap::apply     LD_PRELOAD, LARGEFOLIO_REMAP.. for a command and all it starts
//!   Remap::summary   records of the processes -> sums, refusals
//!   drop             last launcher of this user: copies become links to their files
//! ```
//!
//! Invariants:
//! - L1: a store is used only if it passes the checks the library makes (its D1).
//! - L2: a copy outlives its launchers only by a kill; the next launcher removes it.
//! - L3: a refusal leaves the command as it was.

mod probe;
mod program;
mod records;
mod store;
#[expect(dead_code, reason = "the library uses the rest")]
mod wire;

use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment::Host;
use crate::library::PRELOADED;
use crate::proc::cgroup::{self, Room};
use crate::system::Live;

pub use records::{Summary, TextSum};
use store::{ReportFile, Store};
pub use wire::{How, Refusal};

/// The loader's list of libraries to load first.
const PRELOAD: &str = "LD_PRELOAD";
/// A dynamic `AddressSanitizer` ends the program when another library precedes its own, unless told
/// not to look. Ours replaces no function, so the order does not matter.
const SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "verify_asan_link_order=0");

/// How programs are started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Directory of shared copies, made if missing; `None`: below `/dev/shm`, else below
    /// `XDG_RUNTIME_DIR`.
    pub store: Option<PathBuf>,
    /// What the library says in each process.
    pub voice: Voice,
}

/// What the library says on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Voice {
    /// Nothing: records only.
    #[default]
    Silent,
    /// A line for each text of each process.
    Verbose,
}

/// Why programs run with the text they have.
#[derive(Debug, thiserror::Error)]
pub struct Refused {
    /// The reason.
    pub refusal: Refusal,
    /// The value it is about: a path, what the system said; may be empty.
    pub detail: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { refusal, detail } = self;
        let text = refusal.text();
        if detail.is_empty() { f.write_str(text) } else { write!(f, "{detail}: {text}") }
    }
}

impl Refused {
    fn new(refusal: Refusal, detail: impl Into<String>) -> Self {
        Self { refusal, detail: detail.into() }
    }
}

/// Everything in place; dropping it ends the lease of the store.
#[derive(Debug)]
pub struct Remap {
    library: PathBuf,
    report: ReportFile,
    store: Store,
    budget_bytes: u64,
    voice: Voice,
}

impl Remap {
    /// Checks that text can be moved here, and opens the store.
    ///
    /// # Errors
    /// The first reason why not: no library, no trustworthy store, a kernel or a mount that does not
    /// allow it. Nothing is left behind then.
    pub fn prepare(options: &Options) -> Result<Self, Refused> {
        let library = find_library()?;
        if !wire::PAGES_BYTES.contains(&rustix::param::page_size()) {
            return Err(Refused::new(Refusal::PageSize, ""));
        }
        let store = open_store(options.store.as_deref())?;
        let os = |error: io::Error| Refused::new(Refusal::Os, error.to_string());
        store.lease().map_err(os)?;
        let report = store.report().map_err(os)?;
        let budget_bytes = budget_bytes();
        Ok(Self { library, report, store, budget_bytes, voice: options.voice })
    }

    /// Whether the library can help `program` (a path); what that starts is not asked.
    ///
    /// # Errors
    /// A static program, one of another architecture, or one that runs with other rights.
    pub fn check(program: &Path) -> Result<(), Refused> {
        program::check(program)
    }

    /// Sets the variables for `command` and everything it starts.
    pub fn apply(&self, command: &mut Command) {
        command.envs(self.environment());
    }

    /// The variables that make a process and its children move their text.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let own = |name: &CStr| OsStr::from_bytes(name.to_bytes()).to_owned();
        let mut variables = vec![
            (PRELOAD.into(), preload_list(&self.library, env::var_os(PRELOAD))),
            (own(wire::STORE_VARIABLE), self.store.path().into()),
            (own(wire::REPORT_VARIABLE), self.report.name().into()),
            (own(wire::BUDGET_VARIABLE), self.budget_bytes.to_string().into()),
            (SANITIZER.0.into(), with_option(env::var_os(SANITIZER.0), SANITIZER.1)),
        ];
        if let Some(nr) = program::nr_filters() {
            variables.push((own(wire::FILTERS_VARIABLE), nr.to_string().into()));
        }
        if self.voice == Voice::Verbose {
            variables.push((own(wire::VERBOSE_VARIABLE), "1".into()));
        }
        variables
    }

    /// What the processes reported so far.
    ///
    /// # Errors
    /// When the report cannot be read.
    pub fn summary(&self) -> io::Result<Summary> {
        self.report.read().map(|text| Summary::parse(&text))
    }

    /// The directory of shared copies.
    #[must_use]
    pub fn store(&self) -> &Path {
        self.store.path()
    }
}

impl Drop for Remap {
    fn drop(&mut self) {
        self.store.remove(self.report.name());
        self.store.release();
    }
}

/// Bytes one copy may take: it is charged to the group of the process that makes it, and past the
/// limit the kernel kills. Half of the room stays free for the programs, which start in this group.
fn budget_bytes() -> u64 {
    cgroup::room_bytes(&Live, Room::Free).map_or(u64::MAX, |room| room / 2)
}

/// The library that programs preload.
///
/// # Errors
/// The places it was looked for, who else could have put it there, or a path that the loader's list
/// cannot hold.
pub fn find_library() -> Result<PathBuf, Refused> {
    let found = PRELOADED.find(&Host).map_err(|missing| match missing.distrusted {
        Some(told) => Refused::new(Refusal::LibraryOpen, told),
        None => Refused::new(Refusal::NoLibrary, missing.places),
    })?;
    let path = found.canonicalize().unwrap_or(found);
    let is_plain = !path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte));
    if is_plain {
        Ok(path)
    } else {
        Err(Refused::new(Refusal::LibraryPath, path.display().to_string()))
    }
}

/// The first place that passes all checks; if none does, why the first did not.
fn open_store(named: Option<&Path>) -> Result<Store, Refused> {
    let places = named.map_or_else(store::places, |named| vec![named.to_owned()]);
    let mut first = None;
    for place in places {
        let opened = Store::open(&place).and_then(|store| probe::check(&store).map(|()| store));
        match opened {
            Ok(store) => return Ok(store),
            Err(refusal) => {
                first.get_or_insert(Refused::new(refusal, place.display().to_string()));
            }
        }
    }
    Err(first.unwrap_or_else(|| Refused::new(Refusal::StoreMissing, "")))
}

/// The library before what is preloaded already, once.
fn preload_list(library: &Path, earlier: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    let earlier = earlier.unwrap_or_default();
    let rest = earlier.as_bytes().split(|byte| b": ".contains(byte));
    for entry in rest.filter(|entry| !entry.is_empty() && *entry != library.as_os_str().as_bytes())
    {
        list.push(":");
        list.push(OsStr::from_bytes(entry));
    }
    list
}

/// A list of options separated by colons with one more.
fn with_option(earlier: Option<OsString>, option: &str) -> OsString {
    match earlier.filter(|earlier| !earlier.is_empty()) {
        Some(mut earlier) if !earlier.as_bytes().ends_with(option.as_bytes()) => {
            earlier.push(":");
            earlier.push(option);
            earlier
        }
        Some(earlier) => earlier,
        None => option.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays_preloaded() {
        let list = |earlier: &str| preload_list(Path::new("/l.so"), Some(earlier.into()));
        assert_eq!(list(""), "/l.so");
        assert_eq!(list("/a.so /b.so"), "/l.so:/a.so:/b.so");
        assert_eq!(list("/l.so:/a.so"), "/l.so:/a.so");
    }

    #[test]
    fn an_option_is_added_once() {
        let (name, option) = SANITIZER;
        assert_eq!(name, "ASAN_OPTIONS");
        assert_eq!(with_option(None, option), option);
        assert_eq!(with_option(Some("a=1".into()), "b=0"), "a=1:b=0");
        assert_eq!(with_option(Some("a=1:b=0".into()), "b=0"), "a=1:b=0");
    }

    #[test]
    fn every_refusal_has_its_own_number_and_a_sentence() {
        for refusal in Refusal::all() {
            assert_eq!(Refusal::from_code(*refusal as u32), Some(*refusal));
            assert!(refusal.text().len() > 20, "{refusal:?}");
        }
    }
}
