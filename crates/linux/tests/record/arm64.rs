//! Recordings of arm64 programs on a machine of another architecture: the programs they start, and
//! the location of their files.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use largefolio_linux::record::RecordEnd;
use largefolio_trace::{Event, Op};

use crate::recorded::{Recorded, compile, compile_for_arm64, has_arm64, record};

/// A thread that stores, and a child per argument that executes it.
const FAMILY: &str = r"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static char *p;
static void *work(void *n) { for (int k = 0; k < 20; k++) p[(k % 10) * 4096] = k; return 0; }
int main(int argc, char **argv) {
    if (argc == 1 || argv[1][0] == '-') return 9;
    p = mmap(0, 23 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_t t;
    pthread_create(&t, 0, work, 0);
    pthread_join(t, 0);
    int sum = 0;
    for (int n = 1; n < argc; n++) {
        int status;
        if (fork() == 0) { execl(argv[n], argv[n], (char *)0); _exit(99); }
        wait(&status);
        sum = sum * 10 + WEXITSTATUS(status);
    }
    return sum;
}
";

#[test]
fn what_a_program_for_arm64_starts_is_recorded_too() {
    if !has_arm64() {
        return;
    }
    let made = compile_for_arm64(FAMILY, &["-O1"]);
    let own = made.path.to_str().expect("a name");
    let script = made.dir.path().join("script");
    fs::write(&script, format!("#!{own} -x\n")).expect("a script");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("a mode");
    // A program of this machine runs unrecorded.
    let other = compile("int main(void) { return 4; }", &[]);
    let [script, other] = [&script, &other.path].map(|path| path.to_str().expect("a name"));
    let trace = record(&made.path, &[own, other, script]);
    // 949, of which an exit code keeps 8 bits.
    assert_eq!(trace.outcome.ended, RecordEnd::Code(181));
    assert_eq!((trace.outcome.nr_processes, trace.outcome.nr_executions), (4, 2));
    let warnings = trace.outcome.warnings.join(" ");
    assert!(warnings.contains(other) && warnings.contains("architecture"), "{warnings}");

    let base = trace.mapping(23).addr;
    let thread = trace.of(Op::Fork)[0].aux;
    let thread = u32::try_from(thread).expect("a thread");
    assert_eq!(trace.count(Op::Write, Some(thread), base, base + 10 * 4096), 20);
    let programs: Vec<_> =
        trace.of(Op::Execve).iter().map(|event| program_of(&trace, event)).collect();
    assert_eq!(programs, [own, own]);
    assert_eq!(trace.meta.arch, "aarch64");
}

fn program_of(trace: &Recorded, event: &Event) -> String {
    let image = trace.meta.image_of(event.aux).expect("an image");
    trace.meta.program_of(&image.layout).expect("a program").to_owned()
}

#[test]
fn files_have_the_names_that_the_program_knows() {
    if !has_arm64() {
        return;
    }
    let made = compile_for_arm64("int main(void) { return 0; }", &[]);
    let trace = record(&made.path, &[]);
    let names: Vec<_> = trace.meta.files.iter().map(|file| file.path.as_str()).collect();
    for name in ["/lib/ld-linux-aarch64.so.1", "/lib/libc.so.6"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let libc = trace.file("libc.so.6");
    assert!(!trace.meta.files[libc as usize].build_id.is_empty());
    // Linked for 64K pages: text and data of libc are a multiple of that apart.
    let mut text: Vec<_> =
        trace.of(Op::Mmap).into_iter().filter(|map| map.file == Some(libc)).collect();
    assert!(text.len() > 1, "{text:?}");
    text.retain(|map| map.pos > 0);
    assert!(text.iter().all(|map| map.addr % 65536 == map.pos % 65536), "{text:?}");
}

/// Clears 4 MiB with the given instruction, or with `memset`.
const CLEARER: &str = r#"
#include <string.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
    char *p = mmap(0, 1027 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (argc == 1) { memset(p, 0, 1027 * 4096); return p[5]; }
    for (char *at = p; at < p + 1027 * 4096; at += 64) __asm__ volatile("dc zva, %0" :: "r"(at) : "memory");
    return 0;
}
"#;

#[test]
fn what_memset_clears_is_recorded_and_what_cannot_be_is_named() {
    if !has_arm64() {
        return;
    }
    for options in [&["-O1", "-fno-builtin"][..], &["-O1", "-fno-builtin", "-static"]] {
        let made = compile_for_arm64(CLEARER, options);
        let trace = record(&made.path, &[]);
        assert_eq!(pages_written(&trace), 1027, "{options:?}");
        assert_eq!(trace.outcome.warnings, Vec::<String>::new());
        let trace = record(&made.path, &["zva"]);
        assert_eq!(pages_written(&trace), 0, "{options:?}");
        let warnings = trace.outcome.warnings.join(" ");
        assert!(warnings.contains("DC ZVA"), "{warnings}");
    }
}

fn pages_written(trace: &Recorded) -> usize {
    let base = trace.mapping(1027).addr;
    (0..1027)
        .filter(|page| {
            trace.count(Op::Write, None, base + page * 4096, base + (page + 1) * 4096) > 0
        })
        .count()
}
