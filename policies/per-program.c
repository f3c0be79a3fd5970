/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A size for each program, as the BPF series for anonymous memory proposed: compilers get 64K, which
 * they fill; interpreters get 16K, because their heaps are sparse; whoever else gets what the settings
 * allow. A process that has had its first 256 faults is no short program: it gets all sizes.
 */
#include "folio_policy.h"

#define SHORT_FAULTS 256

FOLIO_MAP(faults, FOLIO_HASH, __u64, __u64, 4096);

SEC("folio/anon_order")
__u64 anon_order(struct folio_context *ctx)
{
	__u64 process = ctx->process, one = 1;
	__u64 *nr = bpf_map_lookup_elem(&faults, &process);

	if (nr)
		*nr += 1;
	else
		bpf_map_update_elem(&faults, &process, &one, 0);
	if (folio_is(ctx, "python3") || folio_is(ctx, "perl") || folio_is(ctx, "python3.11"))
		return ctx->orders & (FOLIO_ORDER(folio_order_of(ctx, 16 << 10) + 1) - 1);
	if (nr && *nr > SHORT_FAULTS)
		return FOLIO_OWN;
	return ctx->orders & (FOLIO_ORDER(folio_order_of(ctx, 64 << 10) + 1) - 1);
}
