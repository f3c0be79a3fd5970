//! Ideas beyond series 002 (K.3.3): a high starting order for mapped reads, fault-around for large
//! base pages, the strict miss accounting on every kernel.

use largefolio_mm::vma::Prot;
use largefolio_sim::kernel::Kernel;

use super::world::World;

fn first_touch(kernel: &str) -> (String, Vec<u64>) {
    let mut world = World::x86(kernel, "xfs", 4096).mapped(Prot::READ);
    world.touch(100);
    world.validate();
    (world.folios(), world.markers())
}

#[test]
fn a_read_around_may_start_with_larger_folios() {
    // The window stays 84..=115; the folios at its edges are as large as their index allows (B.4.8,
    // A.5.5).
    for kernel in ["6.1", "6.12", "6.18", "7.2"] {
        let (folios, _) = first_touch(&format!("{kernel}+start-order=64K"));
        assert_eq!(folios, "o2@84 o3@88 o4@96 o2@112", "{kernel}");
    }
    assert_eq!(first_touch("7.2+start-order=64K").1, [96]);
    assert_eq!(first_touch("7.2+start-order=ramp"), first_touch("7.2"));
    // No folio passes the window of 32 pages.
    assert_eq!(first_touch("7.2+start-order=2M").0, "o2@84 o3@88 o4@96 o2@112");
}

#[test]
fn the_ramp_goes_on_from_the_starting_order() {
    let mut world = World::x86("7.2+start-order=64K", "xfs", 4096).mapped(Prot::READ);
    world.touch_all(0..128);
    assert_eq!(world.folios(), "2xo4@0 4xo5@32");
}

#[test]
fn a_starting_order_goes_through_the_control() {
    let (folios, _) = first_touch("7.2+start-order=64K+sizes=32K:always");
    assert_eq!(folios, "4xo0@84 3xo3@88 4xo0@112");
}

#[test]
fn fault_around_may_map_a_contpte_block_of_any_base_page() {
    // F = 32 pages of 64K: 2 MiB, one contpte block (B.5.2). By default fault-around is off
    // (B.5.1).
    let present = |kernel: &str| {
        let mut world = World::arm(kernel, "xfs", 256);
        (0..256).for_each(|index| world.cache(index, 0));
        let mut world = world.mapped(Prot::READ);
        world.touch(37);
        world.present()
    };
    assert_eq!(present("7.2+page=64K"), [(37, 37)]);
    assert_eq!(present("7.2+page=64K+fault-around=contpte"), [(32, 63)]);
    assert_eq!(present("7.2+page=16K+fault-around=contpte"), [(0, 127)]);
    // 4K pages have it by default.
    assert_eq!(present("7.2+fault-around=contpte"), present("7.2"));
}

#[test]
fn a_contpte_block_in_small_folios_is_mapped_by_one_fault() {
    let faults = |kernel: &str| {
        let mut world = World::arm(kernel, "xfs", 64);
        (0..64).for_each(|index| world.cache(index, 0));
        let mut world = world.mapped(Prot::READ);
        world.touch_all(0..64);
        world.memory.counters().pgfault
    };
    assert_eq!([faults("7.2+page=64K"), faults("7.2+page=64K+fault-around=contpte")], [64, 2]);
}

const KERNELS: [&str; 9] = ["6.1", "6.12", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2"];

/// Returns the first of 250 sparse data touches without readahead.
fn first_refused(kernel: &str) -> Option<u64> {
    let mut world = World::x86(kernel, "xfs", 1 << 20).mapped(Prot::READ);
    (0..250).find(|touch| {
        world.touch(1000 + touch * 64);
        world.memory.counters().nr_gated > 0
    })
}

#[test]
fn the_tight_credit_goes_onto_every_kernel_b_5_8() {
    for kernel in KERNELS {
        // At most one credit and none on the retry, so sparse misses add up (B.7.3).
        assert_eq!(first_refused(&format!("{kernel}+around-credit=fault")), Some(100), "{kernel}");
        // With a credit per page, the retry cancels its miss (B.7.4).
        for loose in ["page", "new-page"] {
            let kernel = format!("{kernel}+around-credit={loose}");
            assert_eq!(first_refused(&kernel), None, "{kernel}");
        }
    }
    let message = Kernel::parse("7.2+around-credit=once").unwrap_err().to_string();
    assert!(message.contains("around-credit takes page, new-page or fault"), "{message}");
}

#[test]
fn the_tight_credit_works_with_the_other_rules() {
    let others = ["sizes=64K:exec/16K:always", "start-order=64K", "fault-around=contpte"];
    for other in others {
        assert_eq!(
            first_refused(&format!("6.12+around-credit=fault+{other}")),
            Some(100),
            "{other}"
        );
    }
    // 7.2 does not count text at all.
    let mut world = World::x86("7.2+around-credit=page", "xfs", 1 << 20).mapped(Prot::READ_EXEC);
    world.touch_all((0..250).map(|touch| 1000 + touch * 64));
    assert_eq!((world.miss(), world.memory.counters().nr_gated), (0, 0));
}
