/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sizes that follow memory pressure. While more than a quarter of the limit or of memory is free:
 * all enabled sizes, and text in 64K. Down to a sixteenth: 64K. Below that: base pages, and windows
 * of at most 16 pages.
 */
#include "folio_policy.h"

static __always_inline __u64 left_of(__u64 all, __u64 used)
{
	return used < all ? all - used : 0;
}

/* 0 = plenty, 1 = less, 2 = short. */
static __always_inline int pressure(struct folio_context *ctx)
{
	__u64 all = ctx->nr_pages, left = left_of(ctx->nr_free, ctx->high);

	if (ctx->group_max < all) {
		all = ctx->group_max;
		left = left_of(all, ctx->group_pages);
	}
	return left > all / 4 ? 0 : left > all / 16 ? 1 : 2;
}

SEC("folio/anon_order")
__u64 anon_order(struct folio_context *ctx)
{
	switch (pressure(ctx)) {
	case 0:
		return FOLIO_OWN;
	case 1:
		return ctx->orders & (FOLIO_ORDER(folio_order_of(ctx, 64 << 10) + 1) - 1);
	default:
		return 0;
	}
}

SEC("folio/collapse")
__u64 collapse(struct folio_context *ctx)
{
	return pressure(ctx) == 0 ? FOLIO_OWN : 0;
}

SEC("folio/window")
__u64 window(struct folio_context *ctx)
{
	__u64 order, start, nr, last;
	int now = pressure(ctx);

	if (ctx->cause != FOLIO_COLD || !ctx->ra_pages)
		return FOLIO_OWN;
	last = ctx->index + (ctx->area_end - ctx->page);
	if (now < 2) {
		if (!(ctx->area_flags & FOLIO_EXEC))
			return FOLIO_OWN;
		order = folio_order_of(ctx, 64 << 10);
		nr = ctx->ra_pages;
	} else {
		order = 0;
		nr = ctx->ra_pages < 16 ? ctx->ra_pages : 16;
	}
	start = folio_round_down(ctx->index, order);
	if (start + nr <= ctx->index)
		nr = ctx->index - start + 1;
	if (start + nr > last)
		nr = last - start;
	folio_window(start, nr, 0, order);
	return 0;
}
