//! Read-around, the exec window and the exec block (A.9.3, B.4.7 .. B.4.10, L.14, L.15).

use largefolio_mm::map::Madvice::Random;
use largefolio_mm::vma::Prot;

use super::world::World;

/// The folios read by a first touch of `fault` in a mapping of pages `[10, 74)` with e = 4, M = 32.
fn first_touch(kernel: &str, fault: u64) -> String {
    let mut world = World::arm(kernel, "xfs", 4096);
    world.map_part(Prot::READ_EXEC, (10, 74));
    world.touch(fault);
    assert!(world.markers().is_empty(), "{kernel} {fault}");
    world.validate();
    world.folios()
}

#[test]
fn exec_windows_are_those_of_b_4_7() {
    for kernel in ["6.17", "6.18", "7.0", "7.2", "6.12+exec-window=64K"] {
        let examples =
            [(10, "o1@10 o2@12 2xo4@16"), (17, "2xo4@16"), (40, "2xo4@32"), (73, "o3@64 o1@72")];
        for (fault, folios) in examples {
            assert_eq!(first_touch(kernel, fault), folios, "{kernel} fault {fault}");
        }
    }
}

#[test]
fn the_exec_window_is_recorded_with_no_tail() {
    // start, size, async_size = 0; no readahead follows (B.4.7).
    let mut world = World::arm("6.18", "xfs", 4096);
    world.map_part(Prot::READ_EXEC, (10, 74));
    world.touch(10);
    assert_eq!(world.window(), (10, 38, 0));
    world.touch_all(10..48);
    assert_eq!(world.cached(), [(10, 47)]);
}

#[test]
fn on_other_machines_the_exec_window_is_order_0_from_the_fault_on() {
    // Before 6.17, half of the window is before the fault (B.4.7 "Generic arch", L.14).
    for (kernel, cached) in [("6.16", (984, 1015)), ("6.17", (1000, 1031)), ("7.2", (1000, 1031))] {
        let mut world = World::x86(kernel, "xfs", 4096).mapped(Prot::READ_EXEC);
        world.touch(1000);
        assert_eq!(world.cached(), [cached], "{kernel}");
    }
    // The window is clipped to the mapping (N.6).
    let mut world = World::x86("6.18", "xfs", 4096);
    world.map_part(Prot::READ_EXEC, (10, 74));
    world.touch(73);
    assert_eq!(world.cached(), [(73, 73)]);
}

#[test]
fn exec_orders_follow_the_base_page() {
    // Orders 4 / 2 / 0 (0.4).
    for (page, folios) in [("4K", "2xo4@992"), ("16K", "2xo2@1000"), ("64K", "2xo0@1000")] {
        let kernel = format!("6.18+page={page}");
        let mut world = World::arm(&kernel, "xfs", 4096).mapped(Prot::READ_EXEC);
        world.touch(1000);
        assert_eq!(world.folios(), folios, "{page}");
    }
}

#[test]
fn read_around_lies_half_before_the_fault_with_the_marker_at_three_quarters() {
    // B.4.8, A.9.3.
    for (kernel, folios) in [("6.12", "8xo2@84"), ("6.16", "8xo2@84"), ("6.18", "32xo0@84")] {
        let mut world = World::x86(kernel, "xfs", 4096).mapped(Prot::READ);
        world.touch(100);
        assert_eq!(world.folios(), folios, "{kernel}");
        assert_eq!((world.window(), world.markers()), ((84, 32, 8), vec![108]), "{kernel}");
    }
    // Near the start of the file the window begins at 0.
    let mut world = World::x86("6.18", "xfs", 4096).mapped(Prot::READ);
    world.touch(5);
    assert_eq!((world.cached(), world.markers()), (vec![(0, 31)], vec![24]));
}

#[test]
fn read_around_is_not_clipped_to_the_mapping() {
    // Only the exec window is clipped (K.3.3).
    let mut world = World::x86("7.2", "xfs", 4096);
    world.map_part(Prot::READ, (100, 104));
    world.touch(100);
    assert_eq!(world.cached(), [(84, 115)]);
}

#[test]
fn markers_of_mapped_reads_ramp_up_as_in_a_9_3() {
    let rows_612 = [(108, "o2@116 o3@120 o4@128 o2@144"), (116, "o2@148 o3@152 o4@160 o2@176")];
    let rows_617 = [
        (108, (116, 32, 32), "8xo2@116"),
        (116, (148, 28, 28), "o2@148 o3@152 o4@160"),
        (148, (176, 16, 16), "o4@176"),
        (176, (192, 32, 32), "o5@192"),
    ];
    let mut world = World::x86("6.12", "xfs", 4096).mapped(Prot::READ);
    world.touch(100);
    for (marker, folios) in rows_612 {
        world.new_folios();
        world.touch(marker);
        assert_eq!(world.new_folios(), folios);
    }
    for kernel in ["6.17", "6.18", "7.2"] {
        let mut world = World::x86(kernel, "xfs", 4096).mapped(Prot::READ);
        world.touch(100);
        for (marker, window, folios) in rows_617 {
            world.new_folios();
            world.touch(marker);
            assert_eq!((world.window(), world.new_folios().as_str()), (window, folios), "{kernel}");
        }
    }
}

#[test]
fn a_touch_inside_the_marked_folio_takes_the_interleaved_branch() {
    // The faulting page never equals "expected" there (A.4.6). The window is 148..=175 with the
    // marker on o2@148. For page 149 the walk from 150 begins at slot 148, so that the hole at 176
    // is reported as 178.
    let mut world = World::x86("6.18", "xfs", 4096).mapped(Prot::READ);
    world.touch_all([100, 108, 116]);
    assert_eq!((world.cached(), world.markers()), (vec![(84, 175)], vec![148]));
    world.touch(149);
    assert_eq!(world.window().0, 178);
    assert!(!world.is_cached(176) && !world.is_cached(177) && world.is_cached(178));
}

#[test]
fn the_exec_block_is_one_aligned_folio_not_clipped_to_the_mapping() {
    // B.4.9, B.4.10.
    for (fault, folios) in [(10, "o4@0"), (17, "o4@16"), (40, "o4@32"), (73, "o4@64")] {
        assert_eq!(first_touch("6.12+exec-block=64K", fault), folios, "fault {fault}");
        assert_eq!(first_touch("6.18+exec-block=64K", fault), folios, "fault {fault}");
    }
    let mut world = World::arm("6.12+exec-block=64K", "xfs", 4096).mapped(Prot::READ_EXEC);
    world.touch(1000);
    assert_eq!(world.window(), (0, 16, 0), "start is not recorded");
    // Smaller folios at the end of the file.
    let mut world = World::arm("6.12+exec-block=64K", "xfs", 39).mapped(Prot::READ_EXEC);
    world.touch(38);
    assert_eq!(world.folios(), "o2@32 o1@36 o0@38");
    world.validate();
}

#[test]
fn the_posted_block_ignores_random_advice_and_a_switched_off_window_the_merged_one_only_advice() {
    // L.15, B.4.1 steps 2 and 3, B.4.10, N.11.
    let folios = |kernel: &str, is_random: bool| {
        let world = World::arm(kernel, "xfs", 4096).mapped(Prot::READ_EXEC);
        let mut world = if is_random { world.advised(&[Random]) } else { world };
        world.touch(1000);
        world.folios()
    };
    assert_eq!(folios("6.12+exec-block=64K", true), "o4@992");
    assert_eq!(folios("6.12+exec-block=64K+readahead=0", false), "o4@992");
    assert_eq!(folios("6.18", true), "2xo4@992");
    assert_eq!(folios("6.18+readahead=0", false), "o0@1000");
    assert_eq!(folios("6.12", true), "o0@1000");
}

#[test]
fn random_advice_on_text_keeps_the_window_and_loses_the_marker() {
    // The async step has no exception for EXEC (B.3.2).
    let mut world = World::arm("6.18", "xfs", 4096).mapped(Prot::READ_EXEC).advised(&[Random]);
    (0..8).for_each(|index| world.read(index));
    let markers = world.markers();
    assert_eq!(markers.len(), 1);
    world.touch(markers[0]);
    assert_eq!(world.markers(), markers, "the marker was hit and stays");
}

#[test]
fn the_exec_block_is_never_throttled() {
    // The exec block precedes the miss counter (B.4.9).
    let kernel = "6.12+exec-block=64K+fault-around=4K";
    let mut world = World::arm(kernel, "xfs", 1 << 14).mapped(Prot::READ_EXEC);
    for nr in 0..250 {
        world.new_folios();
        world.touch(nr * 64);
        assert_eq!(world.nr_new_pages(), 16, "touch {nr}");
    }
    assert_eq!((world.miss(), world.memory.counters().nr_gated), (0, 0));
}
