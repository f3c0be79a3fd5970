//! Collapse by advice to any size: beyond the series.

use largefolio_mm::collapse::Errno;
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::fault::Access;
use largefolio_mm::ram::stored_byte;
use largefolio_mm::rules::collapse::FileCollapse;
use largefolio_mm::units::Order;
use largefolio_mm::vma::Prot;

use crate::collapse::world::{N, PAGE, World, addr, failed, old_rules};

const O4: Order = Order::new(4);

fn collapse_to(
    world: &mut World,
    first: u64,
    nr: u64,
    order: Order,
) -> Result<(), largefolio_mm::collapse::CollapseError> {
    let result = world.memory.madvise_collapse_to(world.mm, addr(first), nr * PAGE, order);
    world.memory.validate().unwrap();
    result
}

#[test]
fn anonymous_memory_in_an_area_smaller_than_a_pmd() {
    let mut world = World::new(old_rules()).mapped(100);
    world.write([1, 2, 40]);
    collapse_to(&mut world, 0, 100, O4).unwrap();
    assert_eq!([1, 15, 40].map(|page| world.order(page)), [4, 4, 4]);
    assert!(world.page(16).is_none() && world.page(97).is_none());
    assert_eq!([1, 2, 3, 40].map(|page| world.byte(world.mm, page)), [0x81, 0x82, 0, 0xa8]);
    collapse_to(&mut world, 0, 100, O4).unwrap();
    assert_eq!(world.memory.counters().collapse.nr_advised, 2, "the second call finds it done");
    assert_eq!(failed(collapse_to(&mut world, 0, 100, Order::new(1))).1, CollapseRefusal::VmaCheck);
}

#[test]
fn text_of_a_filesystem_with_large_folios() {
    let (mut world, file, _) = World::new(old_rules()).with_file("xfs", 120, Prot::READ_EXEC);
    for page in [3, 50] {
        world.memory.touch(world.mm, addr(page), Access::Exec).unwrap();
    }
    collapse_to(&mut world, 0, 112, O4).unwrap();
    let orders: Vec<_> = world.memory.folios(file).map(|f| (f.index.0, f.order.get())).collect();
    assert!(orders.contains(&(0, 4)) && orders.contains(&(48, 4)), "{orders:?}");
    assert_eq!(world.order(3), 4);
    for page in [0, 15, 48, 63] {
        assert!(world.page(page).is_some(), "the whole block is mapped");
        assert_eq!(world.byte(world.mm, page), stored_byte(file, page * PAGE));
    }
}

/// (rule, executable, open for writing, expected collapse)
#[test]
fn a_file_without_large_folios_follows_the_file_rule() {
    for (rule, can_exec, is_written, is_allowed) in [
        (FileCollapse::Absent, true, false, false),
        (FileCollapse::DenyWrite, true, false, false),
        (FileCollapse::Exec, true, false, true),
        (FileCollapse::Exec, false, false, false),
        (FileCollapse::Exec, true, true, false),
        (FileCollapse::Readers, false, false, true),
        (FileCollapse::Readers, true, true, false),
        (FileCollapse::LargeFolios, true, false, false),
    ] {
        let mut rules = old_rules();
        rules.collapse.file = rule;
        let prot = if can_exec { Prot::READ_EXEC } else { Prot::READ };
        let (mut world, file, _) = World::new(rules).with_file("vfat", N, prot);
        if is_written {
            world.memory.open_for_write(file).unwrap();
        }
        world.read(0..N);
        let collapsed = collapse_to(&mut world, 0, N, O4);
        let what = format!("{rule:?}, executable {can_exec}, written {is_written}");
        if is_allowed {
            assert_eq!((collapsed, world.order(3), world.order(500)), (Ok(()), 4, 4), "{what}");
            assert_eq!(world.byte(world.mm, 35), stored_byte(file, 35 * PAGE), "{what}");
        } else {
            let refused = (Errno::Einval, CollapseRefusal::VmaCheck);
            assert_eq!((failed(collapsed), world.order(3)), (refused, 0), "{what}");
        }
        // Order 1 has no room for a deferred split.
        assert!(collapse_to(&mut world, 0, N, Order::new(1)).is_err(), "{what}");
    }
}

#[test]
fn a_writer_drops_the_folios_of_a_file_without_large_ones() {
    let (mut world, file, _) = World::new(old_rules()).with_file("vfat", N, Prot::READ_EXEC);
    world.read(0..N);
    collapse_to(&mut world, 0, N, O4).unwrap();
    world.memory.open_for_write(file).unwrap();
    world.memory.validate().unwrap();
    assert!(world.memory.folios(file).all(|folio| folio.order == Order::ZERO));
    world.read([3]);
    assert_eq!(world.order(3), 0);
    assert_eq!(failed(collapse_to(&mut world, 0, N, O4)).1, CollapseRefusal::VmaCheck);
}

#[test]
fn a_private_copy_is_refused() {
    let (mut world, _, _) = World::new(old_rules()).with_file("xfs", N, Prot::READ_WRITE);
    world.read(0..32);
    world.write([5]);
    assert_eq!(failed(collapse_to(&mut world, 0, N, O4)), (Errno::Einval, CollapseRefusal::Fail));
    assert_eq!((world.order(5), world.order(20)), (0, 4), "the other block is collapsed");
    assert_eq!(world.byte(world.mm, 5), 0x85);
}

#[test]
fn the_pmd_size_is_what_madv_collapse_does() {
    let mut world = World::new(old_rules()).mapped(N);
    world.write([1]);
    collapse_to(&mut world, 0, N, Order::new(9)).unwrap();
    assert!(world.is_huge(0));
}
