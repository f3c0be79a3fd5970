//! Random programs with all kinds of collapses. Checks every invariant, every byte against a naive
//! model, and that a machine without bytes decides the same.
//!
//! `LARGEFOLIO_STEPS` and `LARGEFOLIO_SEED` set length and first seed; a failure prints the seed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use largefolio_mm::core::inject::FailAfter;
use largefolio_mm::counters::collapse::CollapseCounters;
use largefolio_mm::fault::Access;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::{Ram, stored_byte};
use largefolio_mm::rules::anon::{Enabled, NonePtes, SizeMode};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{MmId, Order, Vaddr};
use largefolio_mm::vma::{OpenId, Prot};

use crate::collapse::world::{BASE, N, PAGE, addr, new_rules, old_rules};

const NR_STEPS: u64 = 120;
/// Pages of each of the three areas: two blocks and a bit, beginning just before a boundary.
const AREA: u64 = 2 * N + 40;
const APART: u64 = 4 * N;
const FROM: u64 = N - 20;

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Store { of: usize, page: u64 },
    Load { of: usize, page: u64 },
    Fill { of: usize, page: u64, nr: u64 },
    Collapse { of: usize, page: u64, nr: u64 },
    CollapseTo { of: usize, page: u64, nr: u64, order: u8 },
    Khugepaged,
    Fork,
    Exit,
    Dontneed { of: usize, page: u64, nr: u64 },
    Hugepage { of: usize, page: u64, nr: u64 },
    Sync,
    FailAfter { steps: u64 },
}

fn page(numbers: &mut Numbers) -> u64 {
    numbers.below(3) * APART + FROM + numbers.below(AREA)
}

fn step(numbers: &mut Numbers, nr_mms: u64) -> Step {
    let of = numbers.below(nr_mms) as usize;
    let page = page(numbers);
    let room = AREA + FROM - page % APART;
    let nr = (1 + numbers.below(2 * N)).min(room);
    match numbers.below(24) {
        0..6 => Step::Store { of, page },
        6..10 => Step::Load { of, page },
        10..12 => Step::Fill { of, page, nr: nr.min(300) },
        12..16 => Step::Collapse { of, page, nr: room },
        16 => Step::CollapseTo { of, page, nr, order: 2 + numbers.below(5) as u8 },
        17 => Step::Khugepaged,
        18 => Step::Fork,
        19 => Step::Exit,
        20 => Step::Dontneed { of, page, nr: nr.min(40) },
        21 => Step::Hugepage { of, page, nr },
        22 => Step::Sync,
        _ => Step::FailAfter { steps: numbers.below(1200) },
    }
}

struct Machine {
    memory: Memory,
    mms: Vec<MmId>,
    now_ms: u64,
}

impl Machine {
    fn new(rules: &Rules, ram: Ram) -> Self {
        let config = Config { ram_bytes: 48 << 20, ..Config::new(Arch::X86_64) };
        let mut memory = Memory::with_ram(rules.clone(), &config, ram).unwrap();
        let mm = memory.new_space();
        let opens: Vec<OpenId> = ["vfat", "xfs"]
            .map(|filesystem| {
                let file = memory.add_file(3 * N * PAGE, filesystem);
                memory.open(file)
            })
            .into();
        let at = |nr: u64| addr(nr * APART + FROM);
        let len = AREA * PAGE;
        let anon = Map::anon(len, Prot::READ_WRITE).at(at(0));
        let private = Map::file(opens[0], FROM, len, Prot::READ_WRITE).at(at(1));
        let shared = Map::file(opens[1], FROM, len, Prot::READ_WRITE).at(at(2)).shared();
        for map in [anon, private, shared] {
            memory.mmap(mm, map).unwrap();
        }
        Self { memory, mms: vec![mm], now_ms: 0 }
    }

    fn run(&mut self, step: Step) -> String {
        let result = match step {
            Step::Load { of, page } => {
                format!("{:?}", self.memory.touch(self.mms[of], addr(page), Access::Read).is_ok())
            }
            Step::Collapse { of, page, nr } => {
                format!("{:?}", self.memory.madvise_collapse(self.mms[of], addr(page), nr * PAGE))
            }
            Step::CollapseTo { of, page, nr, order } => {
                let order = Order::new(order);
                let mm = self.mms[of];
                format!("{:?}", self.memory.madvise_collapse_to(mm, addr(page), nr * PAGE, order))
            }
            Step::Khugepaged => {
                self.now_ms += 10_000;
                self.memory.run_khugepaged(self.now_ms * 1_000_000);
                String::new()
            }
            Step::Fork if self.mms.len() < 3 => {
                let child = self.memory.fork(self.mms[0]).unwrap();
                self.mms.push(child);
                String::new()
            }
            Step::Exit if self.mms.len() > 1 => {
                self.memory.exit(self.mms.remove(1));
                String::new()
            }
            Step::Fork | Step::Exit | Step::Store { .. } | Step::Fill { .. } => String::new(),
            Step::Dontneed { of, page, nr } => {
                let advice = Madvice::Dontneed;
                self.memory.madvise(self.mms[of], addr(page), nr * PAGE, advice).unwrap();
                String::new()
            }
            Step::Hugepage { of, page, nr } => {
                let advice = Madvice::Hugepage;
                self.memory.madvise(self.mms[of], addr(page), nr * PAGE, advice).unwrap();
                String::new()
            }
            Step::Sync => {
                let files: Vec<_> = self.memory.core().mappings().map(|(id, _)| id).collect();
                for file in files {
                    self.memory.sync_file(file);
                }
                String::new()
            }
            Step::FailAfter { steps } => {
                self.memory.fail_collapse(FailAfter::steps(steps));
                String::new()
            }
        };
        format!("{result} {:?}", self.memory.counters())
    }
}

#[derive(Default)]
struct Naive {
    own: Vec<BTreeMap<u64, u8>>,
    shared: BTreeMap<u64, u8>,
}

impl Naive {
    fn store(&mut self, of: usize, page: u64, byte: u8) {
        if page / APART == 2 {
            self.shared.insert(page, byte);
        } else {
            self.own[of].insert(page, byte);
        }
    }

    fn expected(&self, of: usize, page: u64, files: [largefolio_mm::units::MappingId; 2]) -> u8 {
        let index = page % APART;
        let stored =
            if page / APART == 2 { self.shared.get(&page) } else { self.own[of].get(&page) };
        match (stored, page / APART) {
            (Some(&byte), _) => byte,
            (None, 0) => 0,
            (None, nr) => stored_byte(files[nr as usize - 1], index * PAGE),
        }
    }
}

fn rules(numbers: &mut Numbers) -> Rules {
    let mut rules = if numbers.below(2) == 0 { old_rules() } else { new_rules() };
    rules.anon.thp = [Enabled::Always, Enabled::Madvise, Enabled::Never][numbers.below(3) as usize];
    for kib in [16, 64, 512] {
        if numbers.below(3) == 0 {
            rules.anon.set_size(kib << 10, SizeMode::Madvise).unwrap();
        }
    }
    if numbers.below(3) == 0 {
        rules.anon.max_ptes_none = NonePtes::Exactly(numbers.below(N));
    }
    rules
}

fn program(seed: u64) -> CollapseCounters {
    let mut numbers = Numbers(seed);
    let rules = rules(&mut numbers);
    let mut machine = Machine::new(&rules, Ram::new(rules.page, 48 << 20));
    let mut twin = Machine::new(&rules, Ram::default());
    let files: Vec<_> = machine.memory.core().mappings().map(|(id, _)| id).collect();
    let files = [files[0], files[1]];
    let mut naive = Naive { own: vec![BTreeMap::new()], ..Naive::default() };
    for number in 0..NR_STEPS {
        let step = step(&mut numbers, machine.mms.len() as u64);
        let nr_before = machine.mms.len();
        let result = machine.run(step);
        assert_eq!(result, twin.run(step), "step {number}: {step:?} with and without bytes");
        let mut both = (&mut machine, &mut twin);
        match step {
            Step::Store { of, page } => store(&mut both, &mut naive, (of, page, number)),
            Step::Fill { of, page, nr } => {
                for page in page..page + nr {
                    store(&mut both, &mut naive, (of, page, number));
                }
            }

            Step::Dontneed { of, page, nr } if page / APART < 2 => {
                naive.own[of].retain(|at, _| !(page..page + nr).contains(at));
            }
            Step::Fork if both.0.mms.len() > nr_before => naive.own.push(naive.own[0].clone()),
            Step::Exit if both.0.mms.len() < nr_before => drop(naive.own.remove(1)),
            _ => {}
        }
        machine.memory.validate().unwrap();
        twin.memory.validate().unwrap();
        compare_present(&machine, &naive, files);
    }
    machine.memory.counters().collapse
}

fn store(
    (machine, twin): &mut (&mut Machine, &mut Machine),
    naive: &mut Naive,
    (of, page, number): (usize, u64, u64),
) {
    let byte = (number as u8).wrapping_mul(7) ^ page as u8;
    let stored = machine.memory.store(machine.mms[of], addr(page), &[byte]);
    let touched = twin.memory.touch(twin.mms[of], addr(page), Access::Write);
    assert_eq!(stored.is_ok(), touched.is_ok(), "page {page} with and without bytes");
    if stored.is_ok() {
        naive.store(of, page, byte);
    }
}

fn compare_present(machine: &Machine, naive: &Naive, files: [largefolio_mm::units::MappingId; 2]) {
    for (of, &mm) in machine.mms.iter().enumerate() {
        for page in (0..3).flat_map(|nr| nr * APART + FROM..nr * APART + FROM + AREA) {
            let Some(view) = machine.memory.page_at(mm, Vaddr(BASE + page * PAGE)) else {
                continue;
            };
            let found = machine.memory.core().ram.frame(view.pfn)[0];
            assert_eq!(found, naive.expected(of, page, files), "process {of}, page {page}");
        }
    }
}

#[test]
fn random_programs_keep_every_byte() {
    let setting = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |value| value.parse().unwrap())
    };
    let nr_steps = setting("LARGEFOLIO_STEPS", 3_000);
    let first = setting("LARGEFOLIO_SEED", 1);
    let mut all = CollapseCounters::default();
    for seed in first..first + nr_steps.div_ceil(NR_STEPS) {
        match catch_unwind(AssertUnwindSafe(|| program(seed))) {
            Ok(of) => {
                all.pages_collapsed += of.pages_collapsed;
                all.nr_advised += of.nr_advised;
            }
            Err(panic) => {
                report(seed);
                resume_unwind(panic);
            }
        }
    }
    assert!(nr_steps < 3_000 || all.pages_collapsed > 0 && all.nr_advised > 0, "{all:?}");
}

#[expect(clippy::print_stderr, reason = "a failure says how to repeat it")]
fn report(seed: u64) {
    eprintln!("LARGEFOLIO_SEED={seed} LARGEFOLIO_STEPS={NR_STEPS} shows it again");
}
