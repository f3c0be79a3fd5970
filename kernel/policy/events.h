/* SPDX-License-Identifier: GPL-2.0-only */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM largefolio

#if !defined(_TRACE_LARGEFOLIO_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_LARGEFOLIO_H

#include <linux/fs.h>
#include <linux/largefolio/policy.h>
#include <linux/tracepoint.h>

/*
 * A program is attached to one of these. It reads the context and writes the
 * answer.
 */
#undef LF_ASK
#ifdef DECLARE_TRACE_WRITABLE
#define LF_ASK(name)							\
	DECLARE_TRACE_WRITABLE(name,					\
		TP_PROTO(struct lf_question *question),			\
		TP_ARGS(question), sizeof(struct lf_question))
#else
#define LF_ASK(name)							\
	DECLARE_TRACE(name, TP_PROTO(struct lf_question *question),	\
		      TP_ARGS(question))
#endif

LF_ASK(lf_anon_order);
LF_ASK(lf_window);
LF_ASK(lf_around);

#define LF_NR_WORDS (sizeof(struct lf_question) / sizeof(u64))

/*
 * What a program was asked, and what it answered: all words of lf_question. The
 * file is there to filter on; private memory has none.
 */
TRACE_EVENT(policy,
	TP_PROTO(const struct lf_question *question, const struct inode *inode),
	TP_ARGS(question, inode),
	TP_STRUCT__entry(
		__field(unsigned long, i_ino)
		__field(dev_t, s_dev)
		__array(u64, words, LF_NR_WORDS)
	),
	TP_fast_assign(
		__entry->i_ino = inode ? inode->i_ino : 0;
		__entry->s_dev = inode ? inode->i_sb->s_dev : 0;
		memcpy(__entry->words, question, sizeof(__entry->words));
	),
	TP_printk("%s", __print_array(__entry->words, LF_NR_WORDS, 8))
);

#endif

#undef linux			/* the compiler's, in the path below */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH linux/largefolio
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
