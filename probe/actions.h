/* Actions of a workload: its files and mappings, and each action with its line in the recording.
 *
 * An action's line is written before it; the kernel's state is read after it. */
#ifndef LARGEFOLIO_ACTIONS_H
#define LARGEFOLIO_ACTIONS_H
#include "sys.h"
#include "trace.h"
#include "report.h"
#include "pressure.h"

#define NR_MAPS 4
#define NR_OPENS 4
#define NR_PAGES (1UL << 20)
#define READ_ROOM (16UL << 20)
#define BASE 0x400000000000UL
#define MAP_SPACING (1UL << 36)

struct mapping { u64 at, first, nr; int open; const char *prot, *share, *advice; };

static u64 page = 4096;
static struct {
    const char *file, *trace, *fs, *variant, *edits, *pattern, *ops, *also, *ra, *sectors, *around, *cgroup;
    const char *group, *fadvise, *io;
} arg;
static struct {
    u64 n, seed, opens, settle_us, bytes, skew, span, hot, refresh;
} num = { .n = 100, .opens = 1, .settle_us = 1500, .hot = 64 };
static struct mapping maps[NR_MAPS];
static u64 nr_maps;
static int fds[NR_OPENS];
static struct traced traced;
static u64 file_pages, resident_before;
static u64 *pfns;
static char *text;
static u8 *read_buffer;
static u64 faults[2];

/* --- actions ---------------------------------------------------------------------------------- */

static void settle(void)
{
    if (num.settle_us) { sleep_us(num.settle_us); }
    refresh(page);
}

static void touch(u64 index, u64 map, int is_write)
{
    struct mapping *m = &maps[map];
    if (index < m->first || index >= m->first + m->nr) { return; }
    put("T ");
    put_number(index, 10);
    if (map || is_write) { put(" "); put_number(map, 10); }
    if (is_write) { put(" w"); }
    mark();
    volatile u8 *at = (u8 *)(m->at + (index - m->first) * page);
    if (is_write) { *at = (u8)index; }
    else if (equal(m->prot, "rxc")) { ((void (*)(void))at)(); }
    else { (void)*at; }
    settle();
}

/* `e` lines: blocks of 4 KiB that the file has or has reserved, on a filesystem that splits a write
 * to the page cache at their ends. `FIRST+NR`, then d (reserved, without blocks yet) or u (reads as
 * zeros), then < (directly after the previous extent on the device). */
#define NR_EXTENTS 512
static void put_extents(int fd)
{
    static struct {
        u64 start, length;
        unsigned flags, nr, room, reserved;
        struct {
            u64 logical, physical, length, words[2];
            unsigned flags, more[3];
        } of[NR_EXTENTS];
    } map;
    map.start = 0;
    map.length = ~0UL;
    map.flags = 0;
    map.room = NR_EXTENTS;
    if (FAIL(sys3(SYS_ioctl, fd, 0xc020660bL, (s64)&map))) { return; }
    if (map.nr == NR_EXTENTS) { fatal("too many extents of", arg.file, 0); }
    for (u64 i = 0; i < map.nr || i == 0; i++) {
        if (i % 16 == 0) { put("e"); }
        if (i < map.nr) {
            int is_reserved = map.of[i].flags & 4;
            put(" ");
            put_number(map.of[i].logical / 4096, 10);
            put("+");
            put_number(map.of[i].length / 4096, 10);
            if (is_reserved) { put("d"); }
            if (map.of[i].flags & 0x800) { put("u"); }
            if (i && !is_reserved && !(map.of[i - 1].flags & 4) &&
                map.of[i].physical == map.of[i - 1].physical + map.of[i - 1].length) {
                put("<");
            }
        }
        if (i % 16 == 15 || i + 1 >= map.nr) { mark(); }
    }
}

static void file_io(char kind, u64 pos, u64 len, u64 open, int is_short)
{
    put_char(kind);
    put(" ");
    put_number(pos / page, 10);
    put(" ");
    put_number(pos % page, 10);
    if (!is_short) {
        put(" ");
        put_number(len, 10);
        put(" ");
        put_number(open, 10);
    }
    mark();
    if (kind == 'X' && arg.fs && equal(arg.fs, "xfs")) { put_extents(fds[open]); }
    if (len > READ_ROOM) { fatal("one call moves at most 16 MiB of", arg.file, 0); }
    s64 nr = kind == 'B' ? SYS_pread : SYS_pwrite;
    must(sys4(nr, fds[open], (s64)read_buffer, (s64)len, (s64)pos), "read or write of", arg.file);
    settle();
}

/* ftruncate(2). */
static void set_length(u64 bytes, u64 open)
{
    put("c ");
    put_number(bytes / page, 10);
    put(" ");
    put_number(bytes % page, 10);
    mark();
    must(sys2(SYS_ftruncate, fds[open], (s64)bytes), "cannot change the length of", arg.file);
    settle();
}

/* posix_fadvise(2) for the whole file. */
static void advise_file(const char *advice, u64 open)
{
    static const char *const ADVICES[] = { "normal", "random", "seq", "willneed" };
    for (int i = 0; i < 4; i++) {
        if (!equal(advice, ADVICES[i])) { continue; }
        put("L ");
        put(advice);
        put(" ");
        put_number(open, 10);
        put(" 0 0");
        mark();
        must(sys4(SYS_fadvise, fds[open], 0, 0, i), "posix_fadvise", advice);
        settle();
        return;
    }
    fatal("unknown advice", advice, 0);
}

static void advise(struct mapping *m, const char *advice)
{
    static const struct { const char *name; int values[2]; } ADVICES[] = {
        { "plain", { -1, -1 } }, { "huge", { 14, -1 } }, { "nohuge", { 15, -1 } },
        { "random", { 1, -1 } }, { "seq", { 2, -1 } }, { "willneed", { 3, -1 } },
        { "normal", { 0, -1 } }, { "hugerandom", { 14, 1 } }, { "hugeseq", { 14, 2 } },
        { "dontneed", { 4, -1 } },
    };
    const char *order;
    if (begins(advice, "order", &order)) {
        /* A preferred folio order: only kernels with kernel/file_sizes have it. */
        must(sys3(SYS_madvise, (s64)m->at, (s64)(m->nr * page), 0x4c470001 + (s64)as_number(order)),
             "madvise", advice);
        return;
    }
    for (u64 i = 0; i < sizeof ADVICES / sizeof *ADVICES; i++) {
        if (!equal(advice, ADVICES[i].name)) { continue; }
        for (int k = 0; k < 2 && ADVICES[i].values[k] >= 0; k++) {
            must(sys3(SYS_madvise, (s64)m->at, (s64)(m->nr * page), ADVICES[i].values[k]),
                 "madvise", advice);
        }
        return;
    }
    fatal("unknown advice", advice, 0);
}

static void point(u64 map)
{
    struct mapping *m = &maps[map];
    put("p ");
    put_number(map, 10);
    mark();
    /* One mark per run would flood the buffer for a scattered mapping: write at most 64. */
    read_pagemap(m->at, m->nr, page, pfns);
    u64 written = 0;
    for (u64 i = 0; i < m->nr && written < 64; i++) {
        if (!pfns[i]) { continue; }
        u64 end = i;
        while (end + 1 < m->nr && pfns[end + 1]) { end++; }
        run_name = 'p';
        run_base = m->first;
        put("p ");
        put_number(map, 10);
        put(" ");
        put_number(m->first + i, 10);
        put("..");
        put_number(m->first + end, 10);
        mark();
        written++;
        i = end;
    }
}

/* Makes the cgroup reclaim memory: pages leave the cache, and their shadow entries stay. */
static void reclaim(u64 bytes)
{
    char path[256], value[24];
    int n = 0, at = 0;
    char digits[24];
    put("Y ");
    put_number(bytes, 10);
    mark();
    do { digits[n++] = (char)('0' + bytes % 10); } while ((bytes /= 10));
    while (n) { value[at++] = digits[--n]; }
    value[at] = 0;
    if (!arg.cgroup) { fatal("reclaim needs", "cgroup=", 0); }
    write_file(path_of(path, arg.cgroup, "memory.reclaim"), value);
    settle();
}

/* Number of file pages restored to the working set since boot. */
static void restored(void)
{
    static char stat[1 << 14];
    must(read_file("/proc/vmstat", stat, sizeof stat), "cannot read", "/proc/vmstat");
    const char *value;
    for (const char *line = stat; *line;) {
        if (begins(line, "workingset_restore_file ", &value)) {
            put("Z ");
            put_number(as_number(value), 10);
            mark();
        }
        while (*line && *line++ != '\n') { }
    }
}
#endif
