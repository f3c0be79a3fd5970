//! Measures the model's cost of an operation under memory pressure, for growing numbers of folios.
//!
//! `cargo run --release -p largefolio-mm --example pressure_cost [FOLIOS [ROUNDS]]`: up to FOLIOS
//! folios (10,000,000), ROUNDS times (5). Each round runs all variants; medians are printed with
//! minimum and maximum. docs/design/reclaim.md has figures.
//!
//! Each row first fills memory up to a limit, so each timed operation evicts a folio. The
//! operations read file pages in random order, or store to private pages with swap space.

#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "an example")]
#![expect(clippy::cast_precision_loss, reason = "times for people")]

use std::time::Instant;

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::fault::Access;
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::reclaim::{GenerationRule, LruRule, ReclaimRules};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{ByteRange, GroupId, MmId, Vaddr};
use largefolio_mm::vma::{OpenId, Prot};

const PAGE: u64 = 4096;
const TIB: u64 = 1 << 40;
const BASE: u64 = 0x4000_0000_0000;
const NR_OPS: u64 = 100_000;

#[derive(Clone, Copy)]
enum What {
    Reads,
    Stores,
}

#[derive(Clone, Copy)]
struct Case {
    what: What,
    lru: LruRule,
    ram_bytes: u64,
    nr_folios: u64,
    nr_groups: u64,
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

struct World {
    memory: Memory,
    groups: Vec<(GroupId, MmId)>,
    open: OpenId,
    nr_pages: u64,
    numbers: Numbers,
}

impl World {
    fn new(case: Case) -> Self {
        let reclaim = ReclaimRules {
            lru: case.lru,
            generations: GenerationRule::FirstUse,
            ..ReclaimRules::stock()
        };
        let rules = Rules { reclaim, ..Rules::example() };
        let swap_bytes = match case.what {
            What::Reads => 0,
            What::Stores => 4 * case.nr_folios * PAGE,
        };
        let config = Config { ram_bytes: case.ram_bytes, swap_bytes, ..Config::new(Arch::X86_64) };
        let mut memory = Memory::new(rules, &config).unwrap();
        let nr_pages = 2 * case.nr_folios;
        let file = memory.add_file(nr_pages * PAGE, "ext4");
        let open = memory.open(file);
        memory.fadvise(open, ByteRange { pos: 0, len_bytes: 0 }, Fadvice::Random);
        let limits = GroupLimits::max(case.nr_folios / case.nr_groups);
        let groups = (0..case.nr_groups).map(|_| {
            let (group, mm) = (memory.add_group(limits), memory.new_space());
            memory.join_group(mm, group);
            let bytes = nr_pages / case.nr_groups * PAGE;
            memory.mmap(mm, Map::anon(bytes, Prot::READ_WRITE).at(Vaddr(BASE))).unwrap();
            (group, mm)
        });
        let groups = groups.collect();
        Self { memory, groups, open, nr_pages, numbers: Numbers(7) }
    }

    fn step(&mut self, what: What) {
        let nr_groups = self.groups.len() as u64;
        let page = self.numbers.below(self.nr_pages / nr_groups);
        let of = self.numbers.below(nr_groups);
        let (group, mm) = self.groups[usize::try_from(of).unwrap()];
        match what {
            What::Reads => {
                self.memory.enter_group(group);
                let page = of * (self.nr_pages / nr_groups) + page;
                self.memory.pread(self.open, page * PAGE, PAGE).unwrap();
            }
            What::Stores => {
                self.memory.touch(mm, Vaddr(BASE + page * PAGE), Access::Write).unwrap();
            }
        }
    }
}

fn run(case: Case) -> f64 {
    let mut world = World::new(case);
    for _ in 0..3 * case.nr_folios {
        world.step(case.what);
    }
    let evicted = world.memory.counters().reclaim;
    let start = Instant::now();
    for _ in 0..NR_OPS {
        world.step(case.what);
    }
    let ns = start.elapsed().as_secs_f64() * 1e9;
    assert!(world.memory.counters().reclaim.pgsteal_direct > evicted.pgsteal_direct);
    ns / NR_OPS as f64
}

fn cases(nr_folios_max: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for what in [What::Reads, What::Stores] {
        for lru in [LruRule::Lists, LruRule::Generations] {
            let base = Case { what, lru, ram_bytes: 1 << 30, nr_folios: 100_000, nr_groups: 1 };
            cases.push(base);
            cases.push(Case { ram_bytes: TIB, ..base });
            for nr_folios in [1_000_000, 10_000_000].into_iter().filter(|&nr| nr <= nr_folios_max) {
                cases.push(Case { ram_bytes: TIB, nr_folios, ..base });
            }
            for nr_groups in [100, 10_000] {
                let nr_folios = 1_000_000.min(nr_folios_max);
                cases.push(Case { ram_bytes: TIB, nr_folios, nr_groups, ..base });
            }
        }
    }
    cases
}

fn main() {
    let word = |nr: usize, default: u64| {
        std::env::args().nth(nr).map_or(default, |word| word.parse().unwrap())
    };
    let nr_rounds = usize::try_from(word(2, 5)).unwrap().max(1);
    let cases = cases(word(1, 10_000_000));
    let mut found = vec![Vec::new(); cases.len()];
    for round in 0..nr_rounds {
        for (times, &case) in found.iter_mut().zip(&cases) {
            times.push(run(case));
        }
        eprintln!("round {} of {nr_rounds}", round + 1);
    }
    println!(
        "{:7} {:12} {:>8} {:>10} {:>7}  ns of an operation, n = {nr_rounds}",
        "", "", "memory", "folios", "groups"
    );
    for (times, case) in found.iter_mut().zip(&cases) {
        times.sort_unstable_by(f64::total_cmp);
        let what = match case.what {
            What::Reads => "reads",
            What::Stores => "stores",
        };
        let lru = match case.lru {
            LruRule::Lists => "lists",
            LruRule::Generations => "generations",
        };
        let gib = case.ram_bytes >> 30;
        let (low, mid, high) = (times[0], times[nr_rounds / 2], times[nr_rounds - 1]);
        println!(
            "{what:7} {lru:12} {gib:>4} GiB {:>10} {:>7}  {mid:.0} [{low:.0}..{high:.0}]",
            case.nr_folios, case.nr_groups,
        );
    }
}
