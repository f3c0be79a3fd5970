//! The entries that walks read, worked out by hand.

use LeafKind::{Contpte, Pmd, Pte};

use super::*;

fn cache(level: TlbLevel, entries: u32, ways: u32) -> WalkCacheConfig {
    WalkCacheConfig {
        name: "test".to_owned(),
        level,
        entries,
        ways: if ways == 0 { Ways::Full } else { Ways::Number(ways) },
        source: "test".to_owned(),
        assumed: false,
    }
}

/// Returns the entries read by the walk of each (page, leaf), as `pgd pud pmd pte` digits.
fn reads(caches: &mut WalkCaches, walks: &[(u64, LeafKind)]) -> Vec<String> {
    let read = |&(vpn, leaf): &(u64, LeafKind)| {
        let steps = caches.walk(Vpn(vpn), leaf);
        format!("{}{}{}{}", steps.pgd, steps.pud, steps.pmd, steps.pte)
    };
    walks.iter().map(read).collect()
}

#[test]
fn a_walk_without_caches_reads_every_level() {
    for (page, nr, pte, pmd) in [
        (PageSize::K4, 4, "1111", "1110"),
        (PageSize::K16, 4, "1111", "1110"),
        (PageSize::K64, 3, "0111", "0110"),
    ] {
        assert_eq!(nr_levels(page), nr);
        let mut caches = WalkCaches::new(&[], page);
        let walks = [(5, Pte), (5, Contpte), (5, Pmd), (5, Pte)];
        assert_eq!(reads(&mut caches, &walks), [pte, pte, pmd, pte], "{page}");
    }
}

#[test]
fn a_walk_starts_below_the_deepest_entry_that_is_cached() {
    // PMD ranges A, B, C of one PUD; D in another PUD of the same PGD entry. Two PDE entries.
    let (a, b, c, d) = (0x0, 0x200, 0x400, 0x4_0000);
    let configs = [cache(TlbLevel::Pmd, 2, 0), cache(TlbLevel::Pud, 1, 0)];
    let mut caches = WalkCaches::new(&configs, PageSize::K4);
    let walks = [
        (a, Pte),     // everything; PDE {A}, PDPTE {0}
        (a + 1, Pte), // below A
        (b, Pte),     // below PDPTE 0; PDE {A, B}
        (a, Pte),     // below A, which is the latest now
        (c, Pte),     // PDE {A, C}: B was the oldest
        (b, Pte),     // PDE {C, B}
        (a, Pmd),     // a PMD leaf: below PDPTE 0, and not put into the PDE cache
        (c, Pte),     // still there
        (d, Pte),     // PDPTE {1}, PDE {C, D}
        (a, Pte),     // PDPTE 0 is gone: everything
    ];
    let expected = ["1111", "0001", "0011", "0001", "0011", "0011", "0010", "0001", "1111", "1111"];
    assert_eq!(reads(&mut caches, &walks), expected);
}

#[test]
fn sets_of_a_walk_cache_are_chosen_by_the_prefix() {
    // Three sets of one way: PMD ranges 0 and 3 share a set, 1 has its own.
    let mut caches = WalkCaches::new(&[cache(TlbLevel::Pmd, 3, 1)], PageSize::K4);
    let walks = [0, 3, 1, 3, 1, 0].map(|range| (range * 512, Pte));
    assert_eq!(reads(&mut caches, &walks), ["1111", "1111", "1111", "0001", "0001", "1111"]);
}

#[test]
fn a_flush_takes_the_entries_above_its_pages() {
    let configs = [TlbLevel::Pmd, TlbLevel::Pud, TlbLevel::Pgd].map(|level| cache(level, 4, 0));
    let mut caches = WalkCaches::new(&configs, PageSize::K4);
    let (a, b) = (0x0, 0x200);
    assert_eq!(reads(&mut caches, &[(a, Pte), (b, Pte)]), ["1111", "0011"]);
    // Inside B: A's entry stays, but B's entry and all entries above both go.
    caches.invalidate(Vpn(0x3ff), 1);
    assert_eq!(reads(&mut caches, &[(a, Pte), (b, Pte), (b, Pte)]), ["0001", "1111", "0001"]);
    caches.invalidate(Vpn(0), 0);
    assert_eq!(reads(&mut caches, &[(a, Pte)]), ["0001"]);
    caches.invalidate(Vpn(1), u64::MAX);
    assert_eq!(reads(&mut caches, &[(a, Pte)]), ["1111"]);
    caches.flush();
    assert_eq!(reads(&mut caches, &[(b, Pte)]), ["1111"]);
}

#[test]
fn with_64k_pages_the_pud_is_the_top() {
    let configs = [TlbLevel::Pud, TlbLevel::Pgd].map(|level| cache(level, 4, 0));
    let mut caches = WalkCaches::new(&configs, PageSize::K64);
    let walks = [(0, Pte), (1 << 13, Pte), (1 << 26, Pmd), (0, Pmd)];
    assert_eq!(reads(&mut caches, &walks), ["0111", "0011", "0110", "0010"]);
}

#[test]
fn a_tlb_counts_what_its_walks_read() {
    let mut config = config(vec![structure(1, 0, &["4K", "2M"])], vec![]);
    config.walk_cache = vec![cache(TlbLevel::Pmd, 1, 0)];
    let mut tlb = Tlb::new(&config, PageSize::K4);
    // Two pages of one PMD range, then a PMD leaf elsewhere: 4 + 1 + 3 entries.
    for (vpn, order) in [(0, 0), (1, 0), (0x400, 9)] {
        assert_eq!(read(&mut tlb, vpn, order), Lookup::Miss);
    }
    let counters = tlb.counters();
    let by_level = (counters.walk_refs_pgd, counters.walk_refs_pud, counters.walk_refs_pmd);
    assert_eq!((by_level, counters.walk_refs_pte), ((2, 2, 2), 2));
    assert_eq!((counters.walk_references(), counters.walks()), (8, 3));
    // A flush of the mapped page removes the cached entry; a permission miss does not.
    tlb.fill_walk(Side::Data, &walk(2, 0, false));
    assert_eq!(tlb.lookup(Side::Data, Vpn(2), Access::Write), Lookup::Permission);
    tlb.fill_walk(Side::Data, &walk(2, 0, true));
    assert_eq!(tlb.counters().walk_references(), 8 + 1 + 1);
    tlb.invalidate(Vpn(2), 1);
    assert_eq!(read(&mut tlb, 2, 0), Lookup::Miss);
    assert_eq!(tlb.counters().walk_references(), 10 + 4);
}
