/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Kernel types for policies that were written for interfaces posted upstream, so that their
 * unchanged source compiles for largefolio:
 *
 *     clang -g -O2 -target bpf -I policies/posted -c policy.bpf.c -o policy.o
 *     folio predict prog.folio --kernel 7.2 --policy policy.o
 *
 * -g is needed: the type information describes maps and struct_ops.
 *
 * | interface    | struct_ops           | hooks                                              |
 * |---|---|---|
 * | bpf_thp, v12 | struct bpf_thp_ops   | thp_get_order                                      |
 * | mthp_ext, v2 | struct bpf_mthp_ops  | mthp_choose, and a program in iter/cgroup          |
 * | cache_ext    | struct cache_ext_ops | init, evict_folios, folio_added, folio_accessed,   |
 * |              |                      | folio_evicted, folio_removed, admit_folio          |
 *
 * A structure has only the members that the model can fill in, at offsets of its own. Anything else
 * does not compile, or is refused when the policy is loaded. All pointers that a hook receives, and
 * those in these structures, are valid; they can be compared, stored and used as keys.
 */
#ifndef FOLIO_POSTED_VMLINUX_H
#define FOLIO_POSTED_VMLINUX_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef unsigned long size_t;
typedef unsigned long uintptr_t;
typedef long long loff_t;
typedef int pid_t;
typedef _Bool bool;

enum { false = 0, true = 1 };

#ifndef NULL
#define NULL ((void *)0)
#endif

/* Marks an object file that was compiled with these types. */
static const __u32 folio_posted_version __attribute__((section("folio_posted"), used)) = 1;

#define FOLIO_WORD __attribute__((aligned(8)))

/* Why an order is chosen. The model asks for TVA_PAGEFAULT (also of shared memory), TVA_KHUGEPAGED
 * and TVA_SWAP_PAGEFAULT. */
enum tva_type {
	TVA_SMAPS,
	TVA_PAGEFAULT,
	TVA_KHUGEPAGED,
	TVA_FORCED_COLLAPSE,
	TVA_SWAP_PAGEFAULT,
};

#define VM_READ 0x1UL
#define VM_WRITE 0x2UL
#define VM_EXEC 0x4UL
#define VM_SHARED 0x8UL
#define VM_SEQ_READ 0x8000UL
#define VM_RAND_READ 0x10000UL
#define VM_HUGEPAGE 0x20000000UL
#define VM_NOHUGEPAGE 0x40000000UL

struct task_struct {
	char comm[16];  /* the program's file name, at most 15 bytes */
	pid_t pid FOLIO_WORD; /* number of the address space, from 1 on: small, reused after exit */
	pid_t tgid FOLIO_WORD;
};

struct mm_struct {
	struct task_struct *owner;
};

struct vm_area_struct {
	unsigned long vm_start; /* bytes */
	unsigned long vm_end;
	unsigned long vm_flags; /* the flags above, no others */
	struct mm_struct *vm_mm;
};

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct kernfs_node {
	u64 id;           /* number of the cgroup, from 1 on; 1 = the root */
	const char *name; /* 0: the model's cgroups have no names */
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
	int level FOLIO_WORD;              /* 0 = the root */
	int nr_populated_csets FOLIO_WORD; /* always 1 */
};

struct mem_cgroup {
	struct cgroup_subsys_state css;
};

struct bpf_iter_meta;

struct bpf_iter__cgroup {
	struct bpf_iter_meta *meta; /* 0 */
	struct cgroup *cgroup;
};

enum pageflags {
	PG_locked,
	PG_writeback,
	PG_referenced,
	PG_uptodate,
	PG_dirty,
	PG_lru,
	PG_head,
	PG_workingset,
	PG_active,
	PG_unevictable,
	PG_hugetlb,
};

struct inode {
	unsigned long i_ino; /* the model's number of the file */
};

struct address_space {
	struct inode *host;
};

struct page {
	unsigned long flags;
};

/* The state at the folio's latest event: added, accessed, or evicted. */
struct folio {
	union {
		struct {
			unsigned long flags; /* PG_uptodate, PG_lru, and PG_dirty or PG_head */
			struct address_space *mapping;
			unsigned long index;
			unsigned int _folio_order FOLIO_WORD; /* Linux has it elsewhere; see folio_nr_pages() */
		};
		struct page page;
	};
};

struct cache_ext_list_node {
	struct folio *folio;
};

/* Read-only: bpf_cache_ext_list_iterate() and its relatives fill in the folios. */
struct cache_ext_eviction_ctx {
	unsigned long request_nr_folios_to_evict; /* at most 32 */
	unsigned long nr_folios_to_evict;
};

struct cache_ext_admission_ctx {
	u64 ino;
	u64 offset; /* of the read call, in bytes, rounded down to a page */
	u64 size;   /* bytes, whole pages */
	u64 i_size; /* bytes, whole pages */
};

struct sampling_options {
	u32 sample_size;
	u32 select_size; /* not used */
};

struct cache_ext_iterate_opts {
	u64 continue_list;
	u64 continue_mode;
	u64 evict_list;
	u64 evict_mode;
	u64 nr_folios_continue;
	u64 nr_folios_evict;
};

enum psi_states {
	PSI_IO_SOME,
	PSI_IO_FULL,
	PSI_MEM_SOME,
	PSI_MEM_FULL,
};

enum node_stat_item {
	NR_ANON_MAPPED,
	NR_SHMEM,
	NR_FILE_PAGES,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

/* The interfaces. Members that are not set are not called. */

struct bpf_thp_ops {
	/* 0: all programs. The model has no process ids, so another number is refused. */
	pid_t pid;
	/*
	 * The order to try, of those in orders (bits): possible here, enabled, and inside the area.
	 * Any other number: base pages. Linux also asks about orders that are not possible.
	 */
	int (*thp_get_order)(struct vm_area_struct *vma, enum tva_type type, unsigned long orders);
};

struct bpf_mthp_ops {
	/* The orders to try (bits). Orders that are not in orders are ignored. Asked as above. */
	unsigned long (*mthp_choose)(struct cgroup *cgrp, unsigned long orders);
};

struct cache_ext_ops {
	/* Called once per cgroup, before another hook of it. Not 0: the prediction ends. */
	s32 (*init)(struct mem_cgroup *memcg);
	/* Reclaim needs folios of files. If it gets too few, the kernel's own lists follow. */
	void (*evict_folios)(struct cache_ext_eviction_ctx *ctx, struct mem_cgroup *memcg);
	void (*folio_added)(struct folio *folio);
	void (*folio_accessed)(struct folio *folio);
	/* The folio left the cache; for every reason, also truncation. Both names, not both at once. */
	void (*folio_evicted)(struct folio *folio);
	void (*folio_removed)(struct folio *folio);
	/* A read call misses: true = read past the page cache. Mapped files are not asked about. */
	bool (*admit_folio)(struct cache_ext_admission_ctx *ctx);
};

#endif
