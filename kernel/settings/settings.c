// SPDX-License-Identifier: GPL-2.0-only
/* The folder /sys/kernel/mm/largefolio and its files (largefolio.h). */

#include <linux/init.h>
#include <linux/kernel.h>
#include <linux/largefolio/largefolio.h>
#include <linux/mm.h>
#include <linux/string.h>

static struct kobject *lf_kobj;

static struct lf_setting *to_setting(struct kobj_attribute *attr)
{
	return container_of(attr, struct lf_setting, attr);
}

ssize_t lf_setting_show(struct kobject *kobj, struct kobj_attribute *attr,
			char *buf)
{
	struct lf_setting *setting = to_setting(attr);
	unsigned long value = READ_ONCE(*setting->value);
	int len = 0;
	int i;

	if (!setting->words)
		return sysfs_emit(buf, "%lu\n", value);
	for (i = 0; setting->words[i]; i++)
		len += sysfs_emit_at(buf, len, i == value ? "%s[%s]" : "%s%s",
				     i ? " " : "", setting->words[i]);
	return len + sysfs_emit_at(buf, len, "\n");
}

ssize_t lf_setting_store(struct kobject *kobj, struct kobj_attribute *attr,
			 const char *buf, size_t count)
{
	struct lf_setting *setting = to_setting(attr);
	unsigned long value;

	if (setting->words) {
		int word = __sysfs_match_string(setting->words, -1, buf);

		if (word < 0)
			return word;
		value = word;
	} else {
		int err = kstrtoul(buf, 0, &value);

		if (err)
			return err;
	}
	if (setting->is_valid && !setting->is_valid(value))
		return -EINVAL;
	WRITE_ONCE(*setting->value, value);
	return count;
}

int __init lf_setting_add(struct lf_setting *setting)
{
	if (!lf_kobj)
		return -ENOMEM;
	return sysfs_create_file(lf_kobj, &setting->attr.attr);
}

int __init lf_group_add(const struct attribute_group *group)
{
	return lf_kobj ? sysfs_create_group(lf_kobj, group) : -ENOMEM;
}

/* mm_kobj is made by a postcore_initcall. */
static int __init lf_settings_init(void)
{
	lf_kobj = kobject_create_and_add("largefolio", mm_kobj);
	return lf_kobj ? 0 : -ENOMEM;
}
subsys_initcall(lf_settings_init);
