// SPDX-License-Identifier: GPL-2.0-only
/* Settings of readahead for executable memory. */

#include <linux/init.h>
#include <linux/largefolio/exec_readahead.h>
#include <linux/largefolio/largefolio.h>

unsigned long lf_exec_miss_form = LF_MISS_KERNEL;
unsigned long lf_forced_form = LF_FORCED_KERNEL;
unsigned long lf_forced_gate_form = LF_GATE_KERNEL;

static const char *const lf_misses[] = {
	"kernel", "counted", "posted", "final", NULL
};
static const char *const lf_orders[] = {
	"kernel", "pmd", "posted", "final", NULL
};
static const char *const lf_gates[] = { "kernel", "off", "on", NULL };

LF_SETTING(exec_miss, lf_misses, &lf_exec_miss_form, NULL);
LF_SETTING(forced, lf_orders, &lf_forced_form, NULL);
LF_SETTING(forced_gate, lf_gates, &lf_forced_gate_form, NULL);

static int __init lf_exec_readahead_init(void)
{
	int err = lf_setting_add(&lf_setting_exec_miss);

	err = err ?: lf_setting_add(&lf_setting_forced);
	return err ?: lf_setting_add(&lf_setting_forced_gate);
}
late_initcall(lf_exec_readahead_init);
