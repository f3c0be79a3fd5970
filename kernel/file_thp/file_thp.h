/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_FILE_THP_H
#define _LINUX_LARGEFOLIO_FILE_THP_H

/*
 * Huge folios of read-only files, also where the filesystem has no large
 * folios and therefore cannot write through them.
 *
 * address_space.lf_nr_thps counts the large folios of such a file. A collapse
 * adds one and then looks for writers; an open for writing adds a writer and
 * then looks for large folios. Each has a full barrier in between, so at least
 * one of them sees the other: the collapse is undone, or the open drops the
 * file's page cache. Nothing in it is dirty then: without a writer, the collapse
 * has written everything back.
 *
 * The open waits until no such file is being collapsed: it needs the folio locks
 * while it has the invalidate lock, and a collapse has folio locks while it needs
 * the invalidate lock, to read absent pages.
 */

#include <linux/types.h>

struct address_space;
struct file;
struct folio;
struct vm_area_struct;

#ifdef CONFIG_LARGEFOLIO_FILE_THP

/* Whether a setting replaces the kernel's rule for files. */
bool lf_has_file_rule(void);
/* That rule. */
bool lf_file_may_collapse(const struct vm_area_struct *vma);

/* A collapse of this file begins, before it locks a folio; and ends. */
bool lf_begin_collapse(struct address_space *mapping);
void lf_end_collapse(bool has_begun);

/*
 * A collapse is about to add a large folio. Returns false if the file has a
 * writer; else *is_counted says whether lf_remove_thp() undoes it.
 */
bool lf_add_thp(struct address_space *mapping, bool *is_counted);
void lf_remove_thp(struct address_space *mapping);

/* A folio leaves the page cache, or is split into folios of @new_order. */
void lf_folio_removed(struct address_space *mapping, const struct folio *folio);
void lf_folio_split(struct address_space *mapping, const struct folio *folio,
		    unsigned int new_order);
/* Whether only folios of one size may replace a large folio of this file. */
bool lf_splits_uniformly(const struct folio *folio);

/* A file was opened. */
void lf_file_opened(struct file *file);

#else

static inline bool lf_has_file_rule(void)
{
	return false;
}

static inline bool lf_file_may_collapse(const struct vm_area_struct *vma)
{
	return false;
}

static inline bool lf_begin_collapse(struct address_space *mapping)
{
	return false;
}

static inline void lf_end_collapse(bool has_begun)
{
}

static inline bool lf_add_thp(struct address_space *mapping, bool *is_counted)
{
	return true;
}

static inline void lf_remove_thp(struct address_space *mapping)
{
}

static inline void lf_folio_removed(struct address_space *mapping,
				    const struct folio *folio)
{
}

static inline void lf_folio_split(struct address_space *mapping,
				  const struct folio *folio,
				  unsigned int new_order)
{
}

static inline bool lf_splits_uniformly(const struct folio *folio)
{
	return false;
}

static inline void lf_file_opened(struct file *file)
{
}

#endif
#endif
