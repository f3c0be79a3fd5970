//! `folio run`: the program's view, its end, the messages, and the files and settings left.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{self, Place, copy_program, hold_settings, text};

/// 8 MiB of text that is all called; prints how much of it PMD entries map.
pub(crate) const PROGRAM: &str = r#"
#include <stdio.h>
__asm__(".text\n.balign 4096\n.globl stubs\nstubs:\n.fill 8388608,1,0xc3\n");
extern char stubs[];
int main(int argc, char **argv) {
    char line[512];
    long sum = 0, value;
    for (long at = 0; at < 8388608; at += 64) ((void (*)(void))(stubs + at))();
    FILE *smaps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, smaps))
        if (sscanf(line, "FilePmdMapped: %ld", &value) == 1) sum += value;
    printf("%ld\n", sum);
    return argc - 1;
}
"#;

/// Compiles `p`; returns false, with a message, without a compiler.
pub(crate) fn compile(place: &Place, flags: &str) -> bool {
    fs::write(place.path("p.c"), PROGRAM).unwrap();
    if !support::compile(place, "gcc", &format!("{flags} p.c -o linked")) {
        return false;
    }
    // Copies page by page, so that the file is in small folios. A separate process copies it:
    // otherwise a process started by another test could inherit the open file, which could then not
    // be run.
    let copy = ["if=linked", "of=p", "bs=4096", "status=none"];
    let mut dd = Command::new("dd");
    assert!(dd.current_dir(place.0.path()).args(copy).status().unwrap().success());
    fs::set_permissions(place.path("p"), fs::Permissions::from_mode(0o755)).unwrap();
    true
}

fn mapped_kib(stdout: &[u8]) -> u64 {
    text(stdout).trim().parse().unwrap()
}

pub(crate) fn has_large_folios(place: &Place) -> bool {
    fs::write(place.path("try"), vec![1; 4 << 20]).unwrap();
    let output = place.run("warm try");
    if output.status.code() == Some(0) {
        return true;
    }
    // "Cannot" is a valid answer, but an error is not.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    largefolio_testkit::skipped!("{}", text(&output.stdout).lines().last().unwrap_or_default());
    false
}

#[test]
fn text_is_mapped_large_and_summarised() {
    let place = Place::new();
    if !has_large_folios(&place) || !compile(&place, "-no-pie") {
        return;
    }
    let plain = place.command("run --text off -- ./p").output().unwrap();
    assert_eq!(mapped_kib(&plain.stdout), 0);
    let output = place.run("run --text large --verbose -- ./p a b c");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(mapped_kib(&output.stdout) >= 6 << 10, "{stderr}");
    assert!(stderr.contains("in 2M folios in the page cache 0 B -> 8 MiB of 8 MiB"), "{stderr}");
    assert!(stderr.contains("start delayed by"), "{stderr}");
    // The next process finds the same state, however it is started.
    let next = Command::new(place.path("p")).output().unwrap();
    assert!(mapped_kib(&next.stdout) >= 6 << 10);
    let quiet = place.run("run --quiet -- ./p");
    assert_eq!((quiet.status.code(), text(&quiet.stderr).as_str()), (Some(0), ""));
}

#[test]
fn suggests_align_for_a_randomly_loaded_program() {
    let place = Place::new();
    if !has_large_folios(&place) || !compile(&place, "-pie -fPIE") {
        return;
    }
    // If no shell finds this folio by name, the remedy has its path.
    let folio = assert_cmd::cargo::cargo_bin!("folio");
    let directory = folio.parent().unwrap().display();
    for (path, name) in [
        ("/usr/bin:/bin".to_owned(), folio.display().to_string()),
        (format!("{directory}:/usr/bin:/bin"), "folio".to_owned()),
    ] {
        let output = place.command("run --text large -- ./p").env("PATH", path).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(mapped_kib(&output.stdout), 0, "{stderr}");
        let remedy = format!("its load address is a random multiple of 4K; {name} align ");
        assert!(stderr.contains(&remedy), "{remedy}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    place.done("align p -o copy");
    let output = place.run("run --text large -- ./copy");
    assert!(mapped_kib(&output.stdout) >= 6 << 10, "{}", text(&output.stderr));
}

#[test]
fn exit_codes_and_signals_are_the_programs() {
    let place = Place::new();
    for how in ["--quiet", "--summary", "--text off", "--verbose"] {
        let code = |script: &str| {
            let mut command = place.command(&format!("run {how} -- sh -c"));
            command.arg(script).stderr(Stdio::null()).status().unwrap()
        };
        assert_eq!(code("exit 7").code(), Some(7), "{how}");
        assert_eq!(code("kill -TERM $$").signal(), Some(15), "{how}");
        assert_eq!(code("kill -KILL $$").signal(), Some(9), "{how}");
        assert_eq!(code("ulimit -c 0; kill -SEGV $$").signal(), Some(11), "{how}");
    }
    let output = place.run("run -- nosuchprogram");
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("nosuchprogram: not found"));
    fs::write(place.path("plain"), "x").unwrap();
    let output = place.run("run -- ./plain");
    assert_eq!(output.status.code(), Some(126));
    assert!(text(&output.stderr).contains("chmod +x ./plain"));
    assert_eq!(place.run("run").status.code(), Some(2));
}

#[test]
fn streams_arguments_and_environment_are_the_programs() {
    let place = Place::new();
    let script =
        "read line; echo \"$line|$0|$1|$2|$GLIBC_TUNABLES\"; cut -d' ' -f5 /proc/$$/stat >&2";
    let mut child = place
        .command("run --summary --text off -- sh -c")
        .args([script, "zero", "a b", "--json"])
        .env_remove("GLIBC_TUNABLES")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "in|zero|a b|--json|\n");
    let own = rustix::process::getpgrp().as_raw_nonzero();
    let stderr = text(&output.stderr);
    assert_eq!(stderr.lines().next().unwrap().trim(), own.to_string(), "{stderr}");
}

/// A folio process that is killed at the end of its test, even if the test fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that prints its pid and does `then` on SIGTERM.
fn start_waiting(
    place: &Place,
    how: &str,
    then: &str,
) -> (Started, BufReader<std::process::ChildStdout>) {
    let script = format!("trap '{then}' TERM; echo $$; while :; do sleep 0.02; done");
    let mut child = place
        .command(&format!("run {how} -- sh -c"))
        .arg(script)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (Started(child), stdout)
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_signal_sent_to_folio_alone_reaches_the_program() {
    let place = Place::new();
    let (mut child, mut stdout) = start_waiting(&place, "--summary --text off", "exit 42");
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    signal(child.0.id(), "TERM");
    assert_eq!(child.0.wait().unwrap().code(), Some(42));
}

/// A service manager starts services with SIGPIPE ignored.
#[test]
fn sigpipe_has_the_inherited_disposition() {
    let place = Place::new();
    let folio = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
    let verbs = ["run --", "run --quiet --", "record -qo t.folio --"];
    for (verb, before) in verbs.into_iter().flat_map(|verb| [(verb, "trap '' PIPE;"), (verb, "")]) {
        let script = format!("{before} exec {folio} {verb} sh -c 'kill -PIPE $$; echo alive'");
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", &script]).current_dir(place.path(".")).output().unwrap();
        if text(&output.stderr).contains("; get one with `") {
            largefolio_testkit::skipped!("{verb}: no QEMU with plugins (make qemu)");
            continue;
        }
        assert_eq!(text(&output.stdout).contains("alive"), !before.is_empty(), "{script}");
    }
}

fn setting() -> PathBuf {
    PathBuf::from("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")
}

fn wait_until(condition: impl Fn() -> bool) -> bool {
    (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        condition()
    })
}

#[test]
fn the_heap_setting_is_restored_even_after_sigkill() {
    let _settings = hold_settings();
    let read = || fs::read_to_string(setting()).unwrap_or_default();
    let before = read();
    if before.is_empty() || !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("needs root and Linux 6.8 for {}", setting().display());
        return;
    }
    let place = Place::new();
    let how = "--text off --heap 64K";
    let script =
        "echo $GLIBC_TUNABLES; cat /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
    let output = place
        .command(&format!("run {how} -- sh -c"))
        .arg(script)
        .env("GLIBC_TUNABLES", "glibc.malloc.check=0")
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    let stdout = text(&output.stdout);
    assert!(
        stdout.starts_with("glibc.malloc.check=0:glibc.malloc.hugetlb=1\n"),
        "{stdout}{stderr}"
    );
    assert!(stdout.contains("[madvise]") || before.contains("[always]"), "{stdout}{stderr}");
    assert!(stderr.contains("heap: "), "{stderr}");
    assert_eq!(read(), before);

    let (mut child, mut stdout) = start_waiting(&place, how, "");
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let program = PathBuf::from(format!("/proc/{}", line.trim()));
    assert!(program.exists());
    // A second folio warns, and runs its program without the change.
    let second = place.run(&format!("run {how} -- true"));
    let stderr = text(&second.stderr);
    assert_eq!(second.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("another folio process has changed it temporarily"), "{stderr}");
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    assert!(wait_until(|| read() == before), "the setting was not put back: {}", read());
    // The program ends too: it does not continue without its settings.
    let has_ended = || {
        let state = fs::read_to_string(program.join("stat")).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    };
    assert!(wait_until(has_ended), "the program still runs");
}

#[test]
fn reports_unchanged_programs_with_the_reason() {
    let place = Place::new();
    let run_stderr = |args: &str| {
        let output = place.run(&format!("run {args}"));
        assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    let stderr = run_stderr("-- true");
    assert!(stderr.contains("contain no whole block of 2M of text, so no PMD entry"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(run_stderr("--text off -- true"), "");
    if !compile(&place, "-no-pie") {
        return;
    }
    let mode =
        |mode| fs::set_permissions(place.path("p"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o4755);
    let stderr = run_stderr("-- ./p");
    assert!(stderr.contains("runs with its own privileges (set-id or capabilities)"), "{stderr}");
    mode(0o755);
    fs::write(place.path("script"), "#!/usr/bin/env -S sh -e\nexit 0\n").unwrap();
    fs::set_permissions(place.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let stderr = run_stderr("--verbose -- ./script");
    assert!(stderr.contains("./script runs "), "{stderr}");
    if compile(&place, "-static") {
        let stderr = run_stderr("--text off --heap 2M -- ./p");
        assert!(stderr.contains("the program is static: the heap is unchanged"), "{stderr}");
        // Its text has no whole block either, but the heap was requested.
        let stderr = run_stderr("--heap 2M -- ./p");
        assert!(stderr.starts_with("folio: warning: --heap works only for"), "{stderr}");
    }
    if compile(&place, "-fsanitize=address") {
        let stderr = run_stderr("-- ./p");
        assert!(stderr.contains("built with a sanitizer"), "{stderr}");
    }
}

#[test]
fn an_unknown_option_is_not_taken_for_a_program() {
    let place = Place::new();
    for args in ["record --quite true", "record --quite -- true", "run --summry true"] {
        let output = place.run(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {stderr}");
        assert!(stderr.contains("a similar argument exists"), "{args}: {stderr}");
    }
    // The program's options are its own.
    assert_eq!(place.run("run --quiet --text off sh -c true --quite").status.code(), Some(0));
    assert_eq!(place.run("run --quiet --text off -- --quite").status.code(), Some(127));
}

#[test]
fn another_user_can_run_readable_programs() {
    let _settings = hold_settings();
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/bin/setpriv").exists() {
        largefolio_testkit::skipped!("needs root and setpriv to become another user");
        return;
    }
    let place = Place::new();
    if !has_large_folios(&place) || !compile(&place, "-no-pie") {
        return;
    }
    fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(assert_cmd::cargo::cargo_bin!("folio"), place.path("folio"));
    let args = "--reuid 65534 --regid 65534 --clear-groups ./folio run --verbose --heap 64K -- ./p";
    let output =
        Command::new("setpriv").current_dir(place.0.path()).args(args.split(' ')).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    // Reading is enough to fill the cache, and the previous cache state is not disclosed to other
    // users.
    assert!(mapped_kib(&output.stdout) >= 6 << 10, "{stderr}");
    assert!(stderr.contains("in the page cache ? -> 8 MiB"), "{stderr}");
    assert!(stderr.contains("the heap is unchanged"), "{stderr}");
}

#[test]
fn a_closed_standard_error_is_no_error() {
    let place = Place::new();
    let mut child = place
        .command("run --summary -- sh -c")
        .arg("cat >/dev/null; exit 3")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_exact(&mut [0; 1]).unwrap();
    drop(stderr);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

pub(crate) fn has_remapper() -> bool {
    let library = assert_cmd::cargo::cargo_bin!("folio").with_file_name("liblargefolio_preload.so");
    let exists = library.exists();
    if !exists {
        largefolio_testkit::skipped!(
            "{} is missing: cargo build -p largefolio-preload",
            library.display()
        );
    }
    exists
}

#[test]
fn reports_and_shares_remapped_text_at_fixed_addresses() {
    let place = Place::new();
    if !has_remapper() || !compile(&place, "-no-pie") {
        return;
    }
    let output = place.run("run --text remap -- ./p a b c");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.contains("folio: p: 6.0 of 8.0 MiB") && stderr.contains("1 made a copy"),
        "{stderr}"
    );
    assert!(stderr.contains("folio: start-up: "), "{stderr}");
    let quiet = place.run("run --text remap --quiet -- ./p");
    assert_eq!(text(&quiet.stderr), "");
    let none = text(&place.run("run --text remap -- true").stderr);
    assert!(none.contains("in every process, "), "{none}");
    assert!(none.contains("or the program runs as another user"), "{none}");
}

#[test]
fn auto_remaps_text_that_the_page_cache_cannot_hold_large() {
    let place = Place::new();
    if !has_remapper() || !has_large_folios(&place) || !compile(&place, "-pie -fPIE") {
        return;
    }
    let stderr = text(&place.run("run -- ./p").stderr);
    assert!(stderr.contains("not shared") && stderr.contains("folio align"), "{stderr}");
    let large = text(&place.run("run --text large -- ./p").stderr);
    assert!(large.contains("stays in small pages"), "{large}");
    let off =
        place.command("run -- ./p").env("LARGEFOLIO_PRELOAD", "/no/library").output().unwrap();
    let stderr = text(&off.stderr);
    assert!(
        stderr.contains("stays in small pages"),
        "the loss is reported if nothing helps: {stderr}"
    );
}

#[test]
fn a_limit_of_thp_holds_for_the_program_and_its_children() {
    let place = Place::new();
    // The flag as prctl(PR_GET_THP_DISABLE) returns it.
    let flag = "import ctypes; print(ctypes.CDLL(None).prctl(42, 0, 0, 0, 0))";
    let flag_of = |thp: &str| {
        let mut command = place.command(&format!("run {thp} -- sh -c"));
        let output = command.arg(format!("exec python3 -c '{flag}'")).output().unwrap();
        (output.status.code(), text(&output.stdout).trim().to_owned(), text(&output.stderr))
    };
    let (_, inherited, _) = flag_of("--thp inherit");
    if inherited.is_empty() {
        largefolio_testkit::skipped!("python3 is missing");
        return;
    }
    assert_eq!(flag_of("--thp off"), (Some(0), "1".to_owned(), String::new()));
    let (status, advised, stderr) = flag_of("--thp advised");
    if status == Some(2) {
        assert!(stderr.contains("since Linux 6.18; on this kernel, --thp off"), "{stderr}");
    } else {
        assert_eq!((status, advised.as_str(), stderr.as_str()), (Some(0), "3", ""));
    }
    let stderr = place.fails("run --thp off --heap 64K -- true");
    assert!(stderr.contains("cannot be used with"), "{stderr}");
}

/// The programs pass the running kernel's verifier; the first kernel that can ask them is one with
/// `kernel/policy`.
#[test]
fn a_policy_passes_the_verifier_and_needs_a_kernel_that_asks() {
    let place = Place::new();
    for (name, _) in largefolio_sim::policy::KernelPolicy::builtin() {
        let output = place.run(&format!("run --quiet --policy {name} -- true"));
        let stderr = text(&output.stderr);
        if stderr.contains("a policy needs root") {
            largefolio_testkit::skipped!("attaching a policy needs root");
            return;
        }
        let is_unasked = stderr.contains("this kernel has no decision point lf_");
        if ["thp-by-area", "mthp-pressure", "cache-once"].contains(&name) {
            assert!(stderr.contains("only with the posted patches"), "{name}: {stderr}");
        } else {
            assert!(output.status.success() || is_unasked, "{name}: {stderr}");
        }
    }
    let stderr = place.fails("run --policy no-such-policy -- true");
    assert!(stderr.contains("no-such-policy"), "{stderr}");
}
