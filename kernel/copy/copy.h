/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_COPY_H
#define _LINUX_LARGEFOLIO_COPY_H

/* Copies of several neighbouring pages with one operation. */

#include <linux/types.h>

struct folio;
struct page;

#ifdef CONFIG_LARGEFOLIO_COPY

bool lf_copies_extents(void);

/*
 * Copies @nr pages. Returns -EHWPOISON if a source page has a memory error.
 * May sleep.
 */
int lf_copy_pages(struct page *dst, struct page *src, unsigned long nr);

/* The same for a folio of which page @fault is needed next: it comes last. */
int lf_copy_around(struct folio *dst, struct folio *src, unsigned long fault);

#else

static inline bool lf_copies_extents(void)
{
	return false;
}

static inline int lf_copy_pages(struct page *dst, struct page *src,
				unsigned long nr)
{
	return 0;
}

static inline int lf_copy_around(struct folio *dst, struct folio *src,
				 unsigned long fault)
{
	return 0;
}

#endif
#endif
