/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_OWNERS_H
#define _LINUX_LARGEFOLIO_OWNERS_H

/*
 * The owners of a large folio: limits and exact counts. For linux/rmap.h, which
 * includes this file below its lock of the large mapcount.
 */

#include <linux/largefolio/mapped_refs.h>

#ifdef CONFIG_LARGEFOLIO_OWNERS

extern unsigned long lf_owners_max;
extern unsigned long lf_pmd_counts;
extern unsigned long lf_mapcount_max;

static __always_inline void lf_owners_reset(struct folio *folio)
{
	atomic_set(&folio->_nr_pages_mapped, 0);
}

/*
 * Whether the folio has no owners, or loses them because @diff more mappings
 * are too many. The caller has the lock of the large mapcount, or the only
 * reference.
 */
static __always_inline bool lf_is_stopped(struct folio *folio, int diff)
{
	unsigned long max = READ_ONCE(lf_owners_max);
	int word = atomic_read(&folio->_nr_pages_mapped);
	int mapcount = atomic_read(&folio->_large_mapcount) + 1 + diff;

	if (likely(!max) || word & LF_OWNERS_STOPPED)
		return word & LF_OWNERS_STOPPED;
	if (diff <= 0 || mapcount <= max)
		return false;
	folio_set_mm_id(folio, 0, MM_ID_DUMMY);
	folio_set_mm_id(folio, 1, MM_ID_DUMMY);
	folio->_mm_id_mapcount[0] = -1;
	folio->_mm_id_mapcount[1] = -1;
	atomic_set(&folio->_nr_pages_mapped, word | LF_OWNERS_STOPPED);
	return true;
}

/* Counts @diff mappings of a folio without owners; it is shared while mapped. */
static __always_inline int lf_count_stopped(struct folio *folio, int diff)
{
	int mapcount = atomic_read(&folio->_large_mapcount) + 1 + diff;

	atomic_set(&folio->_large_mapcount, mapcount - 1);
	if (mapcount)
		folio->_mm_ids |= FOLIO_MM_IDS_SHARED_BIT;
	else
		folio->_mm_ids &= ~FOLIO_MM_IDS_SHARED_BIT;
	return mapcount;
}

static __always_inline int lf_count_stopped_unlock(struct folio *folio,
						   int diff)
{
	int mapcount = lf_count_stopped(folio, diff);

	folio_unlock_large_mapcount(folio);
	return mapcount;
}

/* Whether @nr more mappings would come near an overflow. */
static inline bool lf_is_full(const struct folio *folio, int nr)
{
	unsigned long max = READ_ONCE(lf_mapcount_max);

	return folio_test_large(folio) && !folio_is_device_private(folio) &&
	       folio_large_mapcount(folio) + nr > max;
}

/* folio_inc_return_large_mapcount() and others, for a mapping of all pages. */
int lf_inc_return_pmd_mapcount(struct folio *folio, struct vm_area_struct *vma);
int lf_dec_return_pmd_mapcount(struct folio *folio, struct vm_area_struct *vma);
/* folio_set_large_mapcount(); 1 means a mapping of all pages. */
void lf_set_large_mapcount(struct folio *folio, int mapcount,
			   struct vm_area_struct *vma);

#else

#define lf_owners_reset(folio)			do { } while (0)
#define lf_is_stopped(folio, diff)		false
#define lf_count_stopped(folio, diff)		0
#define lf_count_stopped_unlock(folio, diff)	0
#define lf_is_full(folio, nr)			false
#define lf_inc_return_pmd_mapcount		folio_inc_return_large_mapcount
#define lf_dec_return_pmd_mapcount		folio_dec_return_large_mapcount
#define lf_set_large_mapcount			folio_set_large_mapcount

#endif
#endif
