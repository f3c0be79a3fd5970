/* Settings for shared memory during a program: `shmem=GLOBAL,HUGE[,KIB:MODE..]` in its first line.
 *
 * GLOBAL is `shmem_enabled`, HUGE the option `huge=` of the program's tmpfs, KIB:MODE one size's
 * `shmem_enabled`. Other sizes are off, and the PMD size inherits. The values found before are
 * written back after the program; the recorder restores them if the probe is killed. */
#ifndef LARGEFOLIO_SHMEM_H
#define LARGEFOLIO_SHMEM_H
#include "state.h"
#include "khugepaged.h"

enum { SYS_fsopen = 430, SYS_fsconfig = 431, SYS_fsmount = 432 };
#define FSCONFIG_SET_STRING 1
#define FSCONFIG_CMD_CREATE 6
#define NR_ORDERS 14
#define WORD_ROOM 16

/* The program sets shared memory's folio sizes. */
static int has_shmem;
/* `shmem_enabled`, and that of each order; empty if the kernel has no such file. */
static char shmem_found[1 + NR_ORDERS][WORD_ROOM];
static int tmpfs_fd = -1;

static const char *shmem_path(u64 order)
{
    static char path[96];
    char digits[16];
    int n = 0;
    if (!order) { return THP "/shmem_enabled"; }
    memcpy(path, THP "/hugepages-", length(THP "/hugepages-"));
    char *at = path + length(THP "/hugepages-");
    for (u64 kib = page << order >> 10; kib; kib /= 10) { digits[n++] = (char)('0' + kib % 10); }
    while (n) { *at++ = digits[--n]; }
    memcpy(at, "kB/shmem_enabled", sizeof "kB/shmem_enabled");
    return path;
}

/* Copies the word at `at`, up to a comma or the end of the word. */
static const char *next_value(const char *at, char *to)
{
    u64 n = 0;
    while (*at && *at != ',' && *at != ' ' && *at != '\n') {
        if (n + 1 < WORD_ROOM) { to[n++] = *at; }
        at++;
    }
    to[n] = 0;
    return *at == ',' ? at + 1 : at;
}

static void set_shmem(u64 order, const char *value)
{
    if (!shmem_found[order][0]) { return; }
    if (!write_file(shmem_path(order), value)) { fatal("cannot set", shmem_path(order), 0); }
}

/* The mode of a size that the list `at` names, or its default. */
static void size_mode(const char *at, u64 order, char *mode)
{
    const char *usual = page << order == page / 8 * page ? "inherit" : "never";
    memcpy(mode, usual, length(usual) + 1);
    while (*at && *at != ' ' && *at != '\n') {
        const char *value = at;
        u64 kib = number(&value, 10);
        char word[WORD_ROOM];
        at = next_value(*value == ':' ? value + 1 : value, word);
        if (kib == page << order >> 10) { memcpy(mode, word, sizeof word); }
    }
}

/* A tmpfs of the program's own, without a place in any directory. */
static void mount_own_tmpfs(const char *huge)
{
    int fs = (int)must(sys2(SYS_fsopen, (s64)"tmpfs", 0), "cannot open", "tmpfs");
    must(call6(SYS_fsconfig, fs, FSCONFIG_SET_STRING, (s64)"huge", (s64)huge, 0, 0),
         "no tmpfs with huge", huge);
    must(call6(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0, 0), "cannot create", "tmpfs");
    tmpfs_fd = (int)must(sys3(SYS_fsmount, fs, 0, 0), "cannot mount", "tmpfs");
    sys1(SYS_close, fs);
}

static void start_shmem(const char *words)
{
    char global[WORD_ROOM], huge[WORD_ROOM], mode[WORD_ROOM];
    has_shmem = words != 0;
    if (!words) { return; }
    words = next_value(words, global);
    words = next_value(words, huge);
    for (u64 order = 0; order <= NR_ORDERS; order++) {
        value_in_use(shmem_path(order), shmem_found[order], WORD_ROOM);
    }
    mount_own_tmpfs(huge);
    for (u64 order = 1; order <= NR_ORDERS; order++) {
        size_mode(words, order, mode);
        set_shmem(order, mode);
    }
    set_shmem(0, global);
}

static void end_shmem(void)
{
    if (!has_shmem) { return; }
    for (u64 order = 0; order <= NR_ORDERS; order++) { set_shmem(order, shmem_found[order]); }
    if (tmpfs_fd >= 0) { sys1(SYS_close, tmpfs_fd); }
    tmpfs_fd = -1;
    has_shmem = 0;
}

/* --- the cached folios of the program's file -------------------------------------------------- */

struct cached_folio { unsigned short first; u8 order; };
static struct cached_folio folios_now[NR_PAGES_MAX], folios_before[NR_PAGES_MAX];
static u64 nr_folios_now, nr_folios_before;

/* Notes the folio that holds page `index` of the file, in frame `pfn`; returns its end. */
static u64 note_cached(u64 index, u64 pfn)
{
    u64 flags = 0, first = index, nr = 1, order = 0;
    read_flags(&flags, pfn, 1);
    if (flags & (KPF_HEAD | KPF_TAIL)) {
        while (!(flags & KPF_HEAD) && first) {
            first--;
            read_flags(&flags, pfn - (index - first), 1);
        }
        u64 head = pfn - (index - first);
        while (read_flags(&flags, head + nr, 1) && flags & KPF_TAIL) { nr++; }
        while (2UL << order <= nr) { order++; }
    }
    folios_now[nr_folios_now++] = (struct cached_folio){ (unsigned short)first, (u8)order };
    return first + nr;
}

/* Finds the folios through a mapping that exists only for the moment. */
static void read_cached(u64 nr)
{
    static u8 vector[NR_PAGES_MAX];
    static u64 entries[NR_PAGES_MAX];
    s64 at = must(call6(SYS_mmap, 0, (s64)(nr * page), PROT_READ, MAP_SHARED, own_fd, 0),
                  "cannot map", "the program's file");
    must(sys3(SYS_mincore, at, (s64)(nr * page), (s64)vector), "mincore on", "a file");
    for (u64 i = 0; i < nr; i++) { if (vector[i] & 1) { try_load((u64)at + i * page); } }
    int fd = (int)must(open_file("/proc/self/pagemap", O_RDONLY), "cannot open", "pagemap");
    for (u64 done = 0; done < nr;) {
        s64 n = sys4(SYS_pread, fd, (s64)(entries + done), (s64)((nr - done) * 8),
                     (s64)(((u64)at / page + done) * 8));
        if (n <= 0) { fatal("cannot read", "pagemap", n); }
        done += (u64)n / 8;
    }
    sys1(SYS_close, fd);
    for (u64 i = 0; i < nr;) {
        i = entries[i] & PM_PRESENT ? note_cached(i, entries[i] & PM_PFN) : i + 1;
    }
    sys2(SYS_munmap, at, (s64)(nr * page));
}

static int is_cached_same(void)
{
    for (u64 i = 0; i < nr_folios_now; i++) {
        if (folios_now[i].first != folios_before[i].first
            || folios_now[i].order != folios_before[i].order) { return 0; }
    }
    return nr_folios_now == nr_folios_before;
}

/* `o FIRST:ORDER[*NR] ..`: the folios of the program's file in memory, if a step changed them. NR
 * folios of one size follow each other. */
static void print_cached(void)
{
    s64 bytes = own_fd < 0 ? 0 : sys3(SYS_lseek, own_fd, 0, 2);
    u64 nr = bytes > 0 ? ((u64)bytes + page - 1) / page : 0;
    if (nr > NR_PAGES_MAX) { fatal("too large:", "the program's file", 0); }
    nr_folios_now = 0;
    if (nr) { read_cached(nr); }
    if (is_cached_same()) { return; }
    put("o");
    for (u64 i = 0; i < nr_folios_now;) {
        struct cached_folio first = folios_now[i];
        u64 end = i + 1;
        while (end < nr_folios_now && folios_now[end].order == first.order
               && folios_now[end].first == first.first + ((end - i) << first.order)) { end++; }
        put(" ");
        put_number(first.first, 10);
        put(":");
        put_number(first.order, 10);
        if (end > i + 1) { put("*"); put_number(end - i, 10); }
        i = end;
    }
    put("\n");
    memcpy(folios_before, folios_now, nr_folios_now * sizeof *folios_now);
    nr_folios_before = nr_folios_now;
}
#endif
