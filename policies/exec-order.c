/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The exec order of Linux 6.17 on arm64: a cold fault in text reads forward from the aligned page,
 * inside the area, in 64K folios. With this policy, a kernel without that order has the same counts
 * as one with it.
 */
#include "folio_policy.h"

#define EXEC_BYTES (64 << 10)

SEC("folio/window")
__u64 window(struct folio_context *ctx)
{
	__u64 order, first, last, start, end;

	if (!(ctx->area_flags & FOLIO_EXEC) || ctx->cause != FOLIO_COLD || !ctx->ra_pages)
		return FOLIO_OWN;
	order = folio_order_of(ctx, EXEC_BYTES);
	/* The area in pages of the file. */
	first = ctx->index - (ctx->page - ctx->area_start);
	last = ctx->index + (ctx->area_end - ctx->page);
	start = folio_round_down(ctx->index, order);
	if (start < first)
		start = first;
	end = folio_round_up(start + ctx->ra_pages, order);
	if (end > last)
		end = last;
	folio_window(start, end - start, 0, order);
	return 0;
}
