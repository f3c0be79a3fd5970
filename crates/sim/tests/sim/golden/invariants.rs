//! L.1 .. L.5 and L.13 over whole sweeps.

use largefolio_mm::vma::Prot;

use super::world::World;

const KERNELS: [&str; 6] = ["6.1", "6.12", "6.17", "6.18", "7.0", "7.2"];

#[test]
fn every_sweep_keeps_every_invariant() {
    // L.1, L.2, L.4, L.5 after every touch.
    for kernel in KERNELS {
        for fs in ["xfs", "ext4", "vfat"] {
            for prot in [Prot::READ, Prot::READ_EXEC] {
                let config = largefolio_mm::memory::Config {
                    ram_bytes: 32 << 20,
                    ..largefolio_mm::memory::Config::new(largefolio_mm::rules::Arch::Arm64)
                };
                let mut world = World::new(kernel, &config, fs, 700).mapped(prot);
                for nr in 0..300_u64 {
                    world.touch(nr * 61 % 700);
                    world.validate();
                }
            }
        }
    }
}

#[test]
fn async_windows_from_6_17_on_end_on_natural_boundaries() {
    // Multiples of 2^min(order, ctz(M)), except for the first partial ones (L.3).
    for kernel in ["6.17", "6.18", "7.2"] {
        for ra_kb in [64, 128, 192, 512] {
            let mut world = World::x86(&format!("{kernel}+readahead={ra_kb}K"), "xfs", 1 << 14);
            let max: u64 = ra_kb / 4;
            let (mut before, mut nr_aligned) = ((0, 0, 0), 0);
            for index in 0..4000 {
                world.read(index);
                let window = world.window();
                let order = world.memory.open_file(world.open).state.order.get();
                let align = u32::from(order).min(max.trailing_zeros());
                if window != before && window.0 >= max {
                    let end = window.0 + window.1;
                    assert_eq!(end % (1 << align), 0, "{kernel} {ra_kb}: {window:?}");
                    nr_aligned += u32::from(align >= 2);
                }
                before = window;
            }
            assert!(nr_aligned > 10, "{kernel} {ra_kb}: {nr_aligned} windows of larger folios");
        }
    }
}

#[test]
fn a_window_has_at_most_one_marker() {
    // In a sequential read, one marker is ahead at any time (L.2).
    for kernel in KERNELS {
        let mut world = World::x86(kernel, "xfs", 1 << 12).mapped(Prot::READ);
        let mut nr_marked = 0;
        for index in 0..2000 {
            world.touch(index);
            assert!(world.markers().len() <= 1, "{kernel} {index}: {:?}", world.markers());
            nr_marked += world.markers().len();
        }
        assert!(nr_marked > 1000, "{kernel}: a marker ahead at {nr_marked} pages of 2000");
    }
}

#[test]
fn a_sequential_mapped_sweep_faults_at_least_once_per_window() {
    // Fault-around never maps the marked folio (L.13).
    for kernel in KERNELS {
        let mut world = World::x86(kernel, "xfs", 1 << 12).mapped(Prot::READ);
        let mut nr_reached = 0;
        for index in 0..3000 {
            if let [marker] = world.markers()[..]
                && marker == index
            {
                let is_mapped = world.memory.space(world.mm).table.leaf(world.vpn(index)).is_some();
                assert!(!is_mapped, "{kernel} {index}");
                nr_reached += 1;
            }
            world.touch(index);
        }
        let counters = world.memory.counters();
        assert!(nr_reached > 10, "{kernel}: {nr_reached} markers reached");
        assert!(counters.pgfault >= counters.nr_windows && counters.nr_windows > 10, "{kernel}");
    }
}
