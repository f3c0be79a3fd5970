//! Links between loads: programs with dependent loads, and programs with independent ones.
//!
//! The programs are compiled with -O2, which keeps addresses in registers.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;

use largefolio_linux::record::RecordEnd;
use largefolio_trace::event::LINK_MAX;
use largefolio_trace::{Event, Op};

use crate::recorded::{Recorded, compile, record};
use crate::support::has;

/// Pages of the region that the programs load from.
const NR_PAGES: u64 = 3000;

/// Maps the region and shuffles its pages: `order` contains each once. `next` is a step of a random
/// number generator.
const START: &str = r"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#define N 3000L
static unsigned long seed = 1;
static unsigned long next(void) { return (seed = seed * 6364136223846793005UL + 1) >> 33; }
static long order[N];
static char *region, *other;
static void start(void) {
    region = mmap(0, N * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    other = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < N; i++) order[i] = i;
    for (long i = N - 1; i > 0; i--) {
        long j = next() % (i + 1), kept = order[i];
        order[i] = order[j], order[j] = kept;
    }
    for (long i = 0; i < N; i++)
        *(char **)(region + order[i] * 4096 + 8) = region + order[(i + 1) % N] * 4096 + 8;
}
static void *chase(void *from) {
    void *volatile *at = from;
    for (long i = 0; i < 3 * N; i++) at = *at;
    return (void *)at;
}
";

fn run(main: &str) -> Option<Recorded> {
    if !has("qemu-x86_64", "qemu-user") {
        return None;
    }
    let trace = record(&compile(&format!("{START}{main}"), &["-O2"]).path, &[]);
    assert_eq!(trace.outcome.ended, RecordEnd::Code(0));
    assert!(trace.meta.links);
    check_targets(&trace);
    Some(trace)
}

/// Checks that every link leads from a read or write to a read of another page by the same thread,
/// with no event of the thread in between.
fn check_targets(trace: &Recorded) {
    let mut rows: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    for event in &trace.events {
        let before = rows.entry(event.thread).or_default();
        if !event.op.is_reference() {
            before.clear();
            continue;
        }
        if event.flags > 0 {
            assert!(event.op != Op::Exec && event.flags <= LINK_MAX, "{event:?}");
            let target = before.len().checked_sub(event.flags as usize).map(|at| before[at]);
            let target = target.unwrap_or_else(|| panic!("{event:?} is linked beyond an event"));
            assert_eq!(target.op, Op::Read, "{event:?}");
            assert_ne!(target.addr, event.addr, "{event:?}");
        }
        before.push(*event);
    }
}

/// Returns a thread's reads of a mapping, each with its row number in the thread.
fn reads_of(trace: &Recorded, map: Event, thread: u32) -> Vec<(usize, Event)> {
    // Earlier mappings at this address, such as the loader's cache, were read too.
    let is_map = |row: &Event| row.op == Op::Mmap && (row.addr, row.len) == (map.addr, map.len);
    let made = trace.events.iter().position(is_map).expect("the mapping");
    let is_read =
        |row: &Event| row.op == Op::Read && (map.addr..map.addr + map.len).contains(&row.addr);
    let of_thread = |row: &Event| row.thread == thread && row.op.is_reference();
    let rows = trace.events.iter().enumerate().filter(|(_, row)| of_thread(row));
    let numbered = rows.enumerate().map(|(nr, (at, row))| (nr, at, *row));
    let reads = numbered.filter(|(_, at, row)| *at > made && is_read(row));
    reads.map(|(nr, _, row)| (nr, row)).collect()
}

fn share(reads: &[(usize, Event)], is_such: impl Fn(&[(usize, Event)]) -> bool) -> f64 {
    let nr_such = u32::try_from(reads.windows(2).filter(|pair| is_such(pair)).count());
    f64::from(nr_such.expect("few")) / f64::from(u32::try_from(reads.len()).expect("few"))
}

/// Returns the share of reads linked to the read before.
fn chained(reads: &[(usize, Event)]) -> f64 {
    share(reads, |pair| pair[1].0 - pair[0].0 == pair[1].1.flags as usize)
}

#[test]
fn a_chase_is_linked_from_page_to_page() {
    let Some(trace) = run("int main(void) { start(); return !chase(region + 8); }") else { return };
    let reads = reads_of(&trace, trace.mapping(NR_PAGES), 0);
    // More than a tail can hold, so some were sent in between.
    assert!(reads.len() > 8900, "{}", reads.len());
    assert!(chained(&reads) > 0.99, "{}", chained(&reads));
}

#[test]
fn threads_have_their_own_links() {
    let main = r"
    int main(void) {
        start();
        pthread_t t[2];
        for (int i = 0; i < 2; i++) pthread_create(&t[i], 0, chase, region + order[i * N / 2] * 4096 + 8);
        for (int i = 0; i < 2; i++) pthread_join(t[i], 0);
        return 0;
    }";
    let Some(trace) = run(main) else { return };
    for thread in 1..3 {
        let reads = reads_of(&trace, trace.mapping(NR_PAGES), thread);
        assert!(reads.len() > 8900 && chained(&reads) > 0.99, "{}", chained(&reads));
    }
}

#[test]
fn independent_loads_are_not_linked() {
    let main = r"
    int main(void) {
        start();
        long sum = 0;
        for (long i = 0; i < 3 * N; i++) sum += *(volatile long *)(region + next() % N * 4096 + 64);
        return sum != 0;
    }";
    let Some(trace) = run(main) else { return };
    let reads = reads_of(&trace, trace.mapping(NR_PAGES), 0);
    assert!(reads.len() > 8000, "{}", reads.len());
    let linked = share(&reads, |pair| pair[1].1.flags > 0);
    assert!(linked < 0.01, "{linked}");
}

#[test]
fn what_pointers_of_an_array_lead_to_is_linked_to_the_array() {
    let main = r"
    int main(void) {
        start();
        char **array = mmap(0, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (long i = 0; i < N; i++) array[i] = region + order[i] * 4096 + 64;
        for (int round = 0; round < 3; round++)
            for (long i = 0; i < N; i++) (void)*(volatile char *)((char *volatile *)array)[i];
        return 0;
    }";
    let Some(trace) = run(main) else { return };
    let array = trace.mapping(16);
    let rows: Vec<_> = trace.events.iter().filter(|row| row.op.is_reference()).collect();
    let reads = reads_of(&trace, trace.mapping(NR_PAGES), 0);
    assert!(reads.len() > 8900, "{}", reads.len());
    let of_array = share(&reads, |pair| {
        let (at, row) = pair[1];
        let target = rows[at - row.flags as usize];
        (array.addr..array.addr + array.len).contains(&target.addr)
    });
    assert!(of_array > 0.99, "{of_array}");
}

/// Rows before a system call are sent with it, so later links cannot refer to them.
#[test]
fn no_link_passes_an_event() {
    let main = r"
    int main(void) {
        start();
        void *volatile *at = (void *)(region + 8);
        for (long i = 0; i < N; i++) {
            at = *at;
            madvise(other, 4096, MADV_NORMAL);
        }
        return !at;
    }";
    let Some(trace) = run(main) else { return };
    assert!(trace.of(Op::Madvise).len() as u64 >= NR_PAGES);
    let reads = reads_of(&trace, trace.mapping(NR_PAGES), 0);
    assert!(reads.len() as u64 >= NR_PAGES - 1, "{}", reads.len());
    let linked = share(&reads, |pair| pair[1].1.flags > 0);
    assert!(linked < 0.01, "{linked}");
}

/// A row cannot count 9 million loads.
#[test]
fn a_count_beyond_a_row_goes_on_in_the_next() {
    let main = r"
    int main(void) {
        start();
        for (long i = 0; i < 9000000; i++) (void)*(volatile char *)other;
        return 0;
    }";
    let Some(trace) = run(main) else { return };
    let other = trace.mapping(1);
    let reads = reads_of(&trace, other, 0);
    assert_eq!(reads.iter().map(|(_, row)| row.len).sum::<u64>(), 9_000_000);
    assert!(reads.len() >= 2 && reads.iter().all(|(_, row)| row.len < 1 << 23), "{reads:?}");
}

/// A thread loads while another one protects the page; its handler repairs that, as garbage
/// collectors do. The value may be unreadable the second time.
#[test]
fn a_page_that_is_protected_during_a_load_faults_in_the_program() {
    let main = r"
    #include <signal.h>
    #include <unistd.h>
    static volatile long is_over, nr_faults;
    static void repair(int signal, siginfo_t *info, void *context) {
        if ((char *)info->si_addr < other || (char *)info->si_addr >= other + 4096) _exit(9);
        nr_faults++;
        mprotect(other, 4096, PROT_READ | PROT_WRITE);
    }
    static void *load(void *none) {
        while (!is_over) (void)*(volatile long *)other;
        return 0;
    }
    int main(void) {
        start();
        struct sigaction action = { .sa_sigaction = repair, .sa_flags = SA_SIGINFO };
        sigaction(SIGSEGV, &action, 0);
        pthread_t t;
        pthread_create(&t, 0, load, 0);
        for (int i = 0; i < 1000; i++) {
            mprotect(other, 4096, PROT_NONE);
            usleep(10);
        }
        mprotect(other, 4096, PROT_READ);
        is_over = 1;
        pthread_join(t, 0);
        return nr_faults == 0;
    }";
    let Some(trace) = run(main) else { return };
    assert!(trace.of(Op::Mprotect).len() > 1000);
}
