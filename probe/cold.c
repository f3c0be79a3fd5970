/* Runs a program whose files are on a disk and not cached, and writes what it read and faulted
 * (recordings/README.md, "Cold programs").
 *
 *   cold root=MOUNTPOINT dir=FOLDER device=BLOCKDEVICE trace=INSTANCE [variant=KERNEL]
 *        [settings=WORDS] -- PROGRAM ARG..
 *
 * FOLDER and PROGRAM are seen from MOUNTPOINT. */
#include "trace.h"

#define SIGCHLD 17
#define NR_ORDERS 16
/* Positions in struct rusage, in words. */
#define MINOR_FAULTS 8
#define MAJOR_FAULTS 9
/* Positions in a block device's `stat` file. */
#define READS 0
#define SECTORS_READ 2
#define SECTOR_BYTES 512

static const char *device;
static char *text;

static void follow_disk(const char *root)
{
    struct { u64 words[32]; } statx = { { 0 } };
    char filter[64];
    must(call6(SYS_statx, AT_FDCWD, (s64)root, 0, 0x7ff, (s64)&statx, 0), "statx", root);
    append_number(append(filter, "s_dev=="),
                  (statx.words[17] & 0xffffffff) << 20 | statx.words[17] >> 32);
    if (!trace_set("tracing_on", "0")) { fatal("no tracefs instance at", trace_dir, 2); }
    trace_set("buffer_size_kb", BUFFER_KB);
    trace_set("options/overwrite", "0");
    if (!trace_set("events/filemap/mm_filemap_add_to_page_cache/filter", filter)) {
        fatal("this kernel has no event", EVENTS[0], 2);
    }
    trace_set("events/filemap/mm_filemap_add_to_page_cache/enable", "1");
    trace_empty();
    trace_set("tracing_on", "1");
}

static u64 device_count(u64 position)
{
    static char path[128], value[512];
    append(append(append(path, "/sys/block/"), device), "/stat");
    must(read_file(path, value, sizeof value), "cannot read", path);
    const char *at = value;
    for (;; position--) {
        while (*at == ' ') { at++; }
        u64 count = number(&at, 10);
        if (!position) { return count; }
    }
}

static void put_folios(void)
{
    u64 by_order[NR_ORDERS] = { 0 };
    must(read_file(path_of(trace_path, trace_dir, "trace"), text, TEXT_ROOM), "cannot read",
         trace_path);
    for (const char *line = text; *line;) {
        const char *order = *line == '#' ? 0 : within(line, " order=");
        if (order) {
            u64 is = number(&order, 10);
            if (is >= NR_ORDERS) { fatal("a folio has an unknown order in", trace_path, (s64)is); }
            by_order[is]++;
        }
        while (*line && *line++ != '\n') { }
    }
    for (u64 order = 0; order < NR_ORDERS; order++) {
        if (!by_order[order]) { continue; }
        put("folios");
        put_pair("order", order);
        put_pair("nr", by_order[order]);
        put("\n");
    }
}

static s64 run_program(const char *root, const char *dir, char **argv, u64 *usage)
{
    static char *environment[] = { "PATH=/usr/bin:/bin", "LANG=C", "HOME=/nonexistent",
                                   "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1", 0 };
    s64 pid = call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (pid == 0) {
        must(sys1(SYS_chroot, (s64)root), "cannot make a root of", root);
        must(sys1(SYS_chdir, (s64)dir), "cannot enter", dir);
        must(sys3(SYS_execve, (s64)argv[0], (s64)argv, (s64)environment), "cannot start", argv[0]);
    }
    must(pid, "cannot start", "a process");
    int status = 0;
    sys4(SYS_wait4, pid, (s64)&status, 0, (s64)usage);
    return status;
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    const char *root = 0, *dir = "/", *value, *variant = "-", *settings = "-";
    struct { char fields[6][65]; } name;
    char **word = (char **)(stack + 2);
    u64 usage[32] = { 0 };
    for (; *word && !equal(*word, "--"); word++) {
        if (begins(*word, "root=", &value)) { root = value; }
        else if (begins(*word, "dir=", &value)) { dir = value; }
        else if (begins(*word, "device=", &value)) { device = value; }
        else if (begins(*word, "trace=", &value)) { trace_dir = value; }
        else if (begins(*word, "variant=", &value)) { variant = value; }
        else if (begins(*word, "settings=", &value)) { settings = value; }
        else { fatal("unknown word", *word, 22); }
    }
    if (!root || !device || !trace_dir || !*word || !word[1]) {
        fatal("words are missing:", "root= device= trace= -- PROGRAM", 22);
    }
    must(sys1(SYS_uname, (s64)&name), "uname", "");
    text = anonymous(TEXT_ROOM);
    follow_disk(root);
    u64 reads = device_count(READS), sectors = device_count(SECTORS_READ);
    s64 status = run_program(root, dir, word + 1, usage);
    reads = device_count(READS) - reads;
    sectors = device_count(SECTORS_READ) - sectors;
    trace_set("tracing_on", "0");
    put("# cold arch=" ARCH " release=");
    put(name.fields[2]);
    put(" variant=");
    put(variant);
    put(" settings=");
    put(settings);
    put("\n");
    put("ended");
    put_pair("status", (u64)status);
    put("\nfaults");
    put_pair("minor", usage[MINOR_FAULTS]);
    put_pair("major", usage[MAJOR_FAULTS]);
    put("\nreads");
    put_pair("requests", reads);
    put_pair("bytes", sectors * SECTOR_BYTES);
    put("\n");
    put_folios();
    put("end\n");
    flush_to(1);
    quit(0);
}
