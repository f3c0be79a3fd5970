//! Fallback and unusual files: memory without large free blocks, minimum folio orders, ends of
//! files, exhausted memory (A.5.8, A.5.9, A.6, A.8).

use largefolio_mm::buddy::Fragmentation;
use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::Config;
use largefolio_mm::rules::Arch;
use largefolio_mm::units::ByteRange;
use largefolio_mm::units::{Order, Vaddr};
use largefolio_mm::vma::Prot;

use super::world::World;

/// 64 MiB of 4K pages without a free block of `order`.
fn fragmented(order: u8) -> Config {
    let order = Order::new(order);
    let used_permille = (1000 >> order.get()) + 20;
    let fragmentation = Fragmentation { seed: 7, used_permille, order, unusable_permille: 1000 };
    Config { ram_bytes: 64 << 20, fragmentation: Some(fragmentation), ..Config::new(Arch::Arm64) }
}

fn short(kernel: &str, order: u8, fs: &str, nr_pages: u64) -> World {
    World::new(kernel, &fragmented(order), fs, nr_pages)
}

#[test]
fn an_exec_block_without_memory_becomes_base_pages_for_the_same_block() {
    // No retry at a lower order, although order 3 is free (B.4.9, A.5.9).
    for kernel in ["6.12+exec-block=64K", "6.18+exec-block=64K"] {
        let mut world = short(kernel, 4, "xfs", 4096).mapped(Prot::READ_EXEC);
        world.touch(1000);
        assert_eq!(world.folios(), "16xo0@992", "{kernel}");
        assert_eq!(world.memory.counters().large_folio_fallback, 1, "{kernel}");
        world.validate();
    }
}

#[test]
fn an_exec_window_without_memory_becomes_base_pages_for_the_rest() {
    // B.4.7, A.5.8.
    let mut world = short("6.18", 4, "xfs", 4096);
    world.map_part(Prot::READ_EXEC, (10, 74));
    world.touch(10);
    assert_eq!(world.folios(), "o1@10 o2@12 32xo0@16");
    assert_eq!(world.memory.counters().large_folio_fallback, 1);
    world.validate();
}

#[test]
fn forced_and_sequential_windows_fall_back_and_stay_sound() {
    for kernel in ["6.1", "6.12", "6.17", "6.18", "7.0", "7.2"] {
        let mut world =
            short(kernel, 5, "xfs", 4096).mapped(Prot::READ).advised(&[Madvice::Hugepage]);
        world.touch(1000);
        assert_eq!(world.folios(), "1024xo0@512", "{kernel}");
        assert_eq!(world.memory.counters().large_folio_fallback, 1, "{kernel}");
        world.validate();
        let mut world = short(kernel, 2, "xfs", 4096);
        (0..500).for_each(|index| world.read(index));
        let has_large = (2..9).any(|order| world.folios().contains(&format!("o{order}@")));
        assert!(!has_large, "{kernel}: {}", world.folios());
        assert!(world.memory.counters().large_folio_fallback > 0, "{kernel}");
        world.validate();
    }
}

#[test]
fn what_is_read_again_after_a_failed_insertion_depends_on_the_version() {
    // Page 100 of the window 87..=118 is cached (A.5.8). 6.12 restarts there with the whole size,
    // 7.0 reads the rest; the marker is 8 pages before the end.
    for (kernel, cached, marker) in
        [("6.12", (87, 131), 124), ("7.0", (87, 118), 111), ("7.2", (87, 118), 111)]
    {
        let mut world = World::x86(kernel, "xfs", 4096).mapped(Prot::READ);
        world.cache(100, 0);
        world.touch(103);
        assert_eq!((world.cached(), world.markers()), (vec![cached], vec![marker]), "{kernel}");
        world.validate();
    }
}

#[test]
fn a_write_steps_the_order_down() {
    // Order 4 is unavailable, order 3 is available (A.7.1, A.5.9).
    let mut world = short("6.18", 4, "xfs", 4096);
    world.memory.pwrite(world.open, 0, 64 << 10).unwrap();
    assert_eq!(world.folios(), "2xo3@0");
    world.validate();
}

#[test]
fn writes_take_their_order_from_length_and_alignment() {
    // 1 MiB at 0 is order 8; from page 3 the index limits the order (A.7.1).
    let mut world = World::x86("6.18", "xfs", 4096);
    world.memory.pwrite(world.open, 0, 1 << 20).unwrap();
    assert_eq!(world.folios(), "o8@0");
    let mut world = World::x86("6.18", "xfs", 4096);
    world.memory.pwrite(world.open, 3 * 4096, 13 * 4096).unwrap();
    assert_eq!(world.folios(), "o0@3 o2@4 o3@8");
    let mut world = World::x86("6.18", "vfat", 4096);
    world.memory.pwrite(world.open, 0, 64 << 10).unwrap();
    assert_eq!(world.folios(), "16xo0@0");
}

#[test]
fn no_folio_is_smaller_than_the_smallest_of_the_filesystem() {
    // Order 2, aligned, even if the file ends inside a folio (A.5.4, A.6.2, A.7.2, A.9.4).
    for kernel in ["6.12", "6.17", "6.18", "7.0", "7.2"] {
        let kernel = format!("{kernel}+min-folio=16K");
        for nr_pages in [1, 3, 4, 5, 42, 63, 64, 65] {
            let mut world = World::x86(&kernel, "xfs", nr_pages).mapped(Prot::READ);
            for nr in 0..nr_pages {
                world.touch(nr * 7 % nr_pages);
                world.validate();
            }
            let mut world = World::x86(&kernel, "xfs", nr_pages).mapped(Prot::READ_EXEC);
            world.touch_all((0..nr_pages).rev());
            world.validate();
            let mut world = World::x86(&kernel, "xfs", nr_pages);
            (0..nr_pages).for_each(|index| world.read(index));
            world.memory.pwrite(world.open, (nr_pages + 9) * 4096, 4096).unwrap();
            world.validate();
        }
    }
    let mut world = World::x86("6.18+min-folio=16K", "xfs", 4096).mapped(Prot::READ);
    world.touch(101);
    assert_eq!(world.folios(), "9xo2@84", "85..=116 begins and ends inside a folio");
    let mut world = World::x86("6.18+min-folio=16K+readahead=0", "xfs", 4096).mapped(Prot::READ);
    world.touch(101);
    assert_eq!(world.folios(), "o2@100");
}

#[test]
fn an_empty_file_reads_nothing() {
    // A.6.1, B.2.1.
    for kernel in ["6.1", "6.12", "6.18", "7.2"] {
        let mut world = World::x86(kernel, "xfs", 0);
        world.map_part(Prot::READ, (0, 4));
        assert_eq!(world.memory.pread(world.open, 0, 4096), Ok(0));
        let error = world.memory.touch(world.mm, world.addr(0), Access::Read).unwrap_err();
        assert_eq!(error, FaultError::BeyondFile(world.base.0));
        world.memory.fadvise(
            world.open,
            ByteRange { pos: 0, len_bytes: 0 },
            largefolio_mm::io::Fadvice::Willneed,
        );
        world.memory.truncate(world.file, 0);
        assert_eq!(world.folios(), "");
        world.validate();
    }
}

#[test]
fn a_file_that_ends_inside_a_page_has_that_page() {
    let mut world = World::x86("6.18", "xfs", 0);
    let file = world.memory.add_file(5 * 4096 + 1, "xfs");
    let open = world.memory.open(file);
    let map = Map::file(open, 0, 6 * 4096, Prot::READ).at(world.base);
    world.memory.mmap(world.mm, map).unwrap();
    world.touch(5);
    assert_eq!(world.memory.pread(open, 5 * 4096, 4096), Ok(1));
    assert_eq!(world.memory.folios(file).map(|entry| entry.end()).max(), Some(6));
    world.validate();
}

fn tiny(kernel: &str) -> World {
    let config = Config { ram_bytes: 64 * 4096, ..Config::new(Arch::X86_64) };
    World::new(kernel, &config, "xfs", 4096)
}

#[test]
fn exhausted_memory_is_a_named_error_everywhere() {
    for kernel in ["6.1", "6.12", "6.18", "7.2", "6.18+min-folio=16K"] {
        let mut world = tiny(kernel).mapped(Prot::READ);
        // Private memory without swap space cannot be reclaimed.
        let hog = Vaddr(0x1000_0000);
        let map = Map::anon(100 * 4096, Prot::READ_WRITE).at(hog);
        world.memory.mmap(world.mm, map).unwrap();
        let store =
            |page: u64| world.memory.touch(world.mm, Vaddr(hog.0 + page * 4096), Access::Write);
        assert_eq!((0..100_u64).flat_map(store).count(), 63);
        let mut errors = 0;
        for index in 0..200 {
            let touched = world.memory.touch(world.mm, world.addr(index), Access::Read);
            if let Err(error) = touched {
                assert_eq!(error, FaultError::OutOfMemory(world.addr(index).0), "{kernel}");
                errors += 1;
            }
            world.validate();
        }
        assert_eq!(errors, 200, "{kernel}");
        let error = world.memory.pread(world.open, 1 << 20, 4096).unwrap_err();
        assert!(error.to_string().contains("out of memory at byte 1048576"), "{error}");
        assert!(world.memory.pwrite(world.open, 2 << 20, 4096).is_err());
        world.validate();
        // Freed memory is reusable, and the page cache shrinks on its own.
        world.memory.munmap(world.mm, hog, 100 * 4096).unwrap();
        for index in 0..200 {
            assert!(world.memory.touch(world.mm, world.addr(index), Access::Read).is_ok());
        }
        world.validate();
        assert_eq!(world.memory.pread(world.open, 0, 4096), Ok(4096));
    }
}

#[test]
fn exhausted_memory_leaves_a_private_store_undone() {
    let mut world = tiny("6.18");
    let at = |page: u64| Vaddr(0x1000_0000 + page * 4096);
    let map = Map::anon(100 * 4096, Prot::READ_WRITE).at(at(0));
    world.memory.mmap(world.mm, map).unwrap();
    world.memory.touch(world.mm, at(99), Access::Read).unwrap();
    let store = |world: &mut World, page| world.memory.touch(world.mm, at(page), Access::Write);
    let failed = (0..100).find(|&page| store(&mut world, page).is_err());
    assert_eq!(failed, Some(63), "64 pages, one of them the zero page");
    let error = store(&mut world, 99).unwrap_err();
    assert_eq!(error, FaultError::OutOfMemory(at(99).0));
    let child = world.memory.fork(world.mm).unwrap();
    assert!(store(&mut world, 0).is_err(), "the page is shared with the child now");
    world.validate();
    world.memory.exit(child);
    store(&mut world, 0).unwrap();
    world.validate();
}
