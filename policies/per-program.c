/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sizes per program, after the BPF series for anonymous memory: interpreters get up to 16K, because
 * their heaps are sparse. Every other program gets up to 64K for its first 256 faults. After that
 * it is not a short program, and gets every enabled size.
 */
#include "folio_policy.h"

#define SHORT_FAULTS 256

/* Process numbers are reused, so the count belongs to the program that the process runs. */
struct counted {
	__u64 name[2];
	__u64 nr;
};

FOLIO_MAP(faults, FOLIO_HASH, __u64, struct counted, 4096);

static __always_inline __u64 up_to(struct folio_context *ctx, __u64 bytes)
{
	return ctx->orders & (FOLIO_ORDER(folio_order_of(ctx, bytes) + 1) - 1);
}

SEC("folio/anon_order")
__u64 anon_order(struct folio_context *ctx)
{
	const folio_word *name = (const folio_word *)ctx->comm;
	struct counted first = { { name[0], name[1] }, 1 }, *known;
	__u64 process = ctx->process, nr = 1;

	known = bpf_map_lookup_elem(&faults, &process);
	if (known && known->name[0] == name[0] && known->name[1] == name[1])
		nr = ++known->nr;
	else
		bpf_map_update_elem(&faults, &process, &first, 0);
	if (folio_is(ctx, "python3") || folio_is(ctx, "perl") || folio_is(ctx, "python3.11"))
		return up_to(ctx, 16 << 10);
	return nr > SHORT_FAULTS ? FOLIO_OWN : up_to(ctx, 64 << 10);
}
