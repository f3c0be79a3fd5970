/* Runs one named workload on a file and writes a recording of the kernel's behaviour.
 *
 *   probe file=PATH trace=INSTANCE fs=ext4 prot=r advice=plain pattern=seq n=100 ...
 *
 * recordings/README.md describes the output format and every key. Needs root, because it reads page
 * frame numbers and writes to a tracefs instance. Drop the caches first. */
#include "sys.h"
#include "trace.h"
#include "report.h"
#include "pressure.h"
#include "actions.h"

/* --- patterns --------------------------------------------------------------------------------- */

static u64 random_state;
static u64 next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

/* Returns the page touched by step `k` of the pattern. */
static u64 page_of_step(const char *pattern, u64 k, u64 nr)
{
    const char *rest;
    if (equal(pattern, "seq")) { return k; }
    if (equal(pattern, "back")) { return k < nr ? nr - 1 - k : nr; }
    if (equal(pattern, "cycle")) { return k % nr; }
    if (equal(pattern, "rand")) { return next_random() % nr; }
    if (equal(pattern, "hot")) {
        u64 draw = next_random();
        return draw % 8 ? nr / 4 + (draw >> 8) % num.hot : (draw >> 8) % nr;
    }
    if (begins(pattern, "two", &rest)) {
        u64 stride = *rest ? as_number(rest) : 1;
        return (k % 2) * (nr / 2) + k / 2 * stride;
    }
    if (begins(pattern, "stride", &rest)) { return k * as_number(rest); }
    if (begins(pattern, "mid", &rest)) { return as_number(rest) + k; }
    fatal("unknown pattern", pattern, 0);
}

/* `read4096`, `readback4096`, `readrand4096`, `readcycle4096`, `readhot4096`, `readtwo4096`,
 * `readopens4096`. */
static void read_pattern(const char *how)
{
    const char *rest;
    int is_plain = *how >= '0' && *how <= '9';
    char kind = is_plain ? 's' : begins(how, "back", &rest) ? 'b' : begins(how, "rand", &rest) ? 'r'
        : begins(how, "cycle", &rest) ? 'c' : begins(how, "hot", &rest) ? 'h'
        : begins(how, "two", &rest) ? 't' : begins(how, "opens", &rest) ? 'o' : 0;
    if (!kind) { fatal("unknown pattern read", how, 0); }
    u64 len = as_number(is_plain ? how : rest), last = (num.span < file_pages ? num.span * page : num.bytes) / len;
    for (u64 k = 0; k < num.n; k++) {
        u64 at = kind == 's' ? k : kind == 'b' ? last - 1 - k : kind == 'r' ? next_random() % last
            : kind == 'c' ? k % last : kind == 'h' ? page_of_step("hot", k, last)
            : k / 2 + (k % 2) * (last / 2);
        if ((kind == 's' || kind == 'b') && k >= last) { break; }
        file_io('B', at * len, len, kind == 'o' ? k % 2 : 0, is_plain);
    }
}

/* One operation of `ops=`: t17, t17/1, w17, b0.100+4096x12/1, s4.0+65536, c3.100 (file length), p,
 * a:random/0, f:random/0, m65536 (reclaim), z (refaults). */
static const char *operation(const char *op)
{
    char kind = *op++;
    u64 index = 0, offset = 0, len = page, times = 1, which = 0;
    char advice[16] = "";
    if (kind == 'a' || kind == 'f') {
        u64 n = 0;
        for (op++; *op && *op != ',' && *op != '/' && n < 15; n++) { advice[n] = *op++; }
        advice[n] = 0;
    }
    if (*op >= '0' && *op <= '9') { index = decimal(&op); }
    if (*op == '.') { op++; offset = decimal(&op); }
    if (*op == '+') { op++; len = decimal(&op); }
    if (*op == 'x') { op++; times = decimal(&op); }
    if (*op == '/') { op++; which = decimal(&op); }
    u64 nr = kind == 'b' || kind == 's' || kind == 'c' || kind == 'f' ? num.opens : nr_maps;
    if (kind != 'm' && kind != 'z' && which >= nr) {
        fatal("no such mapping or descriptor before", op, 0);
    }
    for (u64 k = 0; k < times; k++) {
        if (kind == 't' || kind == 'w') { touch(index + k, which, kind == 'w'); }
        else if (kind == 'b') { file_io('B', index * page + offset + k * len, len, which, 0); }
        else if (kind == 's') { file_io('X', index * page + offset + k * len, len, which, 0); }
        else if (kind == 'c') { set_length(index * page + offset, which); }
        else if (kind == 'f') { advise_file(advice, which); }
        else if (kind == 'p') { point(which); }
        else if (kind == 'm') { reclaim(index); }
        else if (kind == 'z') { restored(); }
        else if (kind == 'a') {
            put("V ");
            put(advice);
            put(" ");
            put_number(which, 10);
            mark();
            advise(&maps[which], advice);
            settle();
        } else { fatal("unknown operation before", op, 0); }
    }
    return *op == ',' ? op + 1 : op;
}

static void run_pattern(void)
{
    const char *rest;
    random_state = (num.seed + 1) * 0x9e3779b97f4a7c15UL;
    if (arg.fadvise) { advise_file(arg.fadvise, 0); }
    if (equal(arg.pattern, "ops")) {
        for (const char *op = arg.ops; *op;) { op = operation(op); }
    } else if (begins(arg.pattern, "read", &rest)) {
        read_pattern(rest);
    } else {
        int is_write = equal(maps[0].prot, "rw");
        for (u64 k = 0; k < num.n; k++) {
            u64 index = page_of_step(arg.pattern, k, num.span);
            if (index < file_pages) { touch(index, k % nr_maps, is_write); }
        }
    }
}

/* --- set-up ----------------------------------------------------------------------------------- */

static void add_mapping(struct mapping m)
{
    int prot = PROT_READ | (equal(m.prot, "r") ? 0 : equal(m.prot, "rw") ? PROT_WRITE : PROT_EXEC);
    int share = equal(m.share, "shared") ? MAP_SHARED : MAP_PRIVATE;
    if (!m.nr) { m.nr = file_pages - m.first; }
    if (nr_maps == NR_MAPS || m.nr > NR_PAGES || m.open < 0 || (u64)m.open >= num.opens) {
        fatal("too many mappings, pages or descriptors of", arg.file, 0);
    }
    u64 want = BASE + nr_maps * MAP_SPACING + (m.first + num.skew) * page;
    s64 at = call6(SYS_mmap, (s64)want, (s64)(m.nr * page), prot, share | MAP_FIXED_NOREPLACE,
                   fds[m.open], (s64)(m.first * page));
    m.at = (u64)must(at, "cannot map", arg.file);
    maps[nr_maps++] = m;
    advise(&m, m.advice);
}

/* `also=prot,share,advice,open,first,pages`: a second mapping. */
static void add_also(char *spec)
{
    char *part[6] = { spec };
    for (int k = 1; *spec && k < 6; spec++) {
        if (*spec == ',') { *spec = 0; part[k++] = spec + 1; }
    }
    if (!part[5]) { fatal("also= needs six parts, not", part[0], 0); }
    struct mapping m = { .prot = part[0], .share = part[1], .advice = part[2],
                         .open = (int)as_number(part[3]), .first = as_number(part[4]),
                         .nr = as_number(part[5]) };
    add_mapping(m);
}

static void examine_file(void)
{
    struct { u64 words[32]; } statx = { { 0 } };
    must(call6(SYS_statx, AT_FDCWD, (s64)arg.file, 0, 0x7ff, (s64)&statx, 0), "statx", arg.file);
    traced.inode = statx.words[4];
    /* stx_dev_major and stx_dev_minor, as the kernel packs them. */
    traced.dev = (statx.words[17] & 0xffffffff) << 20 | statx.words[17] >> 32;
    num.bytes = statx.words[5];
    file_pages = (num.bytes + page - 1) / page;
    if (!num.span || num.span > file_pages) { num.span = file_pages; }
}

/* Counts the file's resident pages through a temporary mapping. */
static u64 resident_of(int fd)
{
    s64 at = call6(SYS_mmap, 0, (s64)(file_pages * page), PROT_READ, MAP_SHARED, fd, 0);
    must(at, "cannot map", arg.file);
    u64 found = resident((u64)at, file_pages, page, (u8 *)text);
    sys2(SYS_munmap, at, (s64)(file_pages * page));
    return found;
}

static void check_cold(void)
{
    int fd = open_file(arg.file, O_RDONLY);
    must(fd, "cannot open", arg.file);
    sys4(SYS_fadvise, fd, 0, 0, 4);
    resident_before = resident_of(fd);
    sys1(SYS_close, fd);
    if (resident_before) { fatal("still cached before the start:", arg.file, 16); }
}

/* Finds the device number that events print for the filesystem, by reading one page under trace.
 * Since 7.3 it differs from statx's for a file on btrfs. */
static void examine_device(void)
{
    if (!num.bytes) { return; }
    int fd = open_file(arg.file, O_RDONLY);
    must(fd, "cannot open", arg.file);
    sys4(SYS_fadvise, fd, 0, 0, 1);
    trace_first(arg.trace, traced.inode);
    must(sys4(SYS_pread, fd, (s64)read_buffer, 1, 0), "cannot read", arg.file);
    if (!trace_device(&traced.dev, text)) { fatal("nothing was traced of", arg.file, 0); }
    sys1(SYS_close, fd);
    check_cold();
}

/* A workload that leaves pages in the cache has inserted them: if the trace has none, the filter
 * passes nothing, and there is no recording. */
static void check_traced(void)
{
    int fd = open_file(arg.file, O_RDONLY);
    must(fd, "cannot open", arg.file);
    if (resident_of(fd) && !nr_inserted) { fatal("nothing was traced of", arg.file, 0); }
    sys1(SYS_close, fd);
}

static void usage_of_faults(s64 sign)
{
    s64 rusage[18] = { 0 };
    sys2(SYS_getrusage, 0, (s64)rusage);
    faults[0] += (u64)(sign * rusage[8]);
    faults[1] += (u64)(sign * rusage[9]);
}

static const char *or_dash(const char *value) { return value ? value : "-"; }

static void header(u64 events, u64 lost)
{
    char release[6 * 65];
    sys1(SYS_uname, (s64)release);
    struct { const char *key, *value; } words[] = {
        { "# kernel=", release + 130 }, { " arch=", ARCH }, { " variant=", arg.variant },
        { " fs=", arg.fs }, { " read_ahead_kb=", arg.ra }, { " max_sectors_kb=", arg.sectors },
        { " fault_around_bytes=", arg.around },
        { " prot=", maps[0].prot }, { " map=", nr_maps ? maps[0].share : "none" },
        { " advice=", maps[0].advice }, { " pattern=", arg.pattern },
    };
    for (u64 i = 0; i < sizeof words / sizeof *words; i++) {
        put(words[i].key);
        put(or_dash(words[i].value));
    }
    if (arg.edits) { put(" edits="); put(arg.edits); }
    put_pair("page", page);
    put_pair("file_pages", file_pages);
    put_pair("file_bytes", num.bytes);
    put_pair("n", num.n);
    put_pair("seed", num.seed);
    put_pair("opens", num.opens);
    put_pair("skew", num.skew);
    put_pair("settle", num.settle_us);
    put_pair("resid_before", resident_before);
    put_pair("minflt", faults[0]);
    put_pair("majflt", faults[1]);
    put_pair("ra_pages", as_number(arg.ra ? arg.ra : "0") * 1024 / page);
    put_pair("events", events);
    put_pair("lost", lost);
    if (arg.io) { put(" io="); put(arg.io); }
    if (group_dir) { group_header(); }
    put("\n");
    for (u64 i = 0; i < nr_maps; i++) {
        struct mapping *m = &maps[i];
        put("N ");
        put_number(i, 10);
        put_pair("open", (u64)m->open);
        put_pair("first", m->first);
        put_pair("pages", m->nr);
        put(" prot=");
        put(m->prot);
        put(" map=");
        put(m->share);
        put(" advice=");
        put(m->advice);
        put(" addr=0x");
        put_number(m->at, 16);
        put("\n");
    }
}

static void footer(void)
{
    for (u64 i = 0; i < nr_maps; i++) {
        struct mapping *m = &maps[i];
        if (i) { put("N "); put_number(i, 10); put("\n"); }
        report_mapping(m->at, m->nr, m->first, page, pfns, 1);
        report_smaps(m->at, text, 1 << 20);
    }
    if (group_dir) { group_footer(text, 1 << 20); }
}

static void workload(struct mapping first, char *also, int has_mapping)
{
    text = anonymous(TEXT_ROOM);
    read_buffer = anonymous(READ_ROOM);
    examine_file();
    pfns = anonymous(8 * NR_PAGES);
    check_cold();
    examine_device();
    if (num.opens > NR_OPENS) { fatal("at most 4 descriptors of", arg.file, 0); }
    for (u64 i = 0; i < num.opens; i++) {
        fds[i] = open_file(arg.file, O_RDWR);
        must(fds[i], "cannot open", arg.file);
    }
    /* Fault in the buffer of read patterns now, outside the recorded part. */
    for (u64 i = 0; i < READ_ROOM; i += page) { read_buffer[i] = 1; }
    u64 events = trace_start(arg.trace, traced);
    if (has_mapping) { add_mapping(first); }
    if (also) { add_also(also); }
    if (arg.group) {
        deepen_stack();
        prepare_refresh(arg.group, num.refresh, page);
        enter_group(arg.group);
        refresh(page);
    }
    /* Empties the CPU's batch of folios that wait for a list. */
    sys4(SYS_fadvise, fds[0], 0, 0, 4);
    usage_of_faults(-1);
    run_pattern();
    usage_of_faults(1);
    put("E 0");
    mark();
    u64 lost = trace_stop();
    leave_group();
    header(events, lost);
    trace_lines(text, page);
    check_traced();
    footer();
    flush_to(1);
    if (lost) { fatal("events were lost in", arg.trace, (s64)lost); }
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    char **argv = (char **)(stack + 1);
    s64 argc = stack[0], *aux = stack + argc + 2;
    struct mapping first = { .prot = "r", .share = "shared", .advice = "plain" };
    char *also = 0;
    u64 mask[16] = { 0 };
    while (*aux++) { }
    for (; aux[0]; aux += 2) {
        if (aux[0] == 6) { page = (u64)aux[1]; }
    }
    struct { const char *key; const char **value; } words[] = {
        { "file=", &arg.file }, { "trace=", &arg.trace }, { "fs=", &arg.fs },
        { "variant=", &arg.variant }, { "edits=", &arg.edits }, { "pattern=", &arg.pattern }, { "ops=", &arg.ops },
        { "ra=", &arg.ra }, { "sectors=", &arg.sectors }, { "around=", &arg.around },
        { "cgroup=", &arg.cgroup }, { "group=", &arg.group }, { "fadvise=", &arg.fadvise },
        { "io=", &arg.io },
        { "prot=", &first.prot },
        { "map=", &first.share }, { "advice=", &first.advice }, { "also=", (const char **)&also },
    };
    struct { const char *key; u64 *value; } numbers[] = {
        { "n=", &num.n }, { "seed=", &num.seed }, { "opens=", &num.opens },
        { "settle=", &num.settle_us }, { "first=", &first.first }, { "pages=", &first.nr },
        { "skew=", &num.skew }, { "cpu=", &traced.cpu },
        { "span=", &num.span }, { "hot=", &num.hot }, { "refresh=", &num.refresh }, { "detail=", &traced.detail },
    };
    for (s64 i = 1; i < argc; i++) {
        const char *value;
        int is_known = 0;
        for (u64 k = 0; k < sizeof words / sizeof *words; k++) {
            if (begins(argv[i], words[k].key, &value)) { *words[k].value = value; is_known = 1; }
        }
        for (u64 k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            if (begins(argv[i], numbers[k].key, &value)) {
                *numbers[k].value = as_number(value);
                is_known = 1;
            }
        }
        if (!is_known) { fatal("unknown argument", argv[i], 0); }
    }
    if (!arg.file || !arg.trace || !arg.pattern) {
        fatal("file=, trace= and", "pattern= are needed", 0);
    }
    /* PR_SET_PDEATHSIG: the parent holds the filesystem and the instance. */
    sys2(SYS_prctl, 1, 9);
    if (traced.cpu / 64 >= sizeof mask / sizeof *mask) { fatal("no processor", "cpu=", 0); }
    mask[traced.cpu / 64] = 1UL << (traced.cpu % 64);
    must(sys3(SYS_sched_setaffinity, 0, sizeof mask, (s64)mask), "processor of", "cpu=");
    workload(first, also, !equal(first.share, "none"));
    quit(0);
}
