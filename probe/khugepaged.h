/* khugepaged at work: wakes it once, waits, and reads its result for each block, in order.
 *
 * It works for all processes of the machine. The address of the `mm` shows which one it scanned; a
 * worker reveals its own by taking the `mm`'s lock. Scans of other processes are counted. */
#ifndef LARGEFOLIO_KHUGEPAGED_H
#define LARGEFOLIO_KHUGEPAGED_H
#include "state.h"

#define THP "/sys/kernel/mm/transparent_hugepage"
#define KHUGEPAGED THP "/khugepaged"
#define EVENTS_ROOM (4UL << 20)
/* For a wakeup that makes exactly one pass. */
#define ALL_PAGES "1000000000"
#define ASLEEP_MS "4000000"
/* Fifty microseconds each: a pass on a busy machine takes some ms. */
#define NR_POLLS 1200000
/* Time to write a file of a few MiB to its disk. */
#define FLUSH_US 30000

#if defined(__x86_64__)
enum { SYS_getdents64 = 217 };
#else
enum { SYS_getdents64 = 61 };
#endif

/* A tracefs instance; without one khugepaged sleeps. */
static const char *events_dir;
static char events_path[512], stat_path[64];
static char *events_text;
static int events_marker = -1;
/* Whether pages look unused until the next scan: do not read them. */
static int is_idle;
/* Whether the program's scans are recorded. */
static int is_scanned;

static const char *const LIMITS[] = { "max_ptes_none", "max_ptes_shared", "pages_to_scan" };
#define NR_LIMITS (sizeof LIMITS / sizeof *LIMITS)
static char found_limits[NR_LIMITS][32];
static char found_shmem[16];

/* Copies the word in brackets, the value in use of a setting; empty if there is no such file. */
static void value_in_use(const char *path, char *to, u64 room)
{
    char text[256];
    u64 n = 0;
    int fd = open_file(path, O_RDONLY);
    s64 nr = fd < 0 ? 0 : sys3(SYS_read, fd, (s64)text, sizeof text - 1);
    if (fd >= 0) { sys1(SYS_close, fd); }
    text[nr > 0 ? nr : 0] = 0;
    const char *chosen = within(text, "[");
    for (; chosen && chosen[n] && chosen[n] != ']' && n + 1 < room; n++) { to[n] = chosen[n]; }
    to[n] = 0;
}

static void events_set(const char *name, const char *value)
{
    must(write_file(path_of(events_path, events_dir, name), value) ? 0 : -2, "cannot set", name);
}

static void set_khugepaged(const char *name, const char *value)
{
    char path[128];
    path_of(path, KHUGEPAGED, name);
    must(write_file(path, value) ? 0 : -2, "cannot set", path);
}

static u64 khugepaged_number(const char *name)
{
    char path[128], text[32];
    must(read_file(path_of(path, KHUGEPAGED, name), text, sizeof text), "cannot read", path);
    return as_number(text);
}

/* The thread changes when sizes are disabled and enabled again. */
static void find_khugepaged(void)
{
    static u8 entries[1 << 15];
    char comm[32];
    int fd = (int)must(open_file("/proc", O_RDONLY), "cannot open", "/proc");
    for (s64 n; (n = sys3(SYS_getdents64, fd, (s64)entries, sizeof entries)) > 0;) {
        for (s64 at = 0; at < n; at += *(unsigned short *)(entries + at + 16)) {
            const char *name = (char *)entries + at + 19;
            if (*name < '0' || *name > '9' || length(name) > 16) { continue; }
            path_of(stat_path, "/proc", name);
            path_of(stat_path, stat_path, "comm");
            if (read_file(stat_path, comm, sizeof comm) > 0 && begins(comm, "khugepaged\n", 0)) {
                sys1(SYS_close, fd);
                memcpy(stat_path + length(stat_path) - 4, "stat", 5);
                return;
            }
        }
    }
    fatal("no thread", "khugepaged: is no folio of the PMD size enabled?", 3);
}

static void wait_until_asleep(void)
{
    char text[512];
    for (u64 i = 0; i < NR_POLLS; i++) {
        must(read_file(stat_path, text, sizeof text), "cannot read", stat_path);
        const char *state = within(text, ") ");
        if (state && *state == 'S') { return; }
        sleep_us(50);
    }
    fatal("khugepaged works for a minute at", stat_path, 62);
}

/* Setting its sleep time wakes it; it scans once and sleeps again. */
static void wake_khugepaged(void)
{
    wait_until_asleep();
    set_khugepaged("scan_sleep_millisecs", ASLEEP_MS);
    wait_until_asleep();
}

/* Starts a process that stays in khugepaged's list without anything to collapse. The list never
 * becomes empty, so later entries do not wake khugepaged. */
static void start_keeper(void)
{
    int ends[2];
    u64 bytes = page / 8 * page * 2;
    must(sys2(SYS_pipe2, (s64)ends, 0), "pipe for", "the keeper");
    s64 pid = must(call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0), "cannot start", "a process");
    if (pid) { sys3(SYS_read, ends[0], (s64)&bytes, 1); return; }
    sys2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
    s64 at = (s64)anonymous(bytes);
    try_store((u64)at + bytes - page, 1);
    sys3(SYS_madvise, at, (s64)bytes, MADV_HUGEPAGE);
    sys3(SYS_madvise, at, (s64)bytes, MADV_NOHUGEPAGE);
    sys3(SYS_write, ends[1], (s64)&bytes, 1);
    for (;;) { sleep_us(1000000000); }
}

static void start_events(void)
{
    static const char *const SEEN[] = { "mm_khugepaged_scan_pmd", "mm_khugepaged_scan_file" };
    char name[128], filter[64] = "common_pid==";
    u64 n = 12;
    find_khugepaged();
    for (const char *at = stat_path + 6; *at != '/'; at++) { filter[n++] = *at; }
    filter[n] = 0;
    events_text = shared(EVENTS_ROOM);
    events_set("tracing_on", "0");
    events_set("options/context-info", "0");
    events_set("options/hash-ptr", "0");
    for (u64 i = 0; i < 2; i++) {
        path_of(name, "events/huge_memory", SEEN[i]);
        path_of(name, name, "filter");
        events_set(name, filter);
        memcpy(name + length(name) - 6, "enable", 7);
        events_set(name, "1");
    }
    events_set("events/mmap_lock/mmap_lock_start_locking/filter", "comm==\"" WORKER_NAME "\"");
    events_set("events/mmap_lock/mmap_lock_start_locking/enable", "1");
    events_marker = open_file(path_of(events_path, events_dir, "trace_marker"), O_WRONLY);
    must(events_marker, "cannot open", events_path);
    for (u64 i = 0; i < NR_LIMITS; i++) {
        char path[128];
        read_file(path_of(path, KHUGEPAGED, LIMITS[i]), found_limits[i], sizeof *found_limits);
    }
    value_in_use(THP "/shmem_enabled", found_shmem, sizeof found_shmem);
    start_keeper();
}

/* Restores the settings. */
static void end_events(void)
{
    if (!events_dir) { return; }
    events_set("tracing_on", "0");
    for (u64 i = 0; i < NR_LIMITS; i++) { set_khugepaged(LIMITS[i], found_limits[i]); }
}

/* `khugepaged=NONE,SHARED,PAGES`: its limits for a program; with 0 pages every scan is one pass. */
static void limit_khugepaged(const char *values)
{
    char digits[32];
    is_scanned = values != 0;
    is_idle = 0;
    if (!values) { return; }
    if (!events_dir) { fatal("trace= is needed for", "a program that khugepaged works for", 0); }
    /* The last program may have left it in the middle of a pass. */
    set_khugepaged("pages_to_scan", ALL_PAGES);
    wake_khugepaged();
    for (u64 i = 0; i < NR_LIMITS; i++) {
        u64 n = 0;
        while (*values >= '0' && *values <= '9' && n + 1 < sizeof digits) { digits[n++] = *values++; }
        digits[n] = 0;
        if (*values == ',') { values++; }
        set_khugepaged(LIMITS[i], i == 2 && as_number(digits) == 0 ? ALL_PAGES : digits);
    }
}

/* --- one scan --------------------------------------------------------------------------------- */

static u64 mm_of[NR_SLOTS], nr_foreign;

static void put_word(const char *text)
{
    while (*text && *text != ',' && *text != '\n' && *text != ' ') { put_char(*text++); }
}

/* `k SLOT a|f RESULT` */
static void put_look(const char *line)
{
    const char *mm = within(line, "mm="), *result = within(line, "status=");
    const char *kind = result ? " a " : " f ";
    if (!result) { result = within(line, "result="); }
    if (!mm || !result) { return; }
    u64 at = number(&mm, 16);
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        if (mm_of[slot] != at) { continue; }
        put("k ");
        put_number(slot, 10);
        put(kind);
        put_word(result);
        put("\n");
        return;
    }
    nr_foreign++;
}

static void put_events(void)
{
    const char *at;
    u64 slot = NR_SLOTS;
    memset(mm_of, 0, sizeof mm_of);
    nr_foreign = 0;
    must(read_file(path_of(events_path, events_dir, "trace"), events_text, EVENTS_ROOM),
         "cannot read", events_path);
    for (const char *line = events_text; *line;) {
        if ((at = within(line, "mark_write: slot "))) { slot = number(&at, 10); }
        else if (within(line, "mmap_lock_start_locking: ")) {
            at = within(line, "mm=");
            if (at && slot < NR_SLOTS) { mm_of[slot] = number(&at, 16); }
        } else if (within(line, "mm_khugepaged_scan_")) { put_look(line); }
        while (*line && *line++ != '\n') { }
    }
}

static void mark_slot(u64 slot)
{
    char text[8] = "slot 0";
    text[5] = (char)('0' + slot);
    sys3(SYS_write, events_marker, (s64)text, 6);
}

static s64 tell(u64 slot, const struct command *c);

/* Wakes it once. Then `K PASSES COLLAPSED`; `-` if it also worked for another process. */
static void scan(const int *pids)
{
    int fd = open_file(path_of(events_path, events_dir, "trace"), O_WRONLY | O_TRUNC);
    sys1(SYS_close, fd);
    events_set("tracing_on", "1");
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        struct command c = { .op = OP_SHOW };
        if (pids[slot]) { mark_slot(slot); tell(slot, &c); }
    }
    write_file(THP "/shmem_enabled", "advise");
    u64 passes = khugepaged_number("full_scans"), made = khugepaged_number("pages_collapsed");
    wake_khugepaged();
    /* Writeback that it started is in flight. */
    if (own_on_disk) { sleep_us(FLUSH_US); }
    passes = khugepaged_number("full_scans") - passes;
    made = khugepaged_number("pages_collapsed") - made;
    write_file(THP "/shmem_enabled", found_shmem);
    events_set("tracing_on", "0");
    put_events();
    put("K ");
    put_number(passes, 10);
    put(" ");
    if (nr_foreign) { put("-"); } else { put_number(made, 10); }
    put("\n");
    is_idle = 0;
}
#endif
