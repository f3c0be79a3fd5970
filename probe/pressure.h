/* A cgroup for the duration of a workload, and the kernel's counters in it.
 *
 * The caller creates the cgroup and its limit. The probe joins it when its own memory is populated
 * and leaves it after the workload, so that the cgroup pays only for the kernel's work on the
 * workload. */
#ifndef LARGEFOLIO_PRESSURE_H
#define LARGEFOLIO_PRESSURE_H
#include "sys.h"
#include "trace.h"

/* memory.stat is refreshed every two seconds. */
#define STAT_US 100000UL
#define NR_STAT_WAITS 23

/* Each step begins in a defined state: translations are flushed, so that a touch sets the accessed
 * bit, and the counters that reclaim reads are up to date. The kernel counts in batches, and
 * reading memory.stat flushes them only if many are pending. So fault in zero pages, which are
 * counted but take no memory. */
static u8 *zeroes;
static u64 nr_zeroes;
static int stat_fd = -1, kernel_fd = -1;
static char stat_text[1 << 14];
/* Kernel memory charged to the cgroup at the last check, in pages. */
static u64 kernel_pages;

/* Populates the stack for later calls before the cgroup pays. */
#define STACK_ROOM (64UL << 10)
static void __attribute__((noinline)) deepen_stack(void)
{
    volatile u8 stack[STACK_ROOM];
    for (u64 i = 0; i < sizeof stack; i += 1024) { stack[i] = 1; }
}

static const char *group_dir;
static char group_path[4096];

static void enter_group(const char *dir)
{
    if (!write_file(path_of(group_path, dir, "cgroup.procs"), "0")) {
        fatal("cannot join the group", dir, 0);
    }
    group_dir = dir;
}

/* Populates everything that `refresh` needs before the cgroup pays. */
static void prepare_refresh(const char *dir, u64 nr, u64 page)
{
    nr_zeroes = nr;
    if (!nr) { return; }
    s64 at = call6(SYS_mmap, 0, (s64)(nr * page), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    zeroes = (u8 *)must(at, "memory for", "the page of zeroes");
    sys3(SYS_madvise, at, (s64)(nr * page), 15);
    stat_fd = open_file(path_of(group_path, dir, "memory.stat"), O_RDONLY);
    must(stat_fd, "cannot open", group_path);
    sys4(SYS_pread, stat_fd, (s64)stat_text, sizeof stat_text, 0);
    kernel_fd = open_file(path_of(group_path, dir, "memory.kmem.usage_in_bytes"), O_RDONLY);
}

/* `k N`: the kernel's own part of the limit (tree nodes, page tables) has changed. It is 0 if
 * cgroups do not pay for it (`cgroup.memory=nokmem`). */
static void look_at_kernel(u64 page)
{
    static char value[32];
    u64 bytes = 0;
    if (kernel_fd >= 0) {
        if (sys4(SYS_pread, kernel_fd, (s64)value, sizeof value, 0) > 0) { bytes = as_number(value); }
    } else {
        for (const char *line = stat_text, *text; *line;) {
            if (begins(line, "kernel ", &text)) { bytes = as_number(text); }
            while (*line && *line++ != '\n') { }
        }
    }
    if (bytes / page == kernel_pages) { return; }
    kernel_pages = bytes / page;
    put("k ");
    put_number(kernel_pages, 10);
    mark();
}

static void refresh(u64 page)
{
    if (!nr_zeroes) { return; }
    sys3(SYS_madvise, (s64)zeroes, (s64)(nr_zeroes * page), 4);
    for (u64 i = 0; i < nr_zeroes; i++) { (void)*(volatile u8 *)(zeroes + i * page); }
    sys4(SYS_pread, stat_fd, (s64)stat_text, sizeof stat_text - 1, 0);
    look_at_kernel(page);
}

static void leave_group(void)
{
    if (group_dir && !write_file(path_of(group_path, group_dir, "../cgroup.procs"), "0")) {
        fatal("cannot leave the group", group_dir, 0);
    }
}

/* Returns the first number in one of the cgroup's files; 0 without a cgroup. */
static u64 group_number(const char *name)
{
    static char value[64];
    if (read_file(path_of(group_path, group_dir, name), value, sizeof value) <= 0) { return 0; }
    return as_number(value);
}

/* `= KEY VALUE` lines for all non-zero counters. */
static void counted(const char *name, char *text, u64 room)
{
    if (read_file(path_of(group_path, group_dir, name), text, room) <= 0) { return; }
    for (const char *line = text; *line;) {
        const char *value = within(line, " ");
        if (value && (*value != '0')) {
            put("= ");
            while (*line && *line != '\n') { put_char(*line++); }
            put("\n");
        }
        while (*line && *line++ != '\n') { }
    }
}

static void group_header(void)
{
    u64 limit = group_number("memory.max");
    put_pair("limit", limit ? limit : group_number("memory.limit_in_bytes"));
    put(" lru=");
    put(lists_in_use());
}

/* Prints the cgroup's memory use and events. */
static void group_footer(char *text, u64 room)
{
    u64 usage = group_number("memory.current");
    for (int i = 0; i < NR_STAT_WAITS; i++) { sleep_us(STAT_US); }
    put("= usage ");
    put_number(usage ? usage : group_number("memory.usage_in_bytes"), 10);
    put("\n");
    counted("memory.stat", text, room);
    counted("memory.events", text, room);
}
#endif
