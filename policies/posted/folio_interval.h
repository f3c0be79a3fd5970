/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef FOLIO_INTERVAL

/* Milliseconds between two calls of the program in iter/cgroup; without it, 1000. */
#define FOLIO_INTERVAL(ms) \
	static const unsigned int folio_interval_ms __attribute__((section("folio_interval"), used)) = ms

#endif
