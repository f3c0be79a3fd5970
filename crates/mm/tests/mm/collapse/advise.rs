//! `MADV_COLLAPSE`: H.1.1, H.5.1, H.5.2.

use largefolio_mm::collapse::Errno;
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::map::Madvice;
use largefolio_mm::rules::collapse::{EmptyBlock, ReadOnlyRange, ShortRequest};
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

use crate::collapse::world::{N, PAGE, World, addr, failed, old_rules};

const VMA_CHECK: (Errno, CollapseRefusal) = (Errno::Einval, CollapseRefusal::VmaCheck);

#[test]
fn an_area_must_be_able_to_hold_a_block_h_1_1() {
    let mut world = World::new(old_rules()).mapped(N);
    assert_eq!(failed(world.collapse(0, N)), VMA_CHECK, "no anon_vma yet");
    world.write(0..N);
    world.advise(Madvice::Nohugepage, 0, N);
    assert_eq!(failed(world.collapse(0, N)), VMA_CHECK, "VM_NOHUGEPAGE");
    world.advise(Madvice::Hugepage, 0, N);
    world.collapse(0, N).unwrap();
    let mut small = World::new(old_rules()).mapped(N - 1);
    small.write(0..N - 1);
    assert_eq!(failed(small.collapse(0, N - 1)), VMA_CHECK, "smaller than a block");
}

#[test]
fn a_request_without_a_whole_block_h_5_1() {
    for (rule, inside, across) in [
        (ShortRequest::Refused, Some((Errno::Einval, CollapseRefusal::Fail)), None),
        (ShortRequest::Done, None, None),
    ] {
        let mut rules = old_rules();
        rules.collapse.short_request = rule;
        let mut world = World::new(rules).mapped(4 * N);
        world.write(0..4 * N);
        let error = |result: Result<(), _>| {
            result.err().map(|e: largefolio_mm::collapse::CollapseError| (e.errno, e.refusal))
        };
        assert_eq!(error(world.collapse(N + 1, 1)), inside, "{rule:?}: inside a block");
        assert_eq!(error(world.collapse(N - 1, 2)), across, "{rule:?}: across one border");
        assert!((0..4).all(|block| !world.is_huge(block * N)));
    }
}

#[test]
fn the_walk_goes_on_after_what_may_pass_and_stops_at_the_rest_h_5_2() {
    for (rule, is_tried) in [(EmptyBlock::EndsWalk, false), (EmptyBlock::SteppedOver, true)] {
        let mut rules = old_rules();
        rules.collapse.empty_block = rule;
        let mut world = World::new(rules).mapped(3 * N);
        world.write(N..3 * N);
        assert_eq!(failed(world.collapse(0, 3 * N)), (Errno::Einval, CollapseRefusal::NoPteTable));
        assert_eq!([world.is_huge(N), world.is_huge(2 * N)], [is_tried; 2], "{rule:?}");
    }

    let mut world = World::new(old_rules()).mapped(2 * N);
    world.write(0..2 * N);
    let child = world.memory.fork(world.mm).unwrap();
    world.write([N]);
    assert_eq!(failed(world.collapse(0, 2 * N)), (Errno::Einval, CollapseRefusal::PageRo));
    assert!(world.is_huge(N), "a read-only block does not end the walk");
    world.tune(|rules| rules.collapse.read_only = ReadOnlyRange::Collapsed);
    world.collapse(0, 2 * N).unwrap();
    assert!(world.is_huge(0) && world.is_huge(N));
    assert_eq!(world.byte(child, 5), 0x85);
    world.collapse(0, 2 * N).unwrap();
    assert_eq!(world.memory.counters().collapse.nr_advised, 2, "an already huge block is fine");
}

#[test]
fn a_hole_in_the_range_is_told_and_the_rest_collapsed() {
    let mut world = World::new(old_rules()).mapped(4 * N);
    world.write(0..4 * N);
    world.memory.munmap(world.mm, addr(N), N * PAGE).unwrap();
    assert_eq!(failed(world.collapse(0, 4 * N)), (Errno::Enomem, CollapseRefusal::VmaNull));
    assert!(world.is_huge(0) && world.is_huge(2 * N) && world.is_huge(3 * N));
}

#[test]
fn a_bad_range_a_dead_process_and_no_range() {
    let mut world = World::new(old_rules()).mapped(N);
    let off = world.memory.madvise_collapse(world.mm, Vaddr(addr(0).0 + 1), N * PAGE);
    assert_eq!(failed(off), (Errno::Einval, CollapseRefusal::AddressRange));
    world.memory.madvise_collapse(world.mm, addr(0), 0).unwrap();
    world.memory.exit(world.mm);
    assert_eq!(failed(world.collapse(0, N)), (Errno::Einval, CollapseRefusal::AnyProcess));
}

#[test]
fn a_file_must_stand_at_a_congruent_address() {
    let (mut world, file, open) = World::new(old_rules()).with_file("vfat", 4 * N, Prot::READ);
    let map = largefolio_mm::map::Map::file(open, 1, 2 * N * PAGE, Prot::READ).at(addr(8 * N));
    world.memory.mmap(world.mm, map).unwrap();
    assert_eq!(failed(world.collapse(8 * N, 2 * N)), VMA_CHECK);
    world.collapse(0, N).unwrap();
    assert_eq!(world.memory.folios(file).next().unwrap().order.get(), 9);
}
