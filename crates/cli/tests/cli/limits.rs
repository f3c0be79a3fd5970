//! `folio` with fewer resources than usual: it reports failures, and the program runs under the
//! original limits.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::run::{compile, has_remapper};
use crate::support::{self, Place, copy_program, text};

/// SIGXFSZ.
const FILE_LIMIT: i32 = 25;

fn limited(place: &Place, limit: &str, args: &str) -> Command {
    let folio = place.command(args);
    let mut shell = Command::new("sh");
    shell.current_dir(place.0.path()).args(["-c", &format!("{limit} && exec \"$@\""), "sh"]);
    shell.arg(folio.get_program()).args(folio.get_args());
    shell.env("COLUMNS", "100").env_remove("RUST_BACKTRACE");
    shell
}

fn run(place: &Place, limit: &str, args: &str) -> Output {
    limited(place, limit, args).output().unwrap()
}

#[test]
fn a_small_stack_is_for_the_program_alone() {
    let place = Place::with_trace();
    copy_program("/bin/true", place.path("p"));
    let own = format!("maps {}", std::process::id());
    // The loader alone takes up to 16 KiB for arguments and environment.
    for kib in [64, 32] {
        let limit = format!("ulimit -s {kib}");
        for args in [
            "--help",
            "run --help",
            "maps --elf p",
            &own,
            "run --text off -- ./p",
            "run -- ./p",
            "predict mix.folio --kernel 6.12,7.2 --machine altra",
        ] {
            let output = run(&place, &limit, args);
            assert_eq!(output.status.code(), Some(0), "{kib} {args}: {output:?}");
        }
        let mut own = limited(&place, &limit, "run --summary -- sh -c");
        let output = own.arg("ulimit -s").output().unwrap();
        assert_eq!(text(&output.stdout), format!("{kib}\n"), "the program's own limit");
        // Signals reach the program as usual, although folio has an additional thread.
        let mut signalled = limited(&place, &limit, "run --summary --text off -- sh -c");
        signalled.arg("trap 'exit 42' TERM; kill -TERM $PPID; while :; do sleep 0.02; done");
        let status = signalled.stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(42), "{kib}: {status:?}");
        let mut dying = limited(&place, &limit, "run --summary --text off -- sh -c");
        let status = dying.arg("kill -TERM $$").stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(15), "{kib}: {status:?}");
    }
}

#[test]
fn reports_a_file_size_limit_and_survives_it() {
    let place = Place::new();
    if !has_remapper() || !compile(&place, "-no-pie") {
        return;
    }
    let none = "ulimit -c 0 && ulimit -f 0";
    for text_on in ["large", "remap", "auto", "off"] {
        let output = run(&place, none, &format!("run --text {text_on} -- ./p a b c"));
        assert_eq!(output.status.code(), Some(3), "{text_on}: {output:?}");
    }
    let stderr = text(&run(&place, none, "run --text remap -- ./p").stderr);
    assert!(stderr.contains("the limit on file sizes (ulimit -f) is below"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    // A failed write is an error for a result, but does not affect the program.
    let file = |name: &str| Stdio::from(fs::File::create(place.path(name)).unwrap());
    let output = limited(&place, none, "maps --elf p").stdout(file("result")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("File too large"), "{output:?}");
    let args = "run --text large --summary -- ./p a";
    let status = limited(&place, none, args).stdout(Stdio::null()).stderr(file("told")).status();
    assert_eq!(status.unwrap().code(), Some(1));
}

#[test]
fn the_program_ends_at_the_limit_on_files_as_without_folio() {
    let place = Place::new();
    let state = "grep ^Sig[BIC] /proc/self/status; ulimit -f";
    let plain = Command::new("sh").args(["-c", &format!("ulimit -f 3; {state}")]).output().unwrap();
    for how in ["--quiet --text off", "--summary --text off", "--summary --text remap"] {
        let args = format!("run {how} -- sh -c");
        let output = limited(&place, "ulimit -f 3", &args).arg(state).output().unwrap();
        assert_eq!(text(&output.stdout), text(&plain.stdout), "{how}");
        let mut writing = limited(&place, "ulimit -c 0 && ulimit -f 0", &args);
        let status = writing.arg("echo x > new").stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(FILE_LIMIT), "{how}: {status:?}");
        // If the signal is ignored, the program inherits that.
        let mut ignoring = limited(&place, "trap '' XFSZ; ulimit -f 0", &args);
        let output = ignoring.arg("echo x > new; echo $?").output().unwrap();
        assert_eq!(text(&output.stdout).trim(), "1", "{how}: {output:?}");
    }
}

/// Denies new processes and threads with EPERM or, given an argument before the command, EACCES.
const DENY: &str = r"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define DENIED(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1), BPF_STMT(BPF_RET | BPF_K, answer)
int main(int argc, char **argv) {
    int answer = SECCOMP_RET_ERRNO | atoi(argv[1]);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENIED(__NR_clone), DENIED(__NR_clone3),
#ifdef __NR_fork
        DENIED(__NR_fork), DENIED(__NR_vfork),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 99;
    execvp(argv[2], argv + 2);
    return 98;
}
";

#[test]
fn a_program_replaces_folio_if_fork_fails() {
    let place = Place::new();
    fs::write(place.path("deny.c"), DENY).unwrap();
    if !support::compile(&place, "gcc", "deny.c -o deny") {
        return;
    }
    for (errno, message) in [(1, "Operation not permitted"), (13, "Permission denied")] {
        let denied = |args: &str| {
            let folio = place.command(args);
            let mut deny = Command::new(place.path("deny"));
            deny.current_dir(place.0.path()).arg(errno.to_string());
            deny.arg(folio.get_program()).args(folio.get_args()).output().unwrap()
        };
        let output = denied("run --summary --text off -- printf done");
        let stderr = text(&output.stderr);
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(0), "done"),
            "{stderr}"
        );
        assert!(
            stderr.contains(&format!("cannot create a process for printf: {message}")),
            "{stderr}"
        );
        assert!(!stderr.contains("chmod") && stderr.lines().count() == 1, "{stderr}");
        let output = denied("run --quiet --text off -- printf done");
        assert_eq!((text(&output.stdout).as_str(), output.stderr.len()), ("done", 0));
        // If the file itself is at fault, the error still says so.
        fs::write(place.path("plain"), "x").unwrap();
        assert!(text(&denied("run --summary -- ./plain").stderr).contains("chmod +x ./plain"));
        assert_eq!(denied("--help").status.code(), Some(0));
    }
}

#[test]
fn a_library_from_a_directory_open_to_everybody_is_not_loaded() {
    let place = Place::new();
    if !has_remapper() || !compile(&place, "-no-pie") {
        return;
    }
    let folio = assert_cmd::cargo::cargo_bin!("folio");
    let library = folio.with_file_name("liblargefolio_preload.so");
    let dir = |name: &str| {
        let dir = place.path(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    };
    let (bin, lib) = (dir("there/bin"), dir("there/lib/largefolio"));
    copy_program(folio, bin.join("folio"));
    let library_there = lib.join("liblargefolio_preload.so");
    fs::copy(&library, &library_there).unwrap();
    fs::set_permissions(&library_there, Permissions::from_mode(0o644)).unwrap();
    let run_stderr = || {
        let mut command = Command::new(bin.join("folio"));
        command.current_dir(place.0.path()).args(["run", "--text", "remap", "--", "./p"]);
        let output = command.env_remove("LARGEFOLIO_PRELOAD").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stderr)
    };
    assert!(run_stderr().contains("made a copy"), "{}", run_stderr());
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    for open in [&lib, &dir("there/lib"), &dir("there")] {
        set(open, 0o777);
        let message = run_stderr();
        assert!(
            message.contains(&format!("everyone can write to {}:", open.display())),
            "{message}"
        );
        assert!(message.contains("is not loaded") && message.lines().count() == 1, "{message}");
        set(open, 0o755);
    }
    // In a sticky directory, others cannot remove the file, but anyone could have put a link there.
    set(&lib, 0o1777);
    assert!(run_stderr().contains("is not loaded"), "{}", run_stderr());
    set(&lib, 0o755);
    set(&place.path("there"), 0o1777);
    assert!(run_stderr().contains("a copy"), "{}", run_stderr());
}

/// A memory cgroup of this test, removed when its processes have ended.
pub(crate) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a limited cgroup (v1 or v2); says loudly if this process may not.
    pub(crate) fn new(test: &str, bytes: u64) -> Option<Self> {
        let name = format!("folio-test-{test}-{}", std::process::id());
        let trees =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let group = trees.into_iter().find_map(|(tree, file)| {
            let path = Path::new(tree).join(&name);
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            fs::write(group.0.join(file), bytes.to_string()).ok()?;
            Some(group)
        });
        if group.is_none() {
            largefolio_testkit::skipped!("{test}: no memory cgroup can be made");
        }
        group
    }

    pub(crate) fn joins(&self) -> String {
        format!("echo $$ > {}/cgroup.procs", self.0.display())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        fs::remove_dir(&self.0).unwrap();
    }
}

#[test]
fn a_cache_is_not_filled_beyond_the_limit_of_a_control_group() {
    let place = Place::new();
    let Some(group) = MemoryGroup::new("a_cache_is_not_filled", 64 << 20) else { return };
    let file = fs::File::create(place.path("large")).unwrap();
    file.set_len(128 << 20).unwrap();
    let output = run(&place, &group.joins(), "warm large --json");
    let stdout = text(&output.stdout);
    let result: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["rows"][0]["refusal"], "low_group", "{stdout}");
    let reason = result["rows"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("the control group can use only"), "{reason}");
    assert!(result["rows"][0]["remedy"].as_str().unwrap().contains("memory.max"), "{stdout}");
}

#[test]
fn shows_the_limit_of_a_control_group_with_its_memory() {
    let place = Place::new();
    let Some(group) = MemoryGroup::new("the_limit_of_a_group", 64 << 20) else { return };
    let name = group.0.file_name().unwrap().to_str().unwrap();
    let output = run(&place, &group.joins(), "maps --name folio");
    let stdout = text(&output.stdout);
    let line = stdout.lines().find(|line| line.contains(name)).unwrap();
    assert!(stdout.contains("control group") && line.contains("64 MiB"), "{stdout}");
    let output = run(&place, &group.joins(), "maps --name folio --json");
    let result: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let limits = result["memory_limits"].as_array().unwrap();
    let own = limits.iter().find(|limit| limit["group"] == format!("/{name}")).unwrap();
    assert_eq!(own["max_bytes"], 64 << 20);
    assert!(own["used_bytes"].as_u64().unwrap() > 0, "{own}");
}

/// Returns the number of the process's threads with `no_new_privs`, which are confined.
fn nr_confined(pid: u32) -> usize {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let is_confined = |thread: &fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.contains("\nNoNewPrivs:\t1\n")
    };
    threads.flatten().filter(is_confined).count()
}

#[test]
fn root_reads_what_others_made_without_its_rights() {
    let place = Place::with_trace();
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("only root gives up privileges");
        return;
    }
    copy_program("/bin/true", place.path("p"));
    place.done("trace gen zipf --runs 300000 -o long.folio");
    let is_waiting = |args: &str| {
        let mut child = place.command(args).stdout(Stdio::piped()).spawn().unwrap();
        let confined = (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            nr_confined(child.id()) > 0
        });
        child.kill().unwrap();
        child.wait().unwrap();
        confined
    };
    // Each waits for a reader: of a FIFO, or of its standard output.
    assert!(Command::new("mkfifo").arg(place.path("page.html")).status().unwrap().success());
    for args in [
        "predict mix.folio --kernel 6.12 --machine altra --report page.html",
        "maps --elf p --report page.html",
        "trace cat long.folio",
    ] {
        assert!(is_waiting(args), "{args}: reads with all rights");
    }
    assert!(!is_waiting("trace gen zipf --runs 300000 -o page.html"), "it reads nothing");
}

/// The model's state for 4 TiB of memory exceeds the address space.
#[test]
fn too_much_memory_is_an_error_that_names_the_option() {
    let place = Place::with_trace();
    let args = "predict mix.folio --kernel 7.2 --machine altra --memory 4096G";
    let output = run(&place, "ulimit -v 8000000", args);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("this host has too little memory; give the machine less memory"),
        "{stderr}"
    );
    assert!(stderr.contains("with `--memory`"), "{stderr}");
}
