/* A random program of one process about memory policies, the same for the same SEED:
 *
 *   policies SEED
 *
 * It runs on the first CPU, maps memory, sets policies for itself and for ranges, moves pages by
 * mbind, touches and drops pages. At its end it prints /proc/self/numa_maps. Calls that fail are
 * left alone: an emulator may refuse policies. scripts/recordings/traced_nodes.py compares it with
 * a prediction. */
#include "command.h"

#define NR_AREAS 6
#define AREA_PAGES 1024UL
#define NR_STEPS 60
#define MPOL_MF_MOVE 2

static u64 state;

static u64 below(u64 limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % limit;
}

static u64 area(u64 nr) { return BASE + nr * 2 * AREA_PAGES * page; }

/* Default, preferred, bind, interleave; nodes 0, 1 or both. */
static void policy(int *mode, u64 *nodes)
{
    *mode = (int)below(4);
    *nodes = *mode == 0 ? 0 : 1 + below(3);
}

static void step(void)
{
    u64 first = below(AREA_PAGES), nr = 1 + below(below(3) ? 64 : AREA_PAGES - first);
    if (first + nr > AREA_PAGES) { nr = AREA_PAGES - first; }
    u64 at = area(below(NR_AREAS)) + first * page, bytes = nr * page, nodes;
    int mode;
    switch (below(10)) {
    case 0:
        policy(&mode, &nodes);
        sys3(SYS_set_mempolicy, mode, nodes ? (s64)&nodes : 0, nodes ? 64 : 0);
        break;
    case 1:
    case 2:
        policy(&mode, &nodes);
        call6(SYS_mbind, (s64)at, (s64)bytes, mode, nodes ? (s64)&nodes : 0, nodes ? 64 : 0,
              below(2) ? MPOL_MF_MOVE : 0);
        break;
    case 3: sys3(SYS_madvise, (s64)at, (s64)bytes, MADV_DONTNEED); break;
    default:
        for (u64 i = 0; i < nr; i++) { *(volatile unsigned *)(at + i * page) = 1; }
    }
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    static char maps[1 << 16];
    char **argv = (char **)(stack + 1);
    if (stack[0] < 2) { fatal("a seed", "is needed", 0); }
    state = as_number(argv[1]) * 0x9e3779b97f4a7c15UL + 1;
    /* The first CPU is on node 0. Memory outside the areas is in use before there is a policy. */
    u64 cpus[16] = { 1 };
    sys3(SYS_sched_setaffinity, 0, sizeof cpus, (s64)cpus);
    read_file("/proc/self/numa_maps", maps, sizeof maps);
    memset(maps, 0, sizeof maps);
    for (u64 nr = 0; nr < NR_AREAS; nr++) {
        s64 at = call6(SYS_mmap, (s64)area(nr), (s64)(AREA_PAGES * page), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        must(at, "cannot map", "an area");
        if (nr % 2) { sys3(SYS_madvise, at, (s64)(AREA_PAGES * page), MADV_HUGEPAGE); }
    }
    for (u64 i = 0; i < NR_STEPS; i++) { step(); }
    s64 n = read_file("/proc/self/numa_maps", maps, sizeof maps);
    sys3(SYS_write, 1, (s64)maps, FAIL(n) ? 0 : n);
    quit(0);
}
