/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* BPF_PROG() for policies written for interfaces posted upstream; see vmlinux.h. */
#ifndef FOLIO_POSTED_BPF_TRACING_H
#define FOLIO_POSTED_BPF_TRACING_H

#include "../vmlinux.h"

#define FOLIO_ARGS_0(c)
#define FOLIO_ARGS_1(c) , (void *)(c)[0]
#define FOLIO_ARGS_2(c) FOLIO_ARGS_1(c), (void *)(c)[1]
#define FOLIO_ARGS_3(c) FOLIO_ARGS_2(c), (void *)(c)[2]
#define FOLIO_ARGS_4(c) FOLIO_ARGS_3(c), (void *)(c)[3]
#define FOLIO_ARGS_5(c) FOLIO_ARGS_4(c), (void *)(c)[4]
#define FOLIO_SIXTH(a, b, c, d, e, f, ...) f
#define FOLIO_NR_ARGS(...) FOLIO_SIXTH(0, ##__VA_ARGS__, 4, 3, 2, 1, 0)
#define FOLIO_JOINED(a, b) a##b
#define FOLIO_JOIN(a, b) FOLIO_JOINED(a, b)

/* Defines a program whose arguments arrive as words. */
#define BPF_PROG(name, args...)                                                           \
	name(unsigned long long *folio_words);                                            \
	static __attribute__((always_inline)) typeof(name(0))                             \
	folio_body_##name(unsigned long long *ctx, ##args);                               \
	typeof(name(0)) name(unsigned long long *folio_words)                             \
	{                                                                                 \
		_Pragma("GCC diagnostic push")                                            \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")                    \
		return folio_body_##name(                                                 \
			folio_words FOLIO_JOIN(FOLIO_ARGS_, FOLIO_NR_ARGS(args))(folio_words)); \
		_Pragma("GCC diagnostic pop")                                             \
	}                                                                                 \
	static __attribute__((always_inline)) typeof(name(0))                             \
	folio_body_##name(unsigned long long *ctx, ##args)

#endif
