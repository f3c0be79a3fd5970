/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _LINUX_LARGEFOLIO_EXEC_ORDER_H
#define _LINUX_LARGEFOLIO_EXEC_ORDER_H

#include <linux/compiler.h>
#include <linux/log2.h>
#include <linux/mm.h>

enum lf_exec_form {
	LF_EXEC_OFF,
	LF_EXEC_BLOCK,	/* series 000 as posted */
	LF_EXEC_WINDOW,	/* as merged in 6.17 */
};

#ifdef CONFIG_LARGEFOLIO_EXEC_ORDER

extern unsigned long lf_exec_form;
extern unsigned long lf_exec_bytes;

static inline bool lf_has_exec_form(unsigned long vm_flags,
				    enum lf_exec_form form)
{
	return (vm_flags & VM_EXEC) && READ_ONCE(lf_exec_form) == form;
}

static inline unsigned int lf_exec_order(void)
{
	return ilog2(READ_ONCE(lf_exec_bytes) >> PAGE_SHIFT);
}

#else

static inline bool lf_has_exec_form(unsigned long vm_flags,
				    enum lf_exec_form form)
{
	return false;
}

static inline unsigned int lf_exec_order(void)
{
	return 0;
}

#endif
#endif
