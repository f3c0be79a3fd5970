/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The best policy in the study: the kernel's own read-around for text and data, rounded out to
 * whole 64K folios. It reads the same pages at the same times, only in larger folios. */
#include "folio_policy.h"

SEC("folio/window")
__u64 window(struct folio_context *ctx)
{
	__u64 order, start, end;

	if (ctx->cause != FOLIO_COLD || !ctx->own_pages)
		return FOLIO_OWN;
	order = folio_order_of(ctx, 64 << 10);
	if (order > ctx->max_order)
		order = ctx->max_order;
	/* MADV_HUGEPAGE requested more. */
	if (order <= ctx->own_order)
		return FOLIO_OWN;
	start = folio_round_down(ctx->own_start, order);
	end = folio_round_up(ctx->own_start + ctx->own_pages, order);
	folio_window(start, end - start, ctx->own_ahead, order);
	return 0;
}
