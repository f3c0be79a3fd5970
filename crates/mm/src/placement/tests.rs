use super::*;
use crate::map::Map;
use crate::memory::{Config, Memory};
use crate::rules::{Arch, Placement, Rules};
use crate::units::{MmId, Vaddr};
use crate::vma::{Advice, AreaMerge, Backing, MappedShmem, Prot, Sharing, Vma};

fn area(start: u64, end: u64) -> Vma {
    Vma {
        start: Vpn(start),
        end: Vpn(end),
        prot: Prot::READ,
        sharing: Sharing::Private,
        backing: Backing::Anon,
        advice: Advice::default(),
        anon: None,
        moved_by: 0,
        is_accounted: false,
        is_armed: false,
        ahead: None,
        grows_to: None,
        shmem: MappedShmem::Named,
    }
}

const TOP: u64 = MMAP_BASE >> 12;

#[test]
fn the_highest_gap_that_is_large_enough_is_taken() {
    let mut areas = VmaTree::new(AreaMerge::Any);
    let at = |areas: &VmaTree, nr_pages| {
        find(areas, PageSize::K4, Want { nr_pages, congruent_to: None }).map(|vpn| TOP - vpn.0)
    };
    assert_eq!(at(&areas, 10), Some(10));
    areas.insert(area(TOP - 10, TOP - 4));
    areas.insert(area(TOP - 30, TOP - 20));
    assert_eq!([4, 5, 10, 11].map(|nr| at(&areas, nr)), [4, 15, 20, 41].map(Some));
    assert_eq!(at(&areas, TOP), None);
    assert_eq!(at(&areas, u64::MAX), None);
}

#[test]
fn areas_above_the_top_are_stepped_over() {
    let mut areas = VmaTree::new(AreaMerge::Any);
    areas.insert(area(TOP + 100, TOP + 200));
    areas.insert(area(TOP - 2, TOP + 5));
    let want = Want { nr_pages: 3, congruent_to: None };
    assert_eq!(find(&areas, PageSize::K4, want), Some(Vpn(TOP - 5)));
}

#[test]
fn a_congruent_place_is_congruent_and_inside_the_gap() {
    for page in [PageSize::K4, PageSize::K16, PageSize::K64] {
        let pmd = page.pmd_order();
        let top = MMAP_BASE >> page.shift();
        for pgoff in [0, 1, 511, 512, 5000, (1 << 40) + 3] {
            let want = Want { nr_pages: 700, congruent_to: Some(Congruence { pgoff, order: pmd }) };
            let place = find(&VmaTree::new(AreaMerge::Any), page, want).unwrap();
            assert!(pmd.is_aligned(place.0.wrapping_sub(pgoff)), "{page} {pgoff}");
            assert!(place.0 + 700 <= top && top - place.0 <= 700 + 2 * pmd.nr_pages());
        }
    }
}

#[test]
fn without_room_for_the_padding_any_place_will_do() {
    let mut areas = VmaTree::new(AreaMerge::Any);
    areas.insert(area(0, TOP - 600));
    let want = Want {
        nr_pages: 590,
        congruent_to: Some(Congruence { pgoff: 0, order: PageSize::K4.pmd_order() }),
    };
    assert_eq!(find(&areas, PageSize::K4, want), Some(Vpn(TOP - 590)));
}

#[test]
fn only_a_mapping_with_a_whole_pmd_range_is_placed_for_one() {
    let pmd = PageSize::K4.pmd_order();
    let spans = |pgoff, nr| spans_pmd(pgoff, nr, pmd);
    assert!(spans(0, 512) && spans(1, 1023) && spans(512, 512));
    assert!(!spans(0, 511) && !spans(1, 1022) && !spans(513, 1000) && !spans(u64::MAX, 512));
}

fn memory(placement: Placement) -> (Memory, MmId) {
    let rules = Rules { placement, ..Rules::example() };
    let mut memory = Memory::new(rules, &Config::new(Arch::X86_64)).unwrap();
    let mm = memory.new_space();
    (memory, mm)
}

#[test]
fn anonymous_memory_of_whole_pmds_is_aligned_from_6_7_on() {
    const MIB: u64 = 1 << 20;
    let is_aligned = |placement, bytes| {
        let (mut memory, mm) = memory(placement);
        // A small mapping first, so the top is not aligned.
        memory.mmap(mm, Map::anon(4096, Prot::READ)).unwrap();
        let Vaddr(at) = memory.mmap(mm, Map::anon(bytes, Prot::READ)).unwrap();
        at.is_multiple_of(2 * MIB)
    };
    let both = Placement::LargeFilesAndAnon;
    assert!(is_aligned(both, 2 * MIB) && is_aligned(both, 64 * MIB));
    assert!(!is_aligned(both, 3 * MIB), "not a multiple: placed as it comes");
    assert!(!is_aligned(Placement::LargeFiles, 2 * MIB));
}

#[test]
fn a_large_file_is_placed_congruent_to_its_offset_under_either_rule() {
    for placement in [Placement::LargeFiles, Placement::LargeFilesAndAnon] {
        let (mut memory, mm) = memory(placement);
        let file = memory.add_file(64 << 20, "xfs");
        let open = memory.open(file);
        memory.mmap(mm, Map::anon(4096, Prot::READ)).unwrap();
        let map = Map::file(open, 7, 8 << 20, Prot::READ);
        let Vaddr(at) = memory.mmap(mm, map).unwrap();
        assert_eq!((at >> 12) % 512, 7);
        let small = Map::file(open, 7, 1 << 20, Prot::READ);
        let Vaddr(at) = memory.mmap(mm, small).unwrap();
        assert_ne!((at >> 12) % 512, 7);
    }
}
