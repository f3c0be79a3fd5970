//! Finds the files that belong to `folio`: its shared libraries and its QEMU.
//!
//! Searches the path in an environment variable, folio's own directory, the installation and the
//! build directory.
//!
//! Invariant:
//! - L1: if the variable is not set, a file is used only if every user who could have placed it
//!   could also have changed `folio` (`trust`), and never if its directory is world-writable. The
//!   reason is that the parent of folio's directory is also searched: for /tmp/x/folio, that is
//!   /tmp.

use std::ffi::OsString;
use std::path::PathBuf;

use largefolio_trace::shown;

use crate::environment::{Environment, Node};

/// The plugin that QEMU loads.
pub(crate) const RECORDER: Library =
    Library { name: "liblargefolio_recorder.so", variable: "LARGEFOLIO_RECORDER" };
pub(crate) const PRELOADED: Library =
    Library { name: "liblargefolio_preload.so", variable: "LARGEFOLIO_PRELOAD" };
pub(crate) const REGIONS: Library =
    Library { name: "liblargefolio_regions.so", variable: "LARGEFOLIO_REGIONS_LIBRARY" };

/// The QEMU for x86-64 programs. `scripts/qemu.sh` builds it if the distribution's has no plugins.
pub(crate) const QEMU_X86_64: Library =
    Library { name: "qemu-x86_64", variable: "LARGEFOLIO_QEMU" };
pub(crate) const QEMU_AARCH64: Library =
    Library { name: "qemu-aarch64", variable: "LARGEFOLIO_QEMU_AARCH64" };

const SCRIPT: &str = "qemu.sh";

#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    pub(crate) variable: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoLibrary {
    pub(crate) places: String,
    pub(crate) distrusted: Option<String>,
}

impl Library {
    pub(crate) fn find(self, environment: &dyn Environment) -> Result<PathBuf, NoLibrary> {
        let is_file =
            |path: &PathBuf| matches!(environment.node(path), Node::Executable | Node::Plain);
        if let Some(named) = self.named(environment) {
            let path = PathBuf::from(named);
            let place = format!("{}={}", self.variable, shown(&path));
            let missing = NoLibrary { places: place, distrusted: None };
            return if is_file(&path) { Ok(path) } else { Err(missing) };
        }
        let mut places = Vec::new();
        let mut distrusted = None;
        for path in candidates(environment, self.name) {
            let directory = shown(path.parent().unwrap_or(&path)).to_string();
            if !is_file(&path) {
                places.push(directory);
                continue;
            }
            let Some(why) = environment.distrust(&path) else { return Ok(path) };
            places.push(format!("{directory} ({why})"));
            distrusted.get_or_insert(format!("{}: {why}", shown(&path)));
        }
        Err(NoLibrary { places: places.join(", "), distrusted })
    }

    pub(crate) fn named(self, environment: &dyn Environment) -> Option<OsString> {
        environment.variable(self.variable).filter(|named| !named.is_empty())
    }
}

pub(crate) fn emulator_command(environment: &dyn Environment) -> String {
    let mut places = candidates(environment, SCRIPT);
    // In a checkout, the build directory is next to the scripts.
    let checkout = environment.own_executable();
    places.extend(
        checkout
            .iter()
            .flat_map(|own| own.ancestors().skip(3).take(2))
            .map(|root| root.join("scripts").join(SCRIPT)),
    );
    let is_ours = |path: &PathBuf| {
        environment.node(path) == Node::Executable && environment.distrust(path).is_none()
    };
    let script = places.into_iter().find(is_ours);
    script.map_or_else(|| format!("scripts/{SCRIPT}"), |path| shown(&path).to_string())
}

fn candidates(environment: &dyn Environment, name: &str) -> Vec<PathBuf> {
    let Some(own) = environment.own_executable() else { return Vec::new() };
    // A test's executable is in target/PROFILE/deps, an example's in target/PROFILE/examples.
    let beside = own.parent().map(PathBuf::from).unwrap_or_default();
    let above = beside.parent().map(PathBuf::from).unwrap_or_default();
    let top = above.parent().map(PathBuf::from).unwrap_or_default();
    [
        beside,
        above.clone(),
        above.join("lib/largefolio"),
        above.join("release"),
        above.join("debug"),
        top.join("lib/largefolio"),
    ]
    .into_iter()
    .map(|directory| directory.join(name))
    .collect()
}
