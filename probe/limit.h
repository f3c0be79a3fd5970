/* A cgroup for a program's processes, and swap space.
 *
 * `limit=KIB` in a program's first line: its processes get their own cgroup with that `memory.max`.
 * They join it when their other memory is populated, so that the cgroup pays only for the window.
 * Before each step, time-dependent state is reset, as in pressure.h. */
#ifndef LARGEFOLIO_LIMIT_H
#define LARGEFOLIO_LIMIT_H
#include "command.h"

/* The processes belong to a cgroup with a limit (limit.h). */
static int is_limited;

#define SWAP_MAGIC "SWAPSPACE2"
#define BLKGETSIZE64 0x80081272L
/* Above the kernel's per-CPU batch (MEMCG_CHARGE_BATCH): see pressure.h. */
#define NR_ZEROES 130UL
#if defined(__x86_64__)
enum { SYS_swapon = 167, SYS_swapoff = 168 };
#else
enum { SYS_swapon = 224, SYS_swapoff = 225 };
#endif

/* Cached file pages of the machine: more than a program pages out. A page that returns after
 * `MADV_PAGEOUT` is compared with their number (docs/behaviour P.2.6). */
#define NR_OTHERS 4096UL
#define OTHERS_AT (256L << 20)
static const char *groups_dir, *swap_device, *others_device;
static char group_of_program[64];

static char swap_text[1 << 15];

/* Creates swap space on the whole device, unless the kernel already swaps to it. */
static void start_swap(void)
{
    static unsigned header[1 << 14];
    u64 bytes = 0;
    if (!swap_device) { return; }
    read_file("/proc/swaps", swap_text, sizeof swap_text);
    for (const char *line = swap_text; *line;) {
        if (begins(line, swap_device, 0)) { return; }
        while (*line && *line++ != '\n') { }
    }
    int fd = (int)must(open_file(swap_device, O_RDWR), "cannot open", swap_device);
    must(sys3(SYS_ioctl, fd, BLKGETSIZE64, (s64)&bytes), "cannot size", swap_device);
    header[256] = 1;
    header[257] = (unsigned)(bytes / page - 1);
    memcpy((char *)header + page - length(SWAP_MAGIC), SWAP_MAGIC, length(SWAP_MAGIC));
    must(sys4(SYS_pwrite, fd, (s64)header, (s64)page, 0), "cannot write", swap_device);
    sys1(SYS_fsync, fd);
    sys1(SYS_close, fd);
    must(sys2(SYS_swapon, (s64)swap_device, 0), "cannot swap to", swap_device);
}

/* Reads the others from a device, and sums the machine's counters. */
static void cache_others(void)
{
    static u8 bytes[1 << 16];
    static char path[128];
    if (!others_device) { return; }
    int fd = (int)must(open_file(others_device, O_RDONLY), "cannot open", others_device);
    for (u64 done = 0; done < NR_OTHERS * page; done += sizeof bytes) {
        must(sys4(SYS_pread, fd, (s64)bytes, sizeof bytes, OTHERS_AT + (s64)done), "cannot read",
             others_device);
    }
    read_file(path_of(path, groups_dir, "memory.stat"), swap_text, sizeof swap_text);
}

/* Forgets which slots earlier programs used: where new ones lie decides which large folios can be
 * read back (docs/behaviour P.5.3). */
static void restart_swap(void)
{
    must(sys1(SYS_swapoff, (s64)swap_device), "cannot stop to swap to", swap_device);
    must(sys2(SYS_swapon, (s64)swap_device, 0), "cannot swap to", swap_device);
}

/* --- in a worker ------------------------------------------------------------------------------ */

static u8 *limit_zeroes;
static int limit_stat_fd = -1, drain_fd = -1;
static char limit_text[1 << 14], join_path[128];

/* Populates the stack for later calls before the cgroup pays. */
static void __attribute__((noinline)) deepen_limited_stack(void)
{
    volatile u8 stack[32UL << 10];
    for (u64 i = 0; i < sizeof stack; i += 1024) { stack[i] = 1; }
}

/* Flushes translations, so that a touch sets the accessed bit, and statistics, and drains the CPU's
 * page batches. */
static s64 do_refresh(void)
{
    sys3(SYS_madvise, (s64)limit_zeroes, (s64)(NR_ZEROES * page), MADV_DONTNEED);
    for (u64 i = 0; i < NR_ZEROES; i++) { (void)*(volatile u8 *)(limit_zeroes + i * page); }
    sys4(SYS_pread, limit_stat_fd, (s64)limit_text, sizeof limit_text - 1, 0);
    return sys4(SYS_fadvise, drain_fd, 0, 0, 4);
}

static s64 do_join(void)
{
    deepen_limited_stack();
    if (!limit_zeroes) {
        limit_zeroes = anonymous(NR_ZEROES * page);
        sys3(SYS_madvise, (s64)limit_zeroes, (s64)(NR_ZEROES * page), MADV_NOHUGEPAGE);
        limit_stat_fd = (int)must(open_file(path_of(join_path, group_of_program, "memory.stat"), O_RDONLY),
                                  "cannot open", join_path);
        drain_fd = (int)must(open_file(swap_device, O_RDONLY), "cannot open", swap_device);
    }
    /* Copy now the memory that a fork left shared. */
    for (u64 i = 0; i < sizeof limit_text; i += 1024) { ((volatile char *)limit_text)[i] = 0; }
    nr_faults();
    do_refresh();
    return write_file(path_of(join_path, group_of_program, "cgroup.procs"), "0") ? 0 : -EIO;
}

static s64 do_leave(void)
{
    return write_file(path_of(join_path, group_of_program, "../cgroup.procs"), "0") ? 0 : -EIO;
}

/* --- in the process that tells them ------------------------------------------------------------ */

static struct swapped { u64 in, out, cached, used; } swapped_is;

static u64 value_of(const char *key)
{
    for (const char *line = swap_text, *value; *line;) {
        if (begins(line, key, &value)) {
            while (*value == ' ') { value++; }
            return number(&value, 10);
        }
        while (*line && *line++ != '\n') { }
    }
    return 0;
}

/* Other processes' pages in the swap cache. */
static u64 cached_before;

static struct swapped read_swapped(void)
{
    static char path[128];
    struct swapped is;
    write_file("/proc/sys/vm/stat_refresh", "1");
    read_file("/proc/vmstat", swap_text, sizeof swap_text);
    is.in = value_of("pswpin ");
    is.out = value_of("pswpout ");
    read_file("/proc/meminfo", swap_text, sizeof swap_text);
    is.cached = value_of("SwapCached:") / (page >> 10) - cached_before;
    read_file(path_of(path, group_of_program, "memory.swap.current"), swap_text, sizeof swap_text);
    is.used = as_number(swap_text) / page;
    return is;
}

/* `w IN OUT CACHED USED`: pages that the step swapped in and out, then pages in the swap cache and
 * slots used by the cgroup; only if something changed. */
static void print_swapped(void)
{
    if (!is_limited) { return; }
    struct swapped is = read_swapped(), was = swapped_is;
    swapped_is = is;
    if (is.in == was.in && is.out == was.out && is.cached == was.cached && is.used == was.used) {
        return;
    }
    const u64 numbers[] = { is.in - was.in, is.out - was.out, is.cached, is.used };
    put("w");
    for (u64 i = 0; i < 4; i++) { put(" "); put_number(numbers[i], 10); }
    put("\n");
}

/* `limit=KIB`: creates a cgroup. */
static void start_limit(const char *line)
{
    static u64 nr_groups;
    static char name[24], path[128];
    const char *at = within(line, "limit=");
    is_limited = at != 0;
    if (!at) { return; }
    if (!groups_dir || !swap_device) { fatal("groups= and swap= are needed for", line, 0); }
    restart_swap();
    u64 bytes = as_number(at) << 10, nr = ++nr_groups + (u64)sys1(SYS_getpid, 0) * 1000;
    char digits[24], *to = name;
    int n = 0;
    *to++ = 'g';
    for (; nr; nr /= 10) { digits[n++] = (char)('0' + nr % 10); }
    while (n) { *to++ = digits[--n]; }
    *to = 0;
    path_of(group_of_program, groups_dir, name);
    must(sys3(SYS_mkdirat, AT_FDCWD, (s64)group_of_program, 0755), "cannot make", group_of_program);
    n = 0;
    for (u64 left = bytes; left; left /= 10) { digits[n++] = (char)('0' + left % 10); }
    to = name;
    while (n) { *to++ = digits[--n]; }
    *to = 0;
    if (!write_file(path_of(path, group_of_program, "memory.max"), name)) {
        fatal("cannot limit", group_of_program, 0);
    }
    cached_before = 0;
    cached_before = read_swapped().cached;
    swapped_is = read_swapped();
}
#endif
