/* Threads and processes that use the same files and memory at the same time, at random: for kernels
 * that check themselves.
 *
 *   stress dir=DIR [seconds=N] [workers=N] [seed=S] [settings=DIR]
 *
 * Each worker is a process of two threads. They map, touch, write, collapse, advise, fork, truncate and
 * punch, at fixed places and in a few files of DIR; `settings=` names a folder of kernel/ whose
 * settings they change too. Calls that fail are part of it. Prints how often each operation ran, and
 * what the kernel counted; fails if a worker does not end. */
#include "command.h"
#include "thread.h"

#if defined(__x86_64__)
enum { SYS_getdents = 217 };
#else
enum { SYS_getdents = 61 };
#endif
#define MAP_FIXED 0x10
#define MAP_HUGETLB 0x40000
#define NO_HANG 1
#define SIGBUS 7
#define SIGSEGV 11
#define SIGCHLD 17
#define PUNCH_HOLE 3
#define MADV_FOLIO_ORDER 0x4c470000
#define FILE_BYTES (6UL << 20)
#define PLACE_BYTES (8UL << 20)
#define NR_FILES 4
#define NR_PLACES 5
#define NR_WORKERS 8
#define NR_SETTINGS 64
#define PATIENCE 90     /* seconds for a worker to end */

static const char *const NAMES[] = {
    "map-file", "map-memory", "load", "store", "unmap", "advise", "fork", "read", "write", "open",
    "cut", "drop", "move", "lock", "huge", "machine", "look", "set"
};
enum kind { MAP_FILE, MAP_MEMORY, LOAD, STORE, UNMAP, ADVISE, FORK, READ, WRITE, OPEN, CUT, DROP,
            MOVE, LOCK, HUGE, MACHINE, LOOK, SET, NR_KINDS };
/* Out of 256; loads get the rest. */
static const u8 SHARES[NR_KINDS] = { [MAP_FILE] = 26, [MAP_MEMORY] = 18, [STORE] = 34,
    [UNMAP] = 6, [ADVISE] = 44, [FORK] = 6, [READ] = 14, [WRITE] = 10, [OPEN] = 10, [CUT] = 5,
    [DROP] = 4, [MOVE] = 6, [LOCK] = 4, [HUGE] = 3, [MACHINE] = 2, [LOOK] = 3, [SET] = 8 };

/* Each thread counts in its own row. */
#define NR_THREADS (2 * NR_WORKERS)
static struct { u64 nr[NR_THREADS][NR_KINDS]; volatile u64 is_over; } *common;
static const char *folder, *settings_folder;
static char files[NR_FILES][64];
static char settings[NR_SETTINGS][128];
static u64 nr_settings;

struct random { u64 state; };

static u64 draw(struct random *random, u64 below)
{
    random->state ^= random->state << 13;
    random->state ^= random->state >> 7;
    random->state ^= random->state << 17;
    return (random->state >> 11) % below;
}

static u64 place(struct random *random) { return BASE + draw(random, NR_PLACES) * PLACE_BYTES; }

/* Part of a place: all of it, a block of 2 MiB, or any pages. */
struct part { u64 at, bytes; };
static struct part part(struct random *random)
{
    u64 at = place(random), nr = PLACE_BYTES / page, first = draw(random, nr);
    switch (draw(random, 4)) {
    case 0: return (struct part){ at, PLACE_BYTES };
    case 1: return (struct part){ at + draw(random, 4) * (2UL << 20), 2UL << 20 };
    case 2: return (struct part){ at + first / 16 * 16 * page, 16 * page };
    default: return (struct part){ at + first * page, (1 + draw(random, nr - first)) * page };
    }
}

/* --- operations ------------------------------------------------------------------------------- */

static void map_file(struct random *random)
{
    static const int PROTS[] = { PROT_READ, PROT_READ | PROT_EXEC, PROT_READ | PROT_EXEC,
                                 PROT_READ | PROT_WRITE };
    static const int ADVICE[] = { 0, 0, 1, 2, MADV_HUGEPAGE, MADV_HUGEPAGE, MADV_NOHUGEPAGE };
    u64 first = draw(random, 3) ? 0 : draw(random, FILE_BYTES / page) * page, at = place(random);
    int prot = PROTS[draw(random, 4)], is_shared = (int)draw(random, 3) == 0;
    int fd = open_file(files[draw(random, NR_FILES)],
                       is_shared && prot & PROT_WRITE ? O_RDWR : O_RDONLY);
    u64 bytes = draw(random, 2) ? FILE_BYTES : (1 + draw(random, FILE_BYTES / page)) * page;
    call6(SYS_mmap, (s64)at, (s64)bytes, prot, (is_shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED,
          fd, (s64)first);
    sys1(SYS_close, fd);
    sys3(SYS_madvise, (s64)at, (s64)bytes, ADVICE[draw(random, 7)]);
    if (draw(random, 4) == 0) {
        sys3(SYS_madvise, (s64)at, (s64)bytes, (s64)(MADV_FOLIO_ORDER + draw(random, 11)));
    }
}

static void map_memory(struct random *random)
{
    u64 at = place(random);
    int is_shared = draw(random, 6) == 0;
    call6(SYS_mmap, (s64)at, (s64)PLACE_BYTES, PROT_READ | PROT_WRITE,
          MAP_ANONYMOUS | MAP_FIXED | (is_shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);
    if (draw(random, 3)) { sys3(SYS_madvise, (s64)at, (s64)PLACE_BYTES, MADV_HUGEPAGE); }
}

static void touch(struct random *random, int is_store)
{
    struct part all = part(random);
    u64 nr = all.bytes / page, times = 1 + draw(random, nr < 600 ? nr : 600);
    u64 stride = draw(random, 3) ? 1 : 1 + draw(random, 40), first = draw(random, nr);
    for (u64 k = 0; k < times && !common->is_over; k++) {
        u64 at = all.at + (first + k * stride) % nr * page;
        if (is_store) { try_store(at, (unsigned)k); } else { try_load(at); }
    }
}

static void advise(struct random *random)
{
    static const int ADVICE[] = { 0, 1, 2, 3, MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE,
                                  MADV_NOHUGEPAGE, MADV_COLD, MADV_PAGEOUT, 22, 23 };
    struct part all = part(random);
    u64 which = draw(random, 24);
    int advice = which < 12 ? ADVICE[which] : which < 17 ? MADV_COLLAPSE
        : which < 23 ? MADV_COLLAPSE_TO + 1 + (int)draw(random, 9)
        : MADV_FOLIO_ORDER + (int)draw(random, 11);
    sys3(SYS_madvise, (s64)all.at, (s64)all.bytes, advice);
}

static void fork_once(struct random *random)
{
    s64 pid = call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (pid == 0) {
        random->state += 77;
        for (u64 k = draw(random, 6); k; k--) {
            if (draw(random, 3)) { touch(random, 1); } else { advise(random); }
        }
        quit(0);
    }
    if (pid > 0) { sys4(SYS_wait4, pid, 0, 0, 0); }
}

static void read_some(struct random *random)
{
    char text[4096];
    int fd = open_file(files[draw(random, NR_FILES)], O_RDONLY);
    u64 at = draw(random, FILE_BYTES);
    for (u64 k = draw(random, 64); k; k--, at += sizeof text) {
        sys4(SYS_pread, fd, (s64)text, sizeof text, (s64)at);
    }
    sys1(SYS_close, fd);
}

static void write_some(struct random *random)
{
    int fd = open_file(files[draw(random, NR_FILES)], O_RDWR);
    u64 bytes = 1 + draw(random, 2UL << 20), at = draw(random, FILE_BYTES - bytes);
    u64 from = place(random);
    sys4(SYS_pwrite, fd, (s64)from, (s64)(bytes < PLACE_BYTES ? bytes : PLACE_BYTES), (s64)at);
    if (draw(random, 3) == 0) { sys1(SYS_fsync, fd); }
    sys1(SYS_close, fd);
}

/* Only opens for writing: of a file with huge folios, it drops the page cache. */
static void open_once(struct random *random)
{
    int fd = open_file(files[draw(random, NR_FILES)], O_RDWR);
    if (draw(random, 4) == 0) { sys1(SYS_fsync, fd); }
    sys1(SYS_close, fd);
}

static void cut(struct random *random)
{
    int fd = open_file(files[1 + draw(random, NR_FILES - 1)], O_RDWR);
    u64 at = draw(random, FILE_BYTES);
    if (draw(random, 2)) {
        sys2(SYS_ftruncate, fd, (s64)at);
        sys2(SYS_ftruncate, fd, (s64)FILE_BYTES);
    } else {
        sys4(SYS_fallocate, fd, PUNCH_HOLE, (s64)(at / page * page),
             (s64)((1 + draw(random, 600)) * page));
    }
    sys1(SYS_close, fd);
}

static void drop(struct random *random)
{
    int fd = open_file(files[draw(random, NR_FILES)], O_RDONLY);
    sys4(SYS_fadvise, fd, (s64)draw(random, FILE_BYTES), (s64)draw(random, FILE_BYTES), 4);
    sys1(SYS_close, fd);
}

static void move(struct random *random)
{
    struct part all = part(random);
    u64 to = place(random), room = PLACE_BYTES - all.at % PLACE_BYTES % PLACE_BYTES;
    if (all.bytes > room) { all.bytes = room; }
    if (all.at / PLACE_BYTES == to / PLACE_BYTES) { return; }
    call6(SYS_mremap, (s64)all.at, (s64)all.bytes, (s64)all.bytes, 3,
          (s64)(to + all.at % PLACE_BYTES), 0);
}

static void lock(struct random *random)
{
    struct part all = part(random);
    sys2(draw(random, 2) ? SYS_mlock2 : SYS_munlock, (s64)all.at,
         (s64)(all.bytes < 64 * page ? all.bytes : 64 * page));
    sys2(SYS_munlock, (s64)all.at, (s64)all.bytes);
}

/* A huge page of the pool, written by a process and its child. */
static void huge(struct random *random)
{
    s64 at = call6(SYS_mmap, 0, 2 << 20, PROT_READ | PROT_WRITE,
                   MAP_ANONYMOUS | MAP_PRIVATE | MAP_HUGETLB, -1, 0);
    if (FAIL(at)) { return; }
    u64 word = (u64)at + draw(random, 512) * page;
    try_store(word, 1);
    s64 pid = call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (pid == 0) {
        try_store(word, 2);
        quit(0);
    }
    try_store(word, 3);
    if (pid > 0) { sys4(SYS_wait4, pid, 0, 0, 0); }
    sys2(SYS_munmap, at, 2 << 20);
}

static void machine(struct random *random)
{
    switch (draw(random, 4)) {
    case 0: write_file("/proc/sys/vm/drop_caches", "1"); break;
    case 1: write_file("/proc/sys/vm/drop_caches", "2"); break;
    default: write_file("/proc/sys/vm/compact_memory", "1");
    }
}

static void look(struct random *random)
{
    static const char *const PATHS[] = { "/proc/self/smaps", "/proc/self/pagemap",
                                         "/proc/kpagecount", "/proc/kpageflags",
                                         "/proc/self/numa_maps" };
    char text[4096];
    int fd = open_file(PATHS[draw(random, 5)], O_RDONLY);
    sys3(SYS_lseek, fd, (s64)(draw(random, 64) << 12), 0);
    for (int k = 0; k < 16; k++) { sys3(SYS_read, fd, (s64)text, sizeof text); }
    sys1(SYS_close, fd);
}

/* Writes one of the words that the setting offers, or a number. */
static void set(struct random *random)
{
    static const char *const NUMBERS[] = { "0", "1", "40", "1000", "16384", "65536", "2097152" };
    char text[256], *word = text, *end;
    if (!nr_settings) { return; }
    const char *path = settings[draw(random, nr_settings)];
    if (read_file(path, text, sizeof text) < 0) {
        write_file(path, draw(random, 2) ? "always" : "never");
        return;
    }
    if (text[0] >= '0' && text[0] <= '9') {
        write_file(path, NUMBERS[draw(random, sizeof NUMBERS / sizeof *NUMBERS)]);
        return;
    }
    u64 nr = 1;
    for (const char *at = text; *at && *at != '\n'; at++) { nr += *at == ' '; }
    for (nr = draw(random, nr); nr; nr--) { while (*word++ != ' ') { } }
    if (*word == '[') { word++; }
    for (end = word; *end && *end != ' ' && *end != ']' && *end != '\n'; end++) { }
    *end = 0;
    write_file(path, word);
}

static void (*const OPERATIONS[NR_KINDS])(struct random *) = {
    [MAP_FILE] = map_file, [MAP_MEMORY] = map_memory, [UNMAP] = 0, [ADVISE] = advise,
    [FORK] = fork_once, [READ] = read_some, [WRITE] = write_some, [OPEN] = open_once, [CUT] = cut,
    [DROP] = drop, [MOVE] = move, [LOCK] = lock, [HUGE] = huge, [MACHINE] = machine, [LOOK] = look,
    [SET] = set,
};

static void step(struct random *random, u64 *counts)
{
    u64 at = draw(random, 256);
    int kind = 0;
    while (kind < NR_KINDS && at >= SHARES[kind]) { at -= SHARES[kind++]; }
    if (kind == NR_KINDS) { kind = LOAD; }
    if (kind == LOAD || kind == STORE) { touch(random, kind == STORE); }
    else if (kind == UNMAP) {
        struct part all = part(random);
        sys2(SYS_munmap, (s64)all.at, (s64)all.bytes);
    } else { OPERATIONS[kind](random); }
    counts[kind]++;
}

/* --- workers ---------------------------------------------------------------------------------- */

static void run(const void *seed)
{
    struct random random = { ((u64)seed + 1) * 0x9e3779b97f4a7c15UL };
    while (!common->is_over) { step(&random, common->nr[(u64)seed % NR_THREADS]); }
}

static void run_thread(const void *seed)
{
    run(seed);
    for (;;) { sys1(SYS_exit_thread, 0); }
}

static void on_fault(int signal, void *info, u8 *context)
{
    (void)signal, (void)info;
    *(u64 *)(context + SAVED_PC) = (u64)access_failed;
}

static void work(u64 seed)
{
    static volatile int id;
    struct { void *handler; u64 flags; void *restorer; u64 mask; } action = {
        (void *)on_fault, SA_FLAGS, (void *)back_from_signal, 0
    };
    sys4(SYS_rt_sigaction, SIGSEGV, (s64)&action, 0, 8);
    sys4(SYS_rt_sigaction, SIGBUS, (s64)&action, 0, 8);
    s64 stack = start_thread(run_thread, (const void *)(2 * seed), &id);
    run((const void *)(2 * seed + 1));
    join_thread(stack, &id);
    quit(0);
}

/* Collects the settings in a folder and its folders. */
static void find_settings(const char *dir, int depth)
{
    char names[2048], path[128];
    int fd = open_file(dir, O_RDONLY);
    for (s64 n; (n = sys3(SYS_getdents, fd, (s64)names, sizeof names)) > 0;) {
        for (s64 at = 0; at < n; at += *(unsigned short *)(names + at + 16)) {
            const char *name = names + at + 19;
            int is_folder = names[at + 18] == 4;
            if (name[0] == '.') { continue; }
            path_of(path, dir, name);
            if (is_folder && depth) { find_settings(path, depth - 1); }
            else if (!is_folder && nr_settings < NR_SETTINGS) {
                memcpy(settings[nr_settings++], path, length(path) + 1);
            }
        }
    }
    sys1(SYS_close, fd);
}

static void put_counts(void)
{
    static const char *const COUNTS[] = { "pgmigrate_success ", "thp_fault_alloc ",
        "thp_collapse_alloc ", "thp_file_alloc ", "thp_file_mapped ", "thp_split_page ",
        "thp_split_pmd ", "pgsteal_", "compact_success " };
    static char text[1 << 15];
    read_file("/proc/vmstat", text, sizeof text);
    for (const char *line = text; *line; line = next_line(line)) {
        for (u64 i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
            if (!begins(line, COUNTS[i], 0)) { continue; }
            for (const char *at = line; *at && *at != '\n'; at++) { put_char(*at); }
            put("\n");
        }
    }
    for (u64 i = 0; i < nr_settings; i++) {
        const char *at = settings[i];
        while (*at && !within(at, "copied_extents")) { at++; }
        if (!*at || read_file(settings[i], text, sizeof text) < 0) { continue; }
        put("copied_extents ");
        put(text);
    }
}

/* Waits until all workers have ended; returns the number of those that do not. */
static u64 wait_for_all(s64 *workers, u64 nr)
{
    u64 left = nr;
    for (u64 tenths = 0; left && tenths < 10 * PATIENCE; tenths++) {
        for (u64 i = 0; i < nr; i++) {
            if (workers[i] && sys4(SYS_wait4, workers[i], 0, NO_HANG, 0) == workers[i]) {
                workers[i] = 0;
                left--;
            }
        }
        sleep_us(100000);
    }
    return left;
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    u64 seconds = 30, nr = 3, seed = 1;
    s64 workers[NR_WORKERS];
    const char *value;
    for (char **word = (char **)(stack + 2); *word; word++) {
        if (begins(*word, "dir=", &value)) { folder = value; }
        else if (begins(*word, "seconds=", &value)) { seconds = as_number(value); }
        else if (begins(*word, "workers=", &value)) { nr = as_number(value); }
        else if (begins(*word, "seed=", &value)) { seed = as_number(value); }
        else if (begins(*word, "settings=", &value)) { settings_folder = value; }
        else { fatal("unknown word", *word, 22); }
    }
    if (!folder || nr > NR_WORKERS) { fatal("words are missing:", "dir=", 22); }
    for (u64 i = 0; i < NR_FILES; i++) {
        char name[] = { 'a' + (char)i, 0 };
        path_of(files[i], folder, name);
    }
    if (settings_folder) { find_settings(settings_folder, 1); }
    common = (void *)must(call6(SYS_mmap, 0, sizeof *common, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0), "memory for", "counts");
    for (u64 i = 0; i < nr; i++) {
        workers[i] = call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
        if (workers[i] == 0) { work(seed * NR_WORKERS + i); }
    }
    sleep_us(seconds * 1000000);
    common->is_over = 1;
    u64 nr_left = wait_for_all(workers, nr);
    put("# stress");
    put_pair("seed", seed);
    put_pair("seconds", seconds);
    put_pair("workers", nr);
    put_pair("settings", nr_settings);
    put("\n");
    for (u64 kind = 0; kind < NR_KINDS; kind++) {
        u64 sum = 0;
        for (u64 row = 0; row < NR_THREADS; row++) { sum += common->nr[row][kind]; }
        put(NAMES[kind]);
        put(" ");
        put_number(sum, 10);
        put("\n");
    }
    put_counts();
    if (nr_left) { put_pair("workers that do not end:", nr_left); put("\n"); }
    flush_to(1);
    quit(nr_left ? 1 : 0);
}
