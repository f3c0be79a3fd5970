/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Policies for large folios: BPF programs that largefolio runs in its model of a kernel.
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
 * A file has one function for each point that it answers, in that point's section. A function reads
 * its context and returns one number. It can have up to 4096 instructions and no loops (clang
 * unrolls them: #pragma unroll), except with bpf_loop(). It can call only the helpers below; other
 * functions are static __always_inline. It may use maps and variables, which live as long as the
 * modelled machine.
 *
 * A policy is a preference. If a kernel cannot follow an answer, it falls back, and the result
 * counts the answer as refused. FOLIO_OWN leaves the decision to the kernel.
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
 * folio/anon_order: a fault on private memory of a process. ctx->orders are the possible orders:
 * enabled, inside the area, with only untouched pages; for a load, only the PMD order or none.
 * Answer: the orders to try, largest first. If the answer is empty, or no folio is free, the fault
 * gets a base page. Not called if ctx->orders would be empty.
 */
#define FOLIO_ORDER(order) (1ULL << (order))

/*
 * folio/window: a fault on a mapped file whose page is absent, or that reaches an earlier window's
 * marker. Call folio_window() and return 0, or return 0 without it to read only the faulting page.
 * ctx->own_* is the kernel's own window.
 */
#define FOLIO_COLD 0   /* the page is absent */
#define FOLIO_GATED 1  /* absent, and the miss counter has stopped readahead */
#define FOLIO_MARKER 2 /* the marker was reached: the next window is read */

/*
 * Reads nr_pages pages of the file from start, in folios of this order, as far as they fit into the
 * window. The last nr_ahead pages follow the marker, and reaching it starts the next window; 0 = no
 * marker. The window must contain the absent page (at a marker: begin after it), and be no larger
 * than the device's window or two PMD folios.
 */
static long (*folio_window)(__u64 start, __u64 nr_pages, __u64 nr_ahead, __u64 order) = (void *)4096;

/* folio/around: a load from a mapped file. Answer: pages to map around it, a power of two up to the
 * pages of a PMD entry; 1 = only the page. */

/* folio/collapse: khugepaged found a block. Answer: orders to collapse it to, from ctx->orders; 0 =
 * none. ctx->nr_present is the number of its present pages: mapped, or cached for a file. */

/*
 * folio/write: a store to a large private folio that is mapped read-only. ctx->own is the kernel's
 * own choice. A folio cannot be kept if others use it, or if this kernel always copies. For a PMD
 * mapping, the policy is called for the whole, and again for the page if it is split.
 */
#define FOLIO_REUSE 1 /* keep it */
#define FOLIO_COPY 2  /* copy the page; first split the PMD entry */

/* folio/victim: reclaim is about to evict a folio. The final scan before reclaim fails keeps none.
 * If a scan found only kept folios, the same number of following ones are not kept either. */
#define FOLIO_EVICT 1 /* a dirty file page stays, and so does a page without free swap space */
#define FOLIO_KEEP 2  /* another round */
#define FOLIO_SPLIT 3 /* private memory: into base pages, which are then scanned one by one */

/* folio/swapin_order: a fault on private memory in swap space of zram. ctx->orders are the possible
 * orders: enabled, inside the area, and swapped out together. Answer: the orders to try; 0 = the
 * page. Not called if ctx->orders would be empty. */

/* folio/shmem_order: an absent page of shared memory, of a fault or (ctx->process and the area are
 * 0) of a call. Otherwise as folio/anon_order; ctx->file and ctx->index say where. */

/* folio/added, folio/accessed, folio/removed: a folio of a file entered the page cache; a read call
 * used it, or a used page of it was unmapped; it left. ctx->folio, ctx->file, ctx->index, ctx->order
 * and FOLIO_DIRTY describe it. The answer is ignored. A folio that is split leaves, and its parts
 * enter. Several events can be reported at once, in order, but before the next question. */

/* folio/evict: reclaim in cgroup ctx->group needs ctx->wanted pages. Answer: a ctx->folio to evict,
 * or FOLIO_OWN. Asked until enough is free. Refused: another cgroup's folio, one that is dirty or in
 * use, and a number that is no cached folio. After FOLIO_OWN or 32 refusals, the kernel evicts. */

/* folio/admit: a read call for ctx->wanted pages from ctx->index on finds the first one absent. */
#define FOLIO_CACHE 0  /* the page cache keeps what it reads */
#define FOLIO_BYPASS 1 /* it is read past the page cache, as with O_DIRECT */

/* folio/interval: called for each cgroup, at each interval of the program's references (1 ns each,
 * unless --reference-ns says otherwise; waits take no time). The answer is ignored. One second,
 * unless the file chooses other milliseconds. */
#define FOLIO_INTERVAL(ms) \
	static const __u32 folio_interval_ms __attribute__((section("folio_interval"), used)) = ms

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
#define FOLIO_PARTIAL (1 << 2) /* some of its pages are not mapped */

/* A policy's input. Pages are base pages. A number without a meaning at a point is 0 there. */
struct folio_context {
	char comm[16];      /* the process's program: up to 15 bytes of its file's name, and a 0. A
			     * kernel has the name given to execve, which can be a link's name. A trace
			     * does not record that. */
	__u64 point;        /* number of the point */
	__u64 process;      /* number of the address space: small, reused after exit */
	__u64 area_start;   /* first page of the area */
	__u64 area_end;     /* page after the last */
	__u64 area_flags;
	__u64 page;         /* virtual page that is touched; of a block: the first */
	__u64 access;       /* 1 = load, 2 = store, 3 = instruction fetch */
	__u64 orders;       /* orders that the kernel would try, as bits */
	__u64 order;        /* the folio's order */
	__u64 folio_flags;
	__u64 nr_present;   /* mapped pages of the block, or cached pages of a file */
	__u64 index;        /* page of the file that is touched */
	__u64 file_pages;   /* file size in pages */
	__u64 min_order;    /* smallest and */
	__u64 max_order;    /* largest order of the file's folios */
	__u64 ra_pages;     /* readahead window of the open file */
	__u64 misses;       /* its miss counter */
	__u64 cause;        /* FOLIO_COLD, FOLIO_GATED or FOLIO_MARKER */
	__u64 own_start;    /* the kernel's window: first page, */
	__u64 own_pages;    /* pages; 0 = the touched page alone, */
	__u64 own_ahead;    /* pages after the marker, */
	__u64 own_order;    /* order */
	__u64 own;          /* the kernel's answer, if it is one number */
	__u64 page_shift;   /* log2 of the base page size in bytes */
	__u64 pmd_order;    /* order of a folio mapped by one PMD entry */
	__u64 nr_pages;     /* memory size in pages */
	__u64 nr_free;      /* free pages */
	__u64 low;          /* below this, background reclaim starts */
	__u64 high;         /* above this, background reclaim stops */
	__u64 nr_reclaims;  /* reclaim requests so far */
	__u64 swap_free;    /* free pages of swap space */
	__u64 group_max;    /* the cgroup's limit in pages (of a victim: its own cgroup); ~0 = none */
	__u64 group_pages;  /* the cgroup's use in pages */
	__u64 free[14];     /* free blocks of exactly each order */
	/* Only the model has these; a policy that reads them does not load into a kernel. */
	__u64 group;        /* number of the cgroup (of a folio: its own), 0 = the root */
	__u64 group_anon;   /* pages of private and shared memory of the cgroup, without swap space */
	__u64 group_shmem;  /* pages of shared memory among them; only at folio/interval */
	__u64 group_stall_ns; /* time for which the cgroup waited for memory so far, as memory.pressure
			     * counts it: reclaim, and reads of pages that were evicted in use. An
			     * estimate with the machine's costs; "some" and "full" are the same. */
	__u64 clock_ns;     /* time of the latest interval */
	__u64 folio;        /* number of the folio, from 1 on: unique while it exists, then reused */
	__u64 file;         /* number of the file, from 1 on */
	__u64 wanted;       /* pages that reclaim needs, or that the call reads */
};

/* Maps: a policy's state. Every entry of an array exists from the start, zeroed. */
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

/* Returns the entry of a key, or 0. */
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
/* Sets an entry; flags as in a kernel: 0 = any, 1 = only a new one, 2 = only an existing one.
 * Unlike in a kernel, a pointer from an earlier lookup sees the new value. */
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
/* Removes an entry from a hash map. */
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;

/*
 * Calls callback(index, context) with index 0, 1, .. nr - 1, until it returns something other than
 * 0. Returns the number of calls, -7 (E2BIG) if nr is above 8 Mi, or -22 (EINVAL) if flags are not
 * 0. The callback is a static function; it may change numbers that context points to, but it cannot
 * call bpf_loop(). A decision of more than 1,048,576 instructions, loops included, ends the
 * prediction. Only the model has bpf_loop().
 */
static long (*bpf_loop)(__u32 nr, void *callback, void *context, __u64 flags) = (void *)181;

/* Whether the program's name is name, a string of at most 15 characters. */
#define folio_is(ctx, name)                                                                  \
	({                                                                                   \
		_Static_assert(sizeof(name) <= 16, "comm has at most 15 characters");         \
		const union { char bytes[16]; __u64 words[2]; } folio_name = { name };       \
		const folio_word *folio_comm = (const folio_word *)(ctx)->comm;              \
		folio_comm[0] == folio_name.words[0] && folio_comm[1] == folio_name.words[1]; \
	})
typedef __u64 __attribute__((may_alias)) folio_word;

/* Returns the largest order with at most this many bytes. */
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
