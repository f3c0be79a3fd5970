/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_TEXT_COLLAPSE_H
#define _LINUX_LARGEFOLIO_TEXT_COLLAPSE_H

/* madvise() with this value plus an order collapses whole blocks of that order. */
#define MADV_COLLAPSE_TO	0x4c460000

#include <linux/types.h>

struct vm_area_struct;

#ifdef CONFIG_LARGEFOLIO_TEXT_COLLAPSE

/* Whether @advice is MADV_COLLAPSE_TO. */
static inline bool lf_is_collapse_to(int advice)
{
	return advice > MADV_COLLAPSE_TO && advice <= MADV_COLLAPSE_TO + 31;
}

/* Whether it is, and a setting allows it. */
bool lf_may_collapse_to(int advice);

/* Like madvise_collapse(). */
int lf_collapse_to(struct vm_area_struct *vma, unsigned long start,
		   unsigned long end, int advice, bool *lock_dropped);

#else

static inline bool lf_is_collapse_to(int advice)
{
	return false;
}

static inline bool lf_may_collapse_to(int advice)
{
	return false;
}

static inline int lf_collapse_to(struct vm_area_struct *vma,
				 unsigned long start, unsigned long end,
				 int advice, bool *lock_dropped)
{
	return -EINVAL;
}

#endif
#endif
