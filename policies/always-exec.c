/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * As proposed in thread 000: large folios for all mapped pages, and the TLB's size for text. A cold
 * fault in text reads a window of 64K folios. One in data reads the whole PMD folio around it if
 * the file supports that size, otherwise the largest supported one.
 */
#include "folio_policy.h"

SEC("folio/window")
__u64 window(struct folio_context *ctx)
{
	__u64 order, start, end, first, last;

	if (ctx->cause != FOLIO_COLD || !ctx->ra_pages)
		return FOLIO_OWN;
	first = ctx->index - (ctx->page - ctx->area_start);
	last = ctx->index + (ctx->area_end - ctx->page);
	if (ctx->area_flags & FOLIO_EXEC) {
		order = folio_order_of(ctx, 64 << 10);
		start = folio_round_down(ctx->index, order);
		end = folio_round_up(start + ctx->ra_pages, order);
	} else {
		order = folio_order_of(ctx, 2 << 20);
		if (order > ctx->max_order)
			order = ctx->max_order;
		start = folio_round_down(ctx->index, order);
		end = start + (1ULL << order);
		if (end < start + ctx->ra_pages)
			end = start + ctx->ra_pages;
	}
	if (start < first)
		start = first;
	if (end > last)
		end = last;
	folio_window(start, end - start, 0, order);
	return 0;
}
