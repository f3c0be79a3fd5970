//! Areas, files and page tables together: the effects of mprotect, madvise, mremap, truncate and
//! write.

use largefolio_mm::fault::{Access, FaultError, FaultOutcome};
use largefolio_mm::map::{Madvice, Map, MapError};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::units::AddrRange;
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

use super::world::World;

const PAGE: u64 = 4096;

#[test]
fn a_border_inside_a_pmd_entry_drops_it() {
    // A file's PMD entry must be inside one area; after a split its pages fault again (H.5 step 7,
    // B.6.3).
    let mut world = World::x86("6.18", "xfs", 2048).mapped(Prot::READ);
    world.cache(512, 9);
    assert_eq!(world.touch(600).leaf.kind, LeafKind::Pmd);
    world.memory.madvise(world.mm, world.addr(600), 4 * PAGE, Madvice::Normal).unwrap();
    assert_eq!(world.touch(600).outcome, FaultOutcome::Hit, "nothing changed, nothing is cut");
    world.memory.mprotect(world.mm, world.addr(600), 4 * PAGE, Prot::READ_EXEC).unwrap();
    world.validate();
    assert_eq!(world.touch(700).outcome, FaultOutcome::Minor);
    world.validate();
}

#[test]
fn an_area_that_gets_its_first_anonymous_page_may_join_its_neighbour() {
    let mut world = World::x86("6.18", "xfs", 16);
    let at = |page: u64| Vaddr(0x1000_0000 + page * PAGE);
    for page in [0, 16] {
        let map = Map::anon(16 * PAGE, Prot::READ_WRITE).at(at(page));
        world.memory.mmap(world.mm, map).unwrap();
        world.memory.touch(world.mm, at(page + 3), Access::Write).unwrap();
        world.validate();
    }
    assert_eq!(world.memory.space(world.mm).vmas.len(), 1);
}

#[test]
fn truncation_keeps_private_copies_before_the_end_and_drops_those_behind() {
    let mut world = World::x86("6.18", "xfs", 64).mapped(Prot::READ_WRITE);
    world.cache(0, 5);
    world.touch(0);
    world.store(3);
    world.store(20);
    world.memory.truncate(world.file, 10 * PAGE);
    world.validate();
    assert_eq!(world.present(), [(3, 3)]);
    let error = world.memory.touch(world.mm, world.addr(20), Access::Read).unwrap_err();
    assert!(matches!(error, FaultError::BeyondFile(_)));
}

#[test]
fn a_write_call_of_no_bytes_does_not_grow_the_file() {
    let mut world = World::x86("6.18", "xfs", 1);
    world.memory.pwrite(world.open, 1 << 20, 0).unwrap();
    assert_eq!(world.memory.core().mapping(world.file).size_bytes, PAGE);
    world.memory.pwrite(world.open, 5000, 100).unwrap();
    assert_eq!(world.memory.core().mapping(world.file).size_bytes, 5100);
}

#[test]
fn a_write_beyond_the_end_on_ext4_reads_the_old_end_first_from_7_1_a_7_7() {
    // Seen on seven kernels (random workload 962116): 4095 bytes are written at 9000424, and the
    // file ended in page 2079.
    let folios = |kernel, filesystem| {
        let mut world = World::x86(kernel, filesystem, 1);
        world.file = world.memory.add_file(2079 * PAGE + 100, filesystem);
        world.open = world.memory.open(world.file);
        world.memory.pwrite(world.open, 9_000_424, 4095).unwrap();
        world.validate();
        world.new_folios()
    };
    for kernel in ["6.12", "6.18", "7.0"] {
        assert_eq!(folios(kernel, "ext4"), "o0@2197 o0@2079 o0@2198", "{kernel}");
    }
    for kernel in ["7.1", "7.2", "7.3"] {
        assert_eq!(folios(kernel, "ext4"), "o0@2079 2xo0@2197", "{kernel}");
    }
    // On XFS in every kernel.
    assert!(folios("6.18", "xfs").starts_with("o0@2079 "));
}

#[test]
fn calls_at_the_largest_offset_end() {
    let mut world = World::x86("6.18", "xfs", 1);
    world.memory.pwrite(world.open, u64::MAX - 100, 1000).unwrap();
    let nr = world.memory.pread(world.open, u64::MAX - 5000, 1 << 20).unwrap();
    assert_eq!(nr, 5000);
    world.validate();
    world.memory.truncate(world.file, 0);
    world.validate();
}

#[test]
fn a_file_position_beyond_63_bits_is_an_error() {
    let mut world = World::x86("6.18", "xfs", 1);
    for pgoff in [u64::MAX, u64::MAX - 1, 1 << 51] {
        let map = Map::file(world.open, pgoff, PAGE, Prot::READ);
        let error = world.memory.mmap(world.mm, map).unwrap_err();
        assert_eq!(error, MapError::BadOffset { pgoff, nr_pages: 1 });
        let error = world.memory.mmap(world.mm, map.at(world.base)).unwrap_err();
        assert_eq!(error, MapError::BadOffset { pgoff, nr_pages: 1 });
    }
    let map = Map::file(world.open, (1 << 51) - 1, PAGE, Prot::READ);
    world.memory.mmap(world.mm, map).unwrap();
    world.validate();
}

#[test]
fn a_mapping_moves_with_its_pages_and_refuses_to_move_onto_itself_or_past_its_area() {
    // Since 6.17 a move may cover several areas and the holes between them.
    let mut world = World::x86("6.16", "xfs", 64).mapped(Prot::READ_WRITE);
    world.touch(5);
    world.store(6);
    let (from, len) = (world.addr(0), 16 * PAGE);
    let error = world
        .memory
        .mremap(
            world.mm,
            AddrRange { addr: from, len_bytes: len },
            AddrRange { addr: world.addr(8), len_bytes: len },
        )
        .unwrap_err();
    assert!(matches!(error, MapError::Overlap { .. }), "{error}");
    let error = world
        .memory
        .mremap(
            world.mm,
            AddrRange { addr: from, len_bytes: 100 * PAGE },
            AddrRange { addr: world.addr(1000), len_bytes: 100 * PAGE },
        )
        .unwrap_err();
    assert_eq!(error, MapError::NotMapped(world.addr(64).0));
    let nr_ptes = world.memory.space(world.mm).table.stats().nr_ptes;
    world
        .memory
        .mremap(
            world.mm,
            AddrRange { addr: from, len_bytes: len },
            AddrRange { addr: world.addr(1000), len_bytes: len },
        )
        .unwrap();
    world.validate();
    assert_eq!(world.memory.space(world.mm).table.stats().nr_ptes, nr_ptes);
    let moved = world.memory.touch(world.mm, world.addr(1006), Access::Write).unwrap();
    assert_eq!(moved.outcome, FaultOutcome::Hit);
}

#[test]
fn a_large_file_is_placed_congruent_to_the_pmd() {
    // On ext4 and xfs, but not for a small file (C.6.4).
    for (fs, is_pmd) in [("xfs", true), ("ext4", true), ("vfat", false)] {
        let mut world = World::x86("6.18", fs, 2048);
        let map = Map::file(world.open, 3, 2000 * PAGE, Prot::READ);
        let first = Map::file(world.open, 0, 5 * PAGE, Prot::READ);
        world.memory.mmap(world.mm, first).unwrap();
        let at = world.memory.mmap(world.mm, map).unwrap();
        assert_eq!((at.0 / PAGE) % 512 == 3, is_pmd, "{fs}");
    }
}
