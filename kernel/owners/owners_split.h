/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_OWNERS_SPLIT_H
#define _LINUX_LARGEFOLIO_OWNERS_SPLIT_H

#include <linux/rmap.h>

#ifdef CONFIG_LARGEFOLIO_OWNERS

/*
 * A PMD mapping becomes PTE mappings. One that counts all pages has counted
 * them, so only the number of PMD mappings changes.
 */
void lf_split_add_anon_rmap_ptes(struct folio *folio, struct page *page,
				 int nr_pages, struct vm_area_struct *vma,
				 unsigned long address, rmap_t flags);
void __lf_split_remove_rmap_pmd(struct folio *folio, struct page *page,
				struct vm_area_struct *vma, bool freeze);
/* In a function where `freeze` says that the pages lose their mappings. */
#define lf_split_remove_rmap_pmd(folio, page, vma) \
	__lf_split_remove_rmap_pmd(folio, page, vma, freeze)

#else

#define lf_split_add_anon_rmap_ptes		folio_add_anon_rmap_ptes
#define lf_split_remove_rmap_pmd		folio_remove_rmap_pmd

#endif
#endif
