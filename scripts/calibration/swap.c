/* Measures the cost of writing a page to swap space and reading it back, beyond unmapping and a
 * fault.
 *
 *     swap FILE ROUNDS MIB
 *
 * A region of base pages contains FILE repeatedly; `-` is noise, which does not compress. Prints a
 * line per round: nanoseconds of this thread's CPU time per page, out and in. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void fill(unsigned char *to, size_t len, const char *path)
{
	uint64_t state = 88172645463325252u;
	FILE *file = strcmp(path, "-") ? fopen(path, "r") : NULL;
	size_t at = 0, nr;

	if (!file && strcmp(path, "-"))
		die(path);
	while (file && at < len) {
		nr = fread(to + at, 1, len - at, file);
		if (!nr && !ftell(file))
			die(path);
		if (!nr)
			rewind(file);
		at += nr;
	}
	for (; at < len; at += sizeof state) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(to + at, &state, sizeof state);
	}
	if (file)
		fclose(file);
}

static double load_each(volatile unsigned char *from, size_t len)
{
	double began = now_ns();

	for (size_t at = 0; at < len; at += PAGE)
		(void)from[at];
	return (now_ns() - began) / (len / PAGE);
}

static double advise(void *from, size_t len, int advice)
{
	double began = now_ns();

	if (madvise(from, len, advice))
		die("madvise");
	return (now_ns() - began) / (len / PAGE);
}

int main(int argc, char **argv)
{
	size_t len;
	unsigned char *at;

	if (argc != 4)
		return 2;
	len = strtoul(argv[3], NULL, 10) << 20;
	at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED || madvise(at, len, MADV_NOHUGEPAGE))
		die("mmap");
	for (long round = strtol(argv[2], NULL, 10); round > 0; round--) {
		double out, in, gone, fault;

		fill(at, len, argv[1]);
		out = advise(at, len, MADV_PAGEOUT);
		in = load_each(at, len);
		gone = advise(at, len, MADV_DONTNEED);
		fault = load_each(at, len);
		advise(at, len, MADV_DONTNEED);
		printf("%.1f %.1f\n", out - gone, in - fault);
		fflush(stdout);
	}
	return 0;
}
