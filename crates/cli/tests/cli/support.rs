//! Runs the program under test in a temporary directory. The tests of `folio-lab` use it too.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use crate::schemas;

pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn with_trace() -> Self {
        let place = Self::new();
        let args = "trace gen zipf --files 2 --file-size 4M --anon-size 2M --runs 20000";
        place.done(&format!("{args} -o mix.folio"));
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, args: &str) -> std::process::Command {
        let mut command = std::process::Command::new(crate::program());
        command.current_dir(self.0.path()).args(args.split_whitespace());
        command.env("COLUMNS", "100").env_remove("RUST_BACKTRACE");
        command
    }

    /// Returns how root types folio if it is not in a directory that sudo searches.
    pub(crate) fn as_root() -> String {
        format!("sudo {}", crate::program().display())
    }

    /// The same as the unprivileged user `nobody`, with permission to read this directory.
    pub(crate) fn command_of_nobody(&self, args: &str) -> std::process::Command {
        let mut command = self.command(args);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
            fs::set_permissions(self.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        }
        command
    }

    /// Runs a command, and checks its JSON against the schema.
    pub(crate) fn run(&self, args: &str) -> Output {
        let output = self.command(args).output().unwrap();
        if matches!(output.status.code(), Some(0 | 1)) {
            schemas::check(args, &output.stdout);
        }
        output
    }

    /// Runs a shell in its own mount namespace, where it may mount a small filesystem that
    /// disappears with it. The shell exits with 77 if it cannot mount; the result is then `None`,
    /// with a loud message.
    pub(crate) fn on_a_small_disk(&self, script: &str) -> Option<Output> {
        let mut shell = std::process::Command::new("unshare");
        shell.args(["--mount", "sh", "-c", script]).current_dir(self.0.path());
        let output = shell.output().unwrap();
        let stderr = text(&output.stderr);
        if output.status.code() == Some(77) || stderr.starts_with("unshare:") {
            largefolio_testkit::skipped!("needs root for a small filesystem: {stderr}");
            return None;
        }
        assert_eq!(output.status.code(), Some(0), "{script}: {stderr}");
        Some(output)
    }

    pub(crate) fn done(&self, args: &str) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn fails(&self, args: &str) -> String {
        let output = self.run(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {stderr}");
        assert!(output.stdout.is_empty(), "{args}: {}", text(&output.stdout));
        assert!(!stderr.contains("panicked") && !stderr.contains("internal error"), "{stderr}");
        stderr
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Held by tests in which folio changes the machine's settings: it allows only one process at a
/// time to do so.
pub(crate) fn hold_settings() -> MutexGuard<'static, ()> {
    static SETTINGS: Mutex<()> = Mutex::new(());
    SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Messages of a machine that lacks support: no QEMU with plugins, no root, a container, or an old
/// kernel.
const CANNOT: &[&str] = &[
    "get one with `",
    "get a QEMU that has them",
    "needs root",
    "needs CAP_SYS_ADMIN",
    "PID namespace",
    "has no tracefs",
    "has no event",
    "does not report page-fault addresses",
    "no filesystem to record on",
    "does this kernel support",
    "no loop device",
    "must be madvise",
    "memory is fragmented",
];

/// Copies a program to start it. This process must not open the copy for writing: a child that
/// another thread starts at that moment would keep it open, and nothing could execute it.
pub(crate) fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut command = std::process::Command::new("cp");
    let status = command.arg("--").args([from.as_ref(), to.as_ref()]).status().unwrap();
    assert!(status.success(), "cp: {status}");
}

/// Returns whether a command gave an answer that not every machine can give. Says loudly if this
/// machine cannot; fails on any other error.
pub(crate) fn is_able(output: &Output) -> bool {
    if matches!(output.status.code(), Some(0 | 1)) {
        return true;
    }
    let stderr = text(&output.stderr);
    assert!(CANNOT.iter().any(|cause| stderr.contains(cause)), "{}: {stderr}", output.status);
    largefolio_testkit::skipped!("{stderr}");
    false
}

/// Runs a compiler in `place`; returns whether it exists. A compile error fails the test.
pub(crate) fn compile(place: &Place, compiler: &str, args: &str) -> bool {
    let mut command = std::process::Command::new(compiler);
    let output = command.current_dir(place.0.path()).args(args.split_whitespace()).output();
    let Ok(output) = output else {
        largefolio_testkit::skipped!("{compiler} is not installed (scripts/setup.sh installs it)");
        return false;
    };
    assert!(output.status.success(), "{compiler} {args}: {}", text(&output.stderr));
    true
}
