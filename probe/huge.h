/* Programs about hugetlb: their pages are huge pages from a pool. */
#ifndef LARGEFOLIO_HUGE_H
#define LARGEFOLIO_HUGE_H
#include "command.h"

#define MAP_NORESERVE 0x4000
#define MAP_HUGETLB 0x40000
#define MAP_HUGE_SHIFT 26

/* Huge page size in bytes, equal to `page`; 0 in other programs. */
static u64 huge_bytes;
static u64 base_page;

/* `g` private, `gs` shared, with `o` without a reservation (MAP_NORESERVE). */
static s64 do_map_huge(const struct command *c)
{
    u64 log2 = 0;
    while (1UL << log2 < huge_bytes) { log2++; }
    s64 at = call6(SYS_mmap, (s64)(BASE + c->first * page), (s64)(c->nr * page),
                   PROT_READ | PROT_WRITE,
                   MAP_HUGETLB | (s64)(log2 << MAP_HUGE_SHIFT) | MAP_ANONYMOUS
                   | MAP_FIXED_NOREPLACE | (has_letter(c->how, 's') ? MAP_SHARED : MAP_PRIVATE)
                   | (has_letter(c->how, 'o') ? MAP_NORESERVE : 0), -1, 0);
    return FAIL(at) ? at : 0;
}

/* A call whose range begins (`s`) or ends (`e`) a base page inside a huge page: `u` munmap, `d`
 * MADV_DONTNEED, `p` mprotect, `f` MADV_FREE of all of it. */
static s64 do_trim(const struct command *c)
{
    s64 at = (s64)(BASE + c->first * page), len = (s64)(c->nr * page);
    if (has_letter(c->how + 1, 's')) { at += (s64)base_page; len -= (s64)base_page; }
    else if (has_letter(c->how + 1, 'e')) { len -= (s64)base_page; }
    switch (c->how[0]) {
    case 'u': return sys2(SYS_munmap, at, len);
    case 'd': return sys3(SYS_madvise, at, len, MADV_DONTNEED);
    case 'p': return sys3(SYS_mprotect, at, len, PROT_READ);
    default: return sys3(SYS_madvise, at, len, MADV_FREE);
    }
}

/* Returns a huge page's value, from its first and last base page. */
static unsigned huge_sum(u64 at)
{
    unsigned sum = 0;
    const unsigned *first = (const unsigned *)at;
    const unsigned *last = (const unsigned *)(at + huge_bytes - base_page);
    for (u64 i = 0; i < base_page / sizeof *first; i++) { sum += first[i] + last[i]; }
    return sum;
}

/* A store to a huge page writes to its first and last base page. */
static int store_huge(u64 at, unsigned value)
{
    return try_store(at, value) && try_store(at + huge_bytes - base_page, value);
}
#endif
