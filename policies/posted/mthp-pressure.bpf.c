/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For mthp_ext: a cgroup gets base pages as long as it has little private and shared memory, and
 * while memory kept it waiting for more than a tenth of the last interval.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "folio_interval.h"

#define MIN_BYTES (1UL << 20)
#define INTERVAL_MS 10
#define STALL_MS (INTERVAL_MS / 10)

FOLIO_INTERVAL(INTERVAL_MS);

char _license[] SEC("license") = "Dual MIT/GPL";

struct seen {
	u64 stall_ms;
	u64 is_small;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct seen);
} of_cgroups SEC(".maps");

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(choose, struct cgroup *cgrp, unsigned long orders)
{
	struct seen *seen = bpf_cgrp_storage_get(&of_cgroups, cgrp, 0, 0);

	return seen && seen->is_small ? 0 : orders;
}

SEC(".struct_ops.link")
struct bpf_mthp_ops pressure_ops = {
	.mthp_choose = (void *)choose,
};

SEC("iter.s/cgroup")
int scan(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgrp = ctx->cgroup;
	struct mem_cgroup *memcg;
	struct seen *seen;
	u64 stall_ms, bytes;

	if (!cgrp)
		return 1;
	seen = bpf_cgrp_storage_get(&of_cgroups, cgrp, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	memcg = bpf_get_mem_cgroup(&cgrp->self);
	if (!seen || !memcg)
		return 0;
	bpf_mem_cgroup_flush_stats(memcg);
	bytes = bpf_mem_cgroup_page_state(memcg, NR_ANON_MAPPED) +
		bpf_mem_cgroup_page_state(memcg, NR_SHMEM);
	stall_ms = bpf_cgroup_stall(cgrp, PSI_MEM_FULL);
	seen->is_small = bytes < MIN_BYTES || stall_ms - seen->stall_ms > STALL_MS;
	seen->stall_ms = stall_ms;
	bpf_put_mem_cgroup(memcg);
	return 0;
}
