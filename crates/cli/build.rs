//! Build facts for `folio --version --verbose`: target, compiler, profile, and the commit if there is one.
//! Build time is left out, so the same commit and compiler produce the same program.

use std::path::Path;
use std::process::Command;

/// The file in which a package records its commit.
const PACKED: &str = ".cargo_vcs_info.json";

fn main() {
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=FOLIO_TARGET={target}");
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo::rustc-env=FOLIO_PROFILE={profile}");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiler = stdout_of(&rustc, &["--version"]).unwrap_or_else(|| "rustc, unknown".to_owned());
    println!("cargo::rustc-env=FOLIO_RUSTC={compiler}");
    // The date is for manual pages. A repository around an unpacked package is unrelated to it.
    let (commit, date) = match packed() {
        Some(commit) => (Some(commit), None),
        None => (git(&["rev-parse", "--short=12", "HEAD"]), git(&["log", "-1", "--format=%cs"])),
    };
    println!("cargo::rustc-env=FOLIO_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=FOLIO_DATE={}", date.unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
    if Path::new(PACKED).exists() {
        println!("cargo::rerun-if-changed={PACKED}");
    }
    // This file changes with every commit and checkout. A missing path would force a rebuild every
    // time.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]);
    if let Some(log) = log.filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
}

/// Returns the commit that `cargo package` or the wheel's source distribution recorded.
fn packed() -> Option<String> {
    let text = std::fs::read_to_string(PACKED).ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    let commit: String = rest.chars().take_while(char::is_ascii_hexdigit).take(12).collect();
    (commit.len() == 12).then_some(commit)
}

/// Runs git, if it is installed and there is a repository.
fn git(args: &[&str]) -> Option<String> {
    stdout_of("git", args)
}

/// Returns the standard output of a command that succeeds with output.
fn stdout_of(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
