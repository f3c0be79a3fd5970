/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_READAHEAD_H
#define _LINUX_LARGEFOLIO_READAHEAD_H

#include <linux/pagemap.h>

/*
 * Whether page_cache_ra_order() may read larger folios than its caller asked
 * for, which is its rule up to 6.16.
 */
static inline bool lf_may_raise_order(const struct readahead_control *ractl)
{
	return !ractl->_lf_exact_order;
}

#endif
