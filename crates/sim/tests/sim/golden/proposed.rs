//! Alternatives to a fixed order for text from the discussion of series 000 (K.1.4).

use largefolio_mm::buddy::Fragmentation;
use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::memory::Config;
use largefolio_mm::rules::Arch;
use largefolio_mm::units::{Order, PageIndex, Vaddr};
use largefolio_mm::vma::Prot;

use super::world::World;

/// 64 MiB of 4K pages without a free block of `order`.
fn fragmented(order: u8) -> Config {
    let fragmentation = Some(Fragmentation::at(Order::new(order), 1000, 7));
    Config { ram_bytes: 64 << 20, fragmentation, ..Config::new(Arch::Arm64) }
}

fn text(kernel: &str, config: &Config) -> World {
    World::new(kernel, config, "xfs", 4096).mapped(Prot::READ_EXEC)
}

/// Allocates every block of 16 pages and frees half of some, so that no such block is free.
fn leave_halves(world: &mut World) {
    let mut taken = Vec::new();
    while let Some(pfn) = world.memory.take_block(Order::new(4)) {
        taken.push(pfn);
    }
    for &pfn in taken.iter().step_by(2) {
        world.memory.give_block(pfn, Order::new(3));
    }
}

#[test]
fn a_hard_minimum_fails_where_a_soft_one_reads_base_pages() {
    for kernel in ["6.12", "6.18", "7.2"] {
        let mut hard = text(&format!("{kernel}+min-folio=64K"), &fragmented(4));
        let addr = Vaddr(hard.base.0 + 100 * 4096);
        let refused = hard.memory.touch(hard.mm, addr, Access::Read);
        assert!(matches!(refused, Err(FaultError::OutOfMemory(_))), "{kernel}: {refused:?}");
        assert_eq!(hard.folios(), "", "{kernel}");
        let mut soft = text(&format!("{kernel}+min-folio=64K+min-order=soft"), &fragmented(4));
        soft.touch(100);
        assert!(soft.is_cached(96) && soft.is_cached(111), "{kernel}: {}", soft.folios());
        assert!(!soft.folios().contains("o4"), "{kernel}: {}", soft.folios());
        soft.validate();
    }
}

#[test]
fn a_soft_minimum_is_met_while_memory_lasts_and_fills_what_is_absent_later() {
    let config = Config { ram_bytes: 64 << 20, ..Config::new(Arch::Arm64) };
    let mut world =
        World::new("6.18+min-folio=64K+min-order=soft+readahead=0", &config, "xfs", 4090)
            .mapped(Prot::READ);
    world.touch(100);
    assert_eq!(world.folios(), "o4@96");
    leave_halves(&mut world);
    world.touch(200);
    assert_eq!(world.folios(), "o4@96 16xo0@192");
    // The last block of the file has nothing after its end.
    world.touch(4089);
    assert_eq!(world.folios(), "o4@96 16xo0@192 10xo0@4080");
    // A page that was dropped while its neighbours stayed comes back alone.
    world.memory.munmap(world.mm, world.addr(4080), 10 * 4096).unwrap();
    assert!(world.memory.drop_folio(world.file, PageIndex(4089)).is_some());
    world.map_part(Prot::READ, (4080, 4090));
    world.touch(4089);
    assert_eq!(world.folios(), "o4@96 16xo0@192 10xo0@4080");
    world.validate();
}

#[test]
fn an_exec_minimum_makes_whole_folios_of_text_and_leaves_data() {
    // Applies to a read-around (6.12) and to a single page (readahead off).
    let free = Config::new(Arch::Arm64);
    let mut world = text("6.12+exec-min=64K", &free);
    world.touch(1000);
    // 32 pages around 1000 are 984 .. 1016; in whole folios 976 .. 1024.
    assert_eq!(world.folios(), "3xo4@976");
    let mut world = text("6.12+exec-min=64K+readahead=0", &free);
    world.touch(1000);
    assert_eq!(world.folios(), "o4@992");
    let mut data = World::new("6.12+exec-min=64K", &free, "xfs", 4096).mapped(Prot::READ);
    data.touch(1000);
    assert!(!data.folios().contains("o4"), "{}", data.folios());
    let mut world = text("6.12+exec-min=64K", &fragmented(4));
    world.touch(1000);
    assert_eq!(world.folios(), "48xo0@976");
    world.validate();
}

#[test]
fn a_state_set_at_mmap_reads_a_window_of_its_size_around_the_fault() {
    // The window is not aligned: half of it is before the fault.
    let free = Config::new(Arch::Arm64);
    let mut world = text("6.12+mmap-state=64K", &free);
    world.touch(1000);
    assert_eq!(world.folios(), "o4@992");
    let mut world = text("6.12+mmap-state=64K", &free);
    world.touch(1004);
    assert_eq!(world.cached(), [(996, 1011)]);
    assert!(!world.folios().contains("o4"), "{}", world.folios());
    let mut data = World::new("6.12+mmap-state=64K", &free, "xfs", 4096).mapped(Prot::READ);
    data.touch(1000);
    assert_eq!(data.cached(), [(984, 1015)]);
}

#[test]
fn an_order_that_follows_pressure_takes_what_is_free() {
    for kernel in ["6.18", "6.12+exec-block=64K"] {
        let free = Config { ram_bytes: 64 << 20, ..Config::new(Arch::Arm64) };
        let mut world = text(&format!("{kernel}+pressure-order=on"), &free);
        world.touch(1000);
        assert!(world.folios().contains("o4@992"), "{kernel}: {}", world.folios());
        // No free block of 16 pages, but some of 8: the fixed order falls back to base pages.
        let mut fixed = text(kernel, &fragmented(4));
        fixed.touch(1000);
        assert!(!fixed.folios().contains("o3"), "{kernel}: {}", fixed.folios());
        let mut world = text(&format!("{kernel}+pressure-order=on"), &fragmented(4));
        world.touch(1000);
        assert!(world.folios().contains("o3@1000"), "{kernel}: {}", world.folios());
        assert_eq!(world.memory.counters().reclaim.compact_stall, 0, "{kernel}");
        world.validate();
    }
}
