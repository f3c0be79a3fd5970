/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Eviction lists for policies written for cache_ext; see vmlinux.h. */
#ifndef FOLIO_POSTED_CACHE_EXT_LIB_H
#define FOLIO_POSTED_CACHE_EXT_LIB_H

#include "vmlinux.h"
#include "bpf/bpf_helpers.h"
#include "bpf/bpf_tracing.h"

#define BPF_STRUCT_OPS(name, args...) SEC("struct_ops/" #name) BPF_PROG(name, ##args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...) SEC("struct_ops.s/" #name) BPF_PROG(name, ##args)

/* What a callback of an iteration returns. */
#define CACHE_EXT_CONTINUE_ITER 0
#define CACHE_EXT_STOP_ITER 1
#define CACHE_EXT_EVICT_NODE 2 /* propose the folio */

/* cache_ext_iterate_opts: where a folio goes; list 0 = the list it is in. */
#define CACHE_EXT_ITERATE_SELF 0
#define CACHE_EXT_ITERATE_SKIP 0 /* it keeps its place */
#define CACHE_EXT_ITERATE_HEAD 1
#define CACHE_EXT_ITERATE_TAIL 2

/* A new list, from 1 on; 0 if the cgroup has 64 already. */
extern u64 bpf_cache_ext_ds_registry_new_list(struct mem_cgroup *memcg) __ksym;

/* 0, or -1 if there is no such list, or if the folio is in a list already (add) or in none. */
extern int bpf_cache_ext_list_add(u64 list, struct folio *folio) __ksym;
extern int bpf_cache_ext_list_add_tail(u64 list, struct folio *folio) __ksym;
extern int bpf_cache_ext_list_move(u64 list, struct folio *folio, bool tail) __ksym;
extern int bpf_cache_ext_list_del(struct folio *folio) __ksym;

/*
 * Calls callback(index, node) for the list's folios from its head on, at most 4096 of them, until
 * the callback stops or enough folios are proposed. A proposed folio keeps its place, and leaves
 * the list once it is evicted. Returns a number from 0 on, or -1 if there is no such list.
 */
extern int bpf_cache_ext_list_iterate(struct mem_cgroup *memcg, u64 list,
				      int(callback)(int index, struct cache_ext_list_node *node),
				      struct cache_ext_eviction_ctx *ctx) __ksym;

/* The same, and moves the folios as opts says. */
extern int bpf_cache_ext_list_iterate_extended(struct mem_cgroup *memcg, u64 list,
					       int(callback)(int index, struct cache_ext_list_node *node),
					       struct cache_ext_iterate_opts *opts,
					       struct cache_ext_eviction_ctx *ctx) __ksym;

/* Of each sample_size folios from the head on, proposes the one with the lowest score. All of them
 * move to the tail. */
extern int bpf_cache_ext_list_sample(struct mem_cgroup *memcg, u64 list,
				     s64(score)(struct cache_ext_list_node *node),
				     struct sampling_options *opts,
				     struct cache_ext_eviction_ctx *ctx) __ksym;

static __always_inline bool folio_test_uptodate(struct folio *folio)
{
	return folio->flags >> PG_uptodate & 1;
}

static __always_inline bool folio_test_lru(struct folio *folio)
{
	return folio->flags >> PG_lru & 1;
}

static __always_inline bool folio_test_dirty(struct folio *folio)
{
	return folio->flags >> PG_dirty & 1;
}

static __always_inline bool folio_test_writeback(struct folio *folio)
{
	return folio->flags >> PG_writeback & 1;
}

static __always_inline bool folio_test_locked(struct folio *folio)
{
	return folio->flags >> PG_locked & 1;
}

static __always_inline bool folio_test_large(struct folio *folio)
{
	return folio->flags >> PG_head & 1;
}

static __always_inline unsigned long folio_index(struct folio *folio)
{
	return folio->index;
}

static __always_inline unsigned long folio_nr_pages(struct folio *folio)
{
	return 1UL << (folio->_folio_order & 63);
}

#endif
