/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_MAPPED_REFS_H
#define _LINUX_LARGEFOLIO_MAPPED_REFS_H

/*
 * Without per-page mapcounts, _nr_pages_mapped of a large folio is unused. It
 * becomes a word that changes only under the lock of the large mapcount:
 *
 *	bit 0	a PMD mapping counts as many mappings as the folio has pages
 *	bit 1	tracking of owners has stopped, until the folio is freed
 *	2..	PMD mappings of the folio
 *
 * All PMD mappings of a folio count alike, so a setting that changes while the
 * folio is mapped takes effect once it has no PMD mapping.
 *
 * A mapping always has one reference per page table entry. Code that compares
 * references with mappings therefore asks lf_mapped_refs().
 */

#include <linux/compiler.h>

#define LF_PMD_COUNTS_PAGES	1
#define LF_OWNERS_STOPPED	2
#define LF_PMD_MAPPING		4

struct folio;

#ifdef CONFIG_LARGEFOLIO_OWNERS
/* The references that page table entries hold. The caller has another one. */
int lf_mapped_refs(const struct folio *folio);

/*
 * The same for a large folio under the lock of the large mapcount, or for
 * statistics, which need neither the lock nor a reference.
 */
static inline int __lf_mapped_refs(const struct folio *folio)
{
	int word = atomic_read(&folio->_nr_pages_mapped);
	int mapcount = folio_large_mapcount(folio);

	if (word & LF_PMD_COUNTS_PAGES)
		mapcount -= word / LF_PMD_MAPPING *
			    (folio_large_nr_pages(folio) - 1);
	return mapcount;
}
#else
#define lf_mapped_refs		folio_mapcount
#define __lf_mapped_refs	folio_large_mapcount
#endif

#endif
