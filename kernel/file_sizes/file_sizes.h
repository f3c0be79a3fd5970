/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_FILE_SIZES_H
#define _LINUX_LARGEFOLIO_FILE_SIZES_H

/*
 * Which folio sizes the page cache uses. A size is a preference: where no
 * allowed one fits, a folio has the mapping's smallest order.
 *
 * A fault in an executable mapping may also use the size marked exec, or one in
 * an area with a preferred size, that size. It notes that order in
 * readahead_control.lf_orders before it drops the lock of the area.
 */

#include <linux/types.h>

/*
 * madvise() with this value makes the area prefer no size; with this value plus
 * 1 plus an order, folios of that order.
 */
#define MADV_FOLIO_ORDER	0x4c470000

struct address_space;
struct readahead_control;
struct vm_fault;

#ifdef CONFIG_LARGEFOLIO_FILE_SIZES

/* Whether @advice is MADV_FOLIO_ORDER, and a setting allows it. */
bool lf_may_prefer(int advice);

/* The flags of an area after @advice. */
unsigned long lf_preferred_flags(int advice, unsigned long flags);

/* The orders that a fault may use besides those of all reads. */
unsigned int lf_fault_orders(const struct vm_fault *vmf);

/* The order for a folio of a read or write that could have @order. */
unsigned int lf_file_order(const struct address_space *mapping,
			   unsigned int order, unsigned int more_orders);

/* The order for MADV_HUGEPAGE; without an allowed one, no advice is followed. */
void lf_forced_order(const struct readahead_control *ractl, bool *is_forced,
		     unsigned int *order);

/*
 * The flags that decide about a window: a requested size counts as executable,
 * except for the counter of misses, and more than random access.
 */
unsigned long lf_sync_flags(const struct readahead_control *ractl,
			    unsigned long flags, bool is_forced);
unsigned long lf_window_flags(const struct readahead_control *ractl,
			      unsigned long flags);

/* The order for the window of an executable mapping. */
unsigned int lf_exec_order(const struct readahead_control *ractl,
			   unsigned int order);

#else

static inline bool lf_may_prefer(int advice)
{
	return false;
}

static inline unsigned long lf_preferred_flags(int advice, unsigned long flags)
{
	return flags;
}

static inline unsigned long lf_sync_flags(const struct readahead_control *ractl,
					  unsigned long flags, bool is_forced)
{
	return flags;
}

static inline unsigned long lf_window_flags(const struct readahead_control *ractl,
					    unsigned long flags)
{
	return flags;
}

static inline unsigned int lf_fault_orders(const struct vm_fault *vmf)
{
	return 0;
}

static inline unsigned int lf_file_order(const struct address_space *mapping,
					 unsigned int order,
					 unsigned int more_orders)
{
	return order;
}

static inline void lf_forced_order(const struct readahead_control *ractl,
				   bool *is_forced, unsigned int *order)
{
}

static inline unsigned int lf_exec_order(const struct readahead_control *ractl,
					 unsigned int order)
{
	return order;
}

#endif
#endif
