/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_FORCED_H
#define _LINUX_LARGEFOLIO_FORCED_H

#include <linux/huge_mm.h>
#include <linux/largefolio/exec_readahead.h>
#include <linux/pagemap.h>
#include <linux/sizes.h>

/* A forced folio that does not follow the PMD size has at most this order. */
#define LF_FORCED_CAP	((unsigned int)get_order(SZ_2M))

/* The order of the folios that MADV_HUGEPAGE forces; -1: it forces none. */
static inline int lf_forced_order(struct address_space *mapping,
				  enum lf_forced form)
{
	unsigned int max = mapping_max_folio_order(mapping);
	int capped = min(max, LF_FORCED_CAP);

	if (!IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE))
		return -1;
	if (form == LF_FORCED_FINAL)
		return max ? capped : -1;
	if (HPAGE_PMD_ORDER <= MAX_PAGECACHE_ORDER)
		return HPAGE_PMD_ORDER;
	return form == LF_FORCED_POSTED ? capped : -1;
}

#endif
