/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For bpf_thp: areas of at least 4 MiB get the largest possible order, and areas with MADV_HUGEPAGE
 * too; smaller ones get at most 64K. What comes back from swap space comes in base pages.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define LARGE_BYTES (4UL << 20)
#define ORDER_64K 4

char _license[] SEC("license") = "Dual MIT/GPL";

/* The largest order of a set, as a binary search. */
static __always_inline int largest(unsigned long orders)
{
	int order = 0;

	if (orders >> 8) {
		orders >>= 8;
		order += 8;
	}
	if (orders >> 4) {
		orders >>= 4;
		order += 4;
	}
	if (orders >> 2) {
		orders >>= 2;
		order += 2;
	}
	return order + (orders >> 1 & 1);
}

SEC("struct_ops/thp_get_order")
int BPF_PROG(by_area, struct vm_area_struct *vma, enum tva_type type, unsigned long orders)
{
	if (type == TVA_SWAP_PAGEFAULT)
		return 0;
	if (vma->vm_end - vma->vm_start < LARGE_BYTES && !(vma->vm_flags & VM_HUGEPAGE))
		orders &= (2UL << ORDER_64K) - 1;
	return largest(orders);
}

SEC(".struct_ops.link")
struct bpf_thp_ops by_area_ops = {
	.thp_get_order = (void *)by_area,
};
