// Loads from fresh memory. argv: "list" (computed addresses) or "chain" (each load returns the next
// address), MiB, millions of loads.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    const size_t bytes = strtoul(argv[2], 0, 10) << 20, nr = strtoul(argv[3], 0, 10) * 1000000;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    const size_t lines = bytes / 64;
    uint64_t state = 88172645463325252u, sum = 0;
    if (!strcmp(argv[1], "chain")) {
        // A cycle through all lines: the step is coprime to their number.
        const size_t step = (lines / 2 - 12345) | 1;
        size_t at = 0;
        for (size_t i = 0; i < lines; i++) {
            const size_t next = (at + step) % lines;
            *(char **)(memory + at * 64) = memory + next * 64;
            at = next;
        }
        char *to = memory;
        for (size_t i = 0; i < nr; i++) to = *(char **)to;
        sum = to - memory;
    } else {
        for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
        for (size_t i = 0; i < nr; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += *(uint64_t *)(memory + state % lines * 64);
        }
    }
    printf("%lu\n", (unsigned long)sum);
}
