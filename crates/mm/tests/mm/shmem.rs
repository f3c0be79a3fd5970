//! Shared memory in large folios: worked examples of docs/behaviour Q.1 .. Q.4.

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::fault::Access;
use largefolio_mm::io::{Fallocate, FileSize};
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::shmem::{
    ShmemArea, ShmemEnabled, ShmemFolios, ShmemRules, ShmemSizeMode, ShmemSizes, TmpfsHuge,
    WithinSize,
};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{ByteRange, MappingId, MmId, Order, Vaddr};
use largefolio_mm::vma::{Prot, Purpose};

const PAGE: u64 = 4096;
const N: u64 = 512;
const AT: Vaddr = Vaddr(0x4000_0000_0000);

struct World {
    memory: Memory,
    mm: MmId,
}

impl World {
    fn new(shmem: ShmemRules) -> Self {
        let rules = Rules { shmem, ..Rules::example() };
        let mut memory = Memory::new(rules, &Config::new(Arch::X86_64)).unwrap();
        let mm = memory.new_space();
        Self { memory, mm }
    }

    fn page(at: u64) -> Vaddr {
        Vaddr(AT.0 + at * PAGE)
    }

    fn map(&mut self, file: MappingId, nr_pages: u64) {
        let open = self.memory.open(file);
        let map = Map::file(open, 0, nr_pages * PAGE, Prot::READ_WRITE).shared().at(AT);
        self.memory.mmap(self.mm, map).unwrap();
    }

    fn store(&mut self, page: u64) {
        self.memory.touch(self.mm, Self::page(page), Access::Write).unwrap();
        self.memory.validate().unwrap();
    }

    fn folios(&self, file: MappingId) -> Vec<String> {
        self.memory.folios(file).map(|one| format!("{}@{}", one.order, one.index)).collect()
    }

    /// The order of the folio that a first store to page 17 of `map` gets.
    fn order_in(&mut self, map: Map, advice: Option<Madvice>) -> u8 {
        self.memory.mmap(self.mm, map.at(AT)).unwrap();
        if let Some(advice) = advice {
            self.memory.madvise(self.mm, AT, map.len_bytes, advice).unwrap();
        }
        self.store(17);
        self.memory.page_at(self.mm, Self::page(17)).unwrap().order.get()
    }
}

fn with(enabled: ShmemEnabled) -> ShmemRules {
    ShmemRules { enabled, ..ShmemRules::stock() }
}

fn with_sizes(enabled: ShmemEnabled, sizes: &[(u64, ShmemSizeMode)]) -> ShmemRules {
    let mut rules = with(enabled);
    for (kib, mode) in sizes {
        rules.set_size(kib << 10, *mode).unwrap();
    }
    rules
}

#[test]
fn a_fault_in_unnamed_memory_follows_the_controls_of_the_sizes_q_1() {
    use ShmemEnabled::{Advise, Always, Deny, Force, Never};
    let huge = Some(Madvice::Hugepage);
    let nohuge = Some(Madvice::Nohugepage);
    let of_64k = |mode| vec![(64, mode)];
    for (enabled, sizes, advice, order) in [
        (Never, vec![], huge, 0),
        (Always, vec![], None, 9),
        (Always, vec![], nohuge, 0),
        (Advise, vec![], None, 0),
        (Advise, vec![], huge, 9),
        (ShmemEnabled::WithinSize, vec![], None, 9),
        (Deny, of_64k(ShmemSizeMode::Always), None, 0),
        (Force, of_64k(ShmemSizeMode::Always), None, 9),
        (Never, of_64k(ShmemSizeMode::Always), None, 4),
        (Never, of_64k(ShmemSizeMode::Inherit), None, 0),
        (Never, of_64k(ShmemSizeMode::Advise), huge, 4),
        (Always, vec![(64, ShmemSizeMode::Inherit), (2048, ShmemSizeMode::Never)], None, 4),
        (Never, vec![(8, ShmemSizeMode::WithinSize)], None, 1),
    ] {
        let mut world = World::new(with_sizes(enabled, &sizes));
        let map = Map::anon(2 * N * PAGE, Prot::READ_WRITE).shared();
        assert_eq!(world.order_in(map, advice), order, "{enabled:?} {sizes:?} {advice:?}");
    }
}

#[test]
fn a_segment_follows_shmem_enabled_alone_q_1_3() {
    let sizes = [(64, ShmemSizeMode::Always), (2048, ShmemSizeMode::Never)];
    for (enabled, order) in [(ShmemEnabled::Never, 0), (ShmemEnabled::Always, 9)] {
        let mut world = World::new(with_sizes(enabled, &sizes));
        let map = Map::anon(N * PAGE, Prot::READ_WRITE).shared().used_as(Purpose::Segment);
        assert_eq!(world.order_in(map, None), order);
    }
}

#[test]
fn a_mounted_tmpfs_follows_its_own_option_q_1_2() {
    let mut rules = with_sizes(ShmemEnabled::Always, &[(64, ShmemSizeMode::Always)]);
    for (tmpfs, advised, expected) in [
        (TmpfsHuge::Never, true, "o0@17"),
        (TmpfsHuge::Advise, false, "o0@17"),
        (TmpfsHuge::Advise, true, "o9@0"),
        (TmpfsHuge::Always, false, "o9@0"),
    ] {
        rules.tmpfs = tmpfs;
        let mut world = World::new(rules.clone());
        let file = world.memory.add_tmpfs_file(N * PAGE);
        world.map(file, N);
        if advised {
            world.memory.madvise(world.mm, AT, N * PAGE, Madvice::Hugepage).unwrap();
        }
        world.store(17);
        assert_eq!(world.folios(file), [expected], "{tmpfs:?}");
    }
}

/// A later unlink does not change the area.
#[test]
fn a_file_unlinked_before_it_is_mapped_follows_the_controls_of_the_sizes_q_1_3() {
    let sizes = [(64, ShmemSizeMode::Always), (2048, ShmemSizeMode::Advise)];
    let mut rules = with_sizes(ShmemEnabled::Never, &sizes);
    rules.tmpfs = TmpfsHuge::Always;
    for (is_unlinked_first, expected) in [(true, "o4@16"), (false, "o9@0")] {
        let mut world = World::new(rules.clone());
        let file = world.memory.add_tmpfs_file(N * PAGE);
        if is_unlinked_first {
            world.memory.unlink(file);
        }
        world.map(file, N);
        world.memory.unlink(file);
        world.store(17);
        assert_eq!(world.folios(file), [expected], "{is_unlinked_first}");
    }
}

#[test]
fn a_folio_past_the_end_of_the_file_is_not_within_its_size_q_1_4() {
    for (within, expected) in
        [(WithinSize::After, "o9@0 o9@512"), (WithinSize::Before, "o9@0 o0@512")]
    {
        let folios = ShmemFolios::PmdOnly;
        let rules = ShmemRules { within, folios, ..with(ShmemEnabled::WithinSize) };
        let mut world = World::new(rules);
        let file = world.memory.add_memory_file(N * PAGE);
        world.map(file, 2 * N);
        world.store(0);
        // Writes all of the second block: its first page decides.
        let open = world.memory.open(file);
        world.memory.pwrite(open, N * PAGE, N * PAGE).unwrap();
        assert_eq!(world.folios(file)[..2].join(" "), expected);
    }
}

#[test]
fn calls_get_sizes_by_version_q_2_2() {
    for (folios, expected) in [
        (ShmemFolios::PmdOnly, "o9@0"),
        (ShmemFolios::ByLength, "o4@16 o3@32 o1@40"),
        (ShmemFolios::AllInCalls, "o9@0"),
        (ShmemFolios::All, "o9@0"),
    ] {
        let mut world = World::new(ShmemRules { folios, ..with(ShmemEnabled::Always) });
        let file = world.memory.add_memory_file(N * PAGE);
        let open = world.memory.open(file);
        world.memory.pwrite(open, 16 * PAGE, 26 * PAGE).unwrap();
        assert_eq!(world.folios(file).join(" "), expected, "{folios:?}");
        world.memory.validate().unwrap();
    }
}

#[test]
fn a_cached_page_leaves_room_for_smaller_folios_only_q_2_3() {
    for (folios, expected) in
        [(ShmemFolios::AllInCalls, "o0@3 o0@100"), (ShmemFolios::All, "o0@3 o6@64")]
    {
        let mut world = World::new(with(ShmemEnabled::Never));
        let file = world.memory.add_tmpfs_file(N * PAGE);
        world.map(file, N);
        world.store(3);
        world.memory.change_rules(|rules| {
            (rules.shmem.tmpfs, rules.shmem.folios) = (TmpfsHuge::Always, folios);
        });
        world.store(100);
        assert_eq!(world.folios(file).join(" "), expected);
    }
}

#[test]
fn a_fault_needs_room_in_the_area_from_6_11_on_q_2_1() {
    for (area, expected) in [(ShmemArea::Fits, "o0@17"), (ShmemArea::Ignored, "o9@0")] {
        let mut world = World::new(ShmemRules {
            area,
            sizes: ShmemSizes::PmdOnly,
            ..with(ShmemEnabled::Always)
        });
        let file = world.memory.add_memory_file(N * PAGE);
        world.map(file, N - 1);
        world.store(17);
        assert_eq!(world.folios(file), [expected]);
    }
}

#[test]
fn a_cgroup_without_room_gets_a_base_page_and_counts_it_q_2_3() {
    let mut world = World::new(with(ShmemEnabled::Always));
    let group = world.memory.add_group(GroupLimits::max(100));
    world.memory.join_group(world.mm, group);
    let map = Map::anon(N * PAGE, Prot::READ_WRITE).shared();
    assert_eq!(world.order_in(map, None), 0);
    let counters = world.memory.counters();
    assert_eq!((counters.thp_file_alloc, counters.thp_file_fallback), (0, 1));
    let of_pmd = counters.size(Order::new(9));
    assert_eq!((of_pmd.shmem_alloc, of_pmd.shmem_fallback), (0, 1));
}

#[test]
fn holes_reach_past_the_end_and_growth_keeps_the_last_folio_q_4() {
    let mut world = World::new(with(ShmemEnabled::Always));
    let file = world.memory.add_memory_file(100 * PAGE);
    world.map(file, N);
    world.store(17);
    assert_eq!(world.folios(file), ["o9@0"]);
    world.memory.truncate(file, 300 * PAGE);
    assert_eq!(world.folios(file), ["o9@0"]);
    world.memory.punch_hole(file, 400 * PAGE, 10 * PAGE);
    assert_eq!(world.folios(file).first().unwrap(), "o8@0");
    assert!(world.folios(file).iter().all(|one| !one.ends_with("@400")));
    world.memory.validate().unwrap();
}

#[test]
fn whole_folios_are_zeroed_at_their_first_use_q_2_4() {
    let mut world = World::new(with(ShmemEnabled::Always));
    let file = world.memory.add_memory_file(N * PAGE);
    let range = ByteRange { pos: 0, len_bytes: N * PAGE };
    world.memory.fallocate(file, range, Fallocate::Allocate, FileSize::Kept);
    assert_eq!(world.memory.core().ram.counted.nr_zeroed, 0);
    world.map(file, N);
    world.store(5);
    assert_eq!(world.memory.core().ram.counted.nr_zeroed, N);
}
