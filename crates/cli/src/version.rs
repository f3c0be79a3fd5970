//! Facts for bug reports: the program's version and the files it found.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use largefolio_linux::environment::Host;
use largefolio_linux::record::tools;
use largefolio_linux::remap;
use largefolio_results::schemas;
use largefolio_sim::kernel::Kernel;

const BUILD: &str = concat!(
    "target ",
    env!("FOLIO_TARGET"),
    "\ncommit ",
    env!("FOLIO_COMMIT"),
    "\nbuilt by ",
    env!("FOLIO_RUSTC"),
    ", profile ",
    env!("FOLIO_PROFILE"),
    "\n",
);

/// The repository's directories relative to the program: `target/release/folio` or an installed
/// `bin/folio`.
const RELATIVE_PATHS: [&str; 2] = ["../..", "../share/largefolio"];

/// Returns where the directory `name` of the repository or of an installation can be.
#[must_use]
pub fn installed_or_local(program: &Path, name: &str) -> Vec<PathBuf> {
    RELATIVE_PATHS.iter().filter_map(|path| Some(program.parent()?.join(path).join(name))).collect()
}

/// Returns what `folio --version --verbose` prints below the version.
pub(crate) fn details() -> String {
    // The self-built kernels of recordings have longer names.
    let kernels: Vec<&str> = Kernel::names().filter(|name| !name.contains('/')).collect();
    let mut text = BUILD.to_owned();
    let versions = schemas::names().filter_map(|name| Some((name, schemas::version(name)?)));
    let versions: Vec<String> = versions.map(|(name, nr)| format!("{name} {nr}")).collect();
    let _ = writeln!(text, "schemas {}", versions.join(", "));
    if let (Some(first), Some(last)) = (kernels.first(), kernels.last()) {
        let _ = writeln!(text, "kernels {first} to {last} ({})", kernels.len());
    }
    let plugin = tools::find_plugin(&Host).map_err(|error| error.to_string());
    let library = remap::find_library().map_err(|refused| refused.to_string());
    let _ = writeln!(text, "recorder plugin {}", path_or_reason(plugin));
    let _ = writeln!(text, "preload library {}", path_or_reason(library));
    let _ = writeln!(text, "policy header {}", path_or_reason(policy_header()));
    text
}

/// Returns the header for policies in C: the installed one or the repository's.
fn policy_header() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let folders = installed_or_local(&program, "policies").into_iter();
    let mut headers = folders.filter_map(|path| path.join("folio_policy.h").canonicalize().ok());
    headers.next().ok_or_else(|| "there is no share/largefolio/policies next to folio".to_owned())
}

fn path_or_reason(path: Result<PathBuf, String>) -> String {
    match path {
        Ok(path) => path.display().to_string(),
        Err(why) => format!("none: {}", why.replace('\n', " ")),
    }
}
