//! Hugetlb pages: sizes, bytes, and cases that recordings do not reach.

use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::hugetlb::{HugeMap, HugeMapError, HugePool, orders};
use largefolio_mm::map::{Madvice, MapError};
use largefolio_mm::memory::{Config, Memory, MemoryError};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::pgtable::PteFlags;
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::HugetlbDrop;
use largefolio_mm::rules::clear::CopyOrder;
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{MmId, Order, PageSize, Vaddr};
use largefolio_mm::vma::{Prot, Sharing};

const M2: Order = Order::new(9);
const G1: Order = Order::new(18);

fn config(arch: Arch, pools: &[(Order, u64)]) -> Config {
    let pool = |&(order, nr_pages): &(Order, u64)| HugePool { order, nr_pages, nr_lost: 0 };
    Config { huge_pools: pools.iter().map(pool).collect(), ..Config::new(arch) }
}

fn private(order: Order, len_bytes: u64) -> HugeMap {
    let (prot, sharing) = (Prot::READ_WRITE, Sharing::Private);
    HugeMap { addr: None, len_bytes, order, prot, sharing, is_reserved: true }
}

fn counts(memory: &Memory, order: Order) -> (u64, u64) {
    let counts = memory.huge_counts(order).unwrap();
    (counts.free_hugepages, counts.resv_hugepages)
}

#[test]
fn a_gigantic_page_comes_from_its_pool_and_not_from_the_buddy_allocator() {
    let mut memory =
        Memory::new(Rules::example(), &config(Arch::X86_64, &[(M2, 3), (G1, 2)])).unwrap();
    let free = memory.core().buddy.nr_pages();
    assert_eq!(free, (14 << 18) - 3 * 512, "two of 16 GiB, and three times 2 MiB, are set aside");
    let mm = memory.new_space();
    let at = memory.mmap_huge(mm, private(G1, 1 << 30)).unwrap();
    assert_eq!((at.0 % (1 << 30), counts(&memory, G1)), (0, (2, 1)));
    let touched = memory.touch(mm, Vaddr(at.0 + (5 << 21) + 4096), Access::Write).unwrap();
    assert_eq!((touched.leaf.kind, touched.leaf.order), (LeafKind::Pmd, M2));
    assert_eq!(touched.leaf.first_vpn.0, (at.0 + (5 << 21)) >> 12, "a TLB gets the part around it");
    assert!(touched.leaf.pfn.0 >= free && touched.leaf.flags.contains(PteFlags::WRITABLE));
    assert_eq!(counts(&memory, G1), (1, 0));
    memory.validate().unwrap();
    memory.exit(mm);
    assert_eq!((counts(&memory, G1), counts(&memory, M2)), ((2, 0), (3, 0)));
    memory.validate().unwrap();
}

#[test]
fn sizes_are_those_of_levels_and_of_contiguous_blocks() {
    let sizes = |arch, page: PageSize| -> Vec<u64> {
        orders(arch, page).iter().map(|order| page.bytes() << order.get() >> 10).collect()
    };
    assert_eq!(sizes(Arch::X86_64, PageSize::K4), [2048, 1 << 20]);
    assert_eq!(sizes(Arch::Arm64, PageSize::K4), [64, 2048, 32 << 10, 1 << 20]);
    assert_eq!(sizes(Arch::Arm64, PageSize::K16), [2048, 32 << 10, 1 << 20]);
    assert_eq!(sizes(Arch::Arm64, PageSize::K64), [2048, 512 << 10, 16 << 20]);
    let rules = Rules { page: PageSize::K64, ..Rules::example() };
    let order = Order::new(5);
    let mut memory = Memory::new(rules, &config(Arch::Arm64, &[(order, 1)])).unwrap();
    let mm = memory.new_space();
    let at = memory.mmap_huge(mm, private(order, 1)).unwrap();
    let leaf = memory.touch(mm, at, Access::Read).unwrap().leaf;
    assert_eq!((leaf.kind, leaf.order), (LeafKind::Contpte, order));
}

#[test]
fn a_pool_that_is_too_large_or_missing_is_refused() {
    let refused = Memory::new(Rules::example(), &config(Arch::X86_64, &[(G1, 16)]));
    assert!(matches!(refused, Err(MemoryError::Pool(_))), "no page is left for anything else");
    let mut memory = Memory::new(Rules::example(), &config(Arch::X86_64, &[(M2, 2)])).unwrap();
    let mm = memory.new_space();
    assert_eq!(memory.mmap_huge(mm, private(G1, 1)), Err(HugeMapError::NoPool(1 << 30)));
    let (page_bytes, wanted, available) = (2 << 20, 3, 2);
    let refused = HugeMapError::PoolTooSmall { wanted, page_bytes, available };
    assert_eq!(memory.mmap_huge(mm, private(M2, 5 << 20)), Err(refused));
    let off = HugeMap { addr: Some(Vaddr(4096)), ..private(M2, 1) };
    assert_eq!(memory.mmap_huge(mm, off), Err(MapError::Unaligned(4096).into()));
}

/// The owner drops its page, then a child that may have it ends: free pages and reservations.
fn dropped(rule: HugetlbDrop, has_child: bool) -> [(u64, u64); 2] {
    let mut rules = Rules::example();
    rules.anon.hugetlb_drop = rule;
    let mut memory = Memory::new(rules, &config(Arch::X86_64, &[(M2, 2)])).unwrap();
    let mm = memory.new_space();
    let at = memory.mmap_huge(mm, private(M2, 2 << 20)).unwrap();
    memory.touch(mm, at, Access::Write).unwrap();
    let child = has_child.then(|| memory.fork(mm).unwrap());
    memory.madvise(mm, at, 2 << 20, Madvice::Dontneed).unwrap();
    memory.validate().unwrap();
    let after_drop = counts(&memory, M2);
    if let Some(child) = child {
        memory.exit(child);
    }
    memory.validate().unwrap();
    [after_drop, counts(&memory, M2)]
}

#[test]
fn an_owner_that_drops_a_page_gets_its_reservation_back_as_the_version_says() {
    for (rule, alone, shared) in [
        (HugetlbDrop::Never, [(2, 0), (2, 0)], [(1, 0), (2, 0)]),
        (HugetlbDrop::Unshared, [(2, 1), (2, 1)], [(1, 0), (2, 0)]),
        (HugetlbDrop::AtOnce, [(2, 1), (2, 1)], [(1, 0), (2, 1)]),
    ] {
        assert_eq!([dropped(rule, false), dropped(rule, true)], [alone, shared], "{rule:?}");
    }
}

/// A child stores to a shared page. Returns the pages and units copied, and the parent's bytes.
fn copied(copy: CopyOrder) -> (u64, u64, Vec<u8>) {
    let mut rules = Rules::example();
    rules.clear.copy = copy;
    let config = Config { ram_bytes: 64 << 20, ..config(Arch::X86_64, &[(M2, 2)]) };
    let ram = Ram::new(rules.page, config.ram_bytes);
    let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
    let parent = memory.new_space();
    let at = memory.mmap_huge(parent, private(M2, 2 << 20)).unwrap();
    let last = Vaddr(at.0 + (2 << 20) - 3);
    memory.store(parent, at, b"first").unwrap();
    memory.store(parent, last, b"end").unwrap();
    let child = memory.fork(parent).unwrap();
    memory.store(child, at, b"other").unwrap();
    memory.validate().unwrap();
    let mut loaded = [0; 3];
    memory.load(child, last, &mut loaded).unwrap();
    let mut of_parent = vec![0; 5];
    memory.load(parent, at, &mut of_parent).unwrap();
    assert_eq!(&loaded, b"end", "all of the page was copied");
    assert_eq!(memory.counters().hugetlb.nr_cow, 1);
    let copied = memory.core().ram.counted.copied;
    (copied.nr_bytes >> 12, copied.nr_units, of_parent)
}

#[test]
fn a_huge_page_is_copied_page_by_page_or_in_extents() {
    assert_eq!(copied(CopyOrder::Pages), (512, 512, b"first".to_vec()));
    // Around page 0: the pages after the near part, and the near part, which ends at page 2.
    assert_eq!(copied(CopyOrder::Extents), (512, 2, b"first".to_vec()));
}

fn read(memory: &mut Memory, mm: MmId, at: Vaddr) -> Result<(), FaultError> {
    memory.touch(mm, at, Access::Read).map(|_| ())
}

#[test]
fn moving_a_part_of_an_area_loses_promises() {
    use largefolio_mm::units::AddrRange;
    let mut memory = Memory::new(Rules::example(), &config(Arch::X86_64, &[(M2, 4)])).unwrap();
    let mm = memory.new_space();
    let at = memory.mmap_huge(mm, private(M2, 6 << 20)).unwrap();
    let (from, to) = (AddrRange { addr: at, len_bytes: 2 << 20 }, Vaddr(at.0 - (64 << 20)));
    memory.mremap(mm, from, AddrRange { addr: to, ..from }).unwrap();
    memory.validate().unwrap();
    read(&mut memory, mm, to).unwrap();
    read(&mut memory, mm, Vaddr(at.0 + (2 << 20))).unwrap();
    assert_eq!(counts(&memory, M2), (2, 2));
    assert_eq!(
        read(&mut memory, mm, Vaddr(at.0 + (4 << 20))),
        Err(FaultError::NoHugePage(at.0 + (4 << 20)))
    );
    memory.exit(mm);
    assert_eq!((counts(&memory, M2), memory.counters().hugetlb.nr_lost), ((4, 2), 2));
    memory.validate().unwrap();
}

#[test]
fn advice_that_huge_pages_do_not_take_is_refused() {
    let mut memory = Memory::new(Rules::example(), &config(Arch::X86_64, &[(M2, 1)])).unwrap();
    let mm = memory.new_space();
    let at = memory.mmap_huge(mm, private(M2, 1)).unwrap();
    let free = memory.madvise(mm, at, 2 << 20, Madvice::Free);
    assert_eq!(free, Err(MapError::HugeAdvice(at.0)));
    let cut = memory.madvise(mm, Vaddr(at.0 + 4096), 4096, Madvice::Dontneed);
    assert_eq!(cut, Err(MapError::HugeCut(at.0 + 4096)));
}
