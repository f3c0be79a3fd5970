// SPDX-License-Identifier: GPL-2.0-only
/* Folio sizes for files, one setting per size (file_sizes.h). */

#include <linux/bitops.h>
#include <linux/init.h>
#include <linux/largefolio/file_sizes.h>
#include <linux/largefolio/largefolio.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/string.h>

#define LF_NO_ORDER	(-1)

enum { LF_IS_ALWAYS = 1, LF_IS_EXEC = 2 };

/* Indexed by the sum of the flags above. */
static const char *const lf_uses[] = {
	"never", "always", "exec", "always+exec", NULL
};

/* Serializes writers; readers read each variable once. */
static DEFINE_MUTEX(lf_sizes_lock);
static unsigned int lf_always_orders = ~0U;
static int lf_exec_size = LF_NO_ORDER;

enum { LF_IGNORED, LF_FOLLOWED };

static const char *const lf_advice_words[] = { "ignored", "followed", NULL };

static unsigned long lf_size_advice = LF_IGNORED;

struct lf_size {
	struct kobj_attribute attr;
	char name[sizeof("hugepages-4294967295kB")];
};

static struct lf_size *lf_sizes;

static unsigned int lf_largest(unsigned int orders, unsigned int order)
{
	orders &= GENMASK(order, 0);
	return orders ? __fls(orders) : 0;
}

/* An area's preferred order plus 1 is in its highest flags, which have no use. */
#define LF_AREA_SHIFT	(BITS_PER_LONG - 4)

bool lf_may_prefer(int advice)
{
	return IS_ENABLED(CONFIG_64BIT) && advice >= MADV_FOLIO_ORDER &&
	       advice <= MADV_FOLIO_ORDER + 1 + MAX_PAGECACHE_ORDER &&
	       READ_ONCE(lf_size_advice) == LF_FOLLOWED;
}

unsigned long lf_preferred_flags(int advice, unsigned long flags)
{
	unsigned long area = advice - MADV_FOLIO_ORDER;

	if (advice < MADV_FOLIO_ORDER || area > 1 + MAX_PAGECACHE_ORDER)
		return flags;
	return (flags & GENMASK(LF_AREA_SHIFT - 1, 0)) | area << LF_AREA_SHIFT;
}

unsigned int lf_fault_orders(const struct vm_fault *vmf)
{
	const struct address_space *mapping = vmf->vma->vm_file->f_mapping;
	const int max = mapping_max_folio_order(mapping);
	unsigned long flags = vmf->vma->vm_flags;
	int exec = READ_ONCE(lf_exec_size);

	if (IS_ENABLED(CONFIG_64BIT) && flags >> LF_AREA_SHIFT) {
		int area = (flags >> LF_AREA_SHIFT) - 1;

		if (area <= max)
			return BIT(area);
	}
	if (exec == LF_NO_ORDER || !(flags & VM_EXEC))
		return 0;
	return exec <= max ? BIT(exec) : 0;
}

unsigned long lf_sync_flags(const struct readahead_control *ractl,
			    unsigned long flags, bool is_forced)
{
	return ractl->lf_orders && !is_forced ? flags & ~VM_RAND_READ : flags;
}

unsigned long lf_window_flags(const struct readahead_control *ractl,
			      unsigned long flags)
{
	return ractl->lf_orders ? flags | VM_EXEC : flags;
}

unsigned int lf_file_order(const struct address_space *mapping,
			   unsigned int order, unsigned int more_orders)
{
	unsigned int orders = READ_ONCE(lf_always_orders) | more_orders;

	return max(lf_largest(orders, order), mapping_min_folio_order(mapping));
}

void lf_forced_order(const struct readahead_control *ractl, bool *is_forced,
		     unsigned int *order)
{
	unsigned int orders = READ_ONCE(lf_always_orders) | ractl->lf_orders;

	if (!*is_forced)
		return;
	*order = lf_largest(orders, *order);
	*is_forced = *order > 0;
}

unsigned int lf_exec_order(const struct readahead_control *ractl,
			   unsigned int order)
{
	return ractl->lf_orders ? __ffs(ractl->lf_orders) : order;
}

static unsigned int lf_order_of(const struct kobj_attribute *attr)
{
	return container_of(attr, struct lf_size, attr) - lf_sizes;
}

static ssize_t lf_size_show(struct kobject *kobj, struct kobj_attribute *attr,
			    char *buf)
{
	unsigned int order = lf_order_of(attr);
	int use = 0, len = 0, i;

	if (READ_ONCE(lf_always_orders) & BIT(order))
		use |= LF_IS_ALWAYS;
	if (READ_ONCE(lf_exec_size) == order)
		use |= LF_IS_EXEC;
	for (i = 0; lf_uses[i]; i++)
		len += sysfs_emit_at(buf, len, i == use ? "%s[%s]" : "%s%s",
				     i ? " " : "", lf_uses[i]);
	return len + sysfs_emit_at(buf, len, "\n");
}

static ssize_t lf_size_store(struct kobject *kobj, struct kobj_attribute *attr,
			     const char *buf, size_t count)
{
	unsigned int order = lf_order_of(attr);
	int use = __sysfs_match_string(lf_uses, -1, buf);

	if (use < 0)
		return use;
	/* Base pages are what remains where nothing fits. */
	if (order == 0 && use == 0)
		return -EINVAL;

	guard(mutex)(&lf_sizes_lock);
	if ((use & LF_IS_EXEC) && lf_exec_size != LF_NO_ORDER &&
	    lf_exec_size != order)
		return -EBUSY;
	if (use & LF_IS_EXEC)
		WRITE_ONCE(lf_exec_size, order);
	else if (lf_exec_size == order)
		WRITE_ONCE(lf_exec_size, LF_NO_ORDER);
	if ((use & LF_IS_ALWAYS) || order == 0)
		WRITE_ONCE(lf_always_orders, lf_always_orders | BIT(order));
	else
		WRITE_ONCE(lf_always_orders, lf_always_orders & ~BIT(order));
	return count;
}

static ssize_t all_store(struct kobject *kobj, struct kobj_attribute *attr,
			 const char *buf, size_t count)
{
	bool is_always = sysfs_streq(buf, "always");

	if (!is_always && !sysfs_streq(buf, "never"))
		return -EINVAL;

	guard(mutex)(&lf_sizes_lock);
	WRITE_ONCE(lf_exec_size, LF_NO_ORDER);
	WRITE_ONCE(lf_always_orders, is_always ? ~0U : BIT(0));
	return count;
}
static struct kobj_attribute lf_all_attr = __ATTR_WO(all);

LF_SETTING(size_advice, lf_advice_words, &lf_size_advice, NULL);

static int __init lf_sizes_init(void)
{
	unsigned int order, nr = MAX_PAGECACHE_ORDER + 1;
	struct attribute_group group = { .name = "file_sizes" };
	int err;

	lf_sizes = kcalloc(nr, sizeof(*lf_sizes), GFP_KERNEL);
	group.attrs = kcalloc(nr + 2, sizeof(*group.attrs), GFP_KERNEL);
	if (!lf_sizes || !group.attrs) {
		kfree(lf_sizes);
		kfree(group.attrs);
		return -ENOMEM;
	}
	for (order = 0; order < nr; order++) {
		struct lf_size *size = &lf_sizes[order];

		snprintf(size->name, sizeof(size->name), "hugepages-%lukB",
			 (PAGE_SIZE << order) >> 10);
		sysfs_attr_init(&size->attr.attr);
		size->attr.attr.name = size->name;
		size->attr.attr.mode = 0644;
		size->attr.show = lf_size_show;
		size->attr.store = lf_size_store;
		group.attrs[order] = &size->attr.attr;
	}
	group.attrs[nr] = &lf_all_attr.attr;
	err = lf_group_add(&group);
	kfree(group.attrs);
	return err ? err : lf_setting_add(&lf_setting_size_advice);
}
late_initcall(lf_sizes_init);
