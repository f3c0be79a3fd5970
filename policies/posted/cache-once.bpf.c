/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For cache_ext: folios that were used since they were added outlive those that were not. Both are
 * evicted in the order in which they came. Calls that read 256 KiB or more do not fill the cache.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "cache_ext_lib.bpf.h"

#define LARGE_READ (256 << 10)

char _license[] SEC("license") = "Dual MIT/GPL";

static u64 once, again;

s32 BPF_STRUCT_OPS_SLEEPABLE(once_init, struct mem_cgroup *memcg)
{
	once = bpf_cache_ext_ds_registry_new_list(memcg);
	again = bpf_cache_ext_ds_registry_new_list(memcg);
	return once && again ? 0 : -1;
}

void BPF_STRUCT_OPS(once_added, struct folio *folio)
{
	bpf_cache_ext_list_add_tail(once, folio);
}

void BPF_STRUCT_OPS(once_accessed, struct folio *folio)
{
	bpf_cache_ext_list_move(again, folio, true);
}

void BPF_STRUCT_OPS(once_evicted, struct folio *folio)
{
	bpf_cache_ext_list_del(folio);
}

static int clean(int index, struct cache_ext_list_node *node)
{
	return folio_test_dirty(node->folio) ? CACHE_EXT_CONTINUE_ITER : CACHE_EXT_EVICT_NODE;
}

void BPF_STRUCT_OPS(once_evict, struct cache_ext_eviction_ctx *request, struct mem_cgroup *memcg)
{
	bpf_cache_ext_list_iterate(memcg, once, clean, request);
	if (request->nr_folios_to_evict < request->request_nr_folios_to_evict)
		bpf_cache_ext_list_iterate(memcg, again, clean, request);
}

bool BPF_STRUCT_OPS(once_admit, struct cache_ext_admission_ctx *call)
{
	return call->size >= LARGE_READ;
}

SEC(".struct_ops.link")
struct cache_ext_ops once_ops = {
	.init = (void *)once_init,
	.folio_added = (void *)once_added,
	.folio_accessed = (void *)once_accessed,
	.folio_evicted = (void *)once_evicted,
	.evict_folios = (void *)once_evict,
	.admit_folio = (void *)once_admit,
};
