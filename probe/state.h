/* The folios that each process has mapped, and the changes by a step. */
#ifndef LARGEFOLIO_STATE_H
#define LARGEFOLIO_STATE_H
#include "process.h"

#define NR_PAGES_MAX 8192UL
#define PM_PRESENT (1UL << 63)
#define PM_SWAP (1UL << 62)
#define PM_FILE (1UL << 61)
#define PM_EXCLUSIVE (1UL << 56)
#define PM_PFN ((1UL << 55) - 1)
#define KPF_HEAD (1UL << 15)
#define KPF_TAIL (1UL << 16)
#define KPF_ZERO (1UL << 24)
#define PAGEMAP_SCAN 0xC0606610L
#define PAGE_IS_HUGE (1UL << 6)
#define TABLE (1UL << 17)

/* The bits above are a page's node. */
enum { IS_EXCLUSIVE = 1, IS_PMD = 2, IS_FILE = 4, IS_ZERO = 8, IS_SWAP = 16, NODE_SHIFT = 5,
       LETTERS = IS_EXCLUSIVE | IS_PMD | IS_FILE };

static struct seen (*now)[NR_PAGES_MAX], (*before)[NR_PAGES_MAX];
static u64 *raw;
static u64 nr_pages;
static int flags_fd = -1, pagemap_fd[NR_SLOTS];
static unsigned next_label;
static u8 *order_of_label;
#define NR_LABELS 65536U

/* Page frames and their properties in one step: open addressing, emptied by `round`. */
static struct known { u64 pfn; unsigned round, label; unsigned short index; u8 order, flags; } *table;
static unsigned round_of_table;

static struct known *known(u64 pfn)
{
    u64 at = pfn * 0x9e3779b97f4a7c15UL >> 47;
    for (;; at = (at + 1) & (TABLE - 1)) {
        struct known *k = &table[at];
        if (k->round != round_of_table || k->pfn == pfn) { return k; }
    }
}

static void learn(u64 pfn, unsigned label, u64 index, u8 order, u8 flags)
{
    struct known *k = known(pfn);
    *k = (struct known){ pfn, round_of_table, label, (unsigned short)index, order, flags };
}

/* Allocates memory that a fork does not copy, so that the programs' forks stay small. */
static void *shared(u64 bytes)
{
    s64 at = call6(SYS_mmap, 0, (s64)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);
    must(at, "memory for", "the state");
    return (void *)at;
}

/* Returns the label of the folio with head `head`; it is stable while any of its pages stays
 * mapped. */
static unsigned label_of(u64 head, u64 nr)
{
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        for (u64 i = 0; i < nr_pages; i++) {
            const struct seen *s = &before[slot][i];
            if (s->label && s->pfn >= head && s->pfn < head + nr
                && s->pfn - s->index == head) { return s->label; }
        }
    }
    if (next_label == NR_LABELS) { fatal("too many folios in", "one program", 0); }
    return next_label++;
}

/* Reads the flags of `nr` pages from `first`; returns how many exist. */
static u64 read_flags(u64 *flags, u64 first, u64 nr)
{
    s64 n = sys4(SYS_pread, flags_fd, (s64)flags, (s64)(nr * 8), (s64)(first * 8));
    return n < 0 ? 0 : (u64)n / 8;
}

/* Records every page of the folio of `pfn`. For a large folio only, reads the flags of the
 * surrounding PMD-aligned block, which no folio here crosses. */
static void look_up(u64 pfn)
{
    static u64 flags[NR_PAGES_MAX];
    u64 first = pfn, have = read_flags(flags, pfn, 1);
    if (have && flags[0] & (KPF_HEAD | KPF_TAIL)) {
        u64 block = page / 8;
        first = pfn & ~(block - 1);
        have = read_flags(flags, first, block);
    }
    if (first + have <= pfn) { fatal("cannot read", "/proc/kpageflags", (s64)have); }
    u64 at = pfn - first, head = at, nr = 1;
    if (flags[at] & (KPF_HEAD | KPF_TAIL)) {
        while (head && !(flags[head] & KPF_HEAD)) { head--; }
        while (head + nr < have && flags[head + nr] & KPF_TAIL) { nr++; }
    }
    u8 order = 0, zero = flags[at] & KPF_ZERO ? IS_ZERO : 0;
    while (2UL << order <= nr) { order++; }
    unsigned label = label_of(first + head, nr);
    for (u64 i = 0; i < nr; i++) { learn(first + head + i, label, i, order, zero); }
}

static void mark_pmd(u64 slot)
{
    struct { u64 start, end, categories; } found[64];
    u64 arg[12] = { sizeof arg, 0, BASE, BASE + nr_pages * page, 0, (u64)found, 64, 0, 0,
                    PAGE_IS_HUGE, 0, PAGE_IS_HUGE };
    s64 n = sys3(SYS_ioctl, pagemap_fd[slot], PAGEMAP_SCAN, (s64)arg);
    for (s64 k = 0; k < n; k++) {
        u64 end = (found[k].end - BASE) / page;
        for (u64 i = (found[k].start - BASE) / page; i < end; i++) {
            if (now[slot][i].pfn) { now[slot][i].flags |= IS_PMD; }
        }
    }
}

static void read_slot(u64 slot)
{
    for (u64 done = 0; done < nr_pages;) {
        s64 n = sys4(SYS_pread, pagemap_fd[slot], (s64)(raw + done), (s64)((nr_pages - done) * 8),
                     (s64)((BASE / page + done) * 8));
        if (n <= 0) { fatal("cannot read", "pagemap", n); }
        done += (u64)n / 8;
    }
    for (u64 i = 0; i < nr_pages; i++) {
        struct seen *s = &now[slot][i];
        u64 entry = raw[i];
        *s = (struct seen){ .value = is_limited ? NO_VALUE : 0 };
        if (entry & PM_SWAP) { s->flags = IS_SWAP; }
        if (!(entry & PM_PRESENT)) { continue; }
        s->pfn = entry & PM_PFN;
        s->flags = (u8)((entry & PM_EXCLUSIVE ? IS_EXCLUSIVE : 0) | (entry & PM_FILE ? IS_FILE : 0));
        /* A page that stayed in place has the same pfn; a large folio may have been split. */
        const struct seen *b = &before[slot][i];
        if (b->label && !b->order && b->pfn == s->pfn) {
            learn(s->pfn, b->label, b->index, b->order, b->flags & IS_ZERO);
        }
    }
    mark_pmd(slot);
}

/* Reads the state of all living processes into `now`. */
static void read_state(const int *pids)
{
    round_of_table++;
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        if (pids[slot]) { read_slot(slot); }
        else { memset(now[slot], 0, nr_pages * sizeof now[slot][0]); }
    }
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        for (u64 i = 0; pids[slot] && i < nr_pages; i++) {
            struct seen *s = &now[slot][i];
            if (!s->pfn) { continue; }
            struct known *k = known(s->pfn);
            if (k->round != round_of_table) { look_up(s->pfn); k = known(s->pfn); }
            s->label = k->label;
            s->index = k->index;
            s->order = k->order;
            s->flags |= k->flags;
            if (has_nodes && !(s->flags & IS_ZERO)) { s->flags |= (u8)(node_of(s->pfn) << NODE_SHIFT); }
        }
    }
}

static int same(const struct seen *a, const struct seen *b)
{
    return a->label == b->label && a->index == b->index && a->flags == b->flags
        && a->order == b->order && a->value == b->value;
}

/* Returns whether `b` continues `a`: the next page of the same folio in the same state. */
static int follows(const struct seen *a, const struct seen *b)
{
    u64 step = a->label && !(a->flags & IS_ZERO && !a->order);
    unsigned next = a->value == NO_VALUE || !a->value ? a->value : a->value + 1;
    return a->label == b->label && a->index + step == b->index && a->flags == b->flags
        && b->value == next;
}

static void put_page(const struct seen *s)
{
    if (!s->label) { put(s->flags & IS_SWAP ? "s" : "-"); return; }
    if (s->flags & IS_ZERO) { put(s->order ? "Z" : "z"); }
    else {
        put_number(s->label, 10);
        /* Print the order only when the folio is new, or its order changed. */
        if (order_of_label[s->label] != s->order + 1) {
            order_of_label[s->label] = s->order + 1;
            put(":");
            put_number(s->order, 10);
        }
    }
    if (s->order) { put("."); put_number(s->index, 10); }
    if (s->flags & LETTERS) { put(" "); }
    if (s->flags & IS_EXCLUSIVE) { put("x"); }
    if (s->flags & IS_PMD) { put("H"); }
    if (s->flags & IS_FILE) { put("f"); }
    if (s->flags >> NODE_SHIFT) { put(" @"); put_number(s->flags >> NODE_SHIFT, 10); }
    if (s->value != NO_VALUE && !(s->flags & IS_ZERO)) {
        put(" =");
        put_number(s->value, 10);
    }
}

/* `SLOT FIRST[+NR] STATE` for each run of pages that the step changed. */
static void print_changes(void)
{
    for (u64 slot = 0; slot < NR_SLOTS; slot++) {
        for (u64 i = 0; i < nr_pages;) {
            const struct seen *s = &now[slot][i];
            if (same(s, &before[slot][i])) { i++; continue; }
            u64 end = i + 1;
            while (end < nr_pages && follows(&now[slot][end - 1], &now[slot][end])
                   && !same(&now[slot][end], &before[slot][end])) { end++; }
            put_number(slot, 10);
            put(" ");
            put_number(i, 10);
            if (end > i + 1) { put("+"); put_number(end - i, 10); }
            put(" ");
            put_page(s);
            put("\n");
            i = end;
        }
    }
    struct seen (*was)[NR_PAGES_MAX] = before;
    before = now;
    now = was;
}

static void start_state(u64 pages)
{
    if (pages > NR_PAGES_MAX) { fatal("too many pages in", "a program", 0); }
    if (!table) {
        table = shared(TABLE * sizeof *table);
        now = shared(NR_SLOTS * sizeof *now);
        before = shared(NR_SLOTS * sizeof *before);
        raw = shared(NR_PAGES_MAX * 8);
        order_of_label = shared(NR_LABELS);
        flags_fd = (int)must(open_file("/proc/kpageflags", O_RDONLY), "cannot open",
                             "/proc/kpageflags");
    }
    nr_pages = pages;
    next_label = 1;
    memset(order_of_label, 0, NR_LABELS);
    memset(now, 0, NR_SLOTS * sizeof *now);
    memset(before, 0, NR_SLOTS * sizeof *before);
}
#endif
