/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_FILE_SIZES_H
#define _LINUX_LARGEFOLIO_FILE_SIZES_H

/*
 * Which folio sizes the page cache uses. A size is a preference: where no
 * allowed one fits, a folio has the mapping's smallest order.
 *
 * A fault in an executable mapping may also use the size marked exec. It
 * notes that order in readahead_control.lf_orders before it drops the lock of
 * the area.
 */

struct address_space;
struct readahead_control;
struct vm_fault;

#ifdef CONFIG_LARGEFOLIO_FILE_SIZES

/* The orders that a fault may use besides those of all reads. */
unsigned int lf_fault_orders(const struct vm_fault *vmf);

/* The order for a folio of a read or write that could have @order. */
unsigned int lf_file_order(const struct address_space *mapping,
			   unsigned int order, unsigned int more_orders);

/* The order for MADV_HUGEPAGE; without an allowed one, no advice is followed. */
void lf_forced_order(const struct readahead_control *ractl, bool *is_forced,
		     unsigned int *order);

/* The order for the window of an executable mapping. */
unsigned int lf_exec_order(const struct readahead_control *ractl,
			   unsigned int order);

#else

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
