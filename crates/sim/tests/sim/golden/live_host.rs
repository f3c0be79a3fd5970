//! L.22: behaviour of a live 6.18.44 (x86-64, ext4, 128 KiB window).

use largefolio_mm::map::Madvice::{Hugepage, Sequential};
use largefolio_mm::units::PageIndex;
use largefolio_mm::vma::Prot;

use super::world::World;

fn world(prot: Prot) -> World {
    World::x86("6.18", "ext4", 1 << 16).mapped(prot)
}

#[test]
fn a_plain_first_touch() {
    let mut world = world(Prot::READ);
    world.touch(1000);
    assert_eq!((world.cached(), world.folios()), (vec![(984, 1015)], "32xo0@984".to_owned()));
    assert_eq!(world.present(), [(992, 1007)]);
}

#[test]
fn then_the_marker() {
    let mut world = world(Prot::READ);
    world.touch(1000);
    // The new window was still being read when the fault repeated: its first folio had the marker,
    // the second was locked (B.5.4). The model has no time, so the test delays the read.
    world.memory.delay_read(world.file, PageIndex(1020));
    world.touch(1008);
    assert_eq!(world.cached(), [(984, 1047)]);
    assert!(world.folios().ends_with("8xo2@1016"), "{}", world.folios());
    assert_eq!(world.present(), [(992, 1015)]);
}

#[test]
fn then_a_sweep() {
    let mut world = world(Prot::READ);
    world.touch(1000);
    world.touch_all(1008..1400);
    let folios = world.folios();
    assert!(folios.contains("8xo2@1016 o3@1048 2xo4@1056 ") && folios.contains("xo5@1088"));
}

#[test]
fn text_is_read_forward() {
    let mut world = world(Prot::READ_EXEC);
    world.touch(1000);
    assert_eq!((world.cached(), world.present()), (vec![(1000, 1031)], vec![(1000, 1007)]));
    assert_eq!(world.folios(), "32xo0@1000");
    world.touch(5003);
    assert_eq!(world.cached()[1], (5003, 5034));
    world.touch_all(5003..5035);
    assert_eq!(world.cached()[1], (5003, 5034), "no asynchronous continuation");
}

#[test]
fn hugepage_advice() {
    let mut world = world(Prot::READ).advised(&[Hugepage]);
    world.touch(1000);
    assert_eq!((world.folios(), world.present()), ("2xo9@512".to_owned(), vec![(512, 1023)]));
}

#[test]
fn sequential_advice() {
    let mut world = world(Prot::READ).advised(&[Sequential]);
    world.touch(1000);
    assert_eq!(world.cached(), [(1000, 1031)]);
}

#[test]
fn sparse_touches_never_stop_readahead() {
    for prot in [Prot::READ, Prot::READ_EXEC] {
        let mut world = world(prot);
        for nr in 0..250 {
            world.new_folios();
            world.touch(1000 + nr * 64);
            assert_eq!(world.nr_new_pages(), 32, "{prot:?} touch {nr}");
        }
    }
}
