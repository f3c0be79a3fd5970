/* Mapped pages and how they are mapped: pagemap, kpageflags, smaps, mincore. */
#ifndef LARGEFOLIO_REPORT_H
#define LARGEFOLIO_REPORT_H
#include "sys.h"

#define PM_PRESENT (1UL << 63)
#define PM_PFN ((1UL << 55) - 1)
#define KPF_HEAD (1UL << 15)
#define KPF_TAIL (1UL << 16)

/* Calls `emit(first, last, state)` for each run of pages with the same non-zero state. */
static void runs(const u64 *state, u64 nr, void (*emit)(u64, u64))
{
    for (u64 i = 0; i < nr;) {
        u64 end = i + 1;
        while (end < nr && state[end] == state[i]) { end++; }
        if (state[i]) { emit(i, end - 1); }
        i = end;
    }
}

static char run_name;
static u64 run_base;
static void emit_run(u64 first, u64 last)
{
    put_char(run_name);
    put(" ");
    put_number(run_base + first, 10);
    if (last > first) { put(".."); put_number(run_base + last, 10); }
    put("\n");
}

/* `P` lines: pages with a present entry. Fills `pfn` (0 = absent). */
static void read_pagemap(u64 at, u64 nr, u64 page, u64 *pfn)
{
    int fd = open_file("/proc/self/pagemap", O_RDONLY);
    must(fd, "cannot open", "/proc/self/pagemap");
    for (u64 done = 0; done < nr;) {
        s64 n = sys4(SYS_pread, fd, (s64)(pfn + done), (s64)((nr - done) * 8),
                     (s64)((at / page + done) * 8));
        if (n <= 0) { fatal("cannot read", "/proc/self/pagemap", n); }
        done += (u64)n / 8;
    }
    sys1(SYS_close, fd);
    for (u64 i = 0; i < nr; i++) { pfn[i] = pfn[i] & PM_PRESENT ? pfn[i] & PM_PFN : 0; }
}

static u64 page_flags(int fd, u64 pfn)
{
    u64 flags = 0;
    sys4(SYS_pread, fd, (s64)&flags, 8, (s64)(pfn * 8));
    return flags;
}

/* `K` lines: runs of mapped pages of one large folio. */
static void folio_runs(const u64 *pfn, u64 nr, u64 first)
{
    int fd = open_file("/proc/kpageflags", O_RDONLY);
    if (fd < 0) { return; }
    for (u64 i = 0; i < nr; i++) {
        u64 flags = pfn[i] ? page_flags(fd, pfn[i]) : 0;
        if (!(flags & (KPF_HEAD | KPF_TAIL))) { continue; }
        u64 end = i + 1;
        while (end < nr && pfn[end] == pfn[end - 1] + 1 && (page_flags(fd, pfn[end]) & KPF_TAIL)) {
            end++;
        }
        put("K ");
        put_number(first + i, 10);
        put(" +");
        put_number(end - i, 10);
        put(flags & KPF_HEAD ? " head\n" : " tail\n");
        i = end - 1;
    }
    sys1(SYS_close, fd);
}

static void report_mapping(u64 at, u64 nr, u64 first, u64 page, u64 *pfn, int has_folios)
{
    read_pagemap(at, nr, page, pfn);
    run_base = first;
    static u64 *present;
    if (!present) { present = anonymous(8UL << 20); }
    for (u64 i = 0; i < nr; i++) { present[i] = pfn[i] != 0; }
    run_name = has_folios ? 'P' : 'p';
    runs(present, nr, emit_run);
    if (has_folios) { folio_runs(pfn, nr, first); }
}

/* `M` lines for the mapping at `at`. */
static void report_smaps(u64 at, char *text, u64 room)
{
    static const char *const KEYS[] = { "Rss:", "FilePmdMapped:", "ShmemPmdMapped:", 0 };
    read_file("/proc/self/smaps", text, room);
    int is_inside = 0;
    for (const char *line = text; *line;) {
        const char *key = line, *value;
        u64 begin = number(&key, 16);
        if (key > line && *key == '-') { is_inside = begin == at; }
        for (u64 i = 0; is_inside && KEYS[i]; i++) {
            if (!begins(line, KEYS[i], &value)) { continue; }
            while (*value == ' ') { value++; }
            put("M ");
            put(KEYS[i]);
            put(" ");
            put_number(number(&value, 10), 10);
            put(" kB\n");
        }
        while (*line && *line++ != '\n') { }
    }
}

/* Counts a mapping's resident pages by mincore. */
static u64 resident(u64 at, u64 nr, u64 page, u8 *vector)
{
    must(sys3(SYS_mincore, (s64)at, (s64)(nr * page), (s64)vector), "mincore on", "the file");
    u64 found = 0;
    for (u64 i = 0; i < nr; i++) { found += vector[i] & 1; }
    return found;
}
#endif
