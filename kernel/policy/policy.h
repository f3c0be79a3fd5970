/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_POLICY_H
#define _LINUX_LARGEFOLIO_POLICY_H

#include <linux/types.h>

/* The points at which a program decides, in the order of folio_policy.h. */
enum lf_point {
	LF_ANON_ORDER,
	LF_WINDOW,
	LF_AROUND,
};

/* Why a window is read. */
enum lf_cause {
	LF_COLD,	/* the page is absent */
	LF_GATED,	/* absent, and the miss counter stopped readahead */
	LF_MARKER,	/* an earlier window's marker was reached */
};

/* The kernel decides; also as the answer of a program that returns an int. */
#define LF_OWN (~0ULL)
#define LF_OWN_OF_INT 0xffffffffULL

/*
 * A program's input, which is struct folio_context of folio_policy.h, and its
 * answer. Pages are base pages. A number without a meaning at a point is 0.
 */
struct lf_context {
	char comm[16];
	u64 point, process;
	u64 area_start, area_end, area_flags;
	u64 page, access;
	u64 orders, order, folio_flags, nr_present;
	u64 index, file_pages, min_order, max_order, ra_pages, misses, cause;
	u64 own_start, own_pages, own_ahead, own_order, own;
	u64 page_shift, pmd_order;
	u64 nr_pages, nr_free, low, high, nr_reclaims, swap_free;
	u64 group_max, group_pages;
	u64 free[14];
};

struct lf_window {
	u64 start, nr_pages, nr_ahead, order;
};

struct lf_question {
	struct lf_context context;
	u64 answer;		/* what the program returned */
	u64 has_window;		/* whether it called folio_window(), with: */
	struct lf_window window;
};

/*
 * The fault that a program is asked about. Readahead may drop the lock on the
 * area before it asks, so this is a copy.
 */
struct lf_fault {
	u64 area_start, area_end, area_flags;
	u64 page, access, index;
	enum lf_cause cause;
	bool *was_asked;	/* NULL: no fault, or no program to ask */
};

struct file;
struct file_ra_state;
struct readahead_control;
struct vm_fault;

#ifdef CONFIG_LARGEFOLIO_POLICY

/* The kernel's page_cache_ra_order(). */
void lf_kernel_ra_order(struct readahead_control *ractl,
			struct file_ra_state *ra, unsigned int new_order);

/*
 * Asks about the kernel's window, once a fault. True: the answer's window is
 * read instead, or nothing.
 */
bool lf_policy_reads_instead(struct readahead_control *ractl,
			     struct lf_window own);

/* Reads a window in place of the kernel's; none, if it has no pages. */
void lf_read_window(struct readahead_control *ractl, struct lf_window window);

/* Whether a program is attached to the point. */
bool lf_policy_answers(enum lf_point point);

/* Orders to try for a fault on private memory, out of the possible ones. */
unsigned long lf_policy_anon_orders(struct vm_fault *vmf,
				    unsigned long possible);

/* Pages to map around a fault. */
unsigned long lf_policy_around(struct vm_fault *vmf, unsigned long own);

/*
 * What a fault reads in place of the kernel's window `own`; a window of no
 * pages is the page alone. Returns whether that changes anything.
 */
bool lf_policy_window(const struct lf_fault *fault, struct file *file,
		      struct lf_window own, struct lf_window *window);

/* A fault that may read a window. */
struct lf_fault lf_window_fault(struct vm_fault *vmf, enum lf_cause cause);

/* The fault that a readahead_control is for. */
#define LF_READAHEAD(name, _file, _ra, _mapping, index, cause)	\
	struct readahead_control name = {				\
		.file = (_file),					\
		.mapping = (_mapping),					\
		.ra = (_ra),						\
		._index = (index),					\
		._lf_fault = lf_window_fault(vmf, cause),		\
		._lf_before = *(_ra),					\
	}
#define LF_SYNC_READAHEAD(...) LF_READAHEAD(__VA_ARGS__, LF_COLD)
#define LF_ASYNC_READAHEAD(...) LF_READAHEAD(__VA_ARGS__, LF_MARKER)

#else

#define lf_kernel_ra_order page_cache_ra_order
#define LF_SYNC_READAHEAD DEFINE_READAHEAD
#define LF_ASYNC_READAHEAD DEFINE_READAHEAD

static inline unsigned long lf_policy_anon_orders(struct vm_fault *vmf,
						  unsigned long possible)
{
	return possible;
}

#endif
#endif
