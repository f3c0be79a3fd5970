//! The benchmark of series 002 (J.3): a 512 MiB executable on ext4, 64K pages, one RET stub per
//! page, swept cold in three orders (B.7.2, B.7.3, J.3.1).

use largefolio_mm::fault::Access;
use largefolio_mm::map::Madvice::Hugepage;
use largefolio_mm::vma::Prot;

use super::world::World;

const NR_PAGES: u64 = 8192;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sweep {
    Sequential,
    Random,
    Backward,
}

impl Sweep {
    const ALL: [Self; 3] = [Self::Sequential, Self::Random, Self::Backward];

    fn pages(self) -> Vec<u64> {
        let mut pages: Vec<u64> = (0..NR_PAGES).collect();
        match self {
            Self::Sequential => {}
            Self::Backward => pages.reverse(),
            Self::Random => {
                let mut state: u64 = 0x5eed;
                for (last, nr) in (1..pages.len()).zip(2..) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let other = usize::try_from(state % nr).unwrap();
                    pages.swap(last, other);
                }
            }
        }
        pages
    }
}

#[derive(Debug)]
struct Result {
    nr_cold: u64,
    /// Number of the first cold fault without readahead, from 1.
    first_refused: Option<u64>,
    miss_max: u32,
    nr_read: u64,
    nr_order5_pages: u64,
    folios: String,
}

fn sweep(kernel: &str, is_huge: bool, order: Sweep) -> Result {
    let world = World::arm(kernel, "ext4", NR_PAGES).mapped(Prot::READ_EXEC);
    let mut world = if is_huge { world.advised(&[Hugepage]) } else { world };
    let (mut first_refused, mut miss_max) = (None, 0);
    for index in order.pages() {
        let gated = world.memory.counters().nr_gated;
        world.memory.touch(world.mm, world.addr(index), Access::Exec).unwrap();
        let counters = world.memory.counters();
        if counters.nr_gated > gated && first_refused.is_none() {
            first_refused = Some(counters.nr_cold);
        }
        miss_max = miss_max.max(world.miss());
    }
    world.validate();
    let counters = *world.memory.counters();
    assert_eq!(counters.nr_read, NR_PAGES, "everything is read once");
    let pages: u64 = world.present().iter().map(|(first, last)| last - first + 1).sum();
    assert_eq!(pages, NR_PAGES, "everything is mapped");
    Result {
        nr_cold: counters.nr_cold,
        first_refused,
        miss_max,
        nr_read: counters.nr_read,
        nr_order5_pages: counters.nr_inserted[5] * 32,
        folios: world.folios(),
    }
}

#[test]
fn stock_6_12_trips_forwards_and_at_random() {
    // Read-around of 2 pages: sequential misses 1..=101 are served, the 102nd is not (B.7.2).
    let result = sweep("6.12+page=64K", false, Sweep::Sequential);
    assert_eq!(result.first_refused, Some(102), "{result:?}");
    assert_eq!(result.miss_max, 1000, "{result:?}");
    let result = sweep("6.12+page=64K", false, Sweep::Random);
    assert!((101..=103).contains(&result.first_refused.unwrap()), "{result:?}");
    // Backwards, the next call uses each window's other page: a hit for every miss.
    let result = sweep("6.12+page=64K", false, Sweep::Backward);
    assert_eq!((result.first_refused, result.nr_cold), (None, NR_PAGES / 2), "{result:?}");
}

#[test]
fn with_the_exec_window_only_sequential_calls_do_not_trip() {
    // Each window's second page is a handler hit (B.7.2, recordings c and h).
    let result = sweep("6.18+page=64K", false, Sweep::Sequential);
    assert_eq!((result.first_refused, result.nr_cold), (None, NR_PAGES / 2), "{result:?}");
    assert!(result.miss_max <= 1, "{result:?}");
    for order in [Sweep::Random, Sweep::Backward] {
        let result = sweep("6.18+page=64K", false, order);
        let refused = result.first_refused.unwrap();
        assert!((101..=103).contains(&refused), "{order:?} {result:?}");
        assert!(result.nr_cold > NR_PAGES / 2 + 1000, "{order:?} {result:?}");
    }
}

#[test]
fn with_series_002_no_order_trips() {
    let kernels =
        ["6.18+page=64K+exec-miss=posted", "6.18+page=64K+exec-miss=final", "7.2+page=64K"];
    for order in Sweep::ALL {
        let results = kernels.map(|kernel| sweep(kernel, false, order));
        for result in &results {
            assert_eq!((result.first_refused, result.miss_max), (None, 0), "{order:?}");
        }
        // Posted and merged forms have identical cache contents (B.7.2). 7.2 reads the same, but
        // all its folios are order 0, because the exec order of 64K pages is 0.
        assert_eq!(results[0].folios, results[1].folios, "{order:?}");
        assert_eq!(results[0].nr_cold, results[1].nr_cold, "{order:?}");
        assert_eq!(results[2].nr_cold, results[1].nr_cold, "{order:?}");
        assert!(!results[2].folios.contains("o1@"), "{order:?}");
    }
    let random = |kernel| sweep(kernel, false, Sweep::Random).nr_cold;
    let (without, with) = (random("6.18+page=64K"), random("7.2+page=64K"));
    assert!(with * 4 < without * 3, "{with} cold faults, {without} without series 002");
}

#[test]
fn hugepage_advice_does_nothing_on_64k_without_patch_2() {
    // The PMD order 13 does not fit the page cache (B.4.1 step 1).
    for kernel in ["6.12+page=64K", "6.18+page=64K"] {
        for order in Sweep::ALL {
            let (plain, huge) = (sweep(kernel, false, order), sweep(kernel, true, order));
            assert_eq!((plain.nr_cold, plain.folios), (huge.nr_cold, huge.folios), "{kernel}");
        }
    }
}

#[test]
fn patch_2_reads_two_folios_of_2_mib_whatever_the_form() {
    // ext4 at 64K has at most order 7; patch 2 picks min(7, 5) = 5 = one contpte block (J.3.1).
    let kernels = [
        "6.18+page=64K+forced=posted",
        "6.18+page=64K+forced=final",
        "6.18+page=64K+forced=posted+forced-gate=on+exec-miss=posted",
        "7.2+page=64K",
    ];
    for kernel in kernels {
        let random = sweep(kernel, true, Sweep::Random);
        assert_eq!(random.first_refused, None, "{kernel}");
        assert!(random.nr_cold <= NR_PAGES / 32, "{kernel} {random:?}");
        // A marker hit out of order reads 2 pages (A.4.3), which spoil their 2 MiB range.
        assert!(random.nr_order5_pages * 100 > NR_PAGES * 95, "{kernel} {}", random.folios);
        let sequential = sweep(kernel, true, Sweep::Sequential);
        assert!(sequential.folios.starts_with("2xo5@0 "), "{kernel} {}", sequential.folios);
        assert!(sequential.nr_cold <= 2, "{kernel} {}", sequential.nr_cold);
        assert_eq!(sequential.nr_read, NR_PAGES);
    }
    let mut world = World::arm("7.2+page=64K", "ext4", NR_PAGES).mapped(Prot::READ_EXEC);
    world.advise(Hugepage);
    world.memory.touch(world.mm, world.addr(1000), Access::Exec).unwrap();
    assert_eq!((world.folios().as_str(), world.markers()), ("2xo5@992", vec![1024]));
    assert_eq!(world.present(), [(992, 1023)], "the whole folio at once (L.20)");
}

#[test]
fn gated_forced_windows_stop_for_data_but_not_for_text() {
    // 7.0-like gate with the posted patch 2, r-- mapping of the same file (B.4.2, B.4.3, B.7).
    let kernel = "6.18+page=64K+forced=posted+forced-gate=on+exec-miss=posted";
    let mut world = World::arm(kernel, "xfs", NR_PAGES * 4).mapped(Prot::READ).advised(&[Hugepage]);
    world.touch_all((0..200).map(|nr| nr * 128));
    assert_eq!(world.memory.counters().nr_gated, 100);
    let mut world =
        World::arm(kernel, "xfs", NR_PAGES * 4).mapped(Prot::READ_EXEC).advised(&[Hugepage]);
    world.touch_all((0..200).map(|nr| nr * 128));
    assert_eq!(world.memory.counters().nr_gated, 0);
}

#[test]
fn a_sweep_is_the_same_every_time() {
    let (first, second) =
        (sweep("7.2+page=64K", true, Sweep::Random), sweep("7.2+page=64K", true, Sweep::Random));
    assert_eq!(first.folios, second.folios);
}
