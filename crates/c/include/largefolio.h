/*
 * largefolio.h - large folios for a program's own memory, on Linux.
 *
 * A large folio is a naturally aligned block of memory that the kernel manages as one: 2 MiB on
 * x86-64 (one PMD entry of the page table maps it), and 16 KiB to 1 MiB where the settings allow.
 * These functions get them for a range, show which sizes it has and why no larger ones, and
 * return unused memory in them.
 *
 *   #include <largefolio.h>
 *   void *cache;
 *   struct folio_backed done;
 *   int error = folio_reserve(&cache, 64 << 20, 0, "cache");
 *   if (error == 0)
 *       error = folio_back(cache, 64 << 20, FOLIO_POPULATE, &done);
 *   if (error == 0)
 *       printf("%s\n", folio_reason_text(done.reason));
 *
 * Link with: cc prog.c $(pkg-config --cflags --libs largefolio)
 *
 * Every function
 *   - returns 0, or a negative number of <errno.h>; errno itself may change;
 *   - except folio_release, keeps the memory's contents, and may be called while other threads
 *     write to the memory or unmap it;
 *   - except folio_release, takes any address and length and works on the whole pages in them: a
 *     page at either end that is only partly in the range is left alone;
 *   - allocates nothing, keeps no state and opens /proc/self anew, so it is safe after fork, inside
 *     an allocator, and in every thread with 16 KiB of free stack;
 *   - returns an error, and does not end the program, if a seccomp filter denies a call with errno.
 *
 * Fields that the kernel does not show hold FOLIO_UNKNOWN.
 */
#ifndef LARGEFOLIO_H
#define LARGEFOLIO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A number of bytes that the kernel does not show to this process. */
#define FOLIO_UNKNOWN UINT64_MAX

/* Length of folio_view.order_bytes. */
#define FOLIO_NR_ORDERS 16

/* Why memory has no larger folios. folio_reason_text has the text. */
enum folio_reason {
    FOLIO_COMPLETE = 0,         /* all memory that fits is in the largest folios */
    FOLIO_NOT_VISIBLE = 1,      /* only CAP_SYS_ADMIN sees folios below the PMD size */
    FOLIO_UNMAPPED = 2,
    FOLIO_NOT_TOUCHED = 3,
    FOLIO_ONLY_READ = 4,        /* mapped to the zero page */
    FOLIO_SWAPPED = 5,
    FOLIO_NO_THP = 6,           /* the kernel is built without */
    FOLIO_SETTING_OFF = 7,
    FOLIO_NEEDS_ADVICE = 8,     /* folio_back or folio_advise give it */
    FOLIO_ADVISED_AGAINST = 9,
    FOLIO_PROCESS_OFF = 10,     /* PR_SET_THP_DISABLE */
    FOLIO_TOO_SHORT = 11,
    FOLIO_MISALIGNED = 12,      /* folio_reserve aligns */
    FOLIO_NOT_PRIVATE = 13,     /* a file, or shared memory */
    FOLIO_HUGETLB = 14,
    FOLIO_SMALL_FOLIOS = 15,    /* used before the advice, or no folio was free; folio_collapse */
    FOLIO_NO_FREE_FOLIO = 16,   /* memory is fragmented or scarce */
    FOLIO_BUSY = 17,
    FOLIO_CGROUP_LIMIT = 18,
    FOLIO_NOT_COLLAPSIBLE = 19,
    FOLIO_OLD_KERNEL = 20,      /* no MADV_COLLAPSE before Linux 6.1 */
    FOLIO_ADVISED = 21,         /* folio_back: no setting prevents folios; folio_view shows them */
    FOLIO_SETTING_HIDDEN = 22   /* /sys is not visible, as in some containers */
};

/* Returns a sentence in English; for a number that is none of the above, "unknown reason". */
const char *folio_reason_text(int reason);

/* Which folio sizes the kernel gives private memory of this process now. */
struct folio_sizes {
    uint64_t page_bytes;
    uint64_t pmd_bytes;         /* the largest folio; FOLIO_COLLAPSE and folio_collapse make it */
    uint64_t always_bytes;      /* largest size without advice, 0 if only base pages */
    uint64_t advised_bytes;     /* largest size with FOLIO_ADVICE_HUGE, 0 if only base pages */
    uint64_t always_orders;     /* one bit per order: bit 9 is 2 MiB with pages of 4 KiB */
    uint64_t advised_orders;
    uint64_t reserved[2];
};
int folio_sizes(struct folio_sizes *sizes);

/*
 * Reserves len bytes of private memory (rounded up to whole pages), which take no memory before
 * they are written. align 0 means: for the largest folio that fits and that the kernel gives;
 * otherwise it is a power of two. name, which may be NULL, appears in /proc/PID/maps as
 * [anon:name] where the kernel can (Linux 5.17, CONFIG_ANON_VMA_NAME): at most 79 printable
 * characters without \ ` $ [ ].
 */
int folio_reserve(void **start, size_t len, size_t align, const char *name);

/* Unmaps memory of folio_reserve, whole or in part. start begins a page. The kernel rounds len up to
 * whole pages: the last page goes, although only a part of it is in the range. */
int folio_release(void *start, size_t len);

/* Flags of folio_back. */
#define FOLIO_POPULATE 1u       /* use all pages now, as a write would (Linux 5.14) */
#define FOLIO_COLLAPSE 2u       /* move pages that are in smaller folios (Linux 6.1) */

struct folio_backed {
    uint64_t range_bytes;       /* in whole pages */
    uint64_t folio_bytes;       /* largest that fits and that advised memory gets now, or 0 */
    uint64_t fitting_bytes;     /* in whole, naturally aligned blocks of that size */
    uint64_t advised_bytes;
    uint64_t populated_bytes;
    uint64_t collapsed_bytes;
    int32_t reason;             /* what prevents the folios; see below */
    uint32_t reserved32;
    uint64_t reserved[4];
};

/*
 * Backs the range with the largest folios that the kernel gives: advises it, then does as the
 * flags say. A setting that gives no folios is a reason, not an error. Without flags, the reason is
 * FOLIO_ADVISED if nothing is known to prevent the folios. With flags, it is then the reason of
 * folio_view, and reading it costs as much. done may be NULL.
 */
int folio_back(void *start, size_t len, uint32_t flags, struct folio_backed *done);

struct folio_view {
    uint64_t range_bytes;       /* in whole pages */
    uint64_t mapped_bytes;
    uint64_t present_bytes;
    uint64_t swapped_bytes;
    uint64_t zero_page_bytes;   /* the shared zero page takes no memory; or FOLIO_UNKNOWN */
    uint64_t huge_bytes;        /* under PMD entries; or FOLIO_UNKNOWN */
    uint64_t folio_bytes;       /* largest that fits and that this memory gets now, or 0 */
    uint64_t fitting_bytes;     /* in whole, naturally aligned blocks of that size */
    uint64_t order_bytes[FOLIO_NR_ORDERS]; /* by folio order; or all FOLIO_UNKNOWN */
    int32_t reason;             /* of most bytes that are not in the largest folios */
    uint32_t reserved32;
    uint64_t reserved[4];
};

/*
 * Shows which folio sizes the range has, and why no larger ones. order_bytes needs CAP_SYS_ADMIN;
 * huge_bytes needs Linux 6.7, or a range of whole mappings. Reads /proc/self/smaps: about 7 ms per
 * GiB of the process's memory in base pages.
 */
int folio_view(const void *start, size_t len, struct folio_view *view);

struct folio_waste {
    uint64_t large_bytes;       /* in large folios */
    uint64_t zero_bytes;        /* of them in pages of only zeros */
    uint64_t unreadable_bytes;  /* of them PROT_NONE */
    uint32_t has_all_sizes;     /* 0: only folios under PMD entries were seen */
    uint32_t reserved32;
    uint64_t reserved[4];
};

/* Counts the all-zero pages in large folios. Brings no page into memory. -EOPNOTSUPP before 6.7. */
int folio_waste(const void *start, size_t len, struct folio_waste *waste);

struct folio_collapsed {
    uint64_t folio_bytes;       /* the PMD size */
    uint64_t fitting_bytes;
    uint64_t collapsed_bytes;   /* in PMD folios now */
    int32_t reason;
    uint32_t reserved32;
    uint64_t reserved[4];
};

/* Moves used memory to PMD folios, whatever the settings say. Takes whole blocks of memory, also
 * for their unused parts. done may be NULL. */
int folio_collapse(void *start, size_t len, struct folio_collapsed *done);

enum folio_advice {
    FOLIO_ADVICE_HUGE = 1,
    FOLIO_ADVICE_NO_HUGE = 2    /* the kernel has no advice that takes either back */
};
/* -ENOMEM: a part is not mapped, the rest has the advice. -EINVAL: the kernel is built without large
 * folios, or refuses the advice for such a mapping. 0 does not mean that folios are possible. */
int folio_advise(void *start, size_t len, int advice);

struct folio_split {
    uint64_t huge_bytes;        /* under PMD entries before */
    uint64_t split_bytes;       /* of them in base pages now */
    uint64_t freed_bytes;       /* of them given back: pages of only zeros (Linux 6.12) */
    uint64_t reserved[4];
};

/*
 * Splits the PMD folios that have at least zero_bytes_min in all-zero pages into base pages; 0
 * splits all. The kernel frees the all-zero pages, and loses no write that happens meanwhile
 * (MADV_DONTNEED would). Give FOLIO_ADVICE_NO_HUGE first, or khugepaged may collapse them again.
 * -EOPNOTSUPP before Linux 6.7. done may be NULL.
 */
int folio_split(void *start, size_t len, uint64_t zero_bytes_min, struct folio_split *done);

#ifdef __cplusplus
}
#endif

#endif
