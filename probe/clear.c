/* Writes in which order the kernel zeroes new folios (recordings/README.md, "Clearing").
 *
 *   clear trace=INSTANCE kib=SIZE [huge] [edges=E] [faults=N] [seed=S] [edits=EDITS]
 *
 * Touches one page of a new folio of SIZE, for the first and last E pages, E around the middle, and
 * N others. EDITS are for the header: what the model adds to its rules for this release. `huge` takes the folio from the hugetlb pool of that size, which must have
 * one. Needs the tracepoints of kernel/clear, and that folios of SIZE are enabled for all memory. */
#include "trace.h"

#define MAP_HUGETLB 0x40000
#define MAP_HUGE_SHIFT 26
#define MAP_FIXED 0x10
#define AT_BYTES 0x400000000000UL
#define NR_FAULTS 256

static const char *const CLEAR_EVENTS[] = { "largefolio/lf_clear", "largefolio/lf_clear_resched" };
static u64 page = 4096, bytes, is_huge;
static char *text;
static u64 faults[NR_FAULTS], nr_faults;

static void start_events(void)
{
    char name[128], filter[64];
    if (!trace_set("tracing_on", "0")) { fatal("no tracefs instance at", trace_dir, 2); }
    append(append_number(append(filter, "per_cpu/cpu"), 0), "/buffer_size_kb");
    trace_set(filter, BUFFER_KB);
    trace_set("options/context-info", "0");
    trace_set("options/overwrite", "0");
    append_number(append(filter, "common_pid=="), (u64)sys1(SYS_getpid, 0));
    for (u64 i = 0; i < 2; i++) {
        char *end = append(append(name, "events/"), CLEAR_EVENTS[i]);
        append(end, "/filter");
        if (!trace_set(name, filter)) { fatal("this kernel has no event", CLEAR_EVENTS[i], 2); }
        append(end, "/enable");
        trace_set(name, "1");
    }
}

/* Neighbouring units of one length that all have, or all lack, a point before them. */
static struct { u64 first, nr, times, has_point; } units;

static void put_units(void)
{
    if (!units.times) { return; }
    put(units.has_point ? "p " : "u ");
    put_number(units.first, 10);
    put(" ");
    put_number(units.nr, 10);
    if (units.times > 1) {
        put(" x");
        put_number(units.times, 10);
    }
    put("\n");
    units.times = 0;
}

static void add_unit(u64 first, u64 nr, u64 has_point)
{
    if (units.times && first == units.first + units.nr * units.times && nr == units.nr
        && has_point == units.has_point) {
        units.times++;
        return;
    }
    put_units();
    units.first = first, units.nr = nr, units.times = 1, units.has_point = has_point;
}

/* Writes the events of one fault. */
static void put_events(void)
{
    u64 pfn = 0, points = 0;
    for (const char *line = text; *line;) {
        const char *rest = within(line, "lf_clear: ");
        if (rest) {
            u64 is = field(rest, "pfn=", 16);
            if (pfn && is != pfn) { fatal("a fault zeroed two folios of", "that size", 0); }
            pfn = is;
            for (; points > 1; points--) { put_units(); put("r\n"); }
            add_unit(field(rest, "first=", 10), field(rest, "nr=", 10), points);
            points = 0;
        } else if (within(line, "lf_clear_resched:")) {
            points++;
        }
        while (*line && *line++ != '\n') { }
    }
    put_units();
    for (; points; points--) { put("r\n"); }
    if (!pfn) { fatal("a fault zeroed nothing of", "that size", 0); }
}

static void one_fault(u64 at_page)
{
    u64 log2 = 0;
    while (1UL << log2 < bytes) { log2++; }
    s64 huge = is_huge ? MAP_HUGETLB | (s64)(log2 << MAP_HUGE_SHIFT) : 0;
    s64 at = call6(SYS_mmap, (s64)AT_BYTES, (s64)bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | huge, -1, 0);
    must(at, "cannot map", "that size");
    volatile u64 *words = (volatile u64 *)at;
    u64 per_page = page / sizeof *words;
    trace_empty();
    trace_set("tracing_on", "1");
    words[at_page * per_page] = 0;
    u64 lost = trace_stop();
    must(read_file(path_of(trace_path, trace_dir, "trace"), text, TEXT_ROOM), "cannot read",
         trace_path);
    if (lost) { fatal("events were lost in", trace_dir, 0); }
    put("> ");
    put_number(bytes / page, 10);
    put(" ");
    put_number(at_page, 10);
    put("\n");
    put_events();
    /* All of it is zero; the next folio in this memory would not be by itself. */
    for (u64 i = 0; i < bytes / page; i++) {
        for (u64 k = 0; k < per_page; k += per_page - 1) {
            if (words[i * per_page + k]) { fatal("memory is not zeroed in", "a folio", (s64)i); }
            words[i * per_page + k] = ~0UL;
        }
    }
    sys2(SYS_munmap, at, (s64)bytes);
}

static void add_fault(u64 at)
{
    for (u64 i = 0; i < nr_faults; i++) {
        if (faults[i] == at) { return; }
    }
    if (at < bytes / page && nr_faults < NR_FAULTS) { faults[nr_faults++] = at; }
}

static void choose_faults(u64 nr_edges, u64 nr_random, u64 seed)
{
    u64 nr = bytes / page;
    for (u64 i = 0; i < nr_edges; i++) {
        add_fault(i);
        add_fault(nr - 1 - i);
        add_fault(nr / 2 - nr_edges / 2 + i);
    }
    u64 state = seed * 2654435761UL + 88172645463325252UL;
    for (u64 i = 0; i < nr_random; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        add_fault(state % nr);
    }
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    u64 nr_edges = 5, nr_random = 0, seed = 1;
    const char *edits = "", *value;
    struct { char fields[6][65]; } name;
    for (char **word = (char **)(stack + 2); *word; word++) {
        if (begins(*word, "trace=", &value)) { trace_dir = value; }
        else if (begins(*word, "kib=", &value)) { bytes = as_number(value) << 10; }
        else if (begins(*word, "faults=", &value)) { nr_random = as_number(value); }
        else if (begins(*word, "seed=", &value)) { seed = as_number(value); }
        else if (begins(*word, "edges=", &value)) { nr_edges = as_number(value); }
        else if (begins(*word, "edits=", &value)) { edits = value; }
        else if (equal(*word, "huge")) { is_huge = 1; }
        else { fatal("unknown word", *word, 22); }
    }
    for (s64 *aux = stack + 1 + *stack + 1; ; aux++) {
        if (*aux) { continue; }
        for (aux++; *aux; aux += 2) { if (*aux == 6) { page = (u64)aux[1]; } }
        break;
    }
    if (!trace_dir || bytes < 2 * page) { fatal("words are missing:", "trace= kib=", 22); }
    text = anonymous(TEXT_ROOM);
    must(sys1(SYS_uname, (s64)&name), "uname", "");
    put("# clear");
    put_pair("page", page);
    put(" arch=" ARCH " release=");
    put(name.fields[2]);
    if (*edits) { put(" edits="); put(edits); }
    put("\n");
    start_events();
    choose_faults(nr_edges, nr_random, seed);
    for (u64 i = 0; i < nr_faults; i++) { one_fault(faults[i]); }
    put("end\n");
    flush_to(1);
    quit(0);
}
