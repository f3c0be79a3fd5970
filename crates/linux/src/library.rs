//! Where the shared libraries that come with `folio` are.
//!
//! Owns the search: named by a variable, beside `folio`, installed, or in the build directory.
//!
//! Invariant:
//! - L1: a library that no variable names is taken only from an owner who could have changed `folio`
//!   as well. The directory above `folio` is searched, and that of /tmp/x/folio is open to everybody.

use std::path::PathBuf;

use largefolio_trace::shown;

use crate::record::system::{Node, System};

/// A shared library that other programs load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library {
    /// File name.
    pub(crate) name: &'static str,
    /// Variable that names the file.
    pub(crate) variable: &'static str,
}

impl Library {
    /// The file, or the places it was looked for.
    pub(crate) fn find(self, system: &dyn System) -> Result<PathBuf, String> {
        let is_file = |path: &PathBuf| matches!(system.node(path), Node::Executable | Node::Plain);
        if let Some(named) = system.variable(self.variable).filter(|named| !named.is_empty()) {
            let path = PathBuf::from(named);
            let place = format!("{}={}", self.variable, shown(&path));
            return if is_file(&path) { Ok(path) } else { Err(place) };
        }
        let candidates = self.candidates(system);
        let is_usable = |path: &&PathBuf| is_file(path) && system.is_as_trusted(path);
        candidates.iter().find(is_usable).cloned().ok_or_else(|| {
            let place = |path: &PathBuf| {
                let directory = shown(path.parent().unwrap_or(path));
                let is_refused = is_file(path);
                format!(
                    "{directory}{}",
                    if is_refused { " (others could have written it)" } else { "" }
                )
            };
            candidates.iter().map(place).collect::<Vec<_>>().join(", ")
        })
    }

    fn candidates(self, system: &dyn System) -> Vec<PathBuf> {
        let Some(own) = system.own_executable() else { return Vec::new() };
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
