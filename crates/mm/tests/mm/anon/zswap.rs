//! zswap: vectors of docs/behaviour P.7. Kernel recordings are in `lab/tests/recordings/zswap.rs`.

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::folio::Content;
use largefolio_mm::map::Madvice;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::Ram;
use largefolio_mm::rules::anon::AnonRules;
use largefolio_mm::rules::reclaim::{SwapDevice, SwapIn, ZeroPages};
use largefolio_mm::rules::zswap::{
    Incompressible, ZswapFolios, ZswapLoad, ZswapPool, ZswapRules, ZswapShrink,
};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{GroupId, PageSize};

use crate::anon::world::{PAGE, World, addr, sizes};

const NR_PAGES: u64 = 64;

struct Zswap {
    world: World,
    group: GroupId,
}

/// Stored, loaded, written back, written to the device in all, zero; then the pages in zswap.
type Numbers = (u64, u64, u64, u64, u64, u64);

impl Zswap {
    fn new(rules: Rules) -> Self {
        let (ram_bytes, swap_bytes) = (4096 * PAGE, 1024 * PAGE);
        let config = Config { ram_bytes, swap_bytes, ..Config::new(Arch::X86_64) };
        let ram = Ram::new(PageSize::K4, ram_bytes);
        let mut memory = Memory::with_ram(rules, &config, ram).unwrap();
        let mm = memory.new_space();
        let group = memory.add_group(GroupLimits::default());
        memory.join_group(mm, group);
        let mut world = World { memory, mm }.mapped(NR_PAGES);
        world.write_all(mm, 0..NR_PAGES);
        Self { world, group }
    }

    fn pageout(&mut self) -> Numbers {
        let mm = self.world.mm;
        self.world.advise(mm, 0, NR_PAGES, Madvice::Pageout);
        self.numbers()
    }

    fn numbers(&self) -> Numbers {
        self.world.check();
        let counters = self.world.memory.counters().reclaim;
        let nr_zero = counters.swpout_zero + counters.swpin_zero;
        let nr_stored = self.world.memory.nr_zswapped();
        let back = (counters.zswpwb, counters.pswpout);
        (counters.zswpout, counters.zswpin, back.0, back.1, nr_zero, nr_stored)
    }

    fn set(&mut self, page: u64, content: Content) {
        let mm = self.world.mm;
        self.world.memory.set_content(mm, addr(page), content);
    }

    fn read_all(&mut self) {
        let mm = self.world.mm;
        for page in 0..NR_PAGES {
            assert_eq!(self.world.byte(mm, page), 0x80 | page as u8);
        }
    }
}

fn rules(zswap: ZswapRules) -> Rules {
    rules_of(AnonRules::stock(), SwapDevice::Zram, zswap)
}

fn rules_of(anon: AnonRules, device: SwapDevice, zswap: ZswapRules) -> Rules {
    let zswap = ZswapRules { enabled: true, ..zswap };
    let mut rules = Rules { anon, zswap, ..Rules::example() };
    (rules.reclaim.swap_device, rules.reclaim.swap_in) = (device, SwapIn::Folios);
    rules
}

#[test]
fn a_load_into_the_swap_cache_frees_the_compressed_page() {
    for (load, nr_left, nr_again) in [(ZswapLoad::Kept, 64, 64), (ZswapLoad::Exclusive, 56, 71)] {
        let zswap = ZswapRules { load, ..ZswapRules::default() };
        let mut zswap = Zswap::new(rules_of(AnonRules::stock(), SwapDevice::Disk, zswap));
        assert_eq!(zswap.pageout(), (64, 0, 0, 0, 0, 64));
        // A window of 8 pages, which are then in the swap cache.
        let mm = zswap.world.mm;
        zswap.world.read(mm, 30);
        assert_eq!(zswap.numbers(), (64, 8, 0, 0, 0, nr_left), "{load:?}");
        // All but the page that was used leave again.
        zswap.world.memory.reclaim_group(zswap.group, 64);
        assert_eq!(zswap.numbers().0, nr_again, "{load:?}");
        zswap.read_all();
        zswap.world.exit(mm);
        assert_eq!((zswap.numbers().5, zswap.world.memory.nr_swapped()), (0, 0));
    }
}

#[test]
fn large_folios_are_stored_from_6_13_on_but_come_back_as_pages() {
    for (folios, numbers) in
        [(ZswapFolios::BasePages, (0, 0, 0, 64, 0, 0)), (ZswapFolios::All, (64, 0, 0, 0, 0, 64))]
    {
        let zswap = ZswapRules { folios, ..ZswapRules::default() };
        let mut zswap = Zswap::new(rules_of(sizes(&[64]), SwapDevice::Zram, zswap));
        let mm = zswap.world.mm;
        assert_eq!(zswap.world.order(mm, 0), 4);
        assert_eq!(zswap.pageout(), numbers);
        zswap.world.memory.change_rules(|rules| rules.zswap.enabled = false);
        zswap.read_all();
        assert_eq!((zswap.world.order(mm, 0), zswap.numbers().5), (0, 0));
    }
}

#[test]
fn one_refused_page_sends_the_folio_to_the_device() {
    let zswap = ZswapRules { incompressible: Incompressible::Refused, ..ZswapRules::default() };
    let mut zswap = Zswap::new(rules_of(sizes(&[64]), SwapDevice::Zram, zswap));
    zswap.set(20, Content::Incompressible);
    assert_eq!(zswap.pageout(), (48, 0, 0, 16, 0, 48));
}

#[test]
fn zeroes_are_noted_from_6_12_on() {
    for (zero_pages, numbers) in
        [(ZeroPages::Written, (64, 0, 0, 0, 0, 64)), (ZeroPages::Noted, (61, 0, 0, 0, 3, 61))]
    {
        let mut rules = rules(ZswapRules::default());
        rules.reclaim.zero_pages = zero_pages;
        let mut zswap = Zswap::new(rules);
        for page in 5..8 {
            zswap.set(page, Content::Zero);
        }
        assert_eq!(zswap.pageout(), numbers, "{zero_pages:?}");
        zswap.read_all();
        let (stored, .., zero, left) = numbers;
        assert_eq!(zswap.numbers(), (stored, stored, 0, 0, 2 * zero, 0));
        assert_eq!(left, stored);
    }
}

#[test]
fn a_refused_page_stays_if_its_group_may_not_write_to_the_device() {
    for (writeback, numbers, nr_cached) in
        [(true, (64, 0, 0, 0, 0, 64), 0), (false, (62, 0, 0, 0, 0, 62), 2)]
    {
        let mut zswap = Zswap::new(rules(ZswapRules { writeback, ..ZswapRules::default() }));
        zswap.set(0, Content::Incompressible);
        zswap.set(9, Content::Incompressible);
        assert_eq!(zswap.pageout(), numbers);
        assert_eq!(zswap.world.memory.nr_swap_cached(), nr_cached);
        zswap.read_all();
    }
}

#[test]
fn a_full_pool_refuses_pages_and_writes_old_ones_back() {
    // Without compression, 40 pages are 1% of the memory, and 36 are 90% of that.
    for (shrink, numbers) in [
        (ZswapShrink::Oldest, (40, 0, 2, 26, 0, 38)),
        (ZswapShrink::SecondChance, (57, 0, 20, 27, 0, 37)),
        (ZswapShrink::Batch, (63, 0, 24, 25, 0, 39)),
    ] {
        let full = ZswapRules { max_pool_percent: 1, ratio_percent: 100, ..ZswapRules::default() };
        let mut zswap = Zswap::new(rules(ZswapRules { shrink, ..full }));
        assert_eq!(zswap.pageout(), numbers, "{shrink:?}");
        zswap.read_all();
    }
}

#[test]
fn a_group_at_its_limit_writes_its_own_pages_back() {
    // 16 pages at two to one.
    for (shrink, numbers) in [
        (ZswapShrink::Oldest, (16, 0, 0, 48, 0, 16)),
        (ZswapShrink::SecondChance, (32, 0, 16, 48, 0, 16)),
        (ZswapShrink::Batch, (64, 0, 48, 48, 0, 16)),
    ] {
        let limit = ZswapRules { ratio_percent: 200, ..ZswapRules::default() };
        let limit = ZswapRules { group_max_bytes: Some(8 * PAGE), ..limit };
        let mut zswap = Zswap::new(rules(ZswapRules { shrink, ..limit }));
        let before = zswap.world.memory.group_usage(zswap.group);
        assert_eq!(zswap.pageout(), numbers, "{shrink:?}");
        let nr_back = numbers.2;
        assert_eq!(zswap.world.memory.nr_swap_cached(), nr_back);
        // The group pays for 16 half pages, and for the pages that came back to be written.
        let after = zswap.world.memory.group_usage(zswap.group);
        assert_eq!(before - after, NR_PAGES - 8 - nr_back, "{shrink:?}");
        zswap.read_all();
    }
}

#[test]
fn two_compressed_pages_share_a_page_of_zbud() {
    for (ratio_percent, pool, nr_pages) in [
        (300, ZswapPool::Pairs, 32),
        (150, ZswapPool::Pairs, 64),
        // 1365 bytes: 11 objects of 1376 in 4 pages would waste less than zsmalloc's 3 in one.
        (300, ZswapPool::SizeClasses, 24),
    ] {
        let zswap = ZswapRules { ratio_percent, pool, ..ZswapRules::default() };
        let mut zswap = Zswap::new(rules(zswap));
        let before = zswap.world.memory.core().buddy.nr_free_pages();
        assert_eq!(zswap.pageout().5, 64);
        let freed = zswap.world.memory.core().buddy.nr_free_pages() - before;
        assert_eq!(64 - freed, nr_pages, "{pool:?} {ratio_percent}");
    }
}
