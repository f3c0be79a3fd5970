//! Facts of the build for `folio --version`: the target, and the commit where there is one.

use std::path::Path;
use std::process::Command;

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=FOLIO_TARGET={target}");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=FOLIO_COMMIT={commit}");
    println!("cargo::rerun-if-changed=build.rs");
    // Changes with every commit and checkout. A path that is not there would rebuild every time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// What git says, where there are git and a repository.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
