/* Runs programs of a few processes in lock step and writes the changes of each step.
 *
 *   cow PROGRAMS [cpu=N] [dir=TMPFS] [disk=FOLDER] [variant=KERNEL] [edits=EDITS] [statistics] [machine]
 *       [trace=INSTANCE] [groups=CGROUP2] [swap=DEVICE] [others=DEVICE] [zswap=PERCENT]
 *
 * `statistics` adds the numbers of smaps, numa_maps and kpagecount, `machine` those of meminfo, for
 * machines where nothing else runs. recordings/README.md, "Copy-on-write", has the formats of
 * programs and output. Needs root, because it reads page frame numbers. With `trace=`, a tracefs
 * instance, khugepaged works when a program says so: some of its settings are changed and restored.
 * The probe changes nothing else of the system. */
#include "pool.h"
#include "statistics.h"
#include "khugepaged.h"
#include "shmem.h"
#include "zswap.h"

static char *text;
static int pids[NR_SLOTS];
static const char *tmpfs, *disk, *variant, *edits;
static u64 own_bytes, nr_cached, nr_huge, huge_before;
#define POSIX_FADV_DONTNEED 4
static u64 nr_steps;
/* A step stores a distinct value in each page. */
#define VALUES_PER_STEP 8192UL
#define TEXT_ROOM (64UL << 20)

/* Events that change pages without the program's doing; after one, a program proves nothing. */
static const char *const DISTURBANCES[] = {
    "pgmigrate_success ", "thp_split_page ", "thp_collapse_alloc ", "thp_fault_fallback ",
    "thp_fault_fallback_charge ", "pgsteal_kswapd ", "pgsteal_direct ", "pswpout ", "ksm_swpin_copy ",
    "thp_zero_page_alloc_failed ", "thp_file_fallback ",
};
#define NR_DISTURBANCES (sizeof DISTURBANCES / sizeof *DISTURBANCES)
/* Programs about nodes cause the first ones themselves. */
#define NR_OF_NODES 3
static u64 events[NR_DISTURBANCES];

static void count_disturbances(int is_end)
{
    static char vmstat[1 << 15];
    read_file("/proc/vmstat", vmstat, sizeof vmstat);
    for (const char *line = vmstat; *line;) {
        for (u64 i = 0; i < NR_DISTURBANCES; i++) {
            const char *value;
            if (!begins(line, DISTURBANCES[i], &value)) { continue; }
            u64 is = number(&value, 10);
            int is_own = has_nodes && i < NR_OF_NODES;
            if (is_end && !is_limited && !is_own && is != events[i]) {
                put("~ ");
                put(DISTURBANCES[i]);
                put_number(is - events[i], 10);
                put("\n");
            }
            events[i] = is;
        }
        while (*line && *line++ != '\n') { }
    }
}

/* --- processes -------------------------------------------------------------------------------- */

static void open_process(u64 slot, int pid)
{
    char path[64];
    proc_path(path, (u64)pid, "pagemap");
    pids[slot] = pid;
    pagemap_fd[slot] = (int)must(open_file(path, O_RDONLY), "cannot open", path);
    if (wants_statistics) { open_statistics(slot, pid); }
}

static void end_process(u64 slot)
{
    struct command c = { .op = OP_EXIT };
    sys3(SYS_write, pipes[slot].command[1], (s64)&c, sizeof c);
    sys4(SYS_wait4, pids[slot], 0, 0, 0);
    sys1(SYS_close, pagemap_fd[slot]);
    if (wants_statistics) { close_statistics(slot); }
    pids[slot] = 0;
}

static s64 tell(u64 slot, const struct command *c)
{
    s64 done = -1;
    sys3(SYS_write, pipes[slot].command[1], (s64)c, sizeof *c);
    if (sys3(SYS_read, pipes[slot].reply[0], (s64)&done, sizeof done) != sizeof done) {
        fatal("no answer from a process of", "the program", 0);
    }
    return done;
}

/* Like tell, for operations that must not fail. */
static void tell_plainly(u64 slot, enum operation op)
{
    struct command c = { .op = op };
    must(tell(slot, &c), "a process cannot keep to", "its group");
}

/* Releases the oldest pin. */
static s64 unpin(void)
{
    static u8 bytes[1 << 16];
    s64 n = sys3(SYS_read, pins[0], (s64)bytes, (s64)page);
    return FAIL(n) ? n : 0;
}

static void sum_all(void)
{
    if (is_idle) { return; }
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        struct command c = { .op = OP_SUM, .nr = nr_pages, .to = (u64)now[slot] };
        if (pids[slot]) { tell(slot, &c); }
    }
}

/* Hides values that were not read since the pages were marked idle. */
static void hide_values(void)
{
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        for (u64 i = 0; i < nr_pages; i++) {
            if (now[slot][i].pfn) { now[slot][i].value = NO_VALUE; }
        }
    }
}

/* Makes the process's pages look unused. A cached translation would hide the next use, and only a
 * flush removes it. */
static s64 make_idle(u64 slot)
{
    char path[64];
    struct command c = { .op = OP_FLUSH };
    is_idle = 1;
    if (!write_file(proc_path(path, pids[slot], "clear_refs"), "1")) { return -EIO; }
    return tell(slot, &c);
}

static void start_first(void)
{
    s64 pid = must(call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0), "cannot start", "a process");
    if (pid == 0) { worker(0); }
    open_process(0, (int)pid);
}

static void end_program(void)
{
    if (!nr_pages) { return; }
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        if (pids[slot]) { end_process(slot); }
    }
    while (!FAIL(unpin())) { }
    if (own_fd >= 0) { sys1(SYS_close, own_fd); }
    own_fd = -1;
    end_shmem();
    count_disturbances(1);
    put("end\n");
}

/* --- steps ------------------------------------------------------------------------------------ */

static const char *next_word(const char *at, const char **word, u64 *len)
{
    while (*at == ' ') { at++; }
    *word = at;
    while (*at && *at != ' ' && *at != '\n') { at++; }
    *len = (u64)(at - *word);
    return at;
}

static enum operation operation_of(const char *word, u64 len)
{
    static const char *const NAMES[] = { "map", "read", "write", "unmap", "drop", "protect",
                                         "advise", "remap", "fork", "exit", "share", "collapse", "free",
                                         "punch", "pin", "unpin", "load", "open",
                                         "close", "put", "sync", "trim", "scan", "idle", "cold",
                                         "pageout", "lock", "lockall", "fill", "size", "reserve", "stuff",
                                         "zswap", "node", "policy", "bind", "move", "migrate", "hint" };
    for (int op = 0; op < OP_NONE; op++) {
        if (begins(word, NAMES[op], 0) && length(NAMES[op]) == len) { return (enum operation)op; }
    }
    fatal("unknown operation at", word, 0);
}

/* Parses `SLOT OP ARGS` and returns the slot. */
static u64 parse(const char *line, struct command *c)
{
    const char *word;
    u64 len, numbers[3] = { 0, 1, 0 }, nr = 0;
    line = next_word(line, &word, &len);
    u64 slot = as_number(word);
    line = next_word(line, &word, &len);
    *c = (struct command){ .op = operation_of(word, len) };
    for (;;) {
        line = next_word(line, &word, &len);
        if (!len) { break; }
        if (*word >= '0' && *word <= '9' && nr < 3) { numbers[nr++] = as_number(word); }
        else { memcpy(c->how, word, len < 7 ? len : 7); }
    }
    c->first = numbers[0];
    c->nr = numbers[1];
    c->to = c->op == OP_FORK ? numbers[0]
        : c->op == OP_WRITE || c->op == OP_PUT || c->op == OP_FILL || c->op == OP_STUFF ? nr_steps * VALUES_PER_STEP + 1 : numbers[2];
    return slot;
}

/* PMD-sized folios in the page caches of all files on disk, in pages. */
static u64 file_huge_pages(void)
{
    static char meminfo[1 << 13];
    read_file("/proc/meminfo", meminfo, sizeof meminfo);
    const char *value = meminfo;
    while (*value && !begins(value, "FileHugePages:", &value)) { value = next_line(value); }
    while (*value == ' ') { value++; }
    return *value ? as_number(value) / (page >> 10) : 0;
}

/* `c NR HUGE`: cached pages of the program's file, and the part in PMD-sized folios, if the step
 * changed either. */
static void count_cached(void)
{
    static u8 vector[8192];
    u64 nr = 0;
    /* Readahead may still be in flight. */
    sleep_us(2000);
    s64 at = must(call6(SYS_mmap, 0, (s64)own_bytes, PROT_READ, MAP_SHARED, own_fd, 0),
                  "cannot map", own_path);
    must(sys3(SYS_mincore, at, (s64)own_bytes, (s64)vector), "mincore on", own_path);
    sys2(SYS_munmap, at, (s64)own_bytes);
    for (u64 i = 0; i < own_bytes / page; i++) { nr += vector[i] & 1; }
    u64 huge = file_huge_pages() - huge_before;
    if (nr == nr_cached && huge == nr_huge) { return; }
    nr_cached = nr;
    nr_huge = huge;
    put("c ");
    put_number(nr, 10);
    put(" ");
    put_number(huge, 10);
    put("\n");
}

static int is_touch(enum operation op) { return op == OP_READ || op == OP_WRITE; }

/* `f NR`: faults of the step's loads and stores. Timing decides them if a file is read or memory is
 * reclaimed. */
static void print_faults(void)
{
    if (!COUNTS_FAULTS || is_limited || huge_bytes || own_on_disk || is_scanned) { return; }
    put("f ");
    put_number(*nr_step_faults, 10);
    put("\n");
}

static void step(const char *line)
{
    struct command c;
    u64 slot = parse(line, &c);
    if (slot >= NR_SLOTS || !pids[slot] || (c.op == OP_FORK && (c.to >= NR_SLOTS || pids[c.to]))) {
        fatal("no such process at", line, 0);
    }
    put("> ");
    for (const char *at = line; *at && *at != '\n'; at++) { put_char(*at); }
    put("\n");
    s64 done = 0;
    nr_steps++;
    if (is_limited) {
        tell_plainly(slot, OP_REFRESH);
        if (c.op == OP_FORK) { tell_plainly(slot, OP_LEAVE); }
    }
    if (c.op == OP_EXIT) { end_process(slot); }
    else if (c.op == OP_UNPIN) { done = unpin(); }
    else if (c.op == OP_SCAN && is_scanned) { scan(pids); }
    else if (c.op == OP_IDLE) { done = make_idle(slot); }
    else if (c.op == OP_ZSWAP) { switch_zswap(c.first != 0); }
    else { done = tell(slot, &c); }
    if (c.op == OP_FORK && !FAIL(done)) { open_process(c.to, (int)done); }
    if (is_limited && c.op == OP_FORK) {
        tell_plainly(c.to, OP_JOIN);
        tell_plainly(slot, OP_JOIN);
    }
    if (FAIL(done)) {
        put("! ");
        put_number((u64)-done, 10);
        put("\n");
    }
    if (is_touch(c.op) && !FAIL(done)) { print_faults(); }
    if (huge_bytes) { read_huge_state(pids); } else { read_state(pids); }
    if (is_idle || is_balanced) { hide_values(); }
    if (!is_limited && !is_balanced) { sum_all(); }
    if (wants_statistics) { print_statistics(pids); }
    print_changes();
    print_swapped();
    print_zswapped();
    if (huge_bytes) { print_pool(); }
    if (own_on_disk) { count_cached(); }
    if (has_shmem) { print_cached(); }
}

static int make_file_at(const char *dir)
{
    static char path[256];
    if (!dir) { fatal("a folder is needed for", "a file of the program", 0); }
    own_path = path_of(path, dir, "own");
    return (int)must(open_file(path, O_RDWR | O_CREAT | O_TRUNC), "cannot make", path);
}

static int make_file_in(int folder)
{
    s64 fd = sys4(SYS_openat, folder, (s64)"own", O_RDWR | O_CREAT, 0600);
    return (int)must(fd, "cannot make a file on", "the program's tmpfs");
}

/* `memfd=PAGES`, `tmpfs=PAGES`: an empty file of that many pages. `disk=PAGES`: zeros on a disk,
 * not cached, open read-only. */
static void make_own_file(const char *line)
{
    const char *at_memfd = within(line, "memfd="), *at_tmpfs = within(line, "tmpfs=");
    const char *at_disk = within(line, "disk=");
    own_on_disk = at_disk != 0;
    if (at_memfd) {
        own_fd = (int)must(sys2(SYS_memfd_create, (s64)"own", 0), "cannot make", "a memory file");
    } else if (at_tmpfs && has_shmem) { own_fd = make_file_in(tmpfs_fd); }
    else if (at_tmpfs || at_disk) { own_fd = make_file_at(at_tmpfs ? tmpfs : disk); }
    else { return; }
    u64 bytes = page * as_number(at_memfd ? at_memfd : at_tmpfs ? at_tmpfs : at_disk);
    must(sys2(SYS_ftruncate, own_fd, (s64)bytes), "cannot size", "a file of the program");
    if (!at_disk) { return; }
    static u8 zeroes[1 << 16];
    for (u64 done = 0; done < bytes; done += sizeof zeroes) {
        u64 len = bytes - done < sizeof zeroes ? bytes - done : sizeof zeroes;
        must(sys4(SYS_pwrite, own_fd, (s64)zeroes, (s64)len, (s64)done), "cannot fill", own_path);
    }
    sys1(SYS_fsync, own_fd);
    sys4(SYS_fadvise, own_fd, 0, 0, POSIX_FADV_DONTNEED);
    sys1(SYS_close, own_fd);
    own_fd = (int)must(open_file(own_path, O_RDONLY), "cannot open", own_path);
    own_bytes = bytes;
    nr_cached = nr_huge = 0;
    huge_before = file_huge_pages();
}

static void start_program(const char *line)
{
    const char *pages = within(line, "pages="), *at = line;
    if (!pages) { fatal("pages= is missing at", line, 0); }
    while (*at && *at != '\n') { put_char(*at++); }
    start_state(as_number(pages));
    start_pool(line);
    put("\n");
    nr_steps = 0;
    has_nodes = within(line, "nodes=") != 0;
    if (has_nodes) { read_zones(); }
    is_balanced = within(line, "balanced") != 0;
    if (is_balanced) { keep_from_balancing(); }
    start_shmem(within(line, "shmem="));
    make_own_file(line);
    limit_khugepaged(within(line, "khugepaged="));
    start_limit(line);
    start_zswap(line);
    count_disturbances(0);
    start_first();
    if (is_limited) { tell_plainly(0, OP_JOIN); }
    if (wants_statistics) { start_statistics(pids); }
}

/* Returns whether the kernel shows which pages a PMD entry maps (6.7+). */
static int shows_pmds(void)
{
    int fd = (int)must(open_file("/proc/self/pagemap", O_RDONLY), "cannot open", "pagemap");
    u64 arg[12] = { sizeof arg, 0, 0, 0, 0, 0, 0, 0, 0, PAGE_IS_HUGE, 0, PAGE_IS_HUGE };
    s64 done = sys3(SYS_ioctl, fd, PAGEMAP_SCAN, (s64)arg);
    sys1(SYS_close, fd);
    return done != -ENOTTY;
}

static void header(void)
{
    static u8 uname[6 * 65];
    sys1(SYS_uname, (s64)uname);
    put("# cow page=");
    put_number(page, 10);
    put(" arch=" ARCH " release=");
    put((char *)uname + 2 * 65);
    if (variant) { put(" variant="); put(variant); }
    if (edits) { put(" edits="); put(edits); }
    if (disk) { put(" disk="); put(disk[0] == '/' ? disk + 1 : disk); }
    if (!shows_pmds()) { put(" pmds=unknown"); }
    if (swap_device) { put(" swap="); put(swap_device); put(" lru="); put(lists_in_use()); }
    if (others_device) { put(" others="); put_number(NR_OTHERS, 10); }
    if (zswap_percent) { put(" zswap="); put_number(zswap_percent, 10); put(","); put_number(zswap_pages_max(), 10); }
    if (wants_statistics) { put(wants_machine ? " statistics=machine" : " statistics=processes"); }
    put("\n");
}

static void make_file(u64 bytes)
{
    file_fd = (int)must(sys2(SYS_memfd_create, (s64)"cow", 0), "cannot make", "a memory file");
    u8 *chunk = anonymous(page);
    for (u64 done = 0; done < bytes; done += page) {
        chunk[0] = (u8)(done / page);
        must(sys3(SYS_write, file_fd, (s64)chunk, (s64)page), "cannot fill", "a memory file");
    }
}

/* khugepaged starts a scan when its list of processes becomes non-empty: a process that stays in
 * the list keeps it asleep for its whole interval. */
static void keep_khugepaged_busy(void)
{
    u64 bytes = page / 8 * page * 2;
    advised_area = (s64)anonymous(bytes);
    if (!events_dir) { sys3(SYS_madvise, advised_area, (s64)bytes, MADV_HUGEPAGE); }
    /* Without a populated page, it could not be collapsed. */
    try_store((u64)advised_area + bytes - page, 1);
    /* Another process is in its list then: inherited memory must not be scanned. */
    if (events_dir) { start_events(); }
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    char **argv = (char **)(stack + 1);
    s64 argc = stack[0], *aux = stack + argc + 2;
    u64 cpu = 0, mask[16] = { 0 };
    while (*aux++) { }
    for (; aux[0]; aux += 2) {
        if (aux[0] == 6) { page = (u64)aux[1]; }
    }
    const char *value;
    for (s64 i = 2; i < argc; i++) {
        if (begins(argv[i], "cpu=", &value)) { cpu = as_number(value); }
        else if (begins(argv[i], "dir=", &value)) { tmpfs = value; }
        else if (begins(argv[i], "disk=", &value)) { disk = value; }
        else if (begins(argv[i], "variant=", &value)) { variant = value; }
        else if (begins(argv[i], "edits=", &value)) { edits = value; }
        else if (begins(argv[i], "groups=", &value)) { groups_dir = value; }
        else if (begins(argv[i], "swap=", &value)) { swap_device = value; }
        else if (begins(argv[i], "others=", &value)) { others_device = value; }
        else if (begins(argv[i], "zswap=", &value)) { zswap_percent = as_number(value); }
        else if (equal(argv[i], "statistics")) { wants_statistics = 1; }
        else if (equal(argv[i], "machine")) { wants_statistics = wants_machine = 1; }
        else if (begins(argv[i], "trace=", &value)) { events_dir = value; }
        else { fatal("unknown argument", argv[i], 0); }
    }
    if (argc < 2) { fatal("a file of programs", "is needed", 0); }
    /* One CPU: the next program on it sees pages that wait in its lists. */
    mask[cpu / 64] = 1UL << (cpu % 64);
    sys3(SYS_sched_setaffinity, 0, sizeof mask, (s64)mask);
    text = shared(TEXT_ROOM);
    nr_step_faults = shared(page);
    /* Present before a process joins a cgroup, which would pay for it. */
    *nr_step_faults = 0;
    must(read_file(argv[1], text, TEXT_ROOM), "cannot read", argv[1]);
    make_file(FILE_PAGES * page);
    make_pipes();
    catch_faults();
    if (groups_dir) { catch_end_of_processes(); }
    keep_khugepaged_busy();
    start_swap();
    cache_others();
    memset(out_text, 0, sizeof out_text);
    header();
    for (const char *line = text; *line;) {
        if (begins(line, "program", 0)) { end_program(); start_program(line); }
        else if (*line >= '0' && *line <= '9') { step(line); }
        while (*line && *line++ != '\n') { }
    }
    end_program();
    end_events();
    flush_to(1);
    quit(0);
}
