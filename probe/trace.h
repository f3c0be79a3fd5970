/* A tracefs instance: set up, read back, and written as recording lines.
 *
 * The instance filters on one inode of one filesystem, so that only the tested file is recorded.
 * The probe marks its own actions in the same buffer (`trace_marker`), so both are in one order. */
#ifndef LARGEFOLIO_TRACE_H
#define LARGEFOLIO_TRACE_H
#include "sys.h"

#define BUFFER_KB "32768"
#define TEXT_ROOM (256UL << 20)

static const char *trace_dir;
static int marker_fd = -1;
static char trace_path[4096];

static int trace_set(const char *name, const char *value)
{
    return write_file(path_of(trace_path, trace_dir, name), value);
}

static char *append(char *to, const char *text)
{
    while (*text) { *to++ = *text++; }
    *to = 0;
    return to;
}

static char *append_number(char *to, u64 value)
{
    char digits[24];
    int n = 0;
    do { digits[n++] = (char)('0' + value % 10); } while ((value /= 10));
    while (n) { *to++ = digits[--n]; }
    *to = 0;
    return to;
}

static void trace_empty(void)
{
    int fd = open_file(path_of(trace_path, trace_dir, "trace"), O_WRONLY | O_TRUNC);
    sys1(SYS_close, (s64)fd);
}

/* The tested file; `dev` is in the kernel's internal form. */
struct traced { u64 inode, dev, cpu, detail; };

/* Returns whether the event exists and now filters on the file. If the event has no device field,
 * the filter uses only the inode. */
static int trace_event(const char *event, struct traced file)
{
    char name[128], filter[96], *end = append(append(name, "events/"), event);
    append_number(append(append_number(append(filter, "i_ino=="), file.inode), "&&s_dev=="),
                  file.dev);
    append(end, "/filter");
    if (!trace_set(name, filter)) {
        append_number(append(filter, "i_ino=="), file.inode);
        if (!trace_set(name, filter)) { return 0; }
    }
    append(end, "/enable");
    return trace_set(name, "1");
}

static const char *const EVENTS[] = {
    "filemap/mm_filemap_add_to_page_cache", "filemap/mm_filemap_delete_from_page_cache",
    "filemap/mm_filemap_fault", "filemap/mm_filemap_map_pages", "filemap/mm_filemap_get_pages",
    "readahead/page_cache_ra_order", "readahead/page_cache_ra_unbounded",
    "readahead/page_cache_sync_ra", "readahead/page_cache_async_ra", "largefolio/policy", 0,
};

/* Events of reclaim on the lists, for research: filtered by process, not by file. A recording with
 * them is compared like one without. */
static const char *const LIST_EVENTS[] = {
    "vmscan/mm_vmscan_lru_isolate", "vmscan/mm_vmscan_lru_shrink_inactive",
    "vmscan/mm_vmscan_lru_shrink_active", "vmscan/mm_vmscan_memcg_reclaim_begin",
    "vmscan/mm_vmscan_memcg_reclaim_end", "pagemap/mm_lru_insertion", "pagemap/mm_lru_activate", 0,
};
static void trace_lists(void)
{
    char name[128], filter[64];
    append_number(append(filter, "common_pid=="), (u64)sys1(SYS_getpid, 0));
    for (u64 i = 0; LIST_EVENTS[i]; i++) {
        char *end = append(append(name, "events/"), LIST_EVENTS[i]);
        append(end, "/filter");
        trace_set(name, filter);
        append(end, "/enable");
        trace_set(name, "1");
    }
}

/* Starts the instance for this process's insertions into files with that inode number. */
static void trace_first(const char *dir, u64 inode)
{
    char name[128], filter[96], *end;
    trace_dir = dir;
    if (!trace_set("tracing_on", "0")) { fatal("no tracefs instance at", dir, 2); }
    end = append_number(append(filter, "common_pid=="), (u64)sys1(SYS_getpid, 0));
    append_number(append(end, "&&i_ino=="), inode);
    end = append(append(name, "events/"), EVENTS[0]);
    append(end, "/filter");
    if (!trace_set(name, filter)) { fatal("this kernel has no event", EVENTS[0], 2); }
    append(end, "/enable");
    trace_set(name, "1");
    trace_empty();
    trace_set("tracing_on", "1");
}

/* Stops it. Returns whether an insertion was traced, and the filesystem's device number in it. */
static int trace_device(u64 *dev, char *text)
{
    trace_set("tracing_on", "0");
    s64 len = read_file(path_of(trace_path, trace_dir, "trace"), text, TEXT_ROOM);
    must(len, "cannot read", trace_path);
    const char *shown = 0;
    for (const char *line = text; *line && !shown;) {
        if (*line != '#') { shown = within(line, "add_to_page_cache: dev "); }
        while (*line && *line++ != '\n') { }
    }
    if (!shown) { return 0; }
    u64 major = decimal(&shown);
    shown++;
    *dev = major << 20 | decimal(&shown);
    return 1;
}

/* Empties the instance and starts it; returns a bit for each event that this kernel has. */
static u64 trace_start(const char *dir, struct traced file)
{
    char buffer[64];
    u64 found = 0;
    trace_dir = dir;
    if (!trace_set("tracing_on", "0")) { fatal("no tracefs instance at", dir, 2); }
    /* The probe runs on one CPU: the others need no buffer. */
    append(append_number(append(buffer, "per_cpu/cpu"), file.cpu), "/buffer_size_kb");
    trace_set(buffer, BUFFER_KB);
    trace_set("options/context-info", "0");
    trace_set("options/overwrite", "0");
    for (u64 i = 0; EVENTS[i]; i++) {
        found |= (u64)trace_event(EVENTS[i], file) << i;
    }
    if (!(found & 1)) { fatal("this kernel has no event", EVENTS[0], 2); }
    if (file.detail) { trace_lists(); }
    trace_empty();
    marker_fd = open_file(path_of(trace_path, dir, "trace_marker"), O_WRONLY);
    must(marker_fd, "cannot open", trace_path);
    trace_set("tracing_on", "1");
    return found;
}

/* Writes the buffered output as one line into the trace. */
static void mark(void)
{
    if (marker_fd >= 0) { flush_to(marker_fd); }
    out_len = 0;
}

/* Stops the instance and returns the number of lost events. */
static u64 trace_stop(void)
{
    char stats[1024], name[64];
    static const char *const LOST[] = { "overrun: ", "commit overrun: ", "dropped events: " };
    u64 lost = 0;
    trace_set("tracing_on", "0");
    for (u64 cpu = 0;; cpu++) {
        append(append_number(append(name, "per_cpu/cpu"), cpu), "/stats");
        if (read_file(path_of(trace_path, trace_dir, name), stats, sizeof stats) < 0) { break; }
        for (const char *line = stats; *line; line++) {
            const char *value;
            for (u64 i = 0; i < 3; i++) {
                if (begins(line, LOST[i], &value)) { lost += number(&value, 10); }
            }
            while (*line && *line != '\n') { line++; }
            if (!*line) { break; }
        }
    }
    return lost;
}

static void put_field(const char *line, const char *key)
{
    const char *value = within(line, key);
    put(" ");
    if (!value) { put("-"); return; }
    while (*value && *value != ' ' && *value != '\n') { put_char(*value++); }
}

static u64 field(const char *line, const char *key, u64 base)
{
    const char *value = within(line, key);
    return value ? number(&value, base) : 0;
}

/* Traced insertions. */
static u64 nr_inserted;

/* Consecutive insertions of one order that are not yet written. */
static struct { char kind; u64 index, order, times; } run;
static void put_run(void)
{
    if (run.times) {
        put_char(run.kind);
        put(" ");
        put_number(run.index, 10);
        put(" ");
        put_number(run.order, 10);
        if (run.times > 1) { put(" x"); put_number(run.times, 10); }
        put("\n");
    }
    run.times = 0;
}
static void folio_line(char kind, u64 index, u64 order)
{
    u64 next = run.index + (run.times << run.order);
    if (run.times && run.kind == kind && run.order == order && next == index) {
        run.times++;
        return;
    }
    put_run();
    run.kind = kind;
    run.index = index;
    run.order = order;
    run.times = 1;
}

/* `W a b` and `G a b`: a range printed as bytes. */
static void range_line(const char *name, const char *line, u64 page)
{
    const char *value = within(line, " ofs=");
    u64 first = value ? number(&value, 10) : 0;
    u64 last = value && *value == '-' ? (value++, number(&value, 10)) : first;
    put_run();
    put(name);
    put_number(first / page, 10);
    put(" ");
    put_number(last / page, 10);
    put("\n");
}

static void fields_line(const char *name, const char *line, const char *const *keys)
{
    put_run();
    put(name);
    for (; *keys; keys++) { put_field(line, *keys); }
    put("\n");
}

static void put_line(const char *line)
{
    put_run();
    while (*line && *line != '\n') { put_char(*line++); }
    put("\n");
}

/* First page of the folio at a pfn, plus one, if its insertion was traced. */
static unsigned *index_at;
#define NR_FRAMES (1UL << 24)

static void list_line(const char *line)
{
    put_run();
    const char *text = within(line, "mm_vmscan_");
    if (text) { put("v "); }
    else { text = within(line, "mm_lru_"); put("l "); }
    u64 frame = field(line, "pfn=", 16);
    if (frame && frame < NR_FRAMES && index_at && index_at[frame]) {
        put_pair("of", index_at[frame] - 1);
        put(" ");
    }
    put_line(text);
}

/* `q` and all words of a question and its answer, in hex: printed as {0x1,0x0,..}. */
static void question_line(const char *words)
{
    put_run();
    put("q");
    while (*words && *words != '}' && *words != '\n') {
        words++;
        u64 word = number(&words, 16);
        put(" ");
        put_number(word, 16);
    }
    put("\n");
}

static void event_line(const char *line, u64 page)
{
    static const char *const ORDER[] = { "index=", " order=", " size=", "async_size=",
                                         "ra_pages=", 0 };
    static const char *const UNBOUNDED[] = { "index=", "nr_to_read=", "lookahead_size=", 0 };
    static const char *const ENTRY[] = { "index=", "req_count=", " order=", " size=", "async_size=",
                                         "ra_pages=", "mmap_miss=", "prev_pos=", 0 };
    const char *text;
    if ((text = within(line, "mark_write: "))) { put_line(text); }
    else if ((text = within(line, "policy: "))) { question_line(text); }
    else if (within(line, "mm_vmscan_") || within(line, "mm_lru_")) { list_line(line); }
    else if (within(line, "add_to_page_cache: ")) {
        nr_inserted++;
        u64 frame = field(line, " pfn=", 16);
        if (index_at && frame < NR_FRAMES) {
            index_at[frame] = (unsigned)(field(line, " ofs=", 10) / page) + 1;
        }
        folio_line('A', field(line, " ofs=", 10) / page, field(line, " order=", 10));
    } else if (within(line, "delete_from_page_cache: ")) {
        folio_line('D', field(line, " ofs=", 10) / page, field(line, " order=", 10));
    } else if (within(line, "mm_filemap_fault: ")) {
        put_run();
        put("F ");
        put_number(field(line, " ofs=", 10) / page, 10);
        put("\n");
    } else if (within(line, "mm_filemap_map_pages: ")) { range_line("W ", line, page); }
    else if (within(line, "mm_filemap_get_pages: ")) { range_line("G ", line, page); }
    else if (within(line, "page_cache_ra_order: ")) { fields_line("S order", line, ORDER); }
    else if (within(line, "page_cache_ra_unbounded: ")) {
        fields_line("S unbounded", line, UNBOUNDED);
    }
    else if (within(line, "page_cache_sync_ra: ")) { fields_line("S sync", line, ENTRY); }
    else if (within(line, "page_cache_async_ra: ")) { fields_line("S async", line, ENTRY); }
}

/* Writes every event of the stopped instance. */
static void trace_lines(char *text, u64 page)
{
    s64 len = read_file(path_of(trace_path, trace_dir, "trace"), text, TEXT_ROOM);
    must(len, "cannot read", trace_path);
    index_at = anonymous(NR_FRAMES * sizeof *index_at);
    for (char *line = text; *line;) {
        char *end = line;
        while (*end && *end != '\n') { end++; }
        if (*line != '#') { event_line(line, page); }
        line = *end ? end + 1 : end;
    }
    put_run();
}
#endif
