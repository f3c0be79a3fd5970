/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM largefolio

#if !defined(_LINUX_LARGEFOLIO_CLEAR_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _LINUX_LARGEFOLIO_CLEAR_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(lf_clear,

	TP_PROTO(unsigned long pfn, unsigned long first, unsigned long nr),

	TP_ARGS(pfn, first, nr),

	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(unsigned long, first)
		__field(unsigned long, nr)
	),

	TP_fast_assign(
		__entry->pfn = pfn;
		__entry->first = first;
		__entry->nr = nr;
	),

	TP_printk("pfn=0x%lx first=%lu nr=%lu",
		  __entry->pfn, __entry->first, __entry->nr)
);

TRACE_EVENT(lf_clear_resched,

	TP_PROTO(int unused),

	TP_ARGS(unused),

	TP_STRUCT__entry(
		__field(int, unused)
	),

	TP_fast_assign(
		__entry->unused = unused;
	),

	TP_printk("%s", "")
);

#endif

/* The compiler defines it as 1, also in the path. */
#undef linux
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH ../linux/largefolio
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE clear_trace
#include <trace/define_trace.h>
