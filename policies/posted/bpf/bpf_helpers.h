/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Helpers for policies written for interfaces posted upstream; see vmlinux.h. Calls of any other
 * helper or kernel function are refused by name when the policy is loaded. */
#ifndef FOLIO_POSTED_BPF_HELPERS_H
#define FOLIO_POSTED_BPF_HELPERS_H

#include "../vmlinux.h"

#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __weak __attribute__((weak))
#define __hidden __attribute__((visibility("hidden")))
#define __ksym __attribute__((section(".ksyms")))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name

#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

/* The model prints nothing. */
#define bpf_printk(format, ...) ((void)0)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;

/*
 * Calls callback(index, context) with index 0, 1, .. nr - 1, until it returns something other than
 * 0. Returns the number of calls, -E2BIG if nr is above 8 Mi, or -EINVAL if flags are not 0. The
 * callback may change what context points to, but not call bpf_loop or an iteration of a list. A
 * decision that runs more than 1,048,576 instructions ends the prediction.
 */
static long (*bpf_loop)(__u32 nr, void *callback, void *context, __u64 flags) = (void *)181;

/* A map of BPF_MAP_TYPE_CGRP_STORAGE: the cgroup's entry, zeroed at first. Without
 * BPF_LOCAL_STORAGE_GET_F_CREATE, 0 if there is none; value must be 0. */
static void *(*bpf_cgrp_storage_get)(void *map, struct cgroup *cgrp, void *value, __u64 flags) = (void *)210;

/* Declared, but refused when a policy that calls them is loaded: results must be reproducible, and
 * the model has no other kernel memory. */
static long (*bpf_probe_read_kernel)(void *to, __u32 size, const void *from) = (void *)113;
static long (*bpf_probe_read_kernel_str)(void *to, __u32 size, const void *from) = (void *)115;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static __u32 (*bpf_get_prandom_u32)(void) = (void *)7;
static __u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;

/* Rings stay empty in the model: always 0. */
static void *(*bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;
static void (*bpf_ringbuf_discard)(void *data, __u64 flags) = (void *)133;

/*
 * Kernel functions for cgroups. Stalls are in milliseconds, as in the posted sample: the model's
 * estimate of the time for which reclaim and reads of evicted memory kept the cgroup waiting; some
 * and full are the same. Amounts are in bytes.
 */
extern struct mem_cgroup *bpf_get_mem_cgroup(struct cgroup_subsys_state *css) __ksym;
extern void bpf_put_mem_cgroup(struct mem_cgroup *memcg) __ksym;
extern void bpf_cgroup_flush_stats(struct cgroup *cgrp) __ksym;
extern void bpf_mem_cgroup_flush_stats(struct mem_cgroup *memcg) __ksym;
extern u64 bpf_cgroup_stall(struct cgroup *cgrp, enum psi_states state) __ksym;
extern unsigned long bpf_mem_cgroup_page_state(struct mem_cgroup *memcg, int item) __ksym;

#endif
