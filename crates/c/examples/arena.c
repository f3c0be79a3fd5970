/*
 * An arena of an allocator: address space aligned for large folios, advised as it grows, and
 * compared with the same memory from malloc.
 *
 *     cc arena.c $(pkg-config --cflags --libs largefolio) -o arena && ./arena
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <largefolio.h>

struct arena {
    char *start;
    size_t len, used, backed;
    size_t step; /* advised at a time: the PMD size */
};

static int arena_init(struct arena *arena, size_t len)
{
    struct folio_sizes sizes;
    void *start;
    int error = folio_sizes(&sizes);
    if (error == 0)
        error = folio_reserve(&start, len, sizes.pmd_bytes, "arena");
    if (error != 0)
        return error;
    arena->start = (char *)start;
    arena->len = len;
    arena->used = arena->backed = 0;
    arena->step = sizes.pmd_bytes;
    return 0;
}

static void *arena_alloc(struct arena *arena, size_t len)
{
    len = (len + 15) & ~(size_t)15;
    if (len > arena->len - arena->used)
        return NULL;
    char *result = arena->start + arena->used;
    arena->used += len;
    while (arena->backed < arena->used) {
        size_t rest = arena->len - arena->backed;
        /* An error only costs the large folios: the memory works without. */
        folio_back(arena->start + arena->backed, rest < arena->step ? rest : arena->step, 0, NULL);
        arena->backed += arena->step;
    }
    return result;
}

static int show(const char *name, const void *start, size_t len)
{
    struct folio_view view;
    int error = folio_view(start, len, &view);
    if (error != 0)
        return error;
    unsigned long long huge = view.huge_bytes == FOLIO_UNKNOWN ? 0 : view.huge_bytes;
    printf("%s: %llu of %llu KiB under PMD entries, largest folio %llu KiB; %s\n", name, huge >> 10,
           (unsigned long long)view.present_bytes >> 10,
           (unsigned long long)view.folio_bytes >> 10, folio_reason_text(view.reason));
    return 0;
}

int main(void)
{
    enum { OBJECT_BYTES = 4000, NR_OBJECTS = 4096 };
    struct arena arena;
    size_t len = (size_t)OBJECT_BYTES * NR_OBJECTS;
    int error = arena_init(&arena, 32 << 20);
    if (error != 0) {
        fprintf(stderr, "no arena: %s\n", strerror(-error));
        return 1;
    }
    char *before = (char *)malloc(len);
    if (before == NULL)
        return 1;
    for (int nr = 0; nr < NR_OBJECTS; nr++) {
        char *object = (char *)arena_alloc(&arena, OBJECT_BYTES);
        if (object == NULL)
            return 1;
        memset(object, 1, OBJECT_BYTES);
        memset(before + (size_t)nr * OBJECT_BYTES, 1, OBJECT_BYTES);
    }
    error = show("malloc", before, len);
    if (error == 0)
        error = show("arena", arena.start, arena.used);
    free(before);
    return error != 0;
}
