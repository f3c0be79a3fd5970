//! Compares the census of random memory with a page-by-page count.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::super::folios::{Size, Tally};
use super::super::take;
use crate::system::MemSystem;

/// Places folios around the end of a chunk in the book (32,768 pages).
const FIRST_PFN: u64 = 0x7c00;
/// Maps them around a boundary between two spans, at page 0x20000.
const FIRST_PAGE: u64 = 0x1fc00;

/// Naturally aligned folios in sequence; head and order of each page.
type Folios = BTreeMap<u64, (u64, u32)>;

fn folios(orders: &[u32]) -> Folios {
    let mut folios = Folios::new();
    let mut pfn = FIRST_PFN;
    for &order in orders {
        let head = pfn.next_multiple_of(1 << order);
        // The pages skipped for alignment are base pages.
        folios.extend((pfn..head).map(|page| (page, (page, 0))));
        folios.extend((head..head + (1 << order)).map(|page| (page, (head, order))));
        pfn = head + (1 << order);
    }
    folios
}

/// A mapped stretch of memory: the gap before it, its first PFN, its length.
#[derive(Clone, Debug)]
struct Stretch {
    gap: u64,
    from: prop::sample::Index,
    len: u64,
    is_aligned: bool,
}

fn stretch() -> impl Strategy<Value = Stretch> {
    (0..40_u64, any::<prop::sample::Index>(), 1..600_u64, any::<bool>())
        .prop_map(|(gap, from, len, is_aligned)| Stretch { gap, from, len, is_aligned })
}

fn mapped(folios: &Folios, stretches: &[Stretch]) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    let mut page = FIRST_PAGE;
    for stretch in stretches {
        let first = FIRST_PFN + stretch.from.index(folios.len()) as u64;
        page += stretch.gap;
        if stretch.is_aligned {
            page += first.wrapping_sub(page) % 512;
        }
        for pfn in (first..first + stretch.len).filter(|pfn| folios.contains_key(pfn)) {
            pages.insert(page, pfn);
            page += 1;
        }
    }
    pages
}

/// Aligned, unaligned, partial and contpte bytes, by order.
type Counted = BTreeMap<u32, [u64; 4]>;

fn naive(folios: &Folios, pages: &BTreeMap<u64, u64>) -> Counted {
    let mut counted = Counted::new();
    let is_run = |page: u64, pfn: u64, nr: u64| {
        (0..nr).all(|at| pages.get(&page.wrapping_add(at)) == Some(&(pfn + at)))
    };
    for (&page, &pfn) in pages {
        let (head, order) = folios[&pfn];
        let first = page.wrapping_sub(pfn - head);
        let class = match (is_run(first, head, 1 << order), first % (1 << order) == 0) {
            (true, true) => 0,
            (true, false) => 1,
            (false, _) => 2,
        };
        let bytes = counted.entry(order).or_default();
        bytes[class] += 4096;
        let block = (page & !15, pfn & !15);
        if order >= 4 && page - block.0 == pfn - block.1 && is_run(block.0, block.1, 16) {
            bytes[3] += 4096;
        }
    }
    counted
}

fn counted(tally: &Tally) -> Counted {
    let mut counted = Counted::new();
    for (_, size, cell) in tally.cells() {
        let Size::Order(order) = size else { panic!("sizes are known") };
        let bytes = counted.entry(order).or_default();
        bytes[0] += cell.aligned_bytes;
        bytes[1] += cell.unaligned_bytes;
        bytes[2] += cell.partial_bytes;
        bytes[3] += cell.contpte_bytes;
    }
    counted
}

/// How the pagemap is read, and which pages no other mapping has.
#[derive(Clone, Debug)]
struct Entries {
    has_scan: bool,
    is_exclusive: Vec<bool>,
}

fn write(dir: &std::path::Path, folios: &Folios, pages: &BTreeMap<u64, u64>, entries: &Entries) {
    let (mut flags, mut pagemap) = (String::new(), String::new());
    for (pfn, (head, order)) in folios {
        let bits = match (order, pfn == head) {
            (0, _) => 0x828,
            (_, true) => 0x40_8828,
            (_, false) => 0x41_0828,
        };
        writeln!(flags, "{pfn:x} 1 {bits:x}").unwrap();
    }
    writeln!(flags, "end 100000").unwrap();
    if entries.has_scan {
        writeln!(pagemap, "scan").unwrap();
    }
    for ((page, pfn), &is_exclusive) in pages.iter().zip(entries.is_exclusive.iter().cycle()) {
        let bits = 1_u64 << 63 | u64::from(is_exclusive) << 56;
        writeln!(pagemap, "{page:x} 1 {:x}", bits | pfn).unwrap();
    }
    std::fs::create_dir(dir.join("1")).unwrap();
    std::fs::write(dir.join("kpageflags"), flags).unwrap();
    std::fs::write(dir.join("1/pagemap"), pagemap).unwrap();
    let maps = "10000000-30000000 r--p 00000000 fe:00 9 /file\n";
    std::fs::write(dir.join("1/maps"), maps).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_memory_is_counted_as_page_by_page(
        orders in prop::collection::vec(prop_oneof![0..7_u32, Just(9)], 1..30),
        stretches in prop::collection::vec(stretch(), 1..8),
        has_scan in any::<bool>(),
        is_exclusive in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let folios = folios(&orders);
        let pages = mapped(&folios, &stretches);
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &folios, &pages, &Entries { has_scan, is_exclusive });
        let census = take(&MemSystem::from_dir(dir.path()), &[1]).unwrap();
        prop_assert_eq!(counted(&census.processes[0].tally), naive(&folios, &pages));
        let once: std::collections::BTreeSet<u64> = pages.values().copied().collect();
        prop_assert_eq!(census.totals.all().mapped_bytes(), once.len() as u64 * 4096);
    }
}
