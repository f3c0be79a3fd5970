//! The forced window of `MADV_HUGEPAGE` (B.4.4 .. B.4.6).

use largefolio_mm::map::Madvice::{Hugepage, Random, Sequential};
use largefolio_mm::vma::Prot;

use super::world::World;

fn huge(kernel: &str, fs: &str, nr_pages: u64) -> World {
    World::arm(kernel, fs, nr_pages).mapped(Prot::READ).advised(&[Hugepage])
}

#[test]
fn two_pmd_folios_with_the_marker_on_the_second() {
    // The state's start keeps its value (B.4.6).
    for kernel in ["6.1", "6.12", "6.18", "7.0", "7.2"] {
        let mut world = huge(kernel, "xfs", 1 << 13);
        world.touch(1000);
        assert_eq!(world.folios(), "2xo9@512", "{kernel}");
        assert_eq!(world.markers(), [1024], "{kernel}");
        assert_eq!(world.window(), (0, 1024, 512), "{kernel}");
    }
}

#[test]
fn random_advice_leaves_one_folio_with_the_marker_on_itself() {
    // Size T, mark = s (B.4.6).
    for kernel in ["6.12", "6.18", "7.0", "7.2"] {
        let mut world = huge(kernel, "xfs", 1 << 13).advised(&[Random]);
        world.touch(1000);
        assert_eq!((world.folios().as_str(), world.markers()), ("o9@512", vec![512]), "{kernel}");
        assert_eq!(world.window(), (0, 512, 512), "{kernel}");
    }
}

#[test]
fn the_order_is_that_of_b_4_5_in_7_2() {
    // B.4.5, "Order by case".
    let rows = [
        ("4K", "xfs", 9),
        ("4K", "ext4", 9),
        ("4K", "btrfs", 6),
        ("16K", "xfs", 7),
        ("16K", "ext4", 7),
        ("64K", "xfs", 5),
        ("64K", "ext4", 5),
        ("64K", "btrfs", 2),
    ];
    for (page, fs, order) in rows {
        let mut world = huge(&format!("7.2+page={page}"), fs, 1 << 13);
        world.touch(1 << 12);
        assert_eq!(world.folios(), format!("2xo{order}@4096"), "{page} {fs}");
    }
}

#[test]
fn before_7_2_the_window_is_pmd_sized_or_there_is_none() {
    // 16K XFS gets two 32 MiB folios, 64K ordinary read-around (B.4.1 step 1, N.8).
    for kernel in ["6.18", "7.0"] {
        let mut world = huge(&format!("{kernel}+page=16K"), "xfs", 1 << 13);
        world.touch(5000);
        assert_eq!(world.folios(), "2xo11@4096", "{kernel}");
        let mut world = huge(&format!("{kernel}+page=64K"), "xfs", 1 << 13);
        world.touch(5000);
        assert_eq!(world.folios(), "2xo0@4999", "{kernel}");
    }
}

#[test]
fn the_posted_form_differs_from_the_final_one_where_b_4_5_says() {
    // 16K uses order 11; 64K the mapping's maximum up to 2 MiB (B.4.4, B.4.5).
    let folios = |page: &str, fs: &str| {
        let mut world = huge(&format!("7.0+forced=posted+page={page}"), fs, 1 << 13);
        world.touch(5000);
        world.folios()
    };
    assert_eq!(folios("16K", "xfs"), "2xo11@4096");
    assert_eq!(folios("64K", "xfs"), "2xo5@4992");
    assert_eq!(folios("64K", "ext4"), "2xo5@4992");
    assert_eq!(folios("4K", "xfs"), "2xo9@4608");
    // Without large folios on 64K the window is 2 pages (B.4.4 (c)).
    assert_eq!(folios("64K", "vfat"), "2xo0@5000");
}

#[test]
fn a_pmd_window_on_a_filesystem_with_smaller_folios_is_filled_with_those() {
    // ext4 with 16K pages has at most order 9 (B.4.4 (d)).
    let mut world = huge("6.18+page=16K", "ext4", 1 << 13);
    world.touch(5000);
    assert_eq!(world.folios(), "8xo9@4096");
}

#[test]
fn a_mapping_without_large_folios_is_forced_before_7_2_only() {
    // B.4.5, N.9.
    for (kernel, cached) in [("6.18", (512, 1535)), ("7.1", (512, 1535)), ("7.2", (984, 1015))] {
        let mut world = huge(kernel, "vfat", 1 << 13);
        world.touch(1000);
        assert_eq!(world.cached(), [cached], "{kernel}");
    }
}

#[test]
fn a_forced_window_ignores_the_readahead_setting() {
    // No version checks the setting (B.4.1 step 1).
    for kernel in ["6.12", "6.18", "7.0", "7.2"] {
        let mut world = huge(&format!("{kernel}+readahead=0"), "xfs", 1 << 13);
        world.touch(1000);
        assert_eq!(world.folios(), "2xo9@512", "{kernel}");
        let mut world =
            World::arm(&format!("{kernel}+readahead=0"), "xfs", 1 << 13).mapped(Prot::READ);
        world.touch(1000);
        assert_eq!(world.folios(), "o0@1000", "{kernel}");
    }
}

#[test]
fn a_sequential_huge_sweep_on_64k_doubles_twice_from_the_second_window_on() {
    // 2 x order 5, then order 6 (B.4.5.1; recorded, g).
    for fs in ["xfs", "ext4"] {
        let mut world = huge("7.2+page=64K", fs, 1 << 13);
        for index in 0..1024 {
            world.touch(index);
        }
        let folios = world.folios();
        assert!(folios.starts_with("2xo5@0 ") && folios.contains("xo6@64"), "{fs}: {folios}");
        assert!(!folios.contains("o7") && !folios.contains("o0"), "{fs}: {folios}");
    }
}

#[test]
fn a_marker_hit_of_a_forced_window_is_unexpected_unless_start_happens_to_match() {
    // The start stays 0, which is correct only at page 0 (B.4.6, M.5).
    let mut world = huge("6.18", "xfs", 1 << 13);
    world.touch(0);
    world.touch(512);
    assert_eq!(world.window().0, 1024);
    let mut world = huge("6.18", "xfs", 1 << 13);
    world.touch(1000);
    world.touch(1024);
    // Interleaved branch: the hole after 1024 is beyond the 32 pages searched (A.4.3).
    assert_eq!(world.window(), (0, 1024, 512));
    assert_eq!(world.folios(), "2xo9@512");
}

#[test]
fn sequential_advice_reads_a_window_from_the_fault_on() {
    // A forced window takes precedence (B.4.1 step 4, L.22).
    let mut world = World::x86("6.18", "xfs", 1 << 13).mapped(Prot::READ).advised(&[Sequential]);
    world.touch(1000);
    assert_eq!(world.cached(), [(1000, 1031)]);
    let mut world = huge("6.18", "xfs", 1 << 13).advised(&[Sequential]);
    world.touch(1000);
    assert_eq!(world.folios(), "2xo9@512");
}

#[test]
fn the_posted_form_stores_its_order_even_when_the_gate_is_closed() {
    // The final form stores it only with the window (B.4.4 (b), B.4.5).
    let order = |forced: &str| {
        let kernel = format!("7.0+page=64K+forced={forced}");
        let mut world = huge(&kernel, "xfs", 1 << 13);
        world.count_misses(100);
        world.touch(5000);
        assert_eq!((world.folios().as_str(), world.memory.counters().nr_gated), ("o0@5000", 1));
        world.memory.open_file(world.open).state.order.get()
    };
    assert_eq!((order("posted"), order("final")), (5, 0));
}
