/*
 * A cache of 32 MiB that asks for large folios, and returns them after most entries are dropped.
 *
 *     cc cache.c $(pkg-config --cflags --libs largefolio) -o cache && ./cache
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <largefolio.h>

enum { ENTRY_BYTES = 16 << 10, NR_ENTRIES = 2048 };
static const size_t cache_bytes = (size_t)ENTRY_BYTES * NR_ENTRIES;

static void check(const char *what, int error)
{
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", what, strerror(-error));
        exit(1);
    }
}

static void show(const char *when, const void *cache)
{
    struct folio_view view;
    check("folio_view", folio_view(cache, cache_bytes, &view));
    unsigned long long used = view.present_bytes;
    if (view.zero_page_bytes != FOLIO_UNKNOWN)
        used -= view.zero_page_bytes;
    printf("%s: %llu KiB used, ", when, used >> 10);
    if (view.huge_bytes == FOLIO_UNKNOWN)
        printf("PMD entries not visible");
    else
        printf("%llu KiB under PMD entries", (unsigned long long)view.huge_bytes >> 10);
    printf("; %s\n", folio_reason_text(view.reason));
}

int main(void)
{
    void *cache;
    check("folio_reserve", folio_reserve(&cache, cache_bytes, 0, "cache"));
    char *entries = (char *)cache;

    /* Without advice, as malloc gives it. */
    check("folio_advise", folio_advise(cache, cache_bytes, FOLIO_ADVICE_NO_HUGE));
    for (size_t nr = 0; nr < NR_ENTRIES; nr++)
        memset(entries + nr * ENTRY_BYTES, (int)(nr % 255) + 1, ENTRY_BYTES);
    show("filled", cache);

    struct folio_backed backed;
    check("folio_back", folio_back(cache, cache_bytes, FOLIO_COLLAPSE, &backed));
    show("backed", cache);

    /* Seven of eight entries are dropped. */
    for (size_t nr = 0; nr < NR_ENTRIES; nr++)
        if (nr % 8 != 0)
            memset(entries + nr * ENTRY_BYTES, 0, ENTRY_BYTES);
    struct folio_waste waste;
    int error = folio_waste(cache, cache_bytes, &waste);
    if (error == -EOPNOTSUPP) {
        printf("unused: not visible before Linux 6.7\n");
        return 0;
    }
    check("folio_waste", error);
    printf("unused: %llu of %llu KiB\n", (unsigned long long)waste.zero_bytes >> 10,
           (unsigned long long)waste.large_bytes >> 10);

    struct folio_split split;
    check("folio_advise", folio_advise(cache, cache_bytes, FOLIO_ADVICE_NO_HUGE));
    check("folio_split", folio_split(cache, cache_bytes, 1 << 20, &split));
    printf("freed: %llu KiB\n", (unsigned long long)split.freed_bytes >> 10);
    show("split", cache);

    for (size_t nr = 0; nr < NR_ENTRIES; nr += 8)
        if (entries[nr * ENTRY_BYTES] != (char)((nr % 255) + 1))
            return 1;
    check("folio_release", folio_release(cache, cache_bytes));
    return 0;
}
