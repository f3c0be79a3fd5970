//! Where the shared libraries that come with `folio` are.
//!
//! Owns the search: named by a variable, beside `folio`, installed, or in the build directory.
//!
//! Invariant:
//! - L1: a library that no variable names is used only if everybody who could have put it there
//!   could also have changed `folio` (`trust`), and never from a directory that is open to
//!   everybody. The directory above `folio` is searched, and that of /tmp/x/folio is.

use std::path::PathBuf;

use largefolio_trace::shown;

use crate::environment::{Environment, Node};

/// The plugin that QEMU loads.
pub(crate) const RECORDER: Library =
    Library { name: "liblargefolio_recorder.so", variable: "LARGEFOLIO_RECORDER" };
/// What moves a program's text, loaded into every process.
pub(crate) const PRELOADED: Library =
    Library { name: "liblargefolio_preload.so", variable: "LARGEFOLIO_PRELOAD" };

/// A shared library that other programs load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// Variable that names the file.
    pub(crate) variable: &'static str,
}

/// Why there is no library to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoLibrary {
    /// Where it was looked for; of places that have it, why it is not used.
    pub(crate) places: String,
    /// The first file that is there and not trusted, with the reason.
    pub(crate) distrusted: Option<String>,
}

impl Library {
    /// The file.
    pub(crate) fn find(self, environment: &dyn Environment) -> Result<PathBuf, NoLibrary> {
        let is_file =
            |path: &PathBuf| matches!(environment.node(path), Node::Executable | Node::Plain);
        if let Some(named) = environment.variable(self.variable).filter(|named| !named.is_empty()) {
            let path = PathBuf::from(named);
            let place = format!("{}={}", self.variable, shown(&path));
            let missing = NoLibrary { places: place, distrusted: None };
            return if is_file(&path) { Ok(path) } else { Err(missing) };
        }
        let mut places = Vec::new();
        let mut distrusted = None;
        for path in self.candidates(environment) {
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

    fn candidates(self, environment: &dyn Environment) -> Vec<PathBuf> {
        let Some(own) = environment.own_executable() else { return Vec::new() };
        // A test's executable is in target/PROFILE/deps, an example's in target/PROFILE/examples.
        let beside = own.parent().map(PathBuf::from).unwrap_or_default();
        let above = beside.parent().map(PathBuf::from).unwrap_or_default();
        [
            beside,
            above.clone(),
            above.join("lib/largefolio"),
            above.join("release"),
            above.join("debug"),
        ]
        .into_iter()
        .map(|directory| directory.join(self.name))
        .collect()
    }
}
