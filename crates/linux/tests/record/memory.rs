//! Recordings of single-threaded programs: counts, mappings, layout, files.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::os::unix::fs::FileExt;

use largefolio_linux::record::{RecordEnd, RecorderKind};
use largefolio_trace::event::abi::MAP_SEGMENT;
use largefolio_trace::event::{io, map_of, prot_of};
use largefolio_trace::{Event, ExitKind, LayoutKind, Op};

use crate::recorded::{Made, compile, compile_for_arm64, has_arm64, record};
use crate::support::has;

const PAGES: &str = r"
#include <sys/mman.h>
#include <unistd.h>
#include <fcntl.h>
int main(void) {
    volatile char *p = mmap(0, 37 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long page = 0; page < 37; page++)
        for (int i = 0; i < 5; i++) p[page * 4096 + i] = 1;
    for (long page = 0; page < 37; page++) (void)p[page * 4096];
    *(volatile long *)(p + 4096 - 4) = 1; /* crosses from page 0 to page 1 */
    __atomic_fetch_add((long *)(p + 8192), 1, __ATOMIC_SEQ_CST);
    sbrk(0);
    int exit_code = sbrk(8192) == (void *)-1 ? 8 : 7;
    mprotect((void *)p, 4096, PROT_READ);
    mprotect((void *)p, 4096, PROT_READ | PROT_WRITE);
    madvise((void *)(p + 4096), 8192, MADV_DONTNEED);
    char *q = mremap((void *)p, 37 * 4096, 50 * 4096, MREMAP_MAYMOVE);
    q[49 * 4096] = 1;
    munmap(q, 50 * 4096);
    munmap((void *)1, 1); /* fails: no event */
    return exit_code;
}
";

fn check_pages(flags: &[&str]) {
    if has("qemu-x86_64", "qemu-user") {
        check_pages_of(&compile(PAGES, flags));
    }
}

fn check_pages_of(made: &Made) {
    let trace = record(&made.path, &[]);
    assert!(matches!(trace.outcome.ended, RecordEnd::Code(7 | 8)), "{:?}", trace.outcome.ended);
    assert_eq!(trace.outcome.recorder, RecorderKind::Qemu);
    assert_eq!((trace.outcome.nr_threads, trace.outcome.nr_processes), (1, 1));
    assert!(["exit 7", "exit 8"].contains(&trace.meta.ended.as_str()), "{}", trace.meta.ended);

    let map = trace.mapping(37);
    assert_eq!((prot_of(map.flags), map_of(map.flags)), (3, 0x22));
    let end = map.addr + 37 * 4096;
    // 5 per page, the crossing store on two pages. The atomic is two writes, on arm64 a read and a
    // write.
    let nr_reads = u64::from(trace.meta.arch == "aarch64");
    assert_eq!(trace.count(Op::Write, Some(0), map.addr, end), 37 * 5 + 2 + 2 - nr_reads);
    assert_eq!(trace.count(Op::Read, Some(0), map.addr, end), 37 + nr_reads);
    let first_touches: Vec<u64> = trace
        .of(Op::Write)
        .iter()
        .filter(|event| (map.addr..end).contains(&event.addr))
        .map(|event| (event.addr - map.addr) / 4096)
        .take(37)
        .collect();
    assert_eq!(first_touches, (0..37).collect::<Vec<_>>());

    let changes: Vec<_> = trace
        .events
        .iter()
        .skip_while(|event| **event != map)
        .filter(|event| matches!(event.op, Op::Mprotect | Op::Madvise | Op::Mremap | Op::Munmap))
        .map(|event| (event.op, event.len, event.aux))
        .collect();
    let expected = [
        (Op::Mprotect, 4096, 0),
        (Op::Mprotect, 4096, 0),
        (Op::Madvise, 8192, 4),
        (Op::Mremap, 37 * 4096, 50 * 4096),
        (Op::Munmap, 50 * 4096, 0),
    ];
    assert_eq!(changes, expected);
    let moved = trace.of(Op::Mremap)[0];
    assert_eq!(trace.of(Op::Munmap).last().map(|event| event.addr), Some(moved.pos));

    let exit = trace.events.last().expect("events");
    assert_eq!((exit.op, exit.flags), (Op::Exit, ExitKind::Process as u32));
    let heap = trace.of(Op::Brk);
    if exit.pos == 8 && trace.meta.arch == "arm64" {
        // QEMU 10 may map memory directly after an arm64 PIE: a heap that cannot grow has no event.
        assert!(heap.is_empty(), "{heap:?}");
        return;
    }
    assert_eq!(exit.pos, 7);
    assert!(!heap.is_empty() && trace.meta.brk != 0);
    assert_eq!(heap[0].addr, trace.meta.brk, "the heap grows from where it starts");
    assert!(heap.windows(2).all(|pair| pair[0].pos == pair[1].addr));
}

#[test]
fn a_dynamic_pie_is_recorded_exactly() {
    check_pages(&[]);
}

#[test]
fn a_static_program_is_recorded_exactly() {
    check_pages(&["-static"]);
}

#[test]
fn a_program_at_a_fixed_address_is_recorded_exactly() {
    check_pages(&["-no-pie"]);
}

#[test]
fn a_program_for_arm64_is_recorded_exactly() {
    if !has_arm64() {
        return;
    }
    for flags in [&[][..], &["-static"], &["-no-pie"], &["-march=armv8.2-a"]] {
        check_pages_of(&compile_for_arm64(PAGES, flags));
    }
}

#[test]
fn the_layout_holds_program_interpreter_and_stack() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = compile(
        "char bss[100000]; int data = 1; int main(void) { bss[50000] = data; return 0; }",
        &["-Wl,--build-id=sha1"],
    );
    let trace = record(&made.path, &[]);
    let of = |kind| trace.meta.layout.iter().filter(move |entry| entry.kind == kind);
    let program: Vec<_> = of(LayoutKind::Program).collect();
    let id = trace.file("/p");
    assert_eq!(program[0].file, Some(id));
    assert!(program.iter().any(|entry| entry.prot == 5 && entry.file == Some(id)), "text");
    assert!(program.iter().any(|entry| entry.prot == 3 && entry.file.is_none()), "bss");
    assert_eq!(trace.meta.files[id as usize].build_id.len(), 40);
    assert!(!trace.meta.files[id as usize].filesystem.is_empty());
    assert!(of(LayoutKind::Interpreter).any(|entry| entry.prot == 5));
    assert_eq!(of(LayoutKind::Stack).count(), 1);

    // Every executed page is text, in the layout or in a later mapping.
    let libc = trace.file("libc.so.6");
    assert!(!trace.meta.files[libc as usize].build_id.is_empty());
    let mut text: Vec<(u64, u64)> = trace
        .meta
        .layout
        .iter()
        .filter(|entry| entry.prot & 4 != 0)
        .map(|entry| (entry.addr, entry.addr + entry.len))
        .collect();
    for event in &trace.events {
        match event.op {
            Op::Mmap if prot_of(event.flags) & 4 != 0 => {
                text.push((event.addr, event.addr + event.len));
            }
            Op::Exec => {
                let is_text = text.iter().any(|(start, end)| (*start..*end).contains(&event.addr));
                assert!(is_text, "{:#x} executed outside of text", event.addr);
            }
            _ => {}
        }
    }
    // The program's own main wrote to its bss and its stack.
    let stack = of(LayoutKind::Stack).next().expect("a stack");
    assert!(trace.count(Op::Write, None, stack.addr, stack.addr + stack.len) > 0);
}

#[test]
fn transfers_have_their_file_and_position() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = compile(TRANSFERS, &[]);
    let name = made.dir.path().join("data");
    let trace = record(&made.path, &[name.to_str().expect("utf-8")]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
    let (data, copy) = (trace.file("/data"), trace.file("/data.copy"));
    let events: Vec<_> = trace
        .events
        .iter()
        .filter(|event| event.file == Some(data) || event.file == Some(copy))
        .filter(|event| event.op != Op::Mmap)
        .map(|event| (event.op, event.len, event.pos, event.file == Some(copy)))
        .collect();
    let expected = [
        (Op::Pwrite, 10000, 0, false),
        (Op::Pwrite, 100, 20000, false),
        (Op::Pread, 1000, 5000, false),
        (Op::Pread, 500, 6000, false),
        (Op::Pread, 300, 100, false),
        (Op::Pread, 4000, 0, false),
        (Op::Pwrite, 4000, 0, true),
        (Op::Pread, 2000, 8, false),
        (Op::Pwrite, 2000, 4000, true),
        (Op::Truncate, 5000, 0, false),
        (Op::Truncate, 4000, 0, false),
        (Op::Fadvise, 4096, 0, false),
        (Op::Fadvise, 8192, 4096, false),
    ];
    let transfers: Vec<_> = events.iter().copied().filter(|event| event.0 != Op::Open).collect();
    assert_eq!(transfers, expected);
    assert_eq!(events.len() - transfers.len(), 2, "one open each");
    assert!(trace.meta.files.iter().all(|file| !file.path.starts_with("/proc")));
    // The kernel wrote the read's buffer: a read of 3 pages + 1 byte touches 4 pages.
    let buffer = trace.mapping(11);
    assert_eq!(trace.count(Op::Write, None, buffer.addr, buffer.addr + 11 * 4096), 4);
}

#[test]
fn calls_on_files_say_what_they_do() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = compile(FILES, &[]);
    let name = made.dir.path().join("data");
    let file = std::fs::File::create(&name).expect("a file");
    file.write_all_at(&[1; 4096], 1 << 20).expect("a hole");
    let trace = record(&made.path, &[name.to_str().expect("utf-8")]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
    let (data, copy, memory) =
        (trace.file("/data"), trace.file("/data.copy"), trace.file("[memfd:x]"));
    let info = &trace.meta.files[data as usize];
    assert_eq!((info.size_bytes, &info.holes[..]), ((1 << 20) + 4096, &[(0, 1 << 20)][..]));
    let memory_info = &trace.meta.files[memory as usize];
    assert_eq!((memory_info.size_bytes, memory_info.filesystem.as_str()), (0, "tmpfs"));
    assert!(
        ["sync", "fallocate", "unlink", "holes", "io"].iter().all(|of| trace.meta.has_recorded(of))
    );
    let is_ours = |event: &&Event| {
        let of_file = |file| event.file == Some(file);
        let is_sync = event.op == Op::Sync && event.file.is_none();
        of_file(data) || of_file(copy) || of_file(memory) || is_sync
    };
    let calls = trace.events.iter().filter(is_ours).filter(|event| event.op != Op::Open);
    let calls: Vec<_> = calls
        .filter(|event| event.op != Op::Mmap)
        .map(|event| {
            // For an ordinary write, the address of the data.
            let is_of_memory = event.op == Op::Sync
                || event.op == Op::Pwrite && event.flags & (io::PIPE | io::COPY) == 0;
            let address = if is_of_memory { 0 } else { event.addr };
            (event.op, event.file, event.pos, event.len, event.aux, event.flags, address)
        })
        .collect();
    let fd = |nr: usize| calls[nr].4;
    let (of_data, of_copy) = (Some(data), Some(copy));
    let expected = [
        (Op::Pwrite, of_data, (1 << 20) + 4096, 100, fd(0), 0, 0),
        (Op::Pwrite, of_data, 0, 4096, fd(1), io::DIRECT, 0),
        (Op::Pread, of_data, 0, 4096, fd(2), io::DIRECT, 0),
        (Op::Pwrite, of_data, 4096, 10, fd(3), io::SYNC, 0),
        (Op::Sync, of_data, 0, u64::MAX, 0, 0, 0),
        (Op::Sync, of_data, 0, u64::MAX, 0, 0, 0),
        (Op::Sync, of_data, 4096, 8192, 0, 0, 0),
        (Op::Sync, None, 0, 4096, 0, 0, 0),
        (Op::Fallocate, of_data, 8192, 4096, 3, 0, 0),
        (Op::Pread, of_data, 500, 300, fd(9), io::PIPE, 0),
        (Op::Pwrite, of_copy, 0, 300, fd(10), io::PIPE, 500),
        (Op::Pread, of_data, 700, 300, fd(11), io::COPY, 300),
        (Op::Pwrite, of_copy, 300, 300, fd(12), io::COPY, 700),
        (Op::Pread, of_data, 0, 400, fd(13), 0, 0),
        (Op::Unlink, Some(memory), 0, 0, 0, 0, 0),
        (Op::Truncate, Some(memory), 0, 8192, 0, 0, 0),
        (Op::Unlink, of_copy, 0, 0, 0, 0, 0),
        (Op::Unlink, of_data, 0, 0, 0, 0, 0),
    ];
    assert_eq!(calls, expected);
}

const FILES: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>
char buffer[8192] __attribute__((aligned(4096)));
int main(int argc, char **argv) {
    char copy[4096], other[4096];
    snprintf(copy, sizeof copy, "%s.copy", argv[1]);
    snprintf(other, sizeof other, "%s.other", argv[1]);
    int appends = open(argv[1], O_RDWR | O_APPEND);
    if (pwrite(appends, buffer, 100, 5) != 100) return 1;
    int direct = open(argv[1], O_RDWR | O_DIRECT);
    if (pwrite(direct, buffer, 4096, 0) != 4096) return 2;
    if (pread(direct, buffer, 4096, 0) != 4096) return 3;
    int synced = open(argv[1], O_RDWR | O_DSYNC);
    if (pwrite(synced, buffer, 10, 4096) != 10) return 4;
    int fd = open(argv[1], O_RDWR), out = open(copy, O_RDWR | O_CREAT, 0600);
    char *p = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fsync(fd) || fdatasync(fd)) return 5;
    if (sync_file_range(fd, 4096, 8192, SYNC_FILE_RANGE_WRITE)) return 6;
    if (sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE)) return 7;
    if (msync(p, 4096, MS_SYNC) || msync(p, 4096, MS_ASYNC)) return 8;
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096)) return 9;
    off_t from = 500;
    if (sendfile(out, fd, &from, 300) != 300) return 10;
    from = 700;
    if (copy_file_range(fd, &from, out, 0, 300, 0) != 300) return 11;
    struct iovec parts[2] = {{buffer, 100}, {buffer + 4096, 300}};
    if (readv(fd, parts, 2) != 400) return 12;
    int memory = memfd_create("x", 0);
    if (ftruncate(memory, 8192)) return 13;
    int spare = open(other, O_RDWR | O_CREAT, 0600);
    if (rename(other, copy) || unlink(argv[1]) || !unlink(argv[1])) return 14;
    return 0;
}
"#;

const TRANSFERS: &str = r#"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <stdio.h>
#include <unistd.h>
char buffer[16384];
int main(int argc, char **argv) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s.copy", argv[1]);
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, buffer, 10000) != 10000) return 1;
    if (pwrite(fd, buffer, 100, 20000) != 100) return 2;
    lseek(fd, 5000, SEEK_SET);
    if (read(fd, buffer, 1000) != 1000) return 3;
    if (read(fd, buffer, 500) != 500) return 4;
    if (pread(fd, buffer, 300, 100) != 300) return 5;
    int out = open(copy, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t from = 0;
    if (sendfile(out, fd, &from, 4000) != 4000) return 6;
    from = 8;
    if (copy_file_range(fd, &from, out, 0, 2000, 0) != 2000) return 7;
    if (ftruncate(fd, 5000)) return 8;
    if (truncate(argv[1], 4000)) return 9;
    posix_fadvise(fd, 0, 4096, POSIX_FADV_WILLNEED);
    readahead(fd, 4096, 8192);
    int proc = open("/proc/self/stat", O_RDONLY);
    if (read(proc, buffer, 100) <= 0) return 10;
    int zero = open("/dev/zero", O_RDONLY);
    char *big = mmap(0, 11 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (read(zero, big + 4096, 3 * 4096 + 1) != 3 * 4096 + 1) return 11;
    return 0;
}
"#;

const SEGMENTS: &str = r"
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    int number = shmget(IPC_PRIVATE, 5 * 4096 + 1, 0600);
    volatile char *p = shmat(number, 0, 0), *q = shmat(number, 0, SHM_RDONLY);
    shmctl(number, IPC_RMID, 0);
    for (long page = 0; page < 6; page++) p[page * 4096] = q[page * 4096] + 1;
    if (fork() == 0) { p[1]++; _exit(0); }
    wait(0);
    shmdt((void *)p);
    shmdt((void *)1); /* fails: no event */
    return q[1] - 1;
}
";

#[test]
fn segments_of_system_v_are_shared_memory() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = compile(SEGMENTS, &["-O1"]);
    let trace = record(&made.path, &[]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
    let len = 5 * 4096 + 1;
    let attached: Vec<_> = trace.of(Op::Mmap).into_iter().filter(|map| map.len == len).collect();
    let [p, q] = attached[..] else { panic!("attached: {attached:?}") };
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS).cast_unsigned() | MAP_SEGMENT;
    assert!(attached.iter().all(|map| map.file.is_none() && map_of(map.flags) == shared));
    assert_eq!((prot_of(p.flags), prot_of(q.flags)), (3, 1));
    assert_eq!(trace.count(Op::Write, None, p.addr, p.addr + len), 6 + 1);
    assert_eq!(trace.count(Op::Read, None, q.addr, q.addr + len), 6 + 1);
    let gone = trace.of(Op::Munmap).into_iter().filter(|event| event.len == len);
    assert_eq!(gone.map(|event| event.addr).collect::<Vec<_>>(), [p.addr]);
}

/// Moves a mapping to a range that the program has reserved, and shrinks one that advice has split.
const REMAPS: &str = r"
#define _GNU_SOURCE
#include <sys/mman.h>
int main(void) {
    char *from = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    from[5] = 1;
    char *to = mmap(0, 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mremap(from, 65536, 65536, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to || to[5] != 1) return 1;
    madvise(to, 8192, MADV_NOHUGEPAGE);
    if (mremap(to, 65536, 32768, MREMAP_MAYMOVE) != to) return 2;
    return mremap(to, 32768, 65536, MREMAP_MAYMOVE) == MAP_FAILED ? 0 : 3;
}
";

#[test]
fn a_mapping_moves_only_where_a_kernel_moves_it() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let trace = record(&compile(REMAPS, &["-O1"]).path, &[]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
}

/// Touches each page first with an instruction that loads and stores; exits with 1 if the kernel
/// counted more than one fault a page.
const MODIFIED: &str = r#"
#include <sys/mman.h>
#include <sys/resource.h>
#define EACH(code) __asm__ volatile (code : : "r" (p), "a" (0L), "c" (1L), "d" (0L), "b" (1L) : "memory", "cc"); p += 4096
static long faults(void) { struct rusage usage; getrusage(RUSAGE_SELF, &usage); return usage.ru_minflt; }
int main(void) {
    char *p = mmap(0, 23 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(p, 23 * 4096, MADV_NOHUGEPAGE);
    long before = faults();
    before = faults();
    EACH("addq %%rcx, (%0)"); EACH("orb $1, (%0)"); EACH("adcl $3, (%0)"); EACH("subw $1, (%0)");
    EACH("andl $0x1000, (%0)"); EACH("xorq %%rax, (%0)"); EACH("sbbb %%al, (%0)"); EACH("incl (%0)");
    EACH("decq (%0)"); EACH("notq (%0)"); EACH("negb (%0)"); EACH("shlq $3, (%0)");
    EACH("sarl (%0)"); EACH("rolb %%cl, (%0)"); EACH("xchgq %%rcx, (%0)");
    EACH("lock xaddl %%ecx, (%0)"); EACH("lock cmpxchgq %%rcx, (%0)"); EACH("btsl $5, (%0)");
    EACH("btrq %%rcx, (%0)"); EACH("shldl $3, %%ecx, (%0)"); EACH("shrdq %%cl, %%rbx, (%0)");
    EACH("cmpxchg8b (%0)"); EACH("lock cmpxchg16b (%0)");
    return faults() - before != 23;
}
"#;

#[test]
fn an_instruction_that_loads_and_stores_writes_first() {
    if !cfg!(target_arch = "x86_64") || !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let made = compile(MODIFIED, &[]);
    let status = std::process::Command::new(&made.path).status().expect("the program runs");
    assert_eq!(status.code(), Some(0), "the kernel sees one write fault for each");
    let trace = record(&made.path, &[]);
    let map = trace.mapping(23);
    let end = map.addr + 23 * 4096;
    assert_eq!(trace.count(Op::Read, Some(0), map.addr, end), 0);
    // QEMU reports the 16 bytes of the last one as one access or as two.
    assert!((46..=48).contains(&trace.count(Op::Write, Some(0), map.addr, end)));
}
