/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_EXEC_READAHEAD_H
#define _LINUX_LARGEFOLIO_EXEC_READAHEAD_H

enum lf_exec_miss {
	LF_MISS_KERNEL,
	LF_MISS_COUNTED,
	LF_MISS_POSTED,	/* series 002 v5 */
	LF_MISS_FINAL,	/* as merged in 7.2 */
};

enum lf_forced {
	LF_FORCED_KERNEL,
	LF_FORCED_PMD,
	LF_FORCED_POSTED,
	LF_FORCED_FINAL,
};

enum lf_forced_gate {
	LF_GATE_KERNEL,
	LF_GATE_OFF,
	LF_GATE_ON,
};

#ifdef CONFIG_LARGEFOLIO_EXEC_READAHEAD

#include <linux/compiler.h>

extern unsigned long lf_exec_miss_form;
extern unsigned long lf_forced_form;
extern unsigned long lf_forced_gate_form;

static inline enum lf_exec_miss lf_exec_miss(void)
{
	return READ_ONCE(lf_exec_miss_form);
}

static inline enum lf_forced lf_forced(void)
{
	return READ_ONCE(lf_forced_form);
}

static inline enum lf_forced_gate lf_forced_gate(void)
{
	return READ_ONCE(lf_forced_gate_form);
}

#else

static inline enum lf_exec_miss lf_exec_miss(void)
{
	return LF_MISS_KERNEL;
}

static inline enum lf_forced lf_forced(void)
{
	return LF_FORCED_KERNEL;
}

static inline enum lf_forced_gate lf_forced_gate(void)
{
	return LF_GATE_KERNEL;
}

#endif
#endif
