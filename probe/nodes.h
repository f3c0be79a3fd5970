/* NUMA: the node of a page frame, and a worker's CPU and memory policies. */
#ifndef LARGEFOLIO_NODES_H
#define LARGEFOLIO_NODES_H
#include "command.h"

#define NR_NODES_MAX 8UL
#define MPOL_LOCAL 4
#define MPOL_MF_STRICT 1
#define MPOL_MF_MOVE 2
#define MPOL_MF_MOVE_ALL 4
#define NR_ZONES_MAX 32

/* Whether the program uses nodes. Pages are then shown with theirs. */
static int has_nodes;
/* The first page frame of each zone, and its node. */
static struct { u64 first; u8 node; } zones[NR_ZONES_MAX];
static u64 nr_zones;

/* Returns the text after `word` in this line; 0 if the line does not begin with it. */
static const char *after(const char *line, const char *word)
{
    const char *value;
    while (*line == ' ') { line++; }
    if (!begins(line, word, &value)) { return 0; }
    while (*value == ' ') { value++; }
    return value;
}

static void read_zones(void)
{
    static char zoneinfo[1 << 16];
    must(read_file("/proc/zoneinfo", zoneinfo, sizeof zoneinfo), "cannot read", "/proc/zoneinfo");
    const char *value;
    u64 node = 0, present = 0;
    nr_zones = 0;
    for (const char *line = zoneinfo; *line; line = next_line(line)) {
        if ((value = after(line, "Node "))) { node = as_number(value); present = 0; }
        if ((value = after(line, "present "))) { present = as_number(value); }
        value = after(line, "start_pfn:");
        if (!value || !present || nr_zones == NR_ZONES_MAX) { continue; }
        zones[nr_zones].first = as_number(value);
        zones[nr_zones++].node = (u8)node;
    }
}

static u8 node_of(u64 pfn)
{
    u64 first = 0;
    u8 node = 0;
    for (u64 i = 0; i < nr_zones; i++) {
        if (zones[i].first <= pfn && zones[i].first >= first) {
            first = zones[i].first;
            node = zones[i].node;
        }
    }
    return node;
}

/* Returns the nodes named by the digits of a word. */
static u64 nodes_in(const char *word)
{
    u64 mask = 0;
    for (; *word; word++) { if (*word >= '0' && *word <= '7') { mask |= 1UL << (*word - '0'); } }
    return mask;
}

/* The policy that a letter names: default, preferred, bind, interleave, local, many, weighted. */
static int policy_of(const char *how)
{
    static const char LETTERS[] = "dpbilmw";
    for (int mode = 0; LETTERS[mode]; mode++) { if (how[0] == LETTERS[mode]) { return mode; } }
    return -1;
}

/* Runs this worker on the first CPU of a node. */
static s64 do_node(const struct command *c)
{
    static char path[] = "/sys/devices/system/node/node?/cpulist", list[256];
    u64 mask[16] = { 0 };
    path[29] = (char)('0' + c->first);
    s64 n = read_file(path, list, sizeof list);
    if (n <= 0) { return FAIL(n) ? n : -EIO; }
    u64 cpu = as_number(list);
    mask[cpu / 64 % 16] = 1UL << (cpu % 64);
    return sys3(SYS_sched_setaffinity, 0, sizeof mask, (s64)mask);
}

static s64 do_policy(const struct command *c)
{
    u64 mask = nodes_in(c->how);
    return sys3(SYS_set_mempolicy, policy_of(c->how), mask ? (s64)&mask : 0, mask ? 64 : 0);
}

/* `M` moves pages that are on other nodes. */
static s64 do_bind(const struct command *c)
{
    u64 mask = nodes_in(c->how);
    return call6(SYS_mbind, (s64)(BASE + c->first * page), (s64)(c->nr * page), policy_of(c->how),
                 mask ? (s64)&mask : 0, mask ? 64 : 0, has_letter(c->how, 'M') ? MPOL_MF_MOVE : 0);
}

/* `A` also moves pages that other processes map. */
static s64 do_move(const struct command *c)
{
    static u64 addresses[8192];
    static int nodes[8192], status[8192];
    u64 mask = nodes_in(c->how);
    int node = 0;
    while (mask >> node & ~1UL) { node++; }
    for (u64 i = 0; i < c->nr; i++) {
        addresses[i] = BASE + (c->first + i) * page;
        nodes[i] = node;
    }
    s64 done = call6(SYS_move_pages, 0, (s64)c->nr, (s64)addresses, (s64)nodes, (s64)status,
                     has_letter(c->how, 'A') ? MPOL_MF_MOVE_ALL : MPOL_MF_MOVE);
    return FAIL(done) ? done : 0;
}

/* Moves all of this process's own pages from one node to another: `n01`. */
static s64 do_migrate(const struct command *c)
{
    u64 from = 1UL << (c->how[1] - '0'), to = 1UL << (c->how[2] - '0');
    s64 done = sys4(SYS_migrate_pages, 0, 64, (s64)&from, (s64)&to);
    return FAIL(done) ? done : 0;
}

/* NUMA balancing works for one process at a time, as long as the program says. */
#define BALANCING "/proc/sys/kernel/numa_balancing"
/* Of two passes in a row, the balancer may leave an area out of only one. */
#define NR_PASSES 2
static int is_balanced;

/* Passes of the balancer over this process's memory. */
static u64 nr_passes(void)
{
    static char text[1 << 14];
    must(read_file("/proc/self/sched", text, sizeof text), "cannot read", "/proc/self/sched");
    const char *value;
    for (const char *line = text; *line; line = next_line(line)) {
        if (!(value = after(line, "mm->numa_scan_seq"))) { continue; }
        while (*value == ' ' || *value == ':') { value++; }
        return as_number(value);
    }
    fatal("no passes of the balancer in", "/proc/self/sched", 0);
    return 0;
}

/* Gives all areas so far a policy with which the balancer leaves them alone. */
static void keep_from_balancing(void)
{
    static char maps[1 << 16];
    must(read_file("/proc/self/maps", maps, sizeof maps), "cannot read", "/proc/self/maps");
    for (const char *line = maps; *line; line = next_line(line)) {
        const char *at = line;
        u64 start = number(&at, 16);
        at++;
        u64 end = number(&at, 16);
        call6(SYS_mbind, (s64)start, (s64)(end - start), MPOL_LOCAL, 0, 0, 0);
    }
}

/* Lets the balancer mark this process's pages. */
static s64 do_hint(void)
{
    must(write_file(BALANCING, "1") ? 0 : -1, "cannot set", BALANCING);
    u64 end = nr_passes() + NR_PASSES;
    while (nr_passes() < end) { }
    must(write_file(BALANCING, "0") ? 0 : -1, "cannot set", BALANCING);
    return 0;
}
#endif
