/* /proc statistics of mapped pages after a step: smaps, numa_maps, kpagecount, meminfo.
 * recordings/README.md, "Copy-on-write", describes the lines. */
#ifndef LARGEFOLIO_STATISTICS_H
#define LARGEFOLIO_STATISTICS_H
#include "state.h"

#define SMAPS_ROOM (512UL << 10)
#define SAID_ROOM (64UL << 10)
#define NR_ENTRIES 4096UL
#define UNKNOWN (~0UL)
#define TRIES_MAX 100

static const char *const SMAPS_KEYS[] = {
    "Rss:", "Pss:", "Pss_Dirty:", "Shared_Clean:", "Shared_Dirty:", "Private_Clean:",
    "Private_Dirty:", "Anonymous:", "AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:",
};
#define NR_SMAPS_KEYS (sizeof SMAPS_KEYS / sizeof *SMAPS_KEYS)
static const char *const MEMINFO_KEYS[] = {
    "AnonPages:", "Mapped:", "AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:",
};
#define NR_MEMINFO_KEYS (sizeof MEMINFO_KEYS / sizeof *MEMINFO_KEYS)

/* Whether these lines are requested, and the machine's counts: nothing else may run then. */
static int wants_statistics, wants_machine;
static int smaps_fd[NR_SLOTS], numa_fd[NR_SLOTS], mapcounts_fd = -1;
static char *smaps_text, *numa_text, *said[NR_SLOTS], *to_say;
static u64 said_len[NR_SLOTS], to_say_len;
static u64 *mapcounts;

static const char *proc_path(char *to, u64 pid, const char *name)
{
    char digits[16];
    int n = 0;
    for (u64 rest = pid; rest; rest /= 10) { digits[n++] = (char)('0' + rest % 10); }
    memcpy(to, "/proc/", 6);
    char *at = to + 6;
    while (n) { *at++ = digits[--n]; }
    *at++ = '/';
    memcpy(at, name, length(name) + 1);
    return to;
}

static void open_statistics(u64 slot, int pid)
{
    char path[64];
    proc_path(path, (u64)pid, "smaps");
    smaps_fd[slot] = (int)must(open_file(path, O_RDONLY), "cannot open", path);
    /* A kernel without NUMA has none. */
    numa_fd[slot] = open_file(proc_path(path, (u64)pid, "numa_maps"), O_RDONLY);
    said_len[slot] = UNKNOWN;
}

static void close_statistics(u64 slot)
{
    sys1(SYS_close, smaps_fd[slot]);
    if (numa_fd[slot] >= 0) { sys1(SYS_close, numa_fd[slot]); }
}

/* Parses the address at the start of an area's line; 0 on other lines. */
static u64 area_at(const char *line)
{
    const char *end = line;
    u64 at = number(&end, 16);
    return end - line >= 6 && (*end == '-' || *end == ' ') ? at : 0;
}

/* Reads a list of areas up to the first one after the window; that part is short. */
static void read_areas(int fd, char *text)
{
    u64 len = 0, end = BASE + nr_pages * page;
    for (;;) {
        s64 n = sys4(SYS_pread, fd, (s64)(text + len), (s64)(SMAPS_ROOM - 1 - len), (s64)len);
        if (n <= 0) { break; }
        const char *line = text + len;
        while (line > text && line[-1] != '\n') { line--; }
        len += (u64)n;
        text[len] = 0;
        for (; *line; line = next_line(line)) {
            if (area_at(line) >= end) { text[line - text] = 0; return; }
        }
    }
    text[len] = 0;
}

static void say(u64 value)
{
    char digits[24];
    int n = 0;
    if (to_say_len + 32 > SAID_ROOM) { fatal("too many areas in", "a process", 0); }
    to_say[to_say_len++] = ' ';
    if (value == UNKNOWN) { to_say[to_say_len++] = '-'; return; }
    do { digits[n++] = (char)('0' + value % 10); value /= 10; } while (value);
    while (n) { to_say[to_say_len++] = digits[--n]; }
}

/* Returns the largest mapcount in the area at `at`. The kernel omits a mapcount of 1. */
static u64 mapmax_of(u64 slot, u64 at)
{
    if (numa_fd[slot] < 0) { return UNKNOWN; }
    for (const char *line = numa_text; *line; line = next_line(line)) {
        if (area_at(line) != at) { continue; }
        const char *value = within(line, "mapmax=");
        return value ? as_number(value) : 1;
    }
    return UNKNOWN;
}

/* `a FIRST NR VALUES..` for the area whose lines begin at `line`; returns the rest. */
static const char *say_area(u64 slot, const char *line)
{
    const char *word = line;
    u64 begin = number(&word, 16), values[NR_SMAPS_KEYS];
    word++;
    u64 end = number(&word, 16);
    for (u64 i = 0; i < NR_SMAPS_KEYS; i++) { values[i] = UNKNOWN; }
    for (line = next_line(line); *line && !area_at(line); line = next_line(line)) {
        for (u64 i = 0; i < NR_SMAPS_KEYS; i++) {
            const char *value;
            if (!begins(line, SMAPS_KEYS[i], &value)) { continue; }
            while (*value == ' ') { value++; }
            values[i] = as_number(value);
        }
    }
    to_say[to_say_len++] = 'a';
    say((begin - BASE) / page);
    say((end - begin) / page);
    for (u64 i = 0; i < NR_SMAPS_KEYS; i++) { say(values[i]); }
    say(mapmax_of(slot, begin));
    to_say[to_say_len++] = '\n';
    return line;
}

/* `s SLOT` and a line per area, if any of them changed. */
static void print_smaps(u64 slot)
{
    read_areas(smaps_fd[slot], smaps_text);
    if (numa_fd[slot] >= 0) { read_areas(numa_fd[slot], numa_text); }
    to_say_len = 0;
    for (const char *line = smaps_text; *line;) {
        line = area_at(line) >= BASE ? say_area(slot, line) : next_line(line);
    }
    int is_same = said_len[slot] == to_say_len;
    for (u64 i = 0; is_same && i < to_say_len; i++) { is_same = said[slot][i] == to_say[i]; }
    if (is_same) { return; }
    put("s ");
    put_number(slot, 10);
    put("\n");
    for (u64 i = 0; i < to_say_len; i++) { put_char(to_say[i]); }
    char *was = said[slot];
    said[slot] = to_say;
    said_len[slot] = to_say_len;
    to_say = was;
}

/* Reads the mapcounts of a process's pages into `now`. */
static void read_mapcounts(u64 slot)
{
    struct seen *pages = now[slot];
    for (u64 i = 0; i < nr_pages;) {
        u64 nr = 1;
        if (!pages[i].pfn || pages[i].flags & IS_ZERO) { i++; continue; }
        while (i + nr < nr_pages && pages[i + nr].pfn == pages[i].pfn + nr) { nr++; }
        s64 n = sys4(SYS_pread, mapcounts_fd, (s64)mapcounts, (s64)(nr * 8), (s64)(pages[i].pfn * 8));
        if (n != (s64)(nr * 8)) { fatal("cannot read", "/proc/kpagecount", n); }
        for (u64 k = 0; k < nr; k++) { pages[i + k].mapcount = (unsigned)mapcounts[k]; }
        i += nr;
    }
}

/* `n SLOT FIRST[+NR] COUNT` for each run of pages whose mapcount a step changed. */
static void print_mapcounts(u64 slot)
{
    const struct seen *is = now[slot], *was = before[slot];
    for (u64 i = 0; i < nr_pages;) {
        unsigned count = is[i].mapcount;
        u64 end = i;
        while (end < nr_pages && is[end].mapcount == count && was[end].mapcount != count) { end++; }
        if (end == i || !is[i].pfn) { i = end > i ? end : i + 1; continue; }
        put("n ");
        put_number(slot, 10);
        put(" ");
        put_number(i, 10);
        if (end > i + 1) { put("+"); put_number(end - i, 10); }
        put(" ");
        put_number(count, 10);
        put("\n");
        i = end;
    }
}

/* --- the whole machine ------------------------------------------------------------------------ */

/* Page frames outside the windows: open addressing, emptied by `round`. */
static struct frame { u64 pfn, round; } *frames;
static u64 frames_round, zero_pfn, nr_outside[2];

static void count_frame(u64 entry)
{
    u64 pfn = entry & PM_PFN;
    if (!(entry & PM_PRESENT) || pfn == zero_pfn) { return; }
    u64 at = pfn * 0x9e3779b97f4a7c15UL >> 47;
    while (frames[at].round == frames_round && frames[at].pfn != pfn) { at = (at + 1) & (TABLE - 1); }
    if (frames[at].round == frames_round) { return; }
    frames[at] = (struct frame){ pfn, frames_round };
    nr_outside[entry & PM_FILE ? 1 : 0]++;
}

/* Counts a process's page frames outside its window. */
static void count_outside(int fd, const char *maps)
{
    static u64 entries[NR_ENTRIES];
    for (const char *line = maps; *line; line = next_line(line)) {
        const char *word = line;
        u64 at = number(&word, 16) / page;
        word++;
        u64 end = number(&word, 16) / page;
        if (at >= BASE / page && at < BASE / page + nr_pages) { continue; }
        while (at < end) {
            u64 nr = end - at < NR_ENTRIES ? end - at : NR_ENTRIES;
            s64 n = sys4(SYS_pread, fd, (s64)entries, (s64)(nr * 8), (s64)(at * 8));
            if (n <= 0) { break; }
            for (u64 i = 0; i < (u64)n / 8; i++) { count_frame(entries[i]); }
            at += (u64)n / 8;
        }
    }
}

static void count_all_outside(const int *pids)
{
    char path[64];
    frames_round++;
    nr_outside[0] = nr_outside[1] = 0;
    int fd = (int)must(open_file("/proc/self/pagemap", O_RDONLY), "cannot open", "pagemap");
    read_file("/proc/self/maps", smaps_text, SMAPS_ROOM);
    count_outside(fd, smaps_text);
    sys1(SYS_close, fd);
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        if (!pids[slot]) { continue; }
        read_file(proc_path(path, (u64)pids[slot], "maps"), smaps_text, SMAPS_ROOM);
        count_outside(pagemap_fd[slot], smaps_text);
    }
}

static void read_meminfo(u64 *values)
{
    /* Each CPU keeps its changes until it is asked to fold them. */
    write_file("/proc/sys/vm/stat_refresh", "1");
    read_file("/proc/meminfo", smaps_text, SMAPS_ROOM);
    for (const char *line = smaps_text; *line; line = next_line(line)) {
        for (u64 i = 0; i < NR_MEMINFO_KEYS; i++) {
            const char *value;
            if (!begins(line, MEMINFO_KEYS[i], &value)) { continue; }
            while (*value == ' ') { value++; }
            values[i] = as_number(value);
        }
    }
}

/* `M ANON FILE ANON_PMD SHMEM_PMD FILE_PMD`: meminfo's counts in kB, minus the processes' mappings
 * outside their windows. A new process may map its stack and text between the two reads, because
 * the second sleeps. So repeat both until nothing changes. */
static void print_machine(const int *pids)
{
    u64 values[NR_MEMINFO_KEYS] = { 0 }, was[2], tries = 0;
    count_all_outside(pids);
    do {
        if (tries++ == TRIES_MAX) { fatal("no two looks agree on", "what is mapped", 0); }
        was[0] = nr_outside[0];
        was[1] = nr_outside[1];
        read_meminfo(values);
        count_all_outside(pids);
    } while (was[0] != nr_outside[0] || was[1] != nr_outside[1]);
    put("M");
    for (u64 i = 0; i < NR_MEMINFO_KEYS; i++) {
        put(" ");
        put_number(values[i] - (i < 2 ? nr_outside[i] * (page >> 10) : 0), 10);
    }
    put("\n");
}

/* Returns the pfn of the zero page. */
static u64 find_zero_page(void)
{
    u64 at = (u64)anonymous(page), entry = 0;
    try_load(at);
    int fd = (int)must(open_file("/proc/self/pagemap", O_RDONLY), "cannot open", "pagemap");
    sys4(SYS_pread, fd, (s64)&entry, 8, (s64)(at / page * 8));
    sys1(SYS_close, fd);
    return entry & PM_PFN;
}

/* --------------------------------------------------------------------------------------------- */

static void start_statistics(const int *pids)
{
    if (!smaps_text) {
        smaps_text = shared(SMAPS_ROOM);
        numa_text = shared(SMAPS_ROOM);
        to_say = shared(SAID_ROOM);
        for (u64 slot = 0; slot < NR_SLOTS; slot++) { said[slot] = shared(SAID_ROOM); }
        mapcounts = shared(NR_PAGES_MAX * 8);
        mapcounts_fd = (int)must(open_file("/proc/kpagecount", O_RDONLY), "cannot open",
                                 "/proc/kpagecount");
        if (wants_machine) {
            frames = shared(TABLE * sizeof *frames);
            zero_pfn = find_zero_page();
            /* The first read itself maps pages. */
            count_all_outside(pids);
        }
    }
    if (wants_machine) { print_machine(pids); }
}

/* After a step; `now` has been read and is not yet `before`. */
static void print_statistics(const int *pids)
{
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        if (!pids[slot]) { continue; }
        read_mapcounts(slot);
        print_mapcounts(slot);
        print_smaps(slot);
    }
    if (wants_machine) { print_machine(pids); }
}
#endif
