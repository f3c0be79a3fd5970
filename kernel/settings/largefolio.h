/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_H
#define _LINUX_LARGEFOLIO_H

/*
 * A setting: a file in /sys/kernel/mm/largefolio that holds one of several
 * words, or a number. It is read without a lock: every use reads it once.
 */

#include <linux/kobject.h>
#include <linux/sysfs.h>

#ifdef CONFIG_LARGEFOLIO

struct lf_setting {
	struct kobj_attribute attr;
	const char *const *words;	/* ends with NULL; NULL: a number */
	unsigned long *value;		/* the word's index, or the number */
	/* Whether the setting may have this value; NULL: always. */
	bool (*is_valid)(unsigned long value);
};

ssize_t lf_setting_show(struct kobject *kobj, struct kobj_attribute *attr,
			char *buf);
ssize_t lf_setting_store(struct kobject *kobj, struct kobj_attribute *attr,
			 const char *buf, size_t count);

#define LF_SETTING(_name, _words, _value, _is_valid)			\
	static struct lf_setting lf_setting_##_name = {			\
		.attr = __ATTR(_name, 0644, lf_setting_show,		\
			       lf_setting_store),			\
		.words = (_words),					\
		.value = (_value),					\
		.is_valid = (_is_valid),				\
	}

/* Adds a setting's file; for late_initcall. */
int lf_setting_add(struct lf_setting *setting);

/* Adds a folder of files; for late_initcall. */
int lf_group_add(const struct attribute_group *group);

#endif /* CONFIG_LARGEFOLIO */
#endif
