//! Programs that execute others: the recording follows, and the programs do not notice it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use largefolio_linux::record::RecordEnd;
use largefolio_trace::event::BORROWS_MEMORY;
use largefolio_trace::{Event, ExitKind, Op};

use crate::recorded::{Recorded, program, record};
use crate::support::{compile_in, has};

/// Writes everything that a program gets from an execve to descriptor 5.
const WITNESS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/resource.h>
#include <unistd.h>
int main(int argc, char **argv, char **environ) {
    char path[4096];
    for (int n = 0; n < argc; n++) dprintf(5, "argument %s\n", argv[n]);
    for (; *environ; environ++) dprintf(5, "variable %s\n", *environ);
    dprintf(5, "directory %s\n", getcwd(path, sizeof path));
    path[readlink("/proc/self/exe", path, sizeof path - 1)] = 0;
    dprintf(5, "exe %s\n", path);
    for (int fd = 0; fd < 900; fd++)
        if (fcntl(fd, F_GETFD) >= 0) dprintf(5, "descriptor %d\n", fd);
    sigset_t set;
    sigprocmask(SIG_BLOCK, 0, &set);
    for (int signal = 1; signal < 32; signal++) {
        struct sigaction action;
        if (sigaction(signal, 0, &action) == 0 && action.sa_handler == SIG_IGN)
            dprintf(5, "ignored %d\n", signal);
        if (sigismember(&set, signal)) dprintf(5, "blocked %d\n", signal);
    }
    mode_t mask = umask(0);
    dprintf(5, "umask %o, priority %d\n", mask, getpriority(PRIO_PROCESS, 0));
    return 42;
}
"#;

/// Executes the witness, its second argument, with peculiar things to inherit. The witness's output
/// goes to the file in the first argument.
const CALLER: &str = r#"
int main(int argc, char **argv) {
    char *environment[] = {"LD_PRELOAD=/nonexistent/a.so", "A=1,2=3", "LD_LIBRARY_PATH=/nonexistent",
        "QEMU_STRACE=1", "GLIBC_TUNABLES=glibc.malloc.check=1", "LAST=", 0};
    char *arguments[] = {"a name of its own", "", "-0", "--", "a b", 0};
    dup2(open(argv[1], O_CREAT | O_WRONLY | O_TRUNC, 0666), 5);
    fcntl(5, F_DUPFD, 77);
    fcntl(5, F_DUPFD_CLOEXEC, 78);
    for (int fd = 6; fd < 20; fd++) close(fd);
    chdir("/usr");
    signal(SIGTERM, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, 0);
    umask(027);
    nice(3);
    execve(argv[2], arguments, environment);
    return 1;
}"#;

fn executed(trace: &Recorded) -> Vec<String> {
    let path = |event: &Event| {
        let image = trace.meta.image_of(event.aux)?;
        trace.meta.program_of(&image.layout).map(str::to_owned)
    };
    trace.of(Op::Execve).iter().filter_map(path).collect()
}

#[expect(clippy::expect_used, reason = "a test helper fails")]
fn script(path: &Path, text: &str) {
    fs::write(path, text).expect("a script");
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
}

#[test]
fn a_program_gets_from_an_execve_what_it_gets_without_us() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(CALLER, &["-include", "sys/stat.h"]);
    let folder = made.dir.path();
    let other = folder.join("other");
    fs::create_dir(&other).expect("a directory");
    let witness = compile_in(&other, WITNESS, &[]);
    let text = folder.join("script");
    script(&text, &format!("#! {} of a script\nrest\n", witness.display()));
    for target in [&witness, &text] {
        let (plain, recorded) = (folder.join("plain"), folder.join("recorded"));
        let status = Command::new(&made.path).arg(&plain).arg(target).status().expect("a run");
        let arguments = [recorded.to_str(), target.to_str()].map(|path| path.expect("a name"));
        let trace = record(&made.path, &arguments);
        assert_eq!((status.code(), trace.outcome.ended), (Some(42), RecordEnd::Code(42)));
        let output = |path: &Path| fs::read_to_string(path).expect("the witness's output");
        assert!(output(&plain).lines().count() > 12, "{}", output(&plain));
        assert_eq!(output(&recorded), output(&plain));
        assert_eq!(executed(&trace), [witness.to_str().expect("a name")]);
        assert_eq!(trace.outcome.nr_executions, 1);
        assert_eq!(trace.meta.execs[0].command.last().map(String::as_str), Some("a b"));
        assert!(trace.outcome.warnings.is_empty(), "{:?}", trace.outcome.warnings);
    }
}

#[test]
fn a_shell_pipeline_is_recorded_whole() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("lines");
    script(&path, "#!/bin/sh\nls / | sort -r | wc -l\nexit 7\n");
    let trace = record(&path, &[]);
    assert_eq!((trace.outcome.ended, trace.outcome.nr_processes), (RecordEnd::Code(7), 4));
    let mut programs = executed(&trace);
    programs.sort();
    let names: Vec<_> = programs.iter().filter_map(|path| path.rsplit('/').next()).collect();
    assert_eq!(names, ["ls", "sort", "wc"]);
    let heaps = trace.of(Op::Brk).into_iter().filter(|brk| brk.thread == 0);
    assert_eq!(heaps.map(|brk| brk.addr).min(), Some(trace.meta.brk), "the heap of the shell");
    for execve in trace.of(Op::Execve) {
        let image = trace.meta.image_of(execve.aux).expect("an image");
        assert!(image.brk > 0 && image.layout.len() > 6, "{image:?}");
        let rows = trace.by_thread();
        let after = rows[&execve.thread].iter().skip_while(|event| event.op != Op::Execve).skip(1);
        let entry = image.layout.iter().find(|entry| entry.prot == 5).expect("text");
        let is_in = |event: &&Event| {
            event.op == Op::Exec && (entry.addr..entry.addr + entry.len).contains(&event.addr)
        };
        assert!(after.filter(is_in).count() > 0, "the new text runs");
    }
    assert!(trace.of(Op::Exit).iter().all(|exit| exit.flags == ExitKind::Process as u32));
}

#[test]
fn tries_that_fail_are_none() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r#"
        int main(int argc, char **argv) {
            if (argc == 3) return 9;
            char *many[3] = {"x", (char *)8, 0};
            int script = open("/tmp", O_TMPFILE | O_RDWR, 0755);
            execl("/nonexistent/a", "a", (char *)0);
            if (errno != ENOENT) return 1;
            execl("/usr", "a", (char *)0);
            if (errno != EACCES) return 2;
            execl("/etc/passwd", "a", (char *)0);
            if (errno != EACCES) return 3;
            execv("/bin/true", many);
            if (errno != EFAULT) return 4;
            execl(argv[1], "a", (char *)0);
            if (errno != ENOENT) return 5;
            if (execl(argv[2], "a", (char *)0), errno != ENOEXEC) return 6;
            pages(9);
            fill(0, 4, 1);
            execl("/proc/self/exe", "again", "1", "2", (char *)0);
            return 7;
        }"#,
        &["-D_GNU_SOURCE"],
    );
    let (lost, empty) = (made.dir.path().join("lost"), made.dir.path().join("empty"));
    script(&lost, "#!/nonexistent/sh\n");
    script(&empty, "nothing that runs\n");
    let arguments = [lost.to_str(), empty.to_str(), Some("x")].map(|path| path.expect("a name"));
    let trace = record(&made.path, &arguments);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(9), "{:?}", trace.outcome.warnings);
    assert!(trace.outcome.warnings.is_empty(), "{:?}", trace.outcome.warnings);
    assert_eq!(executed(&trace), [made.path.to_str().expect("a name")]);
    let base = trace.mapping(9).addr;
    assert_eq!(trace.count(Op::Write, Some(0), base, base + 9 * 4096), 4);
}

#[test]
fn a_thread_that_executes_ends_the_others() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r#"
        static void *stay(void *n) { for (;;) pause(); return n; }
        static void *run(void *n) {
            execl("/bin/sh", "sh", "-c", "exit 6", (char *)0);
            return n;
        }
        int main(void) {
            pthread_t t[3];
            for (long n = 0; n < 3; n++) pthread_create(&t[n], 0, n < 2 ? stay : run, 0);
            stay(0);
        }"#,
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!((trace.outcome.ended, trace.outcome.nr_processes), (RecordEnd::Code(6), 1));
    let execve = trace.of(Op::Execve)[0];
    assert_eq!(execve.thread, 3, "the caller continues under its own id");
    let after = trace.events.iter().skip_while(|event| event.op != Op::Execve);
    assert!(after.clone().all(|event| event.thread == 3) && after.count() > 100);
}

/// Chains, many children and grandchildren, and processes that outlive their parents.
#[test]
fn hundreds_of_processes_and_long_chains_are_recorded() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r#"
        int main(int argc, char **argv) {
            char left[20];
            int nr = argc > 1 ? atoi(argv[1]) : 30;
            if (nr == 0) return 3;
            snprintf(left, sizeof left, "%d", nr - 1);
            if (nr % 10 == 0) {
                for (int n = 0; n < 12; n++) {
                    if (fork() == 0) execl("/bin/true", "true", (char *)0);
                    pid_t pid;
                    char *arguments[] = {"true", 0};
                    posix_spawn(&pid, "/bin/true", 0, 0, arguments, 0);
                }
                while (wait(0) > 0) { }
            }
            execl(argv[0], argv[0], left, (char *)0);
            return 1;
        }"#,
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!((trace.outcome.ended, trace.outcome.nr_processes), (RecordEnd::Code(3), 73));
    assert_eq!(trace.outcome.nr_executions, 30 + 72);
    let forks = trace.of(Op::Fork);
    let nr_borrowing = forks.iter().filter(|fork| fork.flags == BORROWS_MEMORY).count();
    assert_eq!((forks.len(), nr_borrowing), (72, 36));
    // One per layout: QEMU 10 places the interpreter at varying addresses.
    assert!(trace.meta.images.len() <= 12, "{} images", trace.meta.images.len());
    assert!(trace.outcome.warnings.is_empty(), "{:?}", trace.outcome.warnings);
}

#[test]
fn what_cannot_be_followed_runs_and_is_named() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r#"
        #include <sys/sendfile.h>
        int main(int argc, char **argv) {
            int status, from = open("/bin/true", O_RDONLY), to = memfd_create("copy", 0);
            sendfile(to, from, 0, 1 << 30);
            char name[40];
            snprintf(name, sizeof name, "/proc/self/fd/%d", to);
            for (int n = 0; n < 2; n++) {
                if (fork() == 0) return execl(n ? argv[1] : name, "x", (char *)0);
                wait(&status);
                if (status) return 1;
            }
            return 0;
        }"#,
        &["-D_GNU_SOURCE"],
    );
    let other = made.dir.path().join("privileged");
    fs::copy("/bin/true", &other).expect("a copy");
    if chown(&other, Some(1), None).is_err() {
        largefolio_testkit::skipped!("only root can make a file of another user: run as root");
        return;
    }
    fs::set_permissions(&other, PermissionsExt::from_mode(0o4755)).expect("a mode");
    let trace = record(&made.path, &[other.to_str().expect("a name")]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
    assert!(executed(&trace).is_empty());
    let warnings = trace.outcome.warnings.join("\n");
    assert!(warnings.contains("copy") && warnings.contains("no name"), "{warnings}");
    assert!(warnings.contains("privileged") && warnings.contains("set-user-id"), "{warnings}");
    let exits = trace.of(Op::Exit);
    let nr_lost = exits.iter().filter(|exit| exit.flags == ExitKind::Execve as u32).count();
    assert_eq!((exits.len(), nr_lost), (3, 2));
}

/// Records a program that gives up root; it exits with 2 if it is not root.
fn record_without_root(main: &str) -> Option<Recorded> {
    if !has("qemu-x86_64", "qemu-user") {
        return None;
    }
    let trace = record(&program(main, &[]).path, &[]);
    if trace.outcome.ended == RecordEnd::Code(2) {
        largefolio_testkit::skipped!("only root can become another user: run as root");
        return None;
    }
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
    Some(trace)
}

/// A service continues as another user; its children are still recorded.
#[test]
fn a_process_that_gave_up_root_is_recorded() {
    let trace = record_without_root(
        r#"
        int main(void) {
            int status = 1;
            if (setgid(65534) || setuid(65534)) return 2;
            if (fork() == 0) execl("/bin/sh", "sh", "-c", "exit 0", (char *)0);
            wait(&status);
            return status;
        }"#,
    );
    let Some(trace) = trace else { return };
    assert_eq!(executed(&trace).len(), 1, "{:?}", trace.outcome.warnings);
}

/// Such a process's actions before it was killed are in the trace too.
#[test]
fn a_process_that_gave_up_root_loses_nothing_when_it_is_killed() {
    let trace = record_without_root(
        r"
        #include <signal.h>
        #include <sys/mman.h>
        int main(void) {
            int status = 1;
            if (setgid(65534) || setuid(65534)) return 2;
            if (fork() == 0) {
                volatile char *p = mmap(0, 501 * 4096, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                for (long page = 0; page < 500; page++) p[page * 4096] = 1;
                kill(getpid(), SIGKILL);
            }
            wait(&status);
            return WIFSIGNALED(status) ? 0 : 3;
        }",
    );
    let Some(trace) = trace else { return };
    let map = trace.mapping(501);
    assert_eq!(trace.count(Op::Write, None, map.addr, map.addr + map.len), 500);
}

/// A tree of 511 simultaneous processes, under a descriptor limit set by others.
#[test]
fn a_tree_of_processes_is_recorded_whole() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        #include <sys/resource.h>
        int main(int argc, char **argv) {
            struct rlimit limit;
            getrlimit(RLIMIT_NOFILE, &limit);
            limit.rlim_cur = 64;
            setrlimit(RLIMIT_NOFILE, &limit);
            for (int depth = 0; depth < 8; depth++) {
                int nr = 0;
                while (nr < 2 && fork() != 0) nr++;
                if (nr == 2) { while (wait(0) > 0) { } return 0; }
            }
            return 0;
        }",
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!((trace.outcome.ended, trace.outcome.nr_processes), (RecordEnd::Code(0), 511));
    let exits = trace.of(Op::Exit);
    assert!(exits.iter().all(|exit| exit.flags == ExitKind::Process as u32 && exit.pos == 0));
    assert!(trace.outcome.warnings.is_empty(), "{:?}", trace.outcome.warnings);
}
