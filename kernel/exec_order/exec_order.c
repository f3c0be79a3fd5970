// SPDX-License-Identifier: GPL-2.0-only
/* Settings of the folio size for executable memory. */

#include <linux/init.h>
#include <linux/largefolio/exec_order.h>
#include <linux/largefolio/largefolio.h>
#include <linux/pagemap.h>
#include <linux/sizes.h>

unsigned long lf_exec_form = LF_EXEC_OFF;
unsigned long lf_exec_bytes = SZ_64K;

static const char *const lf_exec_forms[] = { "off", "block", "window", NULL };

static bool lf_is_folio_size(unsigned long bytes)
{
	return is_power_of_2(bytes) && bytes >= PAGE_SIZE &&
	       bytes <= PAGE_SIZE << MAX_PAGECACHE_ORDER;
}

LF_SETTING(exec_order, lf_exec_forms, &lf_exec_form, NULL);
LF_SETTING(exec_order_bytes, NULL, &lf_exec_bytes, lf_is_folio_size);

static int __init lf_exec_order_init(void)
{
	int err = lf_setting_add(&lf_setting_exec_order);

	return err ?: lf_setting_add(&lf_setting_exec_order_bytes);
}
late_initcall(lf_exec_order_init);
