/* The hugetlb pool, and each process's pages from it. Included by cow.c. */
#ifndef LARGEFOLIO_POOL_H
#define LARGEFOLIO_POOL_H
#include "state.h"

#define KPF_HUGE (1UL << 17)

static const char *const POOL_FILES[] = { "free_hugepages", "resv_hugepages",
                                          "surplus_hugepages" };
static u64 pool_is[3];
static int counts_fd = -1;
/* kpagecount of a label, plus 1; 0 = not yet printed. */
static unsigned *count_of_label;

static u64 pool_number(const char *name)
{
    static char text[64];
    char path[128], digits[24];
    const char *folder = "/sys/kernel/mm/hugepages/hugepages-";
    char *to = path;
    int n = 0;
    memcpy(to, folder, length(folder));
    to += length(folder);
    for (u64 kib = huge_bytes >> 10; kib; kib /= 10) { digits[n++] = (char)('0' + kib % 10); }
    while (n) { *to++ = digits[--n]; }
    memcpy(to, "kB/", 3);
    memcpy(to + 3, name, length(name) + 1);
    must(read_file(path, text, sizeof text), "cannot read", path);
    return as_number(text);
}

/* `huge=KIB:NR`: huge pages of this size, of which NR are unreserved and all are free. The caller
 * of this program sets up the pool. `:LOST` counts reservations that no process will release. */
static void start_pool(const char *line)
{
    const char *at = within(line, "huge=");
    if (!base_page) { base_page = page; }
    page = base_page;
    huge_bytes = 0;
    if (!at) { return; }
    page = huge_bytes = as_number(at) << 10;
    const char *nr = within(line, ":");
    for (u64 i = 0; i < 3; i++) { pool_is[i] = pool_number(POOL_FILES[i]); }
    if (!nr || pool_is[0] - pool_is[1] != as_number(nr) || pool_is[2]
        || pool_is[0] != pool_number("nr_hugepages")) {
        fatal("the pool of huge pages is not as wanted by", line, 0);
    }
    if (pool_is[1]) { put(":"); put_number(pool_is[1], 10); }
    if (counts_fd < 0) {
        counts_fd = (int)must(open_file("/proc/kpagecount", O_RDONLY), "cannot open",
                              "/proc/kpagecount");
        count_of_label = shared(NR_LABELS * sizeof *count_of_label);
    }
    memset(count_of_label, 0, NR_LABELS * sizeof *count_of_label);
}

static u64 word_at(int fd, u64 nr)
{
    u64 word = 0;
    s64 n = sys4(SYS_pread, fd, (s64)&word, 8, (s64)(nr * 8));
    if (n != 8) { fatal("cannot read", "a word of /proc", n); }
    return word;
}

static void read_huge_slot(u64 slot)
{
    u64 nr_base = huge_bytes / base_page;
    for (u64 i = 0; i < nr_pages; i++) {
        struct seen *s = &now[slot][i];
        u64 entry = word_at(pagemap_fd[slot], BASE / base_page + i * nr_base);
        *s = (struct seen){ 0 };
        if (!(entry & PM_PRESENT)) { continue; }
        s->pfn = entry & PM_PFN;
        s->flags = (u8)((entry & PM_EXCLUSIVE ? IS_EXCLUSIVE : 0) | (entry & PM_FILE ? IS_FILE : 0));
    }
    mark_pmd(slot);
    /* A hole of huge pages also has the huge flag. */
    for (u64 i = 0; i < nr_pages; i++) { if (!now[slot][i].pfn) { now[slot][i].flags = 0; } }
}

static void look_up_huge(u64 pfn)
{
    u64 nr_base = huge_bytes / base_page, order = 0;
    u64 head = word_at(flags_fd, pfn), tail = word_at(flags_fd, pfn + nr_base - 1);
    if (!(head & KPF_HUGE) || !(head & KPF_HEAD) || !(tail & KPF_TAIL)) {
        fatal("no huge page behind an entry of", "a program", 0);
    }
    while (2UL << order <= nr_base) { order++; }
    learn(pfn, label_of(pfn, 1), 0, (u8)order, 0);
}

/* `g FREE RESV SURPLUS` if the pool's numbers changed, `m LABEL NR` if kpagecount did. */
static void print_pool(void)
{
    u64 is[3];
    for (u64 i = 0; i < 3; i++) { is[i] = pool_number(POOL_FILES[i]); }
    if (is[0] != pool_is[0] || is[1] != pool_is[1] || is[2] != pool_is[2]) {
        put("g");
        for (u64 i = 0; i < 3; i++) {
            pool_is[i] = is[i];
            put(" ");
            put_number(is[i], 10);
        }
        put("\n");
    }
    for (u64 at = 0; at < NR_SLOTS * nr_pages; at++) {
        const struct seen *s = &before[at / nr_pages][at % nr_pages];
        if (!s->label) { continue; }
        unsigned count = (unsigned)word_at(counts_fd, s->pfn) + 1;
        if (count_of_label[s->label] == count) { continue; }
        count_of_label[s->label] = count;
        put("m ");
        put_number(s->label, 10);
        put(" ");
        put_number(count - 1, 10);
        put("\n");
    }
}

static void read_huge_state(const int *pids)
{
    round_of_table++;
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        if (pids[slot]) { read_huge_slot(slot); }
        else { memset(now[slot], 0, nr_pages * sizeof now[slot][0]); }
    }
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        for (u64 i = 0; i < nr_pages; i++) {
            struct seen *s = &now[slot][i];
            if (!s->pfn) { continue; }
            struct known *k = known(s->pfn);
            if (k->round != round_of_table) { look_up_huge(s->pfn); k = known(s->pfn); }
            s->label = k->label;
            s->order = k->order;
        }
    }
}
#endif
