//! The kernel's loads and stores for a program appear in its trace, and so do calls that lock
//! memory, set memory policies or switch THP.

use largefolio_trace::Op;
use largefolio_trace::event::{lock, mempolicy, thp_disable};

use crate::recorded::{Recorded, program, record};
use crate::support::has;

const CALLS: &str = r#"
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
static void *page(int nr) { return (void *)(p + nr * 4096L); }
int main(int argc, char **argv) {
    int both[2], file = open(argv[0], O_RDONLY);
    pages(64);
    stat("/", page(0));
    fstat(file, page(1));
    getcwd(page(2), 4096);
    readlink("/proc/self/exe", page(3), 4096);
    uname(page(4));
    getrandom(page(5), 4096, 0);
    struct iovec parts[2] = {{page(6), 100}, {page(8), 8192}};
    readv(file, parts, 2);                       /* pages 6, 8, 9 */
    preadv(file, parts, 1, 0);
    getrusage(RUSAGE_SELF, page(10));
    poll(page(11), 1000, 0);                     /* 8000 bytes: pages 11, 12 */
    syscall(SYS_clock_gettime, 0, page(13));
    pipe(page(14));
    syscall(SYS_rt_sigaction, SIGUSR1, 0, page(15), 8);
    syscall(SYS_sched_getaffinity, 0, 4096, page(16));
    prctl(PR_GET_NAME, page(17));
    socketpair(AF_UNIX, SOCK_STREAM, 0, both);
    send(both[0], page(18), 100, 0);
    struct msghdr message = {.msg_iov = &(struct iovec){page(19), 100}, .msg_iovlen = 1};
    recvmsg(both[1], &message, 0);
    getsockopt(both[0], SOL_SOCKET, SO_TYPE, page(20), &(socklen_t){4});
    open(page(21), O_RDONLY);                    /* an empty path: fails, but was loaded */
    write(both[0], page(22), 10);
    syscall(SYS_getdents64, open("/", O_RDONLY), page(23), 4096);
    read(file, page(24), 0);                     /* nothing moves */
    read(-1, page(25), 100);
    write(-1, page(26), 10);
    fill(63, 1, 1);
    return 0;
}
"#;

fn stores(trace: &Recorded, page: u64) -> u64 {
    let start = trace.mapping(64).addr + page * 4096;
    trace.count(Op::Write, Some(0), start, start + 4096)
}

fn loads(trace: &Recorded, page: u64) -> u64 {
    let start = trace.mapping(64).addr + page * 4096;
    trace.count(Op::Read, Some(0), start, start + 4096)
}

#[test]
fn the_buffers_of_calls_are_references() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let trace = record(&program(CALLS, &["-O1", "-w"]).path, &[]);
    let stored = [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20, 23, 63];
    for page in stored {
        assert_eq!(stores(&trace, page), 1, "page {page}");
    }
    assert_eq!(stores(&trace, 6), 2, "read twice");
    for page in [11, 12, 18, 21, 22] {
        assert_eq!(loads(&trace, page), 1, "page {page}");
    }
    assert_eq!(loads(&trace, 26), 0, "not written");
    for page in [7, 18, 21, 22, 24, 25, 26] {
        assert_eq!(stores(&trace, page), 0, "page {page}");
    }
}

const POLICIES: &str = r"
int main(void) {
    unsigned long nodes[2] = {2, 1};
    pages(16);
    syscall(SYS_set_mempolicy, 3, nodes, 65);     /* interleave, 64 nodes */
    syscall(SYS_mbind, p, 8192, 2, nodes, 128, 2);/* bind; pages move */
    syscall(SYS_mbind, p, 0, 2, nodes, 128, 0);   /* nothing */
    syscall(SYS_set_mempolicy, 2, nodes, 2);      /* only bit 0 counts */
    syscall(SYS_set_mempolicy, 0, 0, 0);
    fill(0, 1, 1);
    return 0;
}
";

#[test]
fn memory_policies_are_events() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let trace = record(&program(POLICIES, &["-O1", "-w"]).path, &[]);
    let start = trace.mapping(16).addr;
    let policies: Vec<_> = trace
        .of(Op::Mempolicy)
        .iter()
        .map(|event| (event.addr, event.len, event.flags, event.aux))
        .collect();
    let bound = (start, 8192, 2 | mempolicy::MOVE, 2);
    assert_eq!(policies, [(0, 0, 3, 2), bound, (0, 0, 2, 0), (0, 0, 0, 0)]);
}

const LOCKS: &str = r"
#include <sys/prctl.h>
int main(void) {
    pages(16);
    mlock((void *)p, 5000);
    mlock((void *)p, 0);                          /* nothing */
    syscall(SYS_mlock2, p, 4096, 1);
    munlock((void *)p, 4096);
    mlockall(MCL_CURRENT | MCL_FUTURE);
    munlockall();
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    prctl(PR_SET_NAME, p, 0, 0, 0);
    fill(0, 1, 1);
    return 0;
}
";

#[test]
fn locks_and_the_switch_for_thp_are_events() {
    if !has("qemu-x86_64", "qemu-user") {
        return;
    }
    let trace = record(&program(LOCKS, &["-O1", "-w"]).path, &[]);
    let start = trace.mapping(16).addr;
    let locks = trace.of(Op::Mlock).into_iter().map(|event| (event.addr, event.len, event.flags));
    let (ranges, all): (Vec<_>, Vec<_>) = locks.partition(|&(_, len, _)| len > 0);
    let expected = [(start, 5000, lock::CURRENT), (start, 4096, lock::ON_FAULT), (start, 4096, 0)];
    assert_eq!(ranges, expected);
    // Without the right to lock, mlockall fails.
    let (locked, unlocked) = ((0, 0, lock::CURRENT | lock::FUTURE), (0, 0, 0));
    assert!(all == [locked, unlocked] || all == [unlocked], "{all:?}");
    let switches: Vec<_> = trace.of(Op::ThpDisable).iter().map(|event| event.aux).collect();
    assert_eq!(switches, [thp_disable::ALL, 0]);
}
