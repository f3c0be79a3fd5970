/* Processes in lock step: one worker per slot, controlled over a pipe. */
#ifndef LARGEFOLIO_PROCESS_H
#define LARGEFOLIO_PROCESS_H
#include "command.h"
#include "huge.h"
#include "limit.h"
#include "nodes.h"

#define NR_SLOTS 4
#define FILE_PAGES 256UL
#define FLUSHED_PAGES 1024UL
#define SIGKILL 9
#define SIGSEGV 11
#define SIGBUS 7
#define SIGCHLD 17
#define CLONE_PARENT 0x8000
#define PR_SET_PDEATHSIG 1
#define PR_SET_NAME 15
#define WORKER_NAME "folio-worker"
#define PUNCH_HOLE_KEEP_SIZE 3
#define O_NONBLOCK 04000
#define MREMAP_MAYMOVE 1
#define MREMAP_FIXED 2
#define EFAULT 14
/* Time for a touch's file reads to complete. */
#define SETTLE_US 1500
#define ENOTTY 25
#define MAP_STACK 0x20000
#define IPC_PRIVATE 0
#define IPC_RMID 0
#define IPC_NEW 01600

/* One page of one process. `label` names the folio: 0 = nothing mapped. */
struct seen { u64 pfn; unsigned label, value, mapcount; unsigned short index; u8 order, flags; };
#define NO_VALUE 0xffffffffU

static int file_fd = -1;
/* Space for large folios of which only the last page is touched. */
static s64 advised_area;
/* The program's own file: empty pages that its processes share. */
static int own_fd = -1;
/* Whether it is on a disk. */
static int own_on_disk;
static const char *own_path;
/* The program's own file, open for writing. */
static int writer_fd = -1;
/* Whether this process or an ancestor has locked memory. */
static int locks;
/* This pipe holds references to pages, oldest first. */
static int pins[2];
static struct { int command[2], reply[2]; } pipes[NR_SLOTS];
/* Faults of the last loads and stores of any process. */
static u64 *nr_step_faults;

static int protection_of(const char *how)
{
    return (has_letter(how, 'r') ? PROT_READ : 0) | (has_letter(how, 'w') ? PROT_WRITE : 0);
}

static void on_fault(int signal, void *info, u8 *context)
{
    (void)signal;
    (void)info;
    *(u64 *)(context + SAVED_PC) = (u64)access_failed;
}

static void catch_faults(void)
{
    struct { void *handler; u64 flags; void *restorer; u64 mask; } action = {
        (void *)on_fault, SA_FLAGS, (void *)back_from_signal, 0
    };
    sys4(SYS_rt_sigaction, SIGSEGV, (s64)&action, 0, 8);
    sys4(SYS_rt_sigaction, SIGBUS, (s64)&action, 0, 8);
}

/* A process killed by the OOM killer never answers, so SIGCHLD wakes the waiting process. */
static void on_child(int signal) { (void)signal; }

static void catch_end_of_processes(void)
{
    struct { void *handler; u64 flags; void *restorer; u64 mask; } action = {
        (void *)on_child, SA_FLAGS, (void *)back_from_signal, 0
    };
    sys4(SYS_rt_sigaction, SIGCHLD, (s64)&action, 0, 8);
}

/* Attaches a new System V segment, which its last process frees. */
static s64 attach(const struct command *c)
{
    s64 segment = sys3(SYS_shmget, IPC_PRIVATE, (s64)(c->nr * page), IPC_NEW);
    if (FAIL(segment)) { return segment; }
    s64 at = sys3(SYS_shmat, segment, (s64)(BASE + c->first * page), 0);
    sys3(SYS_shmctl, segment, IPC_RMID, 0);
    return at;
}

static s64 do_map(const struct command *c)
{
    if (has_letter(c->how, 'g')) { return do_map_huge(c); }
    int is_file = has_letter(c->how, 'f');
    s64 flags = (has_letter(c->how, 's') ? MAP_SHARED : MAP_PRIVATE)
        | (has_letter(c->how, 'k') ? MAP_STACK : 0) | (is_file ? 0 : MAP_ANONYMOUS);
    s64 at = has_letter(c->how, 'v') ? attach(c)
        : call6(SYS_mmap, (s64)(BASE + c->first * page), (s64)(c->nr * page),
                PROT_READ | PROT_WRITE, flags | MAP_FIXED_NOREPLACE, is_file ? file_fd : -1,
                is_file ? (s64)(c->first % (FILE_PAGES / 2) * page) : 0);
    if (FAIL(at)) { return at; }
    int advice = has_letter(c->how, 'h') ? MADV_HUGEPAGE
        : has_letter(c->how, 'n') ? MADV_NOHUGEPAGE : -1;
    return advice < 0 ? 0 : sys3(SYS_madvise, at, (s64)(c->nr * page), advice);
}

/* Maps the program's own file from page `to`; `r` and `x` are read-only. */
static s64 do_share(const struct command *c)
{
    int protection = has_letter(c->how, 'x') ? PROT_READ | PROT_EXEC
        : has_letter(c->how, 'r') ? PROT_READ : PROT_READ | PROT_WRITE;
    s64 at = call6(SYS_mmap, (s64)(BASE + c->first * page), (s64)(c->nr * page), protection,
                   (has_letter(c->how, 'p') ? MAP_PRIVATE : MAP_SHARED) | MAP_FIXED_NOREPLACE,
                   own_fd, (s64)(c->to * page));
    return FAIL(at) ? at : 0;
}

/* Pages in a CPU's batches have an extra reference, and a store to one is a copy. A collapse request
 * empties the batches. */
static void drain_batches(void)
{
    sys3(SYS_madvise, advised_area, (s64)(page / 8 * page * 2), MADV_COLLAPSE);
}

static s64 do_free(const struct command *c)
{
    s64 done = sys3(SYS_madvise, (s64)(BASE + c->first * page), (s64)(c->nr * page), MADV_FREE);
    /* In a cgroup with a limit, batches are empty before each step, and the cgroup would pay for
     * the collapse. */
    if (!is_limited) { drain_batches(); }
    return done;
}

/* Takes a reference to a page through a pipe. */
static s64 do_pin(const struct command *c)
{
    struct { u64 at, len; } piece = { BASE + c->first * page, page };
    s64 n = sys4(SYS_vmsplice, pins[1], (s64)&piece, 1, 0);
    return FAIL(n) ? n : 0;
}

/* Letters: `a` locks, `o` locks on fault; neither unlocks. */
static s64 do_lock(const struct command *c)
{
    s64 at = (s64)(BASE + c->first * page), len = (s64)(c->nr * page);
    if (has_letter(c->how, 'a')) { return sys3(SYS_mlock2, at, len, 0); }
    if (has_letter(c->how, 'o')) { return sys3(SYS_mlock2, at, len, MLOCK_ONFAULT); }
    return sys2(SYS_munlock, at, len);
}

/* Letters: `c` for existing mappings, `f` for later ones, `o` on fault; neither `c` nor `f` unlocks. */
static s64 do_lock_all(const struct command *c)
{
    int flags = (has_letter(c->how, 'c') ? MCL_CURRENT : 0)
        | (has_letter(c->how, 'f') ? MCL_FUTURE : 0) | (has_letter(c->how, 'o') ? MCL_ONFAULT : 0);
    return flags & (MCL_CURRENT | MCL_FUTURE) ? sys1(SYS_mlockall, flags) : sys1(SYS_munlockall, 0);
}

/* Reads or writes pages of the program's own file by system calls; a write stores `to` and the
 * following values. */
static s64 do_calls(const struct command *c)
{
    static unsigned bytes[1 << 14];
    for (u64 i = 0; i < c->nr; i++) {
        s64 at = (s64)((c->first + i) * page);
        bytes[0] = (unsigned)(c->to + i);
        s64 n = c->op == OP_LOAD ? sys4(SYS_pread, own_fd, (s64)bytes, (s64)page, at)
            : sys4(SYS_pwrite, writer_fd, (s64)bytes, sizeof *bytes, at);
        if (n <= 0) { return FAIL(n) ? n : -EIO; }
    }
    return 0;
}

/* Writes pages of the program's own file by one call, from the middle of the first page with `h`.
 * Each page's length begins with the next value. The data is resident. */
static s64 do_fill(const struct command *c)
{
    u64 bytes = c->nr * page, from = has_letter(c->how, 'h') ? page / 2 : 0;
    u8 *data = anonymous(bytes);
    for (u64 i = 0; i < c->nr; i++) { *(unsigned *)(data + i * page) = (unsigned)(c->to + i); }
    s64 n = sys4(SYS_pwrite, own_fd, (s64)data, (s64)bytes, (s64)(c->first * page + from));
    sys2(SYS_munmap, (s64)data, (s64)bytes);
    return FAIL(n) ? n : n == (s64)bytes ? 0 : -EIO;
}

static s64 do_open(void)
{
    s64 fd = open_file(own_path, O_RDWR);
    if (FAIL(fd)) { return fd; }
    writer_fd = (int)fd;
    return 0;
}

/* The linker's names of the program's first byte, and of the end of its code. */
extern const char __executable_start[], etext[];

/* Lets the code and data of a touch fault in, which a fork does not copy, or copies at a store. In a
 * guest, a fault on code maps only its own page, so every page is read. */
static void prepare_touch(void)
{
    unsigned word = 0;
    for (const volatile char *at = __executable_start; at < etext; at += page) { (void)*at; }
    try_load((u64)&word);
    try_store((u64)&word, 0);
    *nr_step_faults = nr_faults();
}

static s64 touch(const struct command *c)
{
    prepare_touch();
    u64 faults = nr_faults(), before = faults;
    for (u64 i = 0; i < c->nr; i++) {
        u64 at = BASE + (c->first + i) * page;
        unsigned value = (unsigned)(c->to + i);
        int done = c->op == OP_READ ? try_load(at)
            : huge_bytes ? store_huge(at, value) : try_store(at, value);
        if (!done) { return -EFAULT; }
        /* Wait for reads before the next fault. */
        if (own_on_disk && nr_faults() != faults) {
            sleep_us(SETTLE_US);
            faults = nr_faults();
        }
    }
    *nr_step_faults = nr_faults() - before;
    return 0;
}

/* Fills a page: `z` with zeroes, `s` with one value, `h` with noise in its first half and zeroes, and
 * `r` with noise, which does not compress. */
static void stuff_page(unsigned *words, unsigned value, char kind)
{
    unsigned noise = value;
    for (u64 i = 0; i < page / sizeof *words; i++) {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        int is_noise = kind == 'r' || (kind == 'h' && i < page / sizeof *words / 2);
        words[i] = kind == 's' ? value : is_noise ? noise : 0;
    }
}

static s64 do_stuff(const struct command *c)
{
    prepare_touch();
    u64 before = nr_faults();
    for (u64 i = 0; i < c->nr; i++) {
        u64 at = BASE + (c->first + i) * page;
        if (!try_store(at, 0)) { return -EFAULT; }
        stuff_page((unsigned *)at, (unsigned)(c->to + i), c->how[0]);
    }
    *nr_step_faults = nr_faults() - before;
    return 0;
}

/* Returns the sum of a page's words: all of 4K, but only 64 bytes of each KiB of a larger page,
 * because the kernel clears and copies whole cache lines. It adds two words at a time; the lower
 * halves never carry. */
static unsigned sum_of(const u64 *pair)
{
    u64 low = 0, high = 0, step = page > 4096 ? 128 : 8;
    for (u64 first = 0; first < page / sizeof *pair; first += step) {
        for (u64 k = first; k < first + 8; k++) {
            low += pair[k];
            high += pair[k] >> 32;
        }
    }
    return (unsigned)(low + high);
}

/* Sums each readable mapped page, without faults. */
static void sum_pages(struct seen *pages, u64 nr)
{
    for (u64 i = 0; i < nr; i++) {
        u64 at = BASE + i * page;
        unsigned sum = 0;
        if (!pages[i].pfn) { continue; }
        if (huge_bytes && try_load(at)) { sum = huge_sum(at); }
        else { sum = try_load(at) ? sum_of((const u64 *)at) : NO_VALUE; }
        pages[i].value = sum;
    }
}

/* Flushes all translations of the process, by unmapping more pages than are flushed one by one. */
static s64 do_flush(void)
{
    u64 bytes = FLUSHED_PAGES * page;
    u64 at = (u64)anonymous(bytes);
    try_store(at, 1);
    try_store(at + bytes - page, 1);
    return sys2(SYS_munmap, (s64)at, (s64)bytes);
}

static s64 perform(const struct command *c)
{
    s64 at = (s64)(BASE + c->first * page), len = (s64)(c->nr * page);
    switch (c->op) {
    case OP_MAP: return do_map(c);
    case OP_READ:
    case OP_WRITE: return touch(c);
    case OP_STUFF: return do_stuff(c);
    case OP_UNMAP: return sys2(SYS_munmap, at, len);
    case OP_DROP: return sys3(SYS_madvise, at, len, MADV_DONTNEED);
    case OP_PROTECT: return sys3(SYS_mprotect, at, len, protection_of(c->how));
    case OP_ADVISE:
        return sys3(SYS_madvise, at, len,
                    has_letter(c->how, 'h') ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    case OP_REMAP: {
        s64 moved = call6(SYS_mremap, at, len, len, MREMAP_MAYMOVE | MREMAP_FIXED,
                          (s64)(BASE + c->to * page), 0);
        return FAIL(moved) ? moved : 0;
    }
    case OP_TRIM: return do_trim(c);
    case OP_SHARE: return do_share(c);
    case OP_COLLAPSE:
        return sys3(SYS_madvise, at, len, c->to ? MADV_COLLAPSE_TO + (s64)c->to : MADV_COLLAPSE);
    case OP_FREE: return do_free(c);
    case OP_COLD: return sys3(SYS_madvise, at, len, MADV_COLD);
    case OP_PAGEOUT: return sys3(SYS_madvise, at, len, MADV_PAGEOUT);
    case OP_PUNCH:
        return sys4(SYS_fallocate, own_fd, PUNCH_HOLE_KEEP_SIZE, (s64)(c->first * page), len);
    case OP_FILL: return do_fill(c);
    case OP_SIZE: return sys2(SYS_ftruncate, own_fd, (s64)(c->first * page));
    case OP_RESERVE: return sys4(SYS_fallocate, own_fd, 0, (s64)(c->first * page), len);
    case OP_NODE: return do_node(c);
    case OP_POLICY: return do_policy(c);
    case OP_BIND: return do_bind(c);
    case OP_MOVE: return do_move(c);
    case OP_MIGRATE: return do_migrate(c);
    case OP_HINT: return do_hint();
    case OP_PIN: return do_pin(c);
    case OP_LOCK: return do_lock(c);
    case OP_LOCKALL: return do_lock_all(c);
    case OP_LOAD:
    case OP_PUT: return do_calls(c);
    case OP_OPEN: return do_open();
    case OP_CLOSE: return sys1(SYS_close, writer_fd);
    case OP_SYNC: return sys1(SYS_fsync, own_fd);
    case OP_SUM: sum_pages((struct seen *)c->to, c->nr); return 0;
    /* Nothing is mapped there, but the call takes the `mm`'s lock. */
    case OP_SHOW: return sys2(SYS_munmap, (s64)(BASE - 4 * page), (s64)page);
    case OP_FLUSH: return do_flush();
    case OP_JOIN: return do_join();
    case OP_LEAVE: return do_leave();
    case OP_REFRESH: return do_refresh();
    default: return 0;
    }
}

/* Executes commands until exit; a fork continues as another slot. */
static void worker(u64 slot) __attribute__((noreturn));
static void worker(u64 slot)
{
    struct command c;
    sys2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    sys2(SYS_prctl, PR_SET_NAME, (s64)WORKER_NAME);
    for (;;) {
        if (sys3(SYS_read, pipes[slot].command[0], (s64)&c, sizeof c) != sizeof c
            || c.op == OP_EXIT) { quit(0); }
        s64 done;
        if (c.op == OP_FORK) {
            done = call6(SYS_clone, SIGCHLD | CLONE_PARENT, 0, 0, 0, 0, 0);
            if (done == 0) {
                slot = c.to;
                sys2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
                continue;
            }
        } else { done = perform(&c); }
        /* Locked pages wait in a batch too, and so do pages of another CPU. */
        if (c.op == OP_LOCK || c.op == OP_LOCKALL) { locks = 1; }
        if (locks || has_nodes) { drain_batches(); }
        sys3(SYS_write, pipes[slot].reply[1], (s64)&done, sizeof done);
    }
}

static void make_pipes(void)
{
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        must(sys2(SYS_pipe2, (s64)pipes[slot].command, 0), "pipe for", "commands");
        must(sys2(SYS_pipe2, (s64)pipes[slot].reply, 0), "pipe for", "replies");
    }
    must(sys2(SYS_pipe2, (s64)pins, O_NONBLOCK), "pipe for", "pins");
}
#endif
