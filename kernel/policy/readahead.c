// SPDX-License-Identifier: GPL-2.0-only
/*
 * Readahead for a fault asks a program for its window (policy.c).
 * page_cache_ra_order() is here, in place of the kernel's, which is renamed.
 */

#include <linux/export.h>
#include <linux/fs.h>
#include <linux/largefolio/policy.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/pagemap.h>

#include "../../internal.h"

/* Restores a window that the kernel has already replaced. */
static void restore_window(struct readahead_control *ractl)
{
	const struct file_ra_state *before = &ractl->_lf_before;

	ractl->ra->start = before->start;
	ractl->ra->size = before->size;
	ractl->ra->async_size = before->async_size;
}

void lf_read_window(struct readahead_control *ractl, struct lf_window window)
{
	struct file_ra_state *ra = ractl->ra;

	if (!window.nr_pages) {
		restore_window(ractl);
		return;
	}
	ra->start = window.start;
	ra->size = window.nr_pages;
	ra->async_size = window.nr_ahead;
	ractl->_index = window.start;
	ractl->_lf_exact_order = true;
	lf_kernel_ra_order(ractl, ra, min_t(u64, window.order,
					    mapping_max_folio_order(ractl->mapping)));
}

bool lf_policy_reads_instead(struct readahead_control *ractl,
			     struct lf_window own)
{
	struct lf_fault *fault = &ractl->_lf_fault;
	struct lf_window window;

	if (ractl->_lf_is_replaced)
		return true;
	if (!fault->was_asked)
		return false;
	*fault->was_asked = true;
	fault->was_asked = NULL;
	if (!lf_policy_window(fault, ractl->file, own, &window))
		return false;
	lf_read_window(ractl, window);
	ractl->_lf_is_replaced = true;
	return true;
}

/* The order that the kernel reads a window in. */
static unsigned int own_order(const struct readahead_control *ractl,
			      unsigned int order)
{
	struct address_space *mapping = ractl->mapping;
	unsigned int max = mapping_max_folio_order(mapping);
	unsigned int min = mapping_min_folio_order(mapping);
	unsigned int size = ractl->ra->size;

	if (!mapping_large_folio_support(mapping) || size < max(4U, 1U << min))
		return min;
	if (!ractl->_lf_exact_order && order < max)
		order += 2;
	return max(min3(order, max, (unsigned int)ilog2(size)), min);
}

void page_cache_ra_order(struct readahead_control *ractl,
			 struct file_ra_state *ra, unsigned int new_order)
{
	struct lf_window own = {
		.start = readahead_index(ractl),
		.nr_pages = ra->size,
		.nr_ahead = ra->async_size,
	};

	if (ractl->_lf_fault.was_asked || ractl->_lf_is_replaced) {
		own.order = own_order(ractl, new_order);
		if (lf_policy_reads_instead(ractl, own))
			return;
	}
	lf_kernel_ra_order(ractl, ra, new_order);
}
