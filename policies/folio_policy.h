/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Policies for large folios, as programs of BPF that largefolio runs in its model of a kernel.
 *
 *     #include "folio_policy.h"
 *
 *     SEC("folio/anon_order")
 *     unsigned long long anon_order(struct folio_context *ctx)
 *     {
 *             return FOLIO_ORDER(4) | FOLIO_ORDER(9);
 *     }
 *
 *     clang -O2 -target bpf -c policy.c -o policy.o
 *     folio predict prog.folio --kernel 7.2 --policy policy.o
 *
 * A file has one function for each point that it answers, in the section of that point. A function
 * reads its context and returns one number. It may be 4096 instructions long, has no loops (clang
 * unrolls them: #pragma unroll), and calls nothing but the helpers below; other functions are
 * static __always_inline. It may keep maps and variables. They live as long as the modelled machine.
 *
 * A policy is a preference. What a kernel could not do is not done: the kernel falls back, and the
 * result counts it as refused. FOLIO_OWN leaves the decision to the kernel.
 */
#ifndef FOLIO_POLICY_H
#define FOLIO_POLICY_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;

#define SEC(name) __attribute__((section(name), used))
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* The kernel decides; also as an int. */
#define FOLIO_OWN (~0ULL)

/*
 * folio/anon_order: a fault on private memory of a process. ctx->orders are the orders that the
 * fault can have: those that the settings allow, that fit the area and whose pages are all untouched;
 * for a load the one that a PMD entry maps, or none. Answer: those to try, the largest first. Without
 * any, and when none is free, the fault gets a base page. Not asked where ctx->orders would be empty.
 */
#define FOLIO_ORDER(order) (1ULL << (order))

/*
 * folio/window: a fault on a mapped file whose page is absent, or that reaches the marker of an
 * earlier window. Call folio_window() and return 0, or return 0 without it to read no more than the
 * page of the fault. ctx->own_* say what the kernel would read.
 */
#define FOLIO_COLD 0   /* the page is absent */
#define FOLIO_GATED 1  /* absent, and the miss counter says that reading ahead is not worth while */
#define FOLIO_MARKER 2 /* the marker was reached: the next window is read */

/*
 * Reads nr_pages pages of the file from start on, in folios of this order, as far as the window has
 * room for them. The last nr_ahead pages are behind the marker, whose reach starts the next window;
 * 0 = no marker. The window holds the absent page (at a marker: begins behind it), and has no more
 * pages than the device's window or two PMD folios.
 */
static long (*folio_window)(__u64 start, __u64 nr_pages, __u64 nr_ahead, __u64 order) = (void *)4096;

/* folio/around: a load from a mapped file. Answer: pages to map around it, a power of two up to those
 * that one PMD entry covers; 1 = the page alone. */

/* folio/collapse: khugepaged found a block. Answer: orders to collapse it to, of ctx->orders; 0 = none.
 * ctx->nr_present says how many of its pages are there: mapped, or of a file cached. */

/* folio/write: a store to a large private folio that is mapped read-only. ctx->own is what the kernel
 * does. A folio cannot be kept that others use, or that this kernel copies whoever uses it. What a PMD
 * entry maps is asked about as a whole, and once more for the page if it is split. */
#define FOLIO_REUSE 1 /* keep it */
#define FOLIO_COPY 2  /* copy the page; split the PMD entry before */

/* folio/victim: reclaim is about to evict a folio. Its last look before it gives up keeps none; where it
 * had found nothing but what was kept, as many of the next are not kept either. */
#define FOLIO_EVICT 1 /* a dirty page of a file stays, and what finds no room in swap space */
#define FOLIO_KEEP 2  /* another round */
#define FOLIO_SPLIT 3 /* private memory: into base pages, which are looked at one by one */

/* ctx->area_flags */
#define FOLIO_READ (1 << 0)
#define FOLIO_WRITE (1 << 1)
#define FOLIO_EXEC (1 << 2)
#define FOLIO_SHARED (1 << 3)
#define FOLIO_FILE (1 << 4)
#define FOLIO_HUGEPAGE (1 << 5)   /* MADV_HUGEPAGE */
#define FOLIO_NOHUGEPAGE (1 << 6) /* MADV_NOHUGEPAGE */
#define FOLIO_RANDOM (1 << 7)     /* MADV_RANDOM */
#define FOLIO_SEQUENTIAL (1 << 8) /* MADV_SEQUENTIAL */

/* ctx->folio_flags */
#define FOLIO_ANON (1 << 0)
#define FOLIO_DIRTY (1 << 1)
#define FOLIO_PARTIAL (1 << 2) /* some of its pages are mapped by nobody */

/* What a policy sees. Pages are base pages. A number that says nothing at a point is 0 there. */
struct folio_context {
	char comm[16];      /* program of the process: at most 15 bytes and a 0, of the name of its file. A
			     * kernel has the name that execve was given, which may be that of a link to
			     * it. A trace does not record that. */
	__u64 point;        /* number of the point */
	__u64 process;      /* number of the address space: small, used again after its end */
	__u64 area_start;   /* first page of the area */
	__u64 area_end;     /* page behind its last */
	__u64 area_flags;
	__u64 page;         /* virtual page that is touched; of a block: its first */
	__u64 access;       /* 1 = load, 2 = store, 3 = instruction fetch */
	__u64 orders;       /* orders that the kernel would try, as bits */
	__u64 order;        /* order of the folio */
	__u64 folio_flags;
	__u64 nr_present;   /* pages of the block that are mapped, or of a file cached */
	__u64 index;        /* page of the file that is touched */
	__u64 file_pages;   /* pages of the file */
	__u64 min_order;    /* smallest and */
	__u64 max_order;    /* largest order of the file's folios */
	__u64 ra_pages;     /* readahead window of the open file */
	__u64 misses;       /* its miss counter */
	__u64 cause;        /* FOLIO_COLD, FOLIO_GATED or FOLIO_MARKER */
	__u64 own_start;    /* the kernel's window: first page, */
	__u64 own_pages;    /* pages; 0 = the touched page alone, */
	__u64 own_ahead;    /* pages behind the marker, */
	__u64 own_order;    /* order */
	__u64 own;          /* the kernel's answer where it is one number */
	__u64 page_shift;   /* log2 of the bytes of a base page */
	__u64 pmd_order;    /* order of the folio that one PMD entry maps */
	__u64 nr_pages;     /* pages of memory, */
	__u64 nr_free;      /* free ones, */
	__u64 low;          /* below this background reclaim starts, */
	__u64 high;         /* and here it ends */
	__u64 nr_reclaims;  /* requests to reclaim so far */
	__u64 swap_free;    /* free pages of swap space */
	__u64 group_max;    /* pages that the control group (of a victim: its own) may take; ~0 = any */
	__u64 group_pages;  /* pages that it has */
	__u64 free[14];     /* free blocks of exactly each order */
};

/* Maps: what a policy keeps. Every entry of an array exists from the start, all zeroes. */
#define FOLIO_HASH 1
#define FOLIO_ARRAY 2

struct folio_map {
	__u32 kind;
	__u32 key_bytes;
	__u32 value_bytes;
	__u32 nr_max;
};

/* FOLIO_MAP(seen, FOLIO_HASH, __u64, __u64, 1024); */
#define FOLIO_MAP(name, kind, key, value, nr_max) \
	struct folio_map name SEC("folio_maps") = { kind, sizeof(key), sizeof(value), nr_max }

/* The entry of a key, or 0. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
/* Sets it; flags as in a kernel: 0 = any, 1 = only a new one, 2 = only one that exists. Unlike in a kernel
 * a pointer from an earlier lookup sees what is set later. */
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
/* Removes it from a hash map. */
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;

/* Whether the program is called name, a string of at most 15 characters. */
#define folio_is(ctx, name)                                                                  \
	({                                                                                   \
		_Static_assert(sizeof(name) <= 16, "comm has at most 15 characters");         \
		const union { char bytes[16]; __u64 words[2]; } folio_name = { name };       \
		const folio_word *folio_comm = (const folio_word *)(ctx)->comm;              \
		folio_comm[0] == folio_name.words[0] && folio_comm[1] == folio_name.words[1]; \
	})
typedef __u64 __attribute__((may_alias)) folio_word;

/* The largest order with at most this many bytes. */
static __always_inline __u64 folio_order_of(struct folio_context *ctx, __u64 bytes)
{
	__u64 order = 0, pages = bytes >> ctx->page_shift;

#pragma unroll
	for (int bit = 1; bit < 14; bit++)
		order += pages >> bit != 0;
	return order;
}

static __always_inline __u64 folio_round_down(__u64 page, __u64 order)
{
	return page >> order << order;
}

static __always_inline __u64 folio_round_up(__u64 page, __u64 order)
{
	return folio_round_down(page + (1ULL << order) - 1, order);
}

#endif
