/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FOLIO_POSTED_VDSO_BITS_H
#define FOLIO_POSTED_VDSO_BITS_H

#define BIT(nr) (1UL << (nr))

#endif
