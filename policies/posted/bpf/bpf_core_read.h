/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reads of kernel structures, which are plain reads in the model; see vmlinux.h. */
#ifndef FOLIO_POSTED_BPF_CORE_READ_H
#define FOLIO_POSTED_BPF_CORE_READ_H

#include "../vmlinux.h"

#define FOLIO_READ_2(a, b) (a)->b
#define FOLIO_READ_3(a, b, c) (a)->b->c
#define FOLIO_READ_4(a, b, c, d) (a)->b->c->d
#define FOLIO_READ_5(a, b, c, d, e) (a)->b->c->d->e
#define FOLIO_READ_OF(a, b, c, d, e, name, ...) name
#define BPF_CORE_READ(...)                                                              \
	FOLIO_READ_OF(__VA_ARGS__, FOLIO_READ_5, FOLIO_READ_4, FOLIO_READ_3, FOLIO_READ_2, 0) \
	(__VA_ARGS__)
#define bpf_core_enum_value(type, value) (value)

#endif
