// SPDX-License-Identifier: GPL-2.0-only
/* Limits and exact counts for the owners of large folios (owners.h). */

#include <linux/export.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/rmap.h>
#include <linux/vmstat.h>
#include <linux/largefolio/largefolio.h>
#include <linux/largefolio/owners_split.h>

enum { LF_COUNT_ONE, LF_COUNT_PAGES };

static const char *const lf_count_words[] = { "one", "pages", NULL };

/* More mappings end the tracking of a folio's owners; 0: never. */
unsigned long lf_owners_max;
unsigned long lf_pmd_counts = LF_COUNT_ONE;
/* Half of what an atomic_t can count, like the guard of reference counts. */
unsigned long lf_mapcount_max = INT_MAX / 2;

int lf_mapped_refs(const struct folio *const_folio)
{
	struct folio *folio = (struct folio *)const_folio;
	int refs;

	if (!folio_test_large(folio) || folio_test_hugetlb(folio) ||
	    folio_order(folio) != HPAGE_PMD_ORDER)
		return folio_mapcount(folio);
	folio_lock_large_mapcount(folio);
	refs = __lf_mapped_refs(folio);
	folio_unlock_large_mapcount(folio);
	return refs;
}
EXPORT_SYMBOL_GPL(lf_mapped_refs);

/*
 * Counts a PMD mapping and returns the mappings that it adds. The word changes
 * before the large mapcount grows and after it has shrunk, so in between
 * __lf_mapped_refs() is too low, never too high: a comparison with the
 * references then finds unexpected ones.
 */
static int lf_get_pmd_mapping(struct folio *folio)
{
	int word;

	folio_lock_large_mapcount(folio);
	word = atomic_read(&folio->_nr_pages_mapped);
	if (word < LF_PMD_MAPPING && folio_order(folio) == HPAGE_PMD_ORDER &&
	    READ_ONCE(lf_pmd_counts) == LF_COUNT_PAGES)
		word |= LF_PMD_COUNTS_PAGES;
	atomic_set(&folio->_nr_pages_mapped, word + LF_PMD_MAPPING);
	folio_unlock_large_mapcount(folio);
	return word & LF_PMD_COUNTS_PAGES ? folio_large_nr_pages(folio) : 1;
}

static void lf_put_pmd_mapping(struct folio *folio)
{
	int word;

	folio_lock_large_mapcount(folio);
	word = atomic_read(&folio->_nr_pages_mapped) - LF_PMD_MAPPING;
	if (word < LF_PMD_MAPPING)
		word &= ~LF_PMD_COUNTS_PAGES;
	atomic_set(&folio->_nr_pages_mapped, word);
	folio_unlock_large_mapcount(folio);
}

/* Whether PMD mappings count all pages; stable while the caller has one. */
static bool lf_counts_pages(const struct folio *folio)
{
	return atomic_read(&folio->_nr_pages_mapped) & LF_PMD_COUNTS_PAGES;
}

int lf_inc_return_pmd_mapcount(struct folio *folio, struct vm_area_struct *vma)
{
	int diff = lf_get_pmd_mapping(folio);
	int mapcount = folio_add_return_large_mapcount(folio, diff, vma);

	/* Callers compare with 1: the first mapping. */
	return mapcount == diff ? 1 : mapcount;
}

int lf_dec_return_pmd_mapcount(struct folio *folio, struct vm_area_struct *vma)
{
	int diff = lf_counts_pages(folio) ? folio_large_nr_pages(folio) : 1;
	int mapcount = folio_sub_return_large_mapcount(folio, diff, vma);

	lf_put_pmd_mapping(folio);
	return mapcount;
}

void lf_set_large_mapcount(struct folio *folio, int mapcount,
			   struct vm_area_struct *vma)
{
	if (mapcount == 1)
		mapcount = lf_get_pmd_mapping(folio);
	folio_set_large_mapcount(folio, mapcount, vma);
}

void lf_split_add_anon_rmap_ptes(struct folio *folio, struct page *page,
				 int nr_pages, struct vm_area_struct *vma,
				 unsigned long address, rmap_t flags)
{
	int i;

	if (!lf_counts_pages(folio)) {
		folio_add_anon_rmap_ptes(folio, page, nr_pages, vma, address,
					 flags);
		return;
	}
	for (i = 0; flags & RMAP_EXCLUSIVE && i < nr_pages; i++)
		SetPageAnonExclusive(page + i);
}

void __lf_split_remove_rmap_pmd(struct folio *folio, struct page *page,
				struct vm_area_struct *vma, bool freeze)
{
	if (freeze || !folio_test_anon(folio) || !lf_counts_pages(folio)) {
		folio_remove_rmap_pmd(folio, page, vma);
		return;
	}
	if (atomic_add_negative(-1, &folio->_entire_mapcount))
		lruvec_stat_mod_folio(folio, NR_ANON_THPS,
				      -folio_large_nr_pages(folio));
	lf_put_pmd_mapping(folio);
}

static bool lf_is_mapcount_max(unsigned long value)
{
	return value && value <= INT_MAX / 2;
}

LF_SETTING(owners_max, NULL, &lf_owners_max, NULL);
LF_SETTING(pmd_counts, lf_count_words, &lf_pmd_counts, NULL);
LF_SETTING(mapcount_max, NULL, &lf_mapcount_max, lf_is_mapcount_max);

static int __init lf_owners_init(void)
{
	int err = lf_setting_add(&lf_setting_owners_max);

	if (!err)
		err = lf_setting_add(&lf_setting_pmd_counts);
	if (!err)
		err = lf_setting_add(&lf_setting_mapcount_max);
	return err;
}
late_initcall(lf_owners_init);
