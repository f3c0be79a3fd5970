//! Recordings through valgrind.

use largefolio_linux::record::{Ended, RecorderKind, With};
use largefolio_trace::event::SHARES_MEMORY;
use largefolio_trace::{ExitKind, LayoutKind, Op};

use crate::recorded::{compile, record};
use crate::support::has;

const PROGRAM: &str = r"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
static volatile char *p;
static void *work(void *n) {
    for (long page = 10; page < 20; page++) p[page * 4096] = 1;
    return 0;
}
int main(int argc, char **argv) {
    char buffer[300];
    p = mmap(0, 37 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long page = 0; page < 10; page++)
        for (int i = 0; i < 5; i++) p[page * 4096 + i] = 1;
    pthread_t t;
    pthread_create(&t, 0, work, 0);
    pthread_join(t, 0);
    int fd = open(argv[1], O_RDWR | O_CREAT, 0600);
    write(fd, buffer, 300);
    lseek(fd, 100, SEEK_SET);
    read(fd, buffer, 50);
    read(fd, buffer, 50);
    munmap((void *)p, 37 * 4096);
    return 6;
}
";

#[test]
fn valgrind_sees_references_threads_mappings_and_files() {
    if !has("valgrind", "valgrind") {
        return;
    }
    let made = compile(PROGRAM, &[]);
    let name = made.dir.path().join("data");
    let trace = record(&made.path, &[name.to_str().expect("utf-8")], With::Valgrind);
    assert_eq!(
        (trace.outcome.ended, trace.outcome.recorder),
        (Ended::Code(6), RecorderKind::Valgrind)
    );
    assert_eq!(trace.outcome.nr_threads, 2);
    assert!(!trace.meta.links, "lackey tells no values");
    let map = trace.mapping(37);
    let end = map.addr + 37 * 4096;
    assert_eq!(trace.count(Op::Write, Some(0), map.addr, end), 50);
    assert_eq!(trace.count(Op::Write, Some(1), map.addr, end), 10);
    assert_eq!(
        trace.of(Op::Fork).iter().map(|event| event.flags).collect::<Vec<_>>(),
        [SHARES_MEMORY]
    );
    assert!(trace.of(Op::Munmap).iter().any(|event| event.addr == map.addr));
    let data = Some(trace.file("/data"));
    let seen: Vec<_> = trace
        .events
        .iter()
        .filter(|event| event.file == data)
        .map(|event| (event.op, event.len, event.pos))
        .collect();
    let fd = seen[0].2;
    let expected =
        [(Op::Open, 0, fd), (Op::Pwrite, 300, 0), (Op::Pread, 50, 100), (Op::Pread, 50, 150)];
    assert_eq!(seen, expected);
    let has_kind = |kind| trace.meta.layout.iter().any(|entry| entry.kind == kind);
    assert!(has_kind(LayoutKind::Program) && has_kind(LayoutKind::Interpreter));
    assert!(has_kind(LayoutKind::Stack) && trace.meta.brk != 0);
    let exit = trace.events.last().expect("events");
    assert_eq!((exit.op, exit.pos, exit.flags), (Op::Exit, 6, ExitKind::Process as u32));
}

#[test]
fn a_program_killed_under_valgrind_leaves_a_valid_trace() {
    if !has("valgrind", "valgrind") {
        return;
    }
    let made = compile("#include <signal.h>\nint main(void) { return raise(SIGTERM); }", &[]);
    let trace = record(&made.path, &[], With::Valgrind);
    assert_eq!(trace.outcome.ended, Ended::Signal(15));
    assert_eq!(trace.meta.ended, "signal 15");
}

/// Whatever starts them: `fork`, `vfork`, `posix_spawn`, and an execve that ends the recording.
#[test]
fn what_valgrind_does_not_follow_is_told() {
    if !has("valgrind", "valgrind") {
        return;
    }
    let started = |how: &str| {
        let code = format!(
            "#include <spawn.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
             extern char **environ;\nstatic char *words[] = {{\"true\", 0}};\n\
             int main(void) {{ pid_t pid; {how} return 0; }}"
        );
        record(&compile(&code, &[]).path, &[], With::Valgrind).meta.warnings.join(" ")
    };
    for how in [
        "pid = fork(); if (!pid) _exit(0); wait(0);",
        "pid = vfork(); if (!pid) _exit(0); wait(0);",
        "posix_spawn(&pid, \"/bin/true\", 0, 0, words, environ); wait(0);",
    ] {
        let told = started(how);
        assert!(told.contains("child was not recorded; QEMU records children"), "{how} {told}");
    }
    let told = started("execv(\"/bin/true\", words); pid = 0;");
    assert!(told.contains("The program became /bin/true (execve)"), "{told}");
}
