//! Recordings of programs with threads and children, and of violent exits.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use largefolio_linux::record::RecordEnd;
use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY};
use largefolio_trace::{ExitKind, Op};

use crate::recorded::{Recorded, program, record};
use crate::support::has;

#[test]
fn threads_have_dense_ids_and_their_own_references() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        static void *work(void *n) { fill((long)n * 10, 10, 20); return 0; }
        int main(void) {
            pages(41);
            pthread_t t[4];
            for (long n = 0; n < 4; n++) pthread_create(&t[n], 0, work, (void *)n);
            for (int n = 0; n < 4; n++) pthread_join(t[n], 0);
            fill(40, 1, 3);
            return 0;
        }",
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!((trace.outcome.nr_threads, trace.outcome.nr_processes), (5, 1));
    let base = trace.mapping(41).addr;
    let region = |n: u64| (base + n * 10 * 4096, base + (n + 1) * 10 * 4096);
    for n in 0..4 {
        let (start, end) = region(n);
        let thread = u32::try_from(n).expect("small") + 1;
        assert_eq!(trace.count(Op::Write, Some(thread), start, end), 200, "thread {thread}");
        assert_eq!(trace.count(Op::Write, None, start, end), 200);
    }
    assert_eq!(trace.count(Op::Write, Some(0), base + 40 * 4096, base + 41 * 4096), 3);
    let forks = trace.of(Op::Fork);
    assert_eq!(forks.iter().map(|event| event.aux).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(forks.iter().all(|event| event.flags == SHARES_MEMORY && event.thread == 0));
    for (thread, events) in trace.by_thread() {
        let first = trace.events.iter().position(|event| event.thread == thread);
        let fork = trace
            .events
            .iter()
            .position(|event| event.op == Op::Fork && event.aux == u64::from(thread));
        assert!(thread == 0 || fork < first, "thread {thread} ran before it was made");
        let last = events.last().expect("events");
        let kind = if thread == 0 { ExitKind::Process } else { ExitKind::Thread };
        assert_eq!((last.op, last.flags), (Op::Exit, kind as u32));
    }
}

#[test]
fn no_thread_touches_a_mapping_after_another_removed_it() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        static pthread_barrier_t barrier;
        static void *work(void *n) {
            for (int round = 0; round < 10; round++) {
                pthread_barrier_wait(&barrier);
                fill((long)n * 10, 10, 2);
                pthread_barrier_wait(&barrier);
            }
            return 0;
        }
        int main(void) {
            pthread_t t[3];
            pthread_barrier_init(&barrier, 0, 4);
            for (long n = 0; n < 3; n++) pthread_create(&t[n], 0, work, (void *)n);
            for (int round = 0; round < 10; round++) {
                pages(31);
                pthread_barrier_wait(&barrier);
                pthread_barrier_wait(&barrier);
                munmap((void *)p, 31 * 4096);
            }
            for (int n = 0; n < 3; n++) pthread_join(t[n], 0);
            return 0;
        }",
        &[],
    );
    let trace = record(&made.path, &[]);
    let (mut mapped, mut gone) = (None, Vec::new());
    let (mut nr_inside, mut nr_maps) = (0, 0);
    let holds = |base: u64, addr: u64| (base..base + 31 * 4096).contains(&addr);
    for event in &trace.events {
        match event.op {
            Op::Mmap if event.len == 31 * 4096 => {
                mapped = Some(event.addr);
                gone.retain(|base| *base != event.addr);
                nr_maps += 1;
            }
            Op::Munmap if event.len == 31 * 4096 => gone.extend(mapped.take()),
            Op::Write if mapped.is_some_and(|base| holds(base, event.addr)) => {
                nr_inside += event.len;
            }
            Op::Write => {
                let is_late = gone.iter().any(|base| holds(*base, event.addr));
                assert!(!is_late, "{event:?} after its munmap: {:?}", trace.outcome.warnings);
            }
            _ => {}
        }
    }
    assert_eq!((nr_maps, nr_inside), (10, 10 * 3 * 10 * 2));
}

#[test]
fn a_forked_child_is_another_thread_with_its_own_exit() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        int main(void) {
            pages(21);
            fill(0, 5, 1);
            for (int n = 0; n < 2; n++)
                if (fork() == 0) { fill(5 + 5 * n, 5, 4); _exit(3 + n); }
            int status;
            wait(&status); wait(&status);
            fill(20, 1, 1);
            return 0;
        }",
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!((trace.outcome.nr_threads, trace.outcome.nr_processes), (3, 3));
    let base = trace.mapping(21).addr;
    let writes = |thread, first: u64, nr: u64| {
        trace.count(Op::Write, Some(thread), base + first * 4096, base + (first + nr) * 4096)
    };
    assert_eq!(
        (writes(0, 0, 5), writes(1, 5, 5), writes(2, 10, 5), writes(0, 20, 1)),
        (5, 20, 20, 1)
    );
    let forks = trace.of(Op::Fork);
    assert_eq!(
        forks.iter().map(|event| (event.aux, event.flags)).collect::<Vec<_>>(),
        [(1, 0), (2, 0)]
    );
    let mut exits: Vec<_> =
        trace.of(Op::Exit).iter().map(|event| (event.thread, event.pos, event.flags)).collect();
    exits.sort_unstable();
    let process = ExitKind::Process as u32;
    assert_eq!(exits, [(0, 0, process), (1, 3, process), (2, 4, process)]);
}

#[test]
fn the_kernel_stores_the_tid_of_a_child_into_its_memory() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        #include <sys/syscall.h>
        #include <sched.h>
        int main(void) {
            pages(29);
            fill(0, 3, 1);
            for (int n = 0; n < 2; n++)
                if (syscall(SYS_clone, SIGCHLD | (n ? CLONE_CHILD_SETTID : 0), 0, 0, p + 4096, 0) == 0)
                    syscall(SYS_exit_group, 0);
            int status;
            wait(&status); wait(&status);
            return 0;
        }",
        &["-D_GNU_SOURCE"],
    );
    let trace = record(&made.path, &[]);
    let base = trace.mapping(29).addr;
    let stores = |thread| trace.count(Op::Write, Some(thread), base, base + 3 * 4096);
    assert_eq!([stores(1), stores(2)], [0, 1]);
    assert_eq!(trace.count(Op::Write, Some(2), base + 4096, base + 2 * 4096), 1);
}

/// Checks that `thread`, forked by a first thread without others, uses only its own memory.
fn assert_lies_in_its_memory(trace: &Recorded, thread: u32) {
    let pages = |addr: u64, len: u64| addr / 4096..(addr + len).div_ceil(4096);
    let mut parent: BTreeSet<u64> =
        trace.meta.layout.iter().flat_map(|entry| pages(entry.addr, entry.len)).collect();
    let mut child = BTreeSet::new();
    let mut nr_references = 0;
    for event in &trace.events {
        let memory = if event.thread == thread { &mut child } else { &mut parent };
        let mut remove = |addr, len| memory.retain(|page| !pages(addr, len).contains(page));
        match event.op {
            Op::Mmap => memory.extend(pages(event.addr, event.len)),
            Op::Munmap => remove(event.addr, event.len),
            Op::Mremap => {
                remove(event.addr, event.len);
                memory.extend(pages(event.pos, event.aux));
            }
            Op::Brk => memory.extend(pages(event.addr, event.pos.saturating_sub(event.addr))),
            Op::Fork => child = parent.clone(),
            Op::Exec | Op::Read | Op::Write if event.thread == thread => {
                assert!(child.contains(&(event.addr / 4096)), "{event:?} is to no mapping");
                nr_references += event.len;
            }
            _ => {}
        }
    }
    assert!(nr_references > 0, "thread {thread} did nothing");
}

#[test]
fn a_vforked_child_has_its_parents_memory_until_it_ends() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        int main(void) {
            pages(9);
            int status;
            pid_t pid = vfork();
            if (pid == 0) { fill(0, 9, 1); _exit(3); }
            munmap((void *)p, 9 * 4096); /* QEMU does not suspend the parent */
            waitpid(pid, &status, 0);
            return WEXITSTATUS(status);
        }",
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!((trace.outcome.ended, trace.outcome.nr_processes), (RecordEnd::Code(3), 2));
    let fork = trace.events.iter().position(|event| event.op == Op::Fork).expect("a fork");
    assert_eq!(trace.events[fork].flags, BORROWS_MEMORY);
    let rest = &trace.events[fork + 1..];
    let exit = rest.iter().position(|event| event.op == Op::Exit).expect("an exit");
    assert!(rest[..exit].iter().all(|event| event.thread == 1), "the parent waits");
    assert_eq!((rest[exit].pos, rest[exit].flags), (3, ExitKind::Process as u32));
    let base = trace.mapping(9).addr;
    assert_eq!(trace.count(Op::Write, Some(1), base, base + 9 * 4096), 9);
    let munmap = rest[exit..].iter().find(|event| event.op == Op::Munmap && event.addr == base);
    assert!(munmap.is_some(), "the parent frees its memory then");
    assert_lies_in_its_memory(&trace, 1);
}

#[test]
fn a_spawned_program_is_recorded_and_the_parent_goes_on() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r#"
        extern char **environ;
        int main(void) {
            pages(9);
            pid_t pid; int status;
            char *arguments[] = {"true", 0};
            if (posix_spawnp(&pid, "true", 0, 0, arguments, environ)) return 1;
            waitpid(pid, &status, 0);
            fill(0, 9, 1);
            return WEXITSTATUS(status);
        }"#,
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
    let base = trace.mapping(9).addr;
    assert_eq!(trace.count(Op::Write, Some(0), base, base + 9 * 4096), 9);
    assert_eq!(trace.outcome.nr_processes, 2);
    assert_eq!(trace.of(Op::Fork)[0].flags, BORROWS_MEMORY, "posix_spawn is a vfork");
    assert!(trace.outcome.warnings.is_empty(), "{:?}", trace.outcome.warnings);
    let rows = |op| trace.events.iter().position(move |event| event.op == op).expect("a row");
    let (fork, execve) = (rows(Op::Fork), rows(Op::Execve));
    let between = &trace.events[fork + 1..execve];
    assert!(between.iter().all(|event| event.thread == 1), "the parent waits for the execve");
    let image = trace.meta.image_of(trace.events[execve].aux).expect("an image");
    let program = trace.meta.program_of(&image.layout).expect("a program");
    assert!(program.ends_with("/true"), "{program}");
    let child = trace.of(Op::Exit).into_iter().find(|event| event.thread == 1);
    assert_eq!(child.expect("an exit").flags, ExitKind::Process as u32);
}

#[test]
fn a_killed_program_keeps_its_last_references() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    for (death, signal) in [("kill(getpid(), SIGKILL);", 9), ("*(volatile int *)16 = 1;", 11)] {
        let main = format!("int main(void) {{ pages(9); fill(0, 9, 3); {death} return 0; }}");
        let made = program(&main, &[]);
        let trace = record(&made.path, &[]);
        assert_eq!(trace.outcome.ended, RecordEnd::Signal(signal));
        let base = trace.mapping(9).addr;
        assert_eq!(trace.count(Op::Write, None, base, base + 9 * 4096), 27);
        let exit = trace.events.last().expect("events");
        assert_eq!((exit.op, exit.pos), (Op::Exit, u64::from(signal)));
        assert_eq!(exit.flags, ExitKind::Signal as u32);
        assert_eq!(trace.meta.ended, format!("signal {signal}"));
    }
}

#[test]
fn a_program_that_closes_every_descriptor_is_still_recorded() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        int main(int argc, char **argv) {
            pages(9);
            fill(0, 3, 1);
            for (int fd = 3; fd < 900; fd++) close(fd); /* what the test inherited */
            for (int fd = 3; fd < 1100; fd++)
                if (close(fd) == 0 || errno != EBADF) return 1;
            mprotect((void *)p, 4096, PROT_READ); /* an event: connects again */
            if (open(argv[0], O_RDONLY) != 3) return 2;
            if (syscall(SYS_close_range, 3, ~0U, 0)) return 3;
            fill(3, 3, 1);
            mprotect((void *)p, 4096, PROT_READ | PROT_WRITE);
            int file = open(argv[1], O_RDWR | O_CREAT, 0600);
            for (int fd = 900; fd < 1100; fd++) dup2(file, fd);
            fill(6, 3, 1);
            mprotect((void *)p, 4096, PROT_READ);
            struct { char bytes[100]; } nothing;
            return pread(file, &nothing, 100, 0) == 0 ? 0 : 4; /* nobody wrote into the file */
        }",
        &[],
    );
    let name = made.dir.path().join("victim");
    let trace = record(&made.path, &[name.to_str().expect("utf-8")]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0), "{:?}", trace.outcome.warnings);
    let base = trace.mapping(9).addr;
    assert_eq!(trace.count(Op::Write, Some(0), base, base + 9 * 4096), 9);
    assert_eq!(trace.of(Op::Exit).len(), 1);
}

#[test]
fn a_first_thread_that_leaves_early_does_not_end_the_process() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r"
        static void *work(void *first) { pthread_join((pthread_t)first, 0); fill(0, 9, 2); exit(4); }
        int main(void) {
            pages(9);
            pthread_t t;
            pthread_create(&t, 0, work, (void *)pthread_self());
            pthread_exit(0);
        }",
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(4));
    let base = trace.mapping(9).addr;
    assert_eq!(trace.count(Op::Write, Some(1), base, base + 9 * 4096), 18);
    let exits: Vec<_> =
        trace.of(Op::Exit).iter().map(|event| (event.thread, event.pos, event.flags)).collect();
    assert_eq!(exits, [(0, 0, ExitKind::Thread as u32), (1, 4, ExitKind::Process as u32)]);
}

/// While a thread lends its memory, its process is not read for a second, so another thread's fork
/// is announced late. By then the child has closed all descriptors and executed a program.
#[test]
fn a_child_that_closes_its_descriptors_before_it_is_announced_is_recorded() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = program(
        r#"
        static void *work(void *path) {
            usleep(200000);
            pid_t child = fork();
            if (child == 0) {
                syscall(SYS_close_range, 3, ~0U, 0);
                execl(path, path, "many rows", NULL);
                _exit(9);
            }
            int status = -1;
            waitpid(child, &status, 0);
            return (void *)(long)WEXITSTATUS(status);
        }
        int main(int argc, char **argv) {
            if (argc > 1) {
                pages(2048);
                for (int n = 0; n < 400; n++) fill(0, 2048, 1);
                return 7;
            }
            /* Nobody waits for ever. */
            alarm(120);
            pthread_t thread;
            pthread_create(&thread, NULL, work, argv[0]);
            if (vfork() == 0) { usleep(1000000); _exit(0); }
            void *status;
            pthread_join(thread, &status);
            return (int)(long)status;
        }"#,
        &[],
    );
    let trace = record(&made.path, &[]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(7), "{:?}", trace.outcome.warnings);
    assert_eq!((trace.outcome.nr_processes, trace.outcome.nr_executions), (3, 1));
    assert!(trace.outcome.warnings.is_empty(), "{:?}", trace.outcome.warnings);
    let writes: u64 = trace.of(Op::Write).iter().map(|event| event.len).sum();
    assert!(writes >= 400 * 2048, "{writes}");
}

/// Finds the recording's socket, as any process can, and claims to be the program.
const STRANGER: &str = r#"
import os, socket, struct, sys, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
magic, me = int.from_bytes(b"LFR5", "little"), os.getpid()
def message(kind, rows=b"", body=b""):
    return struct.pack("<6I2Q", magic, kind, me, me, len(rows) // 8, len(body), 0, 0) + rows + body
def directory():
    for process in set(filter(str.isdigit, os.listdir("/proc"))) - {str(me)}:
        try: words = open(f"/proc/{process}/cmdline").read()
        except OSError: continue
        if sys.argv[1] in words and ",dir=" in words: return words.split(",dir=")[1].split(",")[0]
deadline = time.time() + 20
while time.time() < deadline and not (place := directory()): time.sleep(0.01)
for reason in (0, 1, 2, 3):
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.connect(place + "/s")
            end.send(message(1, body=struct.pack("<3I", reason, 1, 0)))
            end.send(message(3, rows=struct.pack("<Q", 0x666 << 28 | 3 << 26 | 7 << 4)))
    except OSError: pass
print("tried", place)
"#;

#[test]
fn a_stranger_cannot_write_into_a_recording_of_root() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        largefolio_testkit::skipped!("only root can become another user: run as root");
        return;
    }
    let made = program("int main(void) { pages(9); fill(0, 9, 2); sleep(2); return 0; }", &[]);
    let path = made.path.to_str().expect("a name").to_owned();
    let mut stranger = Command::new("python3");
    stranger.args(["-c", STRANGER, &path]).stdout(Stdio::piped());
    let stranger = stranger.spawn().expect("python3");
    let trace = record(&made.path, &[]);
    let output = stranger.wait_with_output().expect("it ends");
    assert!(output.stdout.starts_with(b"tried /"), "it found the socket");
    assert_eq!((trace.outcome.ended, trace.outcome.nr_processes), (RecordEnd::Code(0), 1));
    assert_eq!(trace.count(Op::Write, None, 0x66_6000, 0x66_7000), 0);
    let base = trace.mapping(9).addr;
    assert_eq!(trace.count(Op::Write, Some(0), base, base + 9 * 4096), 18);
    assert!(trace.outcome.warnings.iter().any(|text| text.contains("no recorded process")));
}
