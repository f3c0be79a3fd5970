// SPDX-License-Identifier: GPL-2.0-only
/* Copies of several neighbouring pages with one operation (copy.h). */

#include <linux/atomic.h>
#include <linux/highmem.h>
#include <linux/init.h>
#include <linux/largefolio/copy.h>
#include <linux/largefolio/largefolio.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/sizes.h>

enum { LF_COPY_PAGES, LF_COPY_EXTENTS };

static const char *const lf_copy_words[] = { "pages", "extents", NULL };

static unsigned long lf_copy = LF_COPY_PAGES;

/* Copies of more than one page. */
static atomic_long_t lf_nr_extents;

/* Neighbours of the page that is needed next, on either side. */
#define LF_NEAR		2

bool lf_copies_extents(void)
{
	return READ_ONCE(lf_copy) == LF_COPY_EXTENTS;
}

/* Where nobody can take the CPU away, others wait at most for so many pages. */
static unsigned long lf_unit(void)
{
	return preempt_model_preemptible() ? ULONG_MAX : SZ_32M >> PAGE_SHIFT;
}

static int lf_copy_each(struct page *dst, struct page *src, unsigned long nr)
{
	unsigned long i;

	for (i = 0; i < nr; i++)
		if (copy_mc_highpage(dst + i, src + i))
			return -EHWPOISON;
	return 0;
}

static int lf_copy_unit(struct page *dst, struct page *src, unsigned long nr)
{
#ifdef CONFIG_ARM64
	/* Tags belong to pages, not to their bytes. */
	if (system_supports_mte())
		return lf_copy_each(dst, src, nr);
	/* The CPU's copy instructions, where it has them. */
	memcpy(page_address(dst), page_address(src), nr << PAGE_SHIFT);
	flush_dcache_folio(page_folio(dst));
#else
	/* A memory error: find its page, which is then reported. */
	if (copy_mc_to_kernel(page_address(dst), page_address(src),
			      nr << PAGE_SHIFT))
		return lf_copy_each(dst, src, nr);
#endif
	if (nr > 1)
		atomic_long_inc(&lf_nr_extents);
	return 0;
}

int lf_copy_pages(struct page *dst, struct page *src, unsigned long nr)
{
	unsigned long unit = lf_unit();

	while (nr) {
		unsigned long now = min(nr, unit);
		int err;

		cond_resched();
		err = lf_copy_unit(dst, src, now);
		if (err)
			return err;
		nr -= now;
		dst += now;
		src += now;
	}
	return 0;
}

int lf_copy_around(struct folio *dst, struct folio *src, unsigned long fault)
{
	const unsigned long nr = folio_nr_pages(dst);
	const unsigned long first = fault < LF_NEAR ? 0 : fault - LF_NEAR;
	const unsigned long end = min(fault + LF_NEAR + 1, nr);
	const struct { unsigned long from, to; } extents[] = {
		{ end, nr }, { 0, first }, { first, end },
	};
	int i, err = 0;

	for (i = 0; i < ARRAY_SIZE(extents) && !err; i++)
		err = lf_copy_pages(folio_page(dst, extents[i].from),
				    folio_page(src, extents[i].from),
				    extents[i].to - extents[i].from);
	return err;
}

static ssize_t copied_extents_show(struct kobject *kobj,
				   struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%ld\n", atomic_long_read(&lf_nr_extents));
}

static struct kobj_attribute copied_extents_attr = __ATTR_RO(copied_extents);
static struct attribute *lf_copy_attrs[] = { &copied_extents_attr.attr, NULL };
static const struct attribute_group lf_copy_group = { .attrs = lf_copy_attrs };

LF_SETTING(copy, lf_copy_words, &lf_copy, NULL);

static int __init lf_copy_init(void)
{
	int err = lf_setting_add(&lf_setting_copy);

	return err ? err : lf_group_add(&lf_copy_group);
}
late_initcall(lf_copy_init);
