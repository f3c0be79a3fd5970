//! Starts programs with their text moved into shared large folios (`folio run --text remap`).
//!
//! This is the launcher's side. The preloaded library (`crates/preload`) moves the text in each
//! process. docs/design/remap.md describes the protocol.
//!
//! ```text
//!   Remap::prepare   library found? store private? a trial copy mapped large and executable?
//!   Remap::apply     LD_PRELOAD, LARGEFOLIO_REMAP.. for a command and all it starts
//!   Remap::summary   records of the processes -> sums, refusals
//!   drop             last launcher of this user: copies become links to their files
//! ```
//!
//! Invariants:
//! - L1: a store is used only if it passes the library's own checks (its D1).
//! - L2: a copy outlives its launchers only if they are killed. The next launcher removes it.
//! - L3: a refusal leaves the command unchanged.

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

pub(crate) const PRELOAD: &str = "LD_PRELOAD";
/// A dynamic `AddressSanitizer` ends the program if another library is loaded before it, unless
/// this option is set. The order does not matter: the library of moved text replaces no function,
/// and each function of the library of regions calls the sanitizer's.
pub(crate) const SANITIZER: (&str, &str) = ("ASAN_OPTIONS", "verify_asan_link_order=0");

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Directory of shared copies, created if missing. `None` means below `/dev/shm`, else below
    /// `XDG_RUNTIME_DIR`.
    pub store: Option<PathBuf>,
    pub voice: Voice,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Voice {
    /// None, only records.
    #[default]
    Silent,
    Verbose,
}

#[derive(Debug, thiserror::Error)]
pub struct Refused {
    pub refusal: Refusal,
    /// The path or the system's message, may be empty.
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

/// A prepared remap. Dropping it ends the lease of the store.
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
    /// The first obstacle: no library, no trustworthy store, or a kernel or mount that does not
    /// allow it. Leaves nothing behind.
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

    /// Checks that the library can help `program` (a path). Does not check the programs it starts.
    ///
    /// # Errors
    /// A static program, one of another architecture, or one that runs with other privileges.
    pub fn check(program: &Path) -> Result<(), Refused> {
        program::check(program)
    }

    pub fn apply(&self, command: &mut Command) {
        command.envs(self.environment());
    }

    /// Returns the variables that make a process and its children move their text.
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

    /// Returns the processes' reports so far.
    ///
    /// # Errors
    /// If the report cannot be read.
    pub fn summary(&self) -> io::Result<Summary> {
        self.report.read().map(|text| Summary::parse(&text))
    }

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

/// Returns the size limit of one copy. The kernel charges it to the cgroup of the process that
/// makes it, and kills a process beyond the limit. Half of the room stays free for the programs,
/// which start in this cgroup.
fn budget_bytes() -> u64 {
    cgroup::room_bytes(&Live, Room::Free).map_or(u64::MAX, |room| room / 2)
}

/// Finds the library that programs preload.
///
/// # Errors
/// The places searched, the users who could have placed it there, or a path that `LD_PRELOAD`
/// cannot hold.
pub fn find_library() -> Result<PathBuf, Refused> {
    let library = PRELOADED.find(&Host).map_err(|missing| match missing.distrusted {
        Some(reason) => Refused::new(Refusal::LibraryOpen, reason),
        None => Refused::new(Refusal::NoLibrary, missing.places),
    })?;
    let path = library.canonicalize().unwrap_or(library);
    let is_plain = !path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte));
    if is_plain {
        Ok(path)
    } else {
        Err(Refused::new(Refusal::LibraryPath, path.display().to_string()))
    }
}

/// Opens the first place that passes all checks. If there is none, returns the first one's error.
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

/// Puts the library first in the list of preloaded libraries, without duplicates.
pub(crate) fn preload_list(library: &Path, earlier: Option<OsString>) -> OsString {
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

pub(crate) fn with_option(earlier: Option<OsString>, option: &str) -> OsString {
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
