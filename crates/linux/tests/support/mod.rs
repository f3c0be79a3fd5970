//! Shared code for the tests of recordings and of the running kernel: tools, C programs, and
//! starting this program again.
#![expect(unreachable_pub, reason = "each test binary uses it")]
#![expect(clippy::expect_used, reason = "a test helper fails and speaks")]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use largefolio_linux::environment::{Host, find_in_path};
use largefolio_linux::record::tools;

/// Whether `tool` is installed; prints a message if a test skips without it.
pub fn has(tool: &str, package: &str) -> bool {
    // A QEMU needs plugins, and may not be in PATH.
    let machine = match tool {
        "qemu-x86_64" => Some(62),
        "qemu-aarch64" => Some(183),
        _ => None,
    };
    if let Some(machine) = machine {
        let emulator = tools::find_emulator(&Host, machine);
        return emulator.inspect_err(|why| largefolio_testkit::skipped!("{why}")).is_ok();
    }
    let is_found = find_in_path(&Host, OsStr::new(tool)).is_some();
    if !is_found {
        largefolio_testkit::skipped!(
            "{tool} is not installed; `apt-get install {package}` to run this test"
        );
    }
    is_found
}

/// Reads a process's output until a line ends with `word`. Hold the returned reader until the
/// process ends. Otherwise its next output fails with EPIPE, and a test harness then exits with
/// 101.
#[must_use = "without a reader the next output of the process ends it"]
pub fn read_until<R: Read>(output: Option<R>, word: &str) -> BufReader<R> {
    let mut output = BufReader::new(output.expect("a pipe"));
    let mut line = String::new();
    while !line.trim_end().ends_with(word) {
        line.clear();
        let nr_bytes = output.read_line(&mut line).expect("text");
        assert!(nr_bytes > 0, "it ended before it said {word}");
    }
    output
}

/// Runs `cargo build` and returns this build's target directory: cargo cannot depend on a cdylib.
pub fn build_library(arguments: &[&str]) -> PathBuf {
    let own = std::env::current_exe().expect("own path");
    let target = own.ancestors().nth(3).expect("target/PROFILE/deps").to_path_buf();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet"])
        .args(arguments)
        .arg("--target-dir")
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo");
    assert!(status.success(), "the library does not build");
    target
}

pub fn compile_in(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    compile_with("gcc", folder, source, flags)
}

pub fn compile_with(compiler: &str, folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let (text, path) = (folder.join("p.c"), folder.join("p"));
    std::fs::write(&text, source).expect("source");
    let mut gcc = Command::new(compiler);
    // GCC 14 rejects these; make older compilers do the same.
    gcc.args(["-Werror=implicit-function-declaration", "-Werror=int-conversion"]);
    gcc.args(["-O0", "-D_GNU_SOURCE", "-pthread", "-o"]).arg(&path).arg(&text).args(flags);
    assert!(gcc.status().expect("gcc").success(), "gcc refused the test's program");
    path
}

/// The ignored test `name` of this program, to run as a separate process: `module::test`.
pub fn itself(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    command
}
