/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_CLEAR_H
#define _LINUX_LARGEFOLIO_CLEAR_H

#include <linux/mm_types.h>
#include <linux/sched.h>

#ifdef CONFIG_LARGEFOLIO_CLEAR

/* Zeroes the folio; false if the kernel's own code is to do it. */
bool lf_clear_folio(struct folio *folio, unsigned long addr_hint);

/* The kernel's own code zeroes one page, or lets another task run. */
void lf_note_clear(struct folio *folio, unsigned long page);
void lf_cond_resched(void);

#else

static inline bool lf_clear_folio(struct folio *folio, unsigned long addr_hint)
{
	return false;
}

static inline void lf_note_clear(struct folio *folio, unsigned long page)
{
}

static inline void lf_cond_resched(void)
{
	cond_resched();
}

#endif
#endif
