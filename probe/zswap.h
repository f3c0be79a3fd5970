/* zswap: its switch, a cgroup's share of it, and what it holds. Only for machines where nothing else
 * runs. */
#ifndef LARGEFOLIO_ZSWAP_H
#define LARGEFOLIO_ZSWAP_H
#include "limit.h"

#define ZSWAP_SETTINGS "/sys/module/zswap/parameters/"
#define ZSWAP_STATE "/sys/kernel/debug/zswap/"
#define NR_ZSWAP_COUNTS 5

/* `max_pool_percent`. Unless 0, zswap is on, and a step ends with a line `z`. */
static u64 zswap_percent;
static u64 zswapped_is[NR_ZSWAP_COUNTS];

static void switch_zswap(int is_on)
{
    if (!write_file(ZSWAP_SETTINGS "enabled", is_on ? "1" : "0")) {
        fatal("cannot switch", "zswap", 0);
    }
}

/* The pool's largest size. */
static u64 zswap_pages_max(void)
{
    read_file("/proc/meminfo", swap_text, sizeof swap_text);
    return value_of("MemTotal:") / (page >> 10) * zswap_percent / 100;
}

static u64 zswap_state(const char *path)
{
    swap_text[0] = 0;
    read_file(path, swap_text, sizeof swap_text);
    return as_number(swap_text);
}

/* Pages in the pool; pages stored, loaded and written back so far; pages that the kernel knows to be
 * zero, swapped out and in. */
static void read_zswapped(u64 is[NR_ZSWAP_COUNTS])
{
    write_file("/proc/sys/vm/stat_refresh", "1");
    read_file("/proc/vmstat", swap_text, sizeof swap_text);
    is[1] = value_of("zswpout ");
    is[2] = value_of("zswpin ");
    is[4] = value_of("swpout_zero ") + value_of("swpin_zero ");
    is[3] = zswap_state(ZSWAP_STATE "written_back_pages");
    is[0] = zswap_state(ZSWAP_STATE "stored_pages");
}

/* `z STORED OUT IN BACK ZERO`: pages in zswap after the step, then the pages that the step stored,
 * loaded, wrote back to the device, and swapped as zeroes; only if something changed. */
static void print_zswapped(void)
{
    u64 is[NR_ZSWAP_COUNTS];
    int is_changed = 0;
    if (!zswap_percent) { return; }
    read_zswapped(is);
    for (u64 i = 0; i < NR_ZSWAP_COUNTS; i++) { is_changed |= is[i] != zswapped_is[i]; }
    if (!is_changed) { return; }
    put("z ");
    put_number(is[0], 10);
    for (u64 i = 1; i < NR_ZSWAP_COUNTS; i++) {
        put(" ");
        put_number(is[i] - zswapped_is[i], 10);
    }
    put("\n");
    memcpy(zswapped_is, is, sizeof is);
}

/* `zswap=MAX,WRITEBACK,..`: the cgroup's `memory.zswap.max` in KiB, `-` for no limit, and 0 if it may
 * not write to the device; zswap is on when a program begins. */
static void start_zswap(const char *line)
{
    static char path[128], value[24];
    const char *at = within(line, "zswap=");
    if (!zswap_percent) { return; }
    switch_zswap(1);
    if (at && *at != '-') {
        u64 i = 0;
        while (*at >= '0' && *at <= '9' && i < sizeof value - 2) { value[i++] = *at++; }
        value[i++] = 'K';
        value[i] = 0;
        if (!write_file(path_of(path, group_of_program, "memory.zswap.max"), value)) {
            fatal("cannot limit zswap of", group_of_program, 0);
        }
    } else if (at) { at++; }
    /* Before 6.8 there is no such setting. */
    if (at && at[0] == ',' && at[1] == '0') {
        write_file(path_of(path, group_of_program, "memory.zswap.writeback"), "0");
    }
    read_zswapped(zswapped_is);
}
#endif
