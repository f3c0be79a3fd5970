use std::collections::BTreeMap;

use largefolio_mm::units::{Order, Pfn};

use super::*;

/// 64 lines in the L2 cache, 1,024 in the last-level cache.
fn config() -> WalkerConfig {
    let (l2, llc) = (CacheSize(4 << 10), CacheSize(64 << 10));
    WalkerConfig { l2, llc, window: 100, ..WalkerConfig::default() }
}

const PTE: Steps = Steps { pte: 1, pmd: 0, pud: 0, pgd: 0 };

struct Bench {
    walker: Walker,
    now: Moment,
    next_page: u64,
}

impl Bench {
    fn new() -> Self {
        let walker = Walker::new(&config(), PageSize::K4);
        let now = Moment { row: 100, instructions: 10_000 };
        Self { walker, now, next_page: 1 << 40 }
    }

    fn walk(&mut self, walk: &Walk, [rows, instructions]: [u64; 2]) -> WalkCounters {
        self.now.row += rows;
        self.now.instructions += instructions;
        self.see(Side::Data, walk, PTE)
    }

    fn bring_in(&mut self, side: Side, nr: u64) {
        self.next_page += 1;
        self.walker.bring_in(side, self.next_page, nr);
    }

    fn see(&mut self, side: Side, walk: &Walk, steps: Steps) -> WalkCounters {
        let (kind, found) = self.walker.walk(side, walk, steps, self.now);
        let mut counters = WalkCounters::default();
        counters.add(kind, found);
        counters
    }

    fn lines(&mut self, vpn: u64) -> Lines {
        self.walk(&page(vpn), [1, 1_000]).alone.lines
    }
}

fn page(vpn: u64) -> Walk {
    Walk::page(Vpn(vpn), Pfn(vpn), true)
}

fn lines([l2, llc, memory]: [u64; 3]) -> Lines {
    Lines { l2, llc, memory }
}

#[test]
fn a_line_is_where_as_many_lines_as_came_in_since_leave_it() {
    let mut bench = Bench::new();
    assert_eq!(bench.lines(8), lines([1, 0, 0]), "written when the thread began");
    bench.bring_in(Side::Data, 63);
    assert_eq!(bench.lines(15), lines([1, 0, 0]), "the same line: eight entries");
    bench.bring_in(Side::Data, 64);
    assert_eq!(bench.lines(8), lines([0, 1, 0]));
    assert_eq!(bench.lines(8), lines([1, 0, 0]), "now it is near");
    for _ in 0..16 {
        bench.bring_in(Side::Data, 64);
    }
    assert_eq!(bench.lines(8), lines([0, 0, 1]));
    assert_eq!(bench.lines(16), lines([0, 0, 1]), "it was not read since the thread began");
}

#[test]
fn a_page_brings_in_no_more_lines_than_it_has() {
    let mut bench = Bench::new();
    bench.bring_in(Side::Data, 1 << 40);
    assert_eq!(bench.walker.lines.volume, 64);
    bench.bring_in(Side::Instruction, 17);
    assert_eq!(bench.walker.lines.volume, 66);
    let mut use_page = |page| {
        bench.walker.bring_in(Side::Data, page, 1);
        bench.walker.lines.volume
    };
    // The same page again, a neighbour, a page with the same slot, and the first again.
    let pages = [7, 7, 8, 7 + NR_PAGES as u64, 8, 7];
    assert_eq!(pages.map(&mut use_page), [67, 67, 68, 69, 69, 70]);
}

#[test]
fn what_a_fault_has_set_is_near() {
    let mut bench = Bench::new();
    bench.bring_in(Side::Data, 64);
    let far = page(1 << 12);
    let written = |order, vpn| Walk { order: Order::new(order), is_written: true, ..page(vpn) };
    assert_eq!(bench.walk(&written(0, 21), [1, 1_000]).alone.lines, lines([1, 0, 0]));
    assert_eq!(bench.lines(16), lines([1, 0, 0]));
    assert_eq!(bench.lines(31), lines([1, 0, 0]), "a fault sets entries around");
    assert_eq!(bench.lines(32), lines([0, 1, 0]));
    assert_eq!(bench.walk(&far, [1, 1_000]).alone.lines, lines([0, 1, 0]));
    assert_eq!(bench.walk(&written(5, 64), [1, 1_000]).alone.lines, lines([1, 0, 0]));
    assert_eq!(bench.lines(95), lines([1, 0, 0]), "a folio of 32 pages has four lines");
}

#[test]
fn walks_within_the_window_run_beside_the_first() {
    let mut bench = Bench::new();
    let gaps = [1_000, 30, 30, 39, 1, 99, 100];
    let kinds: Vec<&str> = gaps
        .into_iter()
        .map(|gap| match bench.walk(&page(1), [1, gap]) {
            WalkCounters { alone: KindCounters { walks: 1, .. }, .. } => "alone",
            WalkCounters { overlapped: KindCounters { walks: 1, .. }, .. } => "beside",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["alone", "beside", "beside", "beside", "alone", "beside", "alone"]);
}

#[test]
fn a_walk_is_chained_to_the_walk_its_address_came_from() {
    let mut bench = Bench::new();
    let linked = |link| Walk { link, ..page(1) };
    bench.walk(&page(1), [1, 1_000]);
    assert_eq!(bench.walk(&linked(3), [3, 5]).chained.walks, 1);
    assert_eq!(bench.walk(&linked(2), [3, 5]).overlapped.walks, 1, "no walk was there");
    assert_eq!(bench.walk(&page(1), [3, 5]).overlapped.walks, 1);
    assert_eq!(bench.walk(&linked(9), [3, 5]).chained.walks, 1, "that of nine rows before");
    // A fetch is a separate kind, and no data depends on it.
    bench.now.row += 1;
    let counters = bench.see(Side::Instruction, &page(1), PTE);
    assert_eq!((counters.fetch.walks, counters.fetch.lines), (1, lines([1, 0, 0])));
    assert_eq!(bench.walk(&linked(1), [1, 5]).overlapped.walks, 1);
}

#[test]
fn a_host_is_asked_for_the_page_and_for_each_table() {
    let mut bench = Bench::new();
    bench.bring_in(Side::Data, 64);
    let all = Steps { pte: 1, pmd: 1, pud: 1, pgd: 1 };
    let far = page(1 << 30);
    let KindCounters { walks, lines: own, host_lines, .. } = bench.see(Side::Data, &far, all).alone;
    assert_eq!((walks, own.l2 + own.llc + own.memory), (1, 4));
    assert_eq!(host_lines.l2 + host_lines.llc + host_lines.memory, 5);
    // With 2M host pages, a line of host entries covers 16 MiB.
    let mut near = |pfn| {
        let walk = Walk { pfn: Pfn(pfn), ..far };
        bench.see(Side::Data, &walk, Steps::default()).overlapped.host_lines.l2
    };
    assert_eq!([1 << 20, 1 << 20, (1 << 20) + 4095, (1 << 20) + 4096].map(&mut near), [0, 1, 1, 0]);
}

/// A line is in the L2 cache exactly if a full list of all reads says so, for any walks.
#[test]
fn lines_agree_with_a_list_of_all_readings_and_old_ones_are_forgotten() {
    let mut bench = Bench::new();
    let mut read_at: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for round in 0..60_000 {
        let vpn = if round % 3 == 0 { random(1 << 9) } else { random(1 << 20) };
        if random(2) == 1 {
            bench.bring_in(Side::Data, 1 + random(3));
        }
        let volume = bench.walker.lines.volume;
        let age = volume - read_at.insert(vpn >> 3, volume).unwrap_or(0);
        let expected = match age {
            ..64 => lines([1, 0, 0]),
            64..1024 => lines([0, 1, 0]),
            _ => lines([0, 0, 1]),
        };
        assert_eq!(bench.lines(vpn), expected, "round {round}");
    }
    assert!(bench.walker.lines.read_at.len() <= 2 * NR_LINES_MIN);
}
