// SPDX-License-Identifier: GPL-2.0-only
/* The setting and the advice of collapse to any size; collapse.inc has the work. */

#include <linux/init.h>
#include <linux/mm.h>
#include <linux/largefolio/largefolio.h>
#include <linux/largefolio/text_collapse.h>

enum { LF_SIZES_PMD, LF_SIZES_ANY };

static const char *const lf_size_words[] = { "pmd", "any", NULL };

static unsigned long lf_collapse_sizes = LF_SIZES_PMD;

bool lf_may_collapse_to(int advice)
{
	return lf_is_collapse_to(advice) &&
	       advice <= MADV_COLLAPSE_TO + HPAGE_PMD_ORDER &&
	       READ_ONCE(lf_collapse_sizes) == LF_SIZES_ANY;
}

LF_SETTING(collapse_sizes, lf_size_words, &lf_collapse_sizes, NULL);

static int __init lf_text_collapse_init(void)
{
	return lf_setting_add(&lf_setting_collapse_sizes);
}
late_initcall(lf_text_collapse_init);
