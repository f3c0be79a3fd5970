/* Counts the instructions of memory operations, on a machine whose clock advances by one nanosecond
 * per instruction (recordings/README.md, "Instructions").
 *
 *   count kib=FOLIO [mib=REGION] [rounds=N]      private memory in folios of that size
 *   count huge kib=PAGE [mib=REGION] [rounds=N]  pages of a hugetlb pool
 *   count file=PATH [rounds=N]                   a mapped file that is in the page cache
 *   count calibrate                              code of known length
 *
 * `variant=KERNEL` and `settings=WORDS` are copied to the header. Works at a fixed priority, so that
 * no other process runs while an operation does. */
#include "sys.h"

#define BASE 0x400000000000UL
#define SIGCHLD 17
#define MAP_HUGETLB 0x40000
#define MAP_HUGE_SHIFT 26
#define PM_PFN ((1UL << 55) - 1)
#define KPF_TAIL (1UL << 16)
#define CHECKED_PAGES 8192UL
#define SCHED_FIFO 1
/* Processes that this one starts have the usual priority. */
#define RESET_ON_FORK 0x40000000
#define STRING_BYTES (1UL << 16)
#define NR_LOOPS 100000UL
/* The emulated clock of arm64 must be set to this frequency: one tick per instruction. */
#define FREQUENCY 1000000000UL

#if defined(__x86_64__)
enum { SYS_sched_setscheduler = 144, SYS_pipe2 = 293 };
static u64 now(void)
{
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) :: "memory");
    return (u64)high << 32 | low;
}
static void check_clock(void) { }
/* Two instructions per turn. */
static void turns(u64 nr) { __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(nr) :: "cc"); }
#else
enum { SYS_sched_setscheduler = 119, SYS_pipe2 = 59 };
static u64 now(void)
{
    u64 ticks;
    __asm__ volatile("isb\n mrs %0, cntvct_el0" : "=r"(ticks) :: "memory");
    return ticks;
}
static void check_clock(void)
{
    u64 hz;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(hz));
    if (hz != FREQUENCY) { fatal("the clock has not one tick per", "nanosecond", (s64)hz); }
}
static void turns(u64 nr) { __asm__ volatile("1: subs %0, %0, #1\n b.ne 1b" : "+r"(nr) :: "cc"); }
#endif

static u64 page = 4096, folio_bytes, region_bytes = 8UL << 20, nr_rounds = 9;
static int is_huge;
/* Instructions between two neighbouring readings of the clock. */
static u64 clock_cost;

/* --- samples ---------------------------------------------------------------------------------- */

struct samples { const char *name; u64 nr, *values; };

/* Memory that no operation of the program changes, and that no fork copies. */
static void *prepared(u64 bytes)
{
    s64 at = call6(SYS_mmap, 0, (s64)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    must(at, "memory for", "samples");
    for (u64 i = 0; i < bytes; i += page) { ((volatile u8 *)at)[i] = 0; }
    return (void *)at;
}

static struct samples samples_of(const char *name, u64 nr)
{
    struct samples s = { name, 0, prepared(nr * sizeof(u64)) };
    return s;
}

static void add(struct samples *s, u64 before, u64 after)
{
    s->values[s->nr++] = after - before - clock_cost;
}

static void sort(u64 *values, u64 nr)
{
    u64 gap = 1;
    while (gap < nr / 3) { gap = gap * 3 + 1; }
    for (; gap; gap /= 3) {
        for (u64 i = gap; i < nr; i++) {
            u64 value = values[i], at = i;
            for (; at >= gap && values[at - gap] > value; at -= gap) {
                values[at] = values[at - gap];
            }
            values[at] = value;
        }
    }
}

/* `c NAME FOLIOS PAGES value xTIMES ..`: the folios and pages of one sample, values in order. */
static void put_samples(struct samples *s, u64 nr_folios, u64 nr_pages)
{
    if (!s->nr) { return; }
    sort(s->values, s->nr);
    put("c ");
    put(s->name);
    put(" ");
    put_number(nr_folios, 10);
    put(" ");
    put_number(nr_pages, 10);
    for (u64 i = 0, times; i < s->nr; i += times) {
        for (times = 1; i + times < s->nr && s->values[i + times] == s->values[i]; times++) { }
        put(" ");
        put_number(s->values[i], 10);
        if (times > 1) {
            put(" x");
            put_number(times, 10);
        }
    }
    put("\n");
}

/* --- calibration ------------------------------------------------------------------------------ */

static u64 cost_of_clock(void)
{
    u64 least = ~0UL;
    for (int i = 0; i < 100; i++) {
        u64 before = now(), after = now();
        if (after - before < least) { least = after - before; }
    }
    return least;
}

/* `k NAME UNITS INSTRUCTIONS`: code repeated until two times are equal, so that no interrupt is in
 * them. */
#define PUT_KNOWN(name, units, code) do {                               \
        u64 had = 0, last = ~0UL, before;                               \
        for (int i = 0; i < 10 && had != last; i++) {                   \
            last = had;                                                 \
            before = now();                                             \
            code;                                                       \
            had = now() - before - clock_cost;                          \
        }                                                               \
        put_known(name, units, had);                                    \
    } while (0)

static void put_known(const char *name, u64 units, u64 instructions)
{
    put("k ");
    put(name);
    put(" ");
    put_number(units, 10);
    put(" ");
    put_number(instructions, 10);
    put("\n");
}

static void calibrate(void)
{
    static u8 from[STRING_BYTES] __attribute__((aligned(4096)));
    static u8 to[STRING_BYTES] __attribute__((aligned(4096)));
    for (u64 i = 0; i < STRING_BYTES; i++) { from[i] = 1, to[i] = 1; }
    put_known("clock", 1, clock_cost);
    PUT_KNOWN("turns", NR_LOOPS, turns(NR_LOOPS));
    PUT_KNOWN("getpid", 1, sys1(SYS_getpid, 0));
#if defined(__x86_64__)
    u64 nr;
    void *at, *source;
    PUT_KNOWN("rep_stosb", STRING_BYTES, nr = STRING_BYTES; at = to;
          __asm__ volatile("rep stosb" : "+D"(at), "+c"(nr) : "a"(0) : "memory"));
    PUT_KNOWN("rep_stosq", STRING_BYTES / 8, nr = STRING_BYTES / 8; at = to;
          __asm__ volatile("rep stosq" : "+D"(at), "+c"(nr) : "a"(0L) : "memory"));
    PUT_KNOWN("rep_movsq", STRING_BYTES / 8, nr = STRING_BYTES / 8; at = to; source = from;
          __asm__ volatile("rep movsq" : "+D"(at), "+S"(source), "+c"(nr) :: "memory"));
#else
    u64 dczid, block;
    __asm__ volatile("mrs %0, dczid_el0" : "=r"(dczid));
    block = 4UL << (dczid & 15);
    u8 *at;
    PUT_KNOWN("dc_zva", STRING_BYTES / block, at = to;
          /* Four instructions per block. */
          __asm__ volatile("1: dc zva, %0\n add %0, %0, %2\n cmp %0, %1\n b.lo 1b" : "+r"(at)
                           : "r"(to + STRING_BYTES), "r"(block) : "memory", "cc"));
    (void)from;
#endif
}

/* --- private memory --------------------------------------------------------------------------- */

static void make_region(u64 bytes)
{
    u64 log2 = 0;
    while (1UL << log2 < folio_bytes) { log2++; }
    s64 huge = is_huge ? MAP_HUGETLB | (s64)(log2 << MAP_HUGE_SHIFT) : 0;
    must(call6(SYS_mmap, (s64)BASE, (s64)bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | huge, -1, 0),
         "cannot map", "the region");
}

static void store(u64 at) { *(volatile u8 *)(BASE + at) = 1; }

/* Stores once every `step` bytes; a folio's first store counts as `first`. */
static void store_all(u64 bytes, u64 step, struct samples *first, struct samples *rest)
{
    for (u64 at = 0; at < bytes; at += step) {
        u64 before = now();
        store(at);
        u64 after = now();
        add(at % folio_bytes ? rest : first, before, after);
    }
}

/* Returns the folios that hold the mapped range. */
static u64 nr_folios_at(u64 start, u64 bytes)
{
    static u64 mapped[CHECKED_PAGES];
    u64 nr = bytes / page, folios = 0, flags;
    int pagemap = (int)must(open_file("/proc/self/pagemap", O_RDONLY), "cannot open", "pagemap");
    int kinds = (int)must(open_file("/proc/kpageflags", O_RDONLY), "cannot open", "kpageflags");
    if (nr > CHECKED_PAGES) { fatal("a region is too large:", "mib=", (s64)nr); }
    sys4(SYS_pread, pagemap, (s64)mapped, (s64)(nr * 8), (s64)(start / page * 8));
    for (u64 i = 0; i < nr; i++) {
        u64 pfn = mapped[i] & PM_PFN;
        if (!pfn) { fatal("a page is not mapped in", "the region", (s64)i); }
        sys4(SYS_pread, kinds, (s64)&flags, 8, (s64)(pfn * 8));
        folios += !(flags & KPF_TAIL);
    }
    sys1(SYS_close, pagemap);
    sys1(SYS_close, kinds);
    return folios;
}

/* The child waits until its pipe is closed. */
static void wait_for_end(int *ends)
{
    u8 byte;
    sys1(SYS_close, ends[1]);
    sys3(SYS_read, ends[0], (s64)&byte, 1);
    quit(0);
}

/* Starts a process that lives until `end_child`; it has the region, and does not run before. */
static s64 start_child(int *ends, struct samples *fork)
{
    must(sys2(SYS_pipe2, (s64)ends, 0), "cannot make", "a pipe");
    u64 before = now();
    s64 pid = call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    u64 after = now();
    if (pid == 0) { wait_for_end(ends); }
    if (fork) { add(fork, before, after); }
    return must(pid, "cannot start", "a process");
}

static void end_child(s64 pid, int *ends)
{
    sys1(SYS_close, ends[1]);
    sys4(SYS_wait4, pid, 0, 0, 0);
    sys1(SYS_close, ends[0]);
}

static void unmap_region(u64 bytes, struct samples *unmap)
{
    u64 before = now();
    sys2(SYS_munmap, (s64)BASE, (s64)bytes);
    u64 after = now();
    if (unmap) { add(unmap, before, after); }
}

/* A region with its pages, in folios of the chosen size. */
static void fill_region(u64 bytes, struct samples *fault)
{
    make_region(bytes);
    store_all(bytes, folio_bytes, fault, fault);
    if (!is_huge && nr_folios_at(BASE, bytes) != bytes / folio_bytes) {
        fatal("the kernel did not use folios of", "that size", 0);
    }
}

static void private_memory(u64 bytes)
{
    u64 nr_folios = bytes / folio_bytes, nr_pages = folio_bytes / page;
    u64 nr_all = bytes / page * nr_rounds, nr_first = nr_folios * nr_rounds;
    u64 step = is_huge ? folio_bytes : page, per_store = is_huge ? nr_pages : 1;
    struct samples fault = samples_of("fault", nr_first * 3);
    struct samples unmap_none = samples_of("munmap_none", nr_rounds);
    struct samples unmap = samples_of("munmap", nr_rounds);
    struct samples fork_none = samples_of("fork_none", nr_rounds);
    struct samples fork = samples_of("fork", nr_rounds * 2);
    struct samples copy_first = samples_of("copy_first", nr_first);
    struct samples copy_rest = samples_of("copy_rest", nr_all);
    struct samples keep_first = samples_of("keep_first", nr_first);
    struct samples keep_rest = samples_of("keep_rest", nr_all);
    int ends[2];
    for (u64 round = 0; round < nr_rounds; round++) {
        end_child(start_child(ends, &fork_none), ends);
        make_region(bytes);
        unmap_region(bytes, &unmap_none);
        fill_region(bytes, &fault);
        unmap_region(bytes, &unmap);
        /* Stores while a child shares the region, and after its end. */
        fill_region(bytes, &fault);
        s64 pid = start_child(ends, &fork);
        store_all(bytes, step, &copy_first, &copy_rest);
        end_child(pid, ends);
        unmap_region(bytes, 0);
        fill_region(bytes, &fault);
        end_child(start_child(ends, &fork), ends);
        store_all(bytes, step, &keep_first, &keep_rest);
        unmap_region(bytes, 0);
    }
    put_samples(&fault, 1, nr_pages);
    put_samples(&unmap_none, 0, 0);
    put_samples(&unmap, nr_folios, bytes / page);
    put_samples(&fork_none, 0, 0);
    put_samples(&fork, nr_folios, bytes / page);
    put_samples(&copy_first, 1, per_store);
    put_samples(&copy_rest, 0, 1);
    put_samples(&keep_first, 1, per_store);
    put_samples(&keep_rest, 0, 1);
}

/* Only the faults: a page of 1 GiB has no room for a copy. */
static void huge_faults(u64 bytes)
{
    struct samples fault = samples_of("fault", bytes / folio_bytes * nr_rounds);
    struct samples unmap = samples_of("munmap", nr_rounds);
    for (u64 round = 0; round < nr_rounds; round++) {
        fill_region(bytes, &fault);
        unmap_region(bytes, &unmap);
    }
    put_samples(&fault, 1, folio_bytes / page);
    put_samples(&unmap, bytes / folio_bytes, bytes / page);
}

/* --- a file ----------------------------------------------------------------------------------- */

static void file_memory(const char *path)
{
    int fd = (int)must(open_file(path, O_RDONLY), "cannot open", path);
    u64 bytes = (u64)must(sys3(SYS_lseek, fd, 0, 2), "cannot measure", path);
    u64 nr_touches = bytes / page;
    struct samples fault = samples_of("file_fault", nr_touches * nr_rounds);
    struct samples unmap = samples_of("file_munmap", nr_rounds);
    u64 *times = prepared(nr_touches * sizeof *times), nr_folios = 0, nr_faults = 0;
    /* Round 0 reads the file. */
    for (u64 round = 0; round <= nr_rounds; round++) {
        must(call6(SYS_mmap, (s64)BASE, (s64)bytes, PROT_READ | PROT_EXEC,
                   MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0), "cannot map", path);
        for (u64 i = 0; i < nr_touches; i++) {
            u64 before = now();
            (void)*(volatile u8 *)(BASE + i * page);
            times[i] = now() - before;
            if (round == 0) { sleep_us(1000); }
        }
        for (u64 i = 0; round && i < nr_touches; i++) {
            /* Without a fault, one load. */
            if (times[i] - clock_cost > 8) { add(&fault, 0, times[i]); nr_faults++; }
        }
        if (round == 0) { nr_folios = nr_folios_at(BASE, bytes); }
        u64 before = now();
        sys2(SYS_munmap, (s64)BASE, (s64)bytes);
        u64 after = now();
        if (round) { add(&unmap, before, after); }
    }
    put("f ");
    put_number(nr_folios, 10);
    put(" ");
    put_number(bytes / page, 10);
    put(" ");
    put_number(nr_faults / nr_rounds, 10);
    put("\n");
    put_samples(&fault, nr_folios * nr_rounds / (nr_faults ? nr_faults : 1),
                bytes / page * nr_rounds / (nr_faults ? nr_faults : 1));
    put_samples(&unmap, nr_folios, bytes / page);
}

/* --- the program ------------------------------------------------------------------------------ */

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    const char *file = 0, *value, *variant = "", *settings = "-";
    int is_calibration = 0;
    struct { char fields[6][65]; } name;
    for (char **word = (char **)(stack + 2); *word; word++) {
        if (begins(*word, "kib=", &value)) { folio_bytes = as_number(value) << 10; }
        else if (begins(*word, "mib=", &value)) { region_bytes = as_number(value) << 20; }
        else if (begins(*word, "rounds=", &value)) { nr_rounds = as_number(value); }
        else if (begins(*word, "file=", &value)) { file = value; }
        else if (begins(*word, "variant=", &value)) { variant = value; }
        else if (begins(*word, "settings=", &value)) { settings = value; }
        else if (equal(*word, "huge")) { is_huge = 1; }
        else if (equal(*word, "calibrate")) { is_calibration = 1; }
        else { fatal("unknown word", *word, 22); }
    }
    for (s64 *aux = stack + 1 + *stack + 1; ; aux++) {
        if (*aux) { continue; }
        for (aux++; *aux; aux += 2) { if (*aux == 6) { page = (u64)aux[1]; } }
        break;
    }
    if (!file && !is_calibration && (folio_bytes < page || region_bytes % folio_bytes)) {
        fatal("no size, or one that does not fit:", "kib= mib=", 22);
    }
    must(sys1(SYS_uname, (s64)&name), "uname", "");
    check_clock();
    int priority = 1;
    must(sys3(SYS_sched_setscheduler, 0, SCHED_FIFO | RESET_ON_FORK, (s64)&priority),
         "cannot set", "the priority");
    clock_cost = cost_of_clock();
    put("# count");
    put_pair("page", page);
    put(" arch=" ARCH " release=");
    put(name.fields[2]);
    put(" variant=");
    put(variant);
    put(" settings=");
    put(settings);
    if (!is_calibration) {
        put_pair("kib", file ? 0 : folio_bytes >> 10);
        put_pair("rounds", nr_rounds);
    }
    put("\n");
    if (is_calibration) { calibrate(); }
    else if (file) { file_memory(file); }
    else if (folio_bytes > 2UL << 20) { huge_faults(region_bytes); }
    else { private_memory(region_bytes); }
    put("end\n");
    flush_to(1);
    quit(0);
}
