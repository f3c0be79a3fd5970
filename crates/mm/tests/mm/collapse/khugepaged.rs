//! khugepaged: H.1.2, H.6.5, D.2.9.

use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::policy::{Answer, Context, Point, Policy, PolicyError};
use largefolio_mm::rules::anon::Enabled;
use largefolio_mm::rules::collapse::AdvisedArea;
use largefolio_mm::rules::shmem::ShmemEnabled;
use largefolio_mm::units::{ByteRange, Vaddr};
use largefolio_mm::vma::Prot;

use crate::collapse::world::{BASE, N, PAGE, World, addr, old_rules};

const MS: u64 = 1_000_000;

fn collapsed(world: &World) -> u64 {
    world.memory.counters().collapse.pages_collapsed
}

#[test]
fn it_looks_at_eight_blocks_each_ten_seconds_h_6_5() {
    let mut world = World::with_ram(old_rules(), 128 << 20).mapped(20 * N);
    world.write((0..20).map(|block| block * N));
    world.tune(|rules| rules.anon.thp = Enabled::Madvise);
    world.memory.run_khugepaged(1000 * MS);
    assert_eq!(collapsed(&world), 0, "nobody asked");
    world.advise(Madvice::Hugepage, 0, 20 * N);
    for (until, expected) in [(9_999, 0), (10_000, 8), (19_999, 8), (20_000, 16), (30_000, 20)] {
        world.memory.run_khugepaged(until * MS);
        assert_eq!(collapsed(&world), expected, "after {until} ms");
        world.memory.validate().unwrap();
    }
    assert!((0..20).all(|block| world.is_huge(block * N)));
    assert!(world.memory.counters().collapse.full_scans > 0);
}

/// A sleep longer than the clock's range lasts until the end of time; it does not wrap to zero.
#[test]
fn it_may_sleep_to_the_end_of_time() {
    for ms in [1 << 58, u64::MAX] {
        let mut world = World::with_ram(old_rules(), 128 << 20);
        world.tune(|rules| rules.collapse.scan_sleep_ms = ms);
        world.memory.run_khugepaged(0);
        assert_eq!(world.memory.khugepaged_wakes_ns(), u64::MAX);
        world.memory.run_khugepaged(u64::MAX);
        assert_eq!(world.memory.khugepaged_ns(), u64::MAX);
    }
}

#[test]
fn processes_take_turns() {
    let mut world = World::with_ram(old_rules(), 128 << 20);
    world.tune(|rules| rules.collapse.ranges_to_scan = 3);
    let mms: Vec<_> = (0..3)
        .map(|_| {
            let mm = world.memory.new_space();
            let map = Map::anon(2 * N * PAGE, Prot::READ_WRITE).at(addr(0));
            world.memory.mmap(mm, map).unwrap();
            for page in [0, N] {
                world.memory.store(mm, addr(page), b"x").unwrap();
            }
            mm
        })
        .collect();
    world.tune(|rules| rules.anon.thp = Enabled::Always);
    for &mm in &mms {
        world.memory.madvise(mm, addr(0), 2 * N * PAGE, Madvice::Hugepage).unwrap();
    }
    let huge = |world: &World| -> Vec<usize> {
        let is_huge = |mm, page| world.memory.page_at(mm, addr(page)).unwrap().order.get() == 9;
        mms.iter().map(|&mm| [0, N].iter().filter(|&&page| is_huge(mm, page)).count()).collect()
    };
    world.memory.run_khugepaged(0);
    assert_eq!(huge(&world), [2, 1, 0]);
    world.memory.exit(mms[0]);
    world.memory.run_khugepaged(10_000 * MS);
    world.memory.validate().unwrap();
    let orders: Vec<u8> = mms[1..]
        .iter()
        .flat_map(|&mm| {
            [0, N].map(|page| world.memory.page_at(mm, addr(page)).unwrap().order.get())
        })
        .collect();
    assert_eq!(orders, [9, 9, 9, 9]);
}

#[test]
fn without_memory_it_sleeps_a_minute_and_goes_on() {
    let mut world = World::with_ram(old_rules(), 4 << 20).mapped(N);
    world.write(0..N);
    world.tune(|rules| rules.anon.thp = Enabled::Always);
    world.advise(Madvice::Hugepage, 0, N);
    let failed = |world: &World| {
        let counters = world.memory.counters().collapse;
        assert_eq!(
            counters.refused[CollapseRefusal::AllocHugePageFail as usize],
            counters.thp_collapse_alloc_failed
        );
        counters.thp_collapse_alloc_failed
    };
    world.memory.run_khugepaged(0);
    assert_eq!(failed(&world), 1);
    world.memory.run_khugepaged(59_999 * MS);
    assert_eq!(failed(&world), 1);
    world.memory.run_khugepaged(69_999 * MS);
    assert_eq!(failed(&world), 1);
    world.memory.run_khugepaged(70_000 * MS);
    assert_eq!(failed(&world), 2);
}

#[test]
fn a_fault_that_wanted_a_huge_page_registers_the_process_d_2_9() {
    let mut world = World::with_ram(old_rules(), 8 << 20).mapped(2 * N);
    world.tune(|rules| rules.anon.thp = Enabled::Always);
    world.write([0]);
    assert!(world.is_huge(0));
    assert!(world.memory.space(world.mm).is_scanned);
    let child = world.memory.fork(world.mm).unwrap();
    assert!(world.memory.space(child).is_scanned, "a child of one is one");
}

#[test]
fn settings_that_khugepaged_obeys_for_files_h_1_2() {
    let cases = [
        (Enabled::Always, false, true),
        (Enabled::Madvise, false, false),
        (Enabled::Madvise, true, true),
        (Enabled::Never, true, false),
    ];
    for (thp, is_advised, expected) in cases {
        let (mut world, file, _) = World::new(old_rules()).with_file("vfat", N, Prot::READ);
        world.read(0..N);
        world.tune(|rules| rules.anon.thp = thp);
        if is_advised {
            world.advise(Madvice::Hugepage, 0, N);
        } else {
            // A second area registers the process, if it qualifies.
            let other = addr(4 * N);
            let open = world.memory.open(file);
            let map = Map::file(open, 0, N * PAGE, Prot::READ).at(other);
            world.memory.mmap(world.mm, map).unwrap();
        }
        world.memory.run_khugepaged(0);
        world.memory.validate().unwrap();
        let is_huge = world.memory.folios(file).any(|folio| folio.order.get() == 9);
        assert_eq!(is_huge, expected, "{thp:?}, advised: {is_advised}");
    }
}

#[test]
fn shared_memory_has_a_policy_of_its_own() {
    let cases = [
        (ShmemEnabled::Never, true, [false, false]),
        (ShmemEnabled::Advise, false, [false, false]),
        (ShmemEnabled::Advise, true, [true, true]),
        (ShmemEnabled::WithinSize, false, [true, false]),
        (ShmemEnabled::Always, false, [true, true]),
    ];
    for (shmem, is_advised, expected) in cases {
        let mut world = World::new(old_rules());
        let file = world.memory.add_memory_file((N + 100) * PAGE);
        let open = world.memory.open(file);
        let map = Map::file(open, 0, 2 * N * PAGE, Prot::READ).at(Vaddr(BASE));
        world.tune(|rules| rules.shmem.enabled = shmem);
        world.memory.mmap(world.mm, map).unwrap();
        world.read([0, N]);
        if is_advised {
            world.advise(Madvice::Hugepage, 0, 2 * N);
        }
        world.memory.run_khugepaged(0);
        world.memory.validate().unwrap();
        let find = |index| world.memory.core().find(file, largefolio_mm::units::PageIndex(index));
        let is_huge = [0, N].map(|index| find(index).is_some_and(|entry| entry.order.get() == 9));
        assert_eq!(is_huge, expected, "{shmem:?}, advised: {is_advised}");
    }
}

#[test]
fn a_mounted_tmpfs_does_not_follow_shmem_enabled_h_6_5() {
    let mut world = World::new(old_rules());
    let file = world.memory.add_tmpfs_file(N * PAGE);
    let open = world.memory.open(file);
    world.tune(|rules| rules.shmem.enabled = ShmemEnabled::Always);
    let map = Map::file(open, 0, N * PAGE, Prot::READ).at(Vaddr(BASE));
    world.memory.mmap(world.mm, map).unwrap();
    world.read([0]);
    world.memory.run_khugepaged(0);
    assert!(world.memory.folios(file).all(|folio| folio.order.get() == 0));
}

#[test]
fn advice_for_a_page_looks_at_the_whole_area_d_2_9() {
    for (advised, expected) in [(AdvisedArea::Whole, true), (AdvisedArea::Changed, false)] {
        let mut world = World::with_ram(old_rules(), 8 << 20).mapped(2 * N);
        world.write([0]);
        world.tune(|rules| {
            rules.anon.thp = Enabled::Madvise;
            rules.collapse.advised = advised;
        });
        world.advise(Madvice::Hugepage, 3, 1);
        assert_eq!(world.memory.space(world.mm).is_scanned, expected, "{advised:?}");
    }
}

#[test]
fn pages_that_look_unused_are_left_alone_until_one_is_used_h_6_1() {
    let mut world = World::with_ram(old_rules(), 8 << 20).mapped(N);
    world.write(0..N);
    world.tune(|rules| rules.anon.thp = Enabled::Madvise);
    world.advise(Madvice::Hugepage, 0, N);
    world.memory.clear_refs(world.mm);
    world.memory.run_khugepaged(0);
    let refused = world.memory.counters().collapse.refused;
    assert_eq!(refused[CollapseRefusal::LackReferencedPage as usize], 1);
    world.read([7]);
    world.memory.run_khugepaged(20_000 * MS);
    assert!(world.is_huge(0));
}

#[derive(Debug)]
struct Dense {
    nr_present_min: u64,
    bits: u64,
}

impl Policy for Dense {
    fn handles(&self, point: Point) -> bool {
        point == Point::Collapse
    }

    fn answer(&mut self, _: Point, context: &Context) -> Result<Answer, PolicyError> {
        let is_dense = context.nr_present >= self.nr_present_min;
        Ok(Answer::Value(if is_dense { self.bits } else { 0 }))
    }
}

#[test]
fn a_policy_chooses_what_is_collapsed() {
    let scanned = |nr_present_min, bits| {
        let mut world = World::with_ram(old_rules(), 128 << 20).mapped(2 * N);
        world.memory.set_policy(Box::new(Dense { nr_present_min, bits }));
        world.write([0]);
        world.write(N..2 * N);
        world.tune(|rules| rules.anon.thp = Enabled::Madvise);
        world.advise(Madvice::Hugepage, 0, 2 * N);
        world.memory.run_khugepaged(10_000 * MS);
        world.memory.validate().unwrap();
        let counts = world.memory.counters().policy[Point::Collapse as usize];
        assert!(counts.nr_calls > 0 && counts.nr_calls == counts.nr_honoured + counts.nr_refused);
        (world.is_huge(0), world.is_huge(N), counts.nr_refused > 0)
    };
    assert_eq!(scanned(0, 1 << 9), (true, true, false));
    assert_eq!(scanned(100, 1 << 9), (false, true, false));
    assert_eq!(scanned(513, 1 << 9), (false, false, false));
    assert_eq!(scanned(0, 1 << 4), (false, false, true));
    assert_eq!(scanned(0, 1 << 9 | 1 << 4), (true, true, true));
}

/// For a file, every cached page counts, whichever process maps it, as in the kernel (H.4.2).
#[test]
fn a_policy_sees_what_is_cached_of_a_file() {
    for (nr_cached, nr_present_min, expected) in
        [(N, N, true), (N, N + 1, false), (100, 100, true), (100, 101, false)]
    {
        let mut rules = old_rules();
        rules.anon.thp = Enabled::Always;
        let (mut world, file, open) = World::new(rules).with_file("vfat", N, Prot::READ);
        world.memory.set_policy(Box::new(Dense { nr_present_min, bits: 1 << 9 }));
        world.memory.fadvise(open, ByteRange { pos: 0, len_bytes: N * PAGE }, Fadvice::Random);
        world.memory.pread(open, 0, nr_cached * PAGE).unwrap();
        world.read([0]);
        world.advise(Madvice::Hugepage, 0, N);
        world.memory.run_khugepaged(0);
        world.memory.validate().unwrap();
        let is_huge = world.memory.folios(file).any(|folio| folio.order.get() == 9);
        assert_eq!(is_huge, expected, "{nr_cached} cached, {nr_present_min} asked for");
    }
}
