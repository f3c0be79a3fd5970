// SPDX-License-Identifier: GPL-2.0-only
/* Zeroes a folio in three extents around the page that faulted (ABI). */

#include <linux/align.h>
#include <linux/highmem.h>
#include <linux/init.h>
#include <linux/largefolio/clear.h>
#include <linux/largefolio/largefolio.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sizes.h>

#define CREATE_TRACE_POINTS
#include <linux/largefolio/clear_trace.h>

enum lf_clear_form {
	LF_CLEAR_OFF,
	LF_CLEAR_POSTED,	/* series 001 v4 */
	LF_CLEAR_MERGED,	/* as merged in 7.0 */
};

/* Pages on each side of the fault that are zeroed last, to stay cached. */
#define LF_NEAR		2

static unsigned long lf_clear_form = LF_CLEAR_OFF;
static const char *const lf_clear_forms[] = { "off", "posted", "merged", NULL };

LF_SETTING(clear, lf_clear_forms, &lf_clear_form, NULL);

void lf_note_clear(struct folio *folio, unsigned long page)
{
	trace_lf_clear(folio_pfn(folio), page, 1);
}

void lf_cond_resched(void)
{
	if (!preempt_model_preemptible())
		trace_lf_clear_resched(0);
	cond_resched();
}

#ifdef CONFIG_X86_64

#define LF_HAS_BULK	true

/* One string instruction over all pages. */
static void lf_clear_pages(void *at, unsigned long nr)
{
	unsigned long bytes = nr << PAGE_SHIFT;
	unsigned long words = bytes / 8;

	if (boot_cpu_has(X86_FEATURE_ERMS)) {
		asm volatile("rep stosb"
			     : "+D" (at), "+c" (bytes) : "a" (0) : "memory");
	} else if (boot_cpu_has(X86_FEATURE_REP_GOOD)) {
		asm volatile("rep stosq"
			     : "+D" (at), "+c" (words) : "a" (0L) : "memory");
	} else {
		for (; nr; nr--, at += PAGE_SIZE)
			clear_page(at);
	}
}

#else

#define LF_HAS_BULK	false

static void lf_clear_pages(void *at, unsigned long nr)
{
	for (; nr; nr--, at += PAGE_SIZE)
		clear_page(at);
}

#endif

static void lf_clear_unit(struct folio *folio, unsigned long first,
			  unsigned long nr)
{
	trace_lf_clear(folio_pfn(folio), first, nr);
	lf_clear_pages(folio_address(folio) + (first << PAGE_SHIFT), nr);
}

/* As merged: another task may run before each unit. */
static void lf_clear_merged(struct folio *folio, unsigned long first,
			    unsigned long end)
{
	unsigned long unit = LF_HAS_BULK ? SZ_32M >> PAGE_SHIFT : 1;

	if (preempt_model_preemptible())
		unit = ULONG_MAX;
	while (first < end) {
		unsigned long nr = min(unit, end - first);

		lf_cond_resched();
		lf_clear_unit(folio, first, nr);
		first += nr;
	}
}

/* As posted: another task may run after each whole unit, and at the end. */
static void lf_clear_posted(struct folio *folio, unsigned long first,
			    unsigned long end)
{
	unsigned long unit = SZ_8M >> PAGE_SHIFT;

	if (preempt_model_preemptible())
		unit = ULONG_MAX;
	if (first == end)
		return;
	for (; end - first >= unit; first += unit) {
		lf_clear_unit(folio, first, unit);
		lf_cond_resched();
	}
	if (first < end)
		lf_clear_unit(folio, first, end - first);
	lf_cond_resched();
}

bool lf_clear_folio(struct folio *folio, unsigned long addr_hint)
{
	unsigned long nr = folio_nr_pages(folio);
	unsigned long fault = offset_in_folio(folio, addr_hint) >> PAGE_SHIFT;
	unsigned long near = fault - min(fault, LF_NEAR);
	unsigned long right = min(fault + LF_NEAR + 1, nr);
	void (*clear)(struct folio *folio, unsigned long first,
		      unsigned long end);

	switch (READ_ONCE(lf_clear_form)) {
	case LF_CLEAR_POSTED:
		if (!LF_HAS_BULK || !IS_ENABLED(CONFIG_PREEMPTION))
			return false;
		clear = lf_clear_posted;
		break;
	case LF_CLEAR_MERGED:
		clear = lf_clear_merged;
		break;
	default:
		return false;
	}
	might_sleep();
	if (clear == lf_clear_posted && nr > MAX_ORDER_NR_PAGES) {
		clear(folio, 0, nr);
		return true;
	}
	clear(folio, right, nr);
	clear(folio, 0, near);
	clear(folio, near, right);
	return true;
}

static int __init lf_clear_init(void)
{
	return lf_setting_add(&lf_setting_clear);
}
late_initcall(lf_clear_init);
