//! Random programs of up to four processes under random rules. Checks every invariant, every byte
//! against the naive model, and that a machine without bytes decides the same.
//!
//! `LARGEFOLIO_STEPS` and `LARGEFOLIO_SEED` set length and first seed; a failure prints the seed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use largefolio_mm::counters::Counters;
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::counters::policy::PointCounters;
use largefolio_mm::fault::{Access, FaultError};
use largefolio_mm::map::Madvice;
use largefolio_mm::policy::Point;
use largefolio_mm::ram::Ram;
use largefolio_mm::rmap::mapcount::MapcountRule;
use largefolio_mm::rules::Rules;
use largefolio_mm::units::{PageIndex, PageSize};

use crate::anon::machine::{Machine, addr};
use crate::anon::naive::{File, Naive, Page, Source};
use crate::anon::program::{
    FILES, NR_PAGES, Numbers, Step, What, random_collapse, random_config, random_reclaim,
    random_regroup, random_shmem, random_zswap,
};
use crate::anon::whim::Whim;
use crate::anon::world::{PAGE, clear_rules};

const NR_STEPS_ALL: u64 = 60_000;
const NR_STEPS: u64 = 250;
const NR_PROCESSES: usize = 4;
const REGROUP: u64 = 7;
const FULL_CHECK: u64 = 50;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

#[test]
fn random_programs_see_their_own_bytes() {
    let nr_steps = setting("LARGEFOLIO_STEPS", NR_STEPS_ALL);
    let first = setting("LARGEFOLIO_SEED", 1);
    let mut totals = BTreeMap::new();
    for seed in first..first + nr_steps.div_ceil(NR_STEPS) {
        match catch_unwind(AssertUnwindSafe(|| Trio::new(seed).run())) {
            Ok(counts) => add(&mut totals, &counts),
            Err(panic) => {
                eprintln!("LARGEFOLIO_SEED={seed} LARGEFOLIO_STEPS={NR_STEPS} shows it again");
                resume_unwind(panic);
            }
        }
    }
    // Compaction for an allocation needs another machine (pressure.rs). Some refusals need a test
    // that makes a step fail (collapse/inject.rs).
    let is_rare = |name: &str| {
        let is_refusal = CollapseRefusal::ALL.iter().any(|refusal| refusal.name() == name);
        is_refusal || name.starts_with("compact_") || name == "workingset_restore_anon"
    };
    let never = totals.iter().filter(|(name, nr)| **nr == 0 && !is_rare(name));
    println!("{totals:?}");
    let missing: Vec<_> = never.map(|(name, _)| name).collect();
    assert!(nr_steps < NR_STEPS_ALL || missing.is_empty(), "never happened: {missing:?}");
}

fn is_unjudged(point: Point) -> bool {
    use Point::{Accessed, Added, Admit, Collapse, Interval, Removed, SwapinOrder};
    [Accessed, Added, Admit, Collapse, Interval, Removed, SwapinOrder].contains(&point)
}

fn add(totals: &mut BTreeMap<&'static str, u64>, counts: &Counters) {
    let others = [
        ("nr_advised", counts.collapse.nr_advised),
        ("pages_collapsed", counts.collapse.pages_collapsed),
        ("thp_collapse_alloc_failed", counts.collapse.thp_collapse_alloc_failed),
        ("writers.nr_drops", counts.writers.nr_drops),
    ];
    let refused = CollapseRefusal::ALL
        .map(|refusal| (refusal.name(), counts.collapse.refused[refusal as usize]));
    // khugepaged does not run here, no call reads without bytes, and events have no answers. Few
    // swapped folios are whole; those that are have tests of their own.
    let points = Point::ALL.into_iter().filter(|&point| !is_unjudged(point));
    let policy = points.flat_map(|point| {
        let [honoured, refused] = match point {
            Point::AnonOrder => ["anon_order honoured", "anon_order refused"],
            Point::Window => ["window honoured", "window refused"],
            Point::Around => ["around honoured", "around refused"],
            Point::Write => ["write honoured", "write refused"],
            Point::ShmemOrder => ["shmem_order honoured", "shmem_order refused"],
            Point::Evict => ["evict honoured", "evict refused"],
            _ => ["victim honoured", "victim refused"],
        };
        let PointCounters { nr_honoured, nr_refused, .. } = counts.policy[point as usize];
        [(honoured, nr_honoured), (refused, nr_refused)]
    });
    for (name, nr) in counts.reclaim.named().into_iter().chain(others).chain(refused).chain(policy)
    {
        *totals.entry(name).or_default() += nr;
    }
}

struct Trio {
    machine: Machine,
    twin: Machine,
    naive: Naive,
    numbers: Numbers,
    is_grouped: bool,
}

fn text(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|by| seed.wrapping_add(by as u8).wrapping_mul(31)).collect()
}

impl Trio {
    fn new(seed: u64) -> Self {
        let mut numbers = Numbers(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let (anon, config) = random_config(&mut numbers);
        let (collapse, writers) = random_collapse(&mut numbers);
        let reclaim = random_reclaim(&mut numbers);
        let shmem = random_shmem(&mut numbers);
        let zswap = random_zswap(&mut Numbers(seed.wrapping_mul(0x8765_4321_9abc_def1)));
        let bytes = Ram::new(PageSize::K4, config.ram_bytes);
        let rules = Rules { anon, reclaim, zswap, ..Rules::example() };
        let mut machine = Machine::new(rules.clone(), &config, bytes);
        let mut twin = Machine::new(rules, &config, Ram::default());
        let clear = clear_rules().nth(seed as usize % 8).unwrap();
        let set_rules = |rules: &mut Rules| {
            (rules.clear, rules.collapse, rules.writers) = (clear, collapse, writers);
            rules.shmem.clone_from(&shmem);
        };
        machine.memory.change_rules(set_rules);
        twin.memory.change_rules(set_rules);
        if seed.is_multiple_of(3) {
            for memory in [&mut machine.memory, &mut twin.memory] {
                let has_later_points = seed.is_multiple_of(9);
                memory.set_policy(Box::new(Whim { numbers: Numbers(seed), has_later_points }));
            }
        }
        let files = machine.files.iter().zip(FILES);
        let files = files.map(|(&id, (_, size))| File::stored(id, size)).collect();
        let naive = Naive { processes: vec![Some(BTreeMap::new())], files };
        Self { machine, twin, naive, numbers, is_grouped: seed % 2 == 1 }
    }

    #[expect(clippy::print_stderr, reason = "a failure says where it was")]
    fn run(mut self) -> Counters {
        for number in 0..NR_STEPS {
            // Every second program uses no cgroups.
            if self.is_grouped && number % REGROUP == 0 {
                let change = random_regroup(&mut self.numbers, self.machine.mms.len());
                self.machine.regroup(change);
                self.twin.regroup(change);
            }
            let Some(step) = self.choose() else { continue };
            let result = catch_unwind(AssertUnwindSafe(|| self.step(step, number)));
            if let Err(panic) = result {
                eprintln!("step {number}: {step:?}");
                eprintln!("{:?}", self.machine.memory.rules().anon);
                resume_unwind(panic);
            }
        }
        self.end()
    }

    fn choose(&mut self) -> Option<Step> {
        let nr = self.naive.processes.len();
        let step = Step::random(&mut self.numbers, nr, self.machine.pins.len());
        let alive = self.naive.processes.iter().flatten().count();
        let of = match step {
            Step::Map { of, .. }
            | Step::Unmap { of, .. }
            | Step::Protect { of, .. }
            | Step::Advise { of, .. }
            | Step::Arm { of, .. }
            | Step::Remap { of, .. }
            | Step::Load { of, .. }
            | Step::Store { of, .. }
            | Step::Pin { of, .. }
            | Step::Collapse { of, .. }
            | Step::Run { of, .. }
            | Step::Fork { of }
            | Step::Exit { of } => Some(of),
            _ => None,
        };
        if of.is_some_and(|of| self.naive.processes[of].is_none()) {
            return None;
        }
        match step {
            Step::Fork { .. } if alive >= NR_PROCESSES => None,
            Step::Exit { .. } if alive < 2 => None,
            Step::Write { file, .. } if self.is_running(file) => None,
            // The bytes that a store leaves beyond the end of a file are undefined.
            Step::Store { of, at, from, len, .. } => {
                let page = self.naive.page(of, at);
                let is_beyond = page.is_some_and(|page| match page.source {
                    Source::File { file, index } if page.is_shared => {
                        index * PAGE + (from + len) as u64 > self.naive.files[file].size
                    }
                    _ => false,
                });
                (!is_beyond).then_some(step)
            }
            _ => Some(step),
        }
    }

    fn is_running(&self, file: usize) -> bool {
        self.machine.memory.core().mapping(self.machine.files[file]).gate.writecount() < 0
    }

    fn step(&mut self, step: Step, number: u64) {
        let is_done = self.machine.run(step);
        assert_eq!(is_done, self.twin.run(step), "with and without bytes");
        self.follow(step, is_done);
        self.machine.memory.validate().unwrap();
        self.check_partial();
        self.compare_twins();
        if number % FULL_CHECK == FULL_CHECK - 1 {
            self.compare_bytes();
        }
        self.compare_around(step);
    }

    fn follow(&mut self, step: Step, is_done: bool) {
        match step {
            Step::Store { of, at, from, len, seed } => {
                let can_write = self.naive.page(of, at).is_some_and(|page| page.can_write);
                assert!(!is_done || can_write, "a store to a page that may not be stored to");
                if is_done {
                    self.settle(of, at);
                    let bytes = text(seed, len);
                    let mm = self.machine.mms[of].unwrap();
                    let at_byte = largefolio_mm::units::Vaddr(addr(at).0 + from as u64);
                    self.machine.memory.store(mm, at_byte, &bytes).unwrap();
                    self.naive.store(of, at, (from, &bytes));
                }
            }
            Step::Write { file, pos, len, seed } => self.follow_write(file, pos, (len, seed)),
            Step::Pin { of, at, access } if is_done => {
                self.settle(of, at);
                self.follow_pin(of, at, access);
            }
            Step::Unpin { pin } if is_done => {
                if let Some(page) = self.naive.pinned(pin) {
                    page.pin = None;
                }
            }
            Step::Device { pin, from, seed } if is_done => self.follow_device(pin, from, seed),
            Step::Advise { of, at, nr, advice: Madvice::Dontneed } if is_done => {
                self.naive.forget(of, at, nr);
            }
            // A refused call may have marked part of the range.
            Step::Advise { of, at, nr, advice: Madvice::Free } => self.naive.give_up(of, at, nr),
            Step::Map { of, at, nr, what, can_write } if is_done => {
                self.follow_map(of, (at, nr), what, can_write);
            }
            Step::Unmap { of, at, nr } if is_done => self.naive.unmap(of, at, nr),
            Step::Protect { of, at, nr, can_write } if is_done => {
                self.naive.protect(of, at, nr, can_write);
            }
            Step::Remap { of, at, nr, to, nr_new } if is_done => {
                self.naive.remap(of, (at, nr), (to, nr_new));
            }
            Step::Fork { of } if is_done => self.naive.fork(of),
            Step::Exit { of } => self.naive.processes[of] = None,
            Step::Truncate { file, size } => self.naive.truncate(file, size),
            Step::Punch { file, pos, len } => self.naive.punch(file, pos, len),
            _ => {}
        }
    }

    fn follow_map(&mut self, of: usize, range: (u64, u64), what: What, can_write: bool) {
        let (source, is_shared) = match what {
            What::Anon => (Source::Anon, false),
            What::SharedAnon => {
                self.naive.files.push(File::zeroes(range.1 * PAGE));
                (Source::File { file: self.naive.files.len() - 1, index: 0 }, true)
            }
            What::Private { file, pgoff } => (Source::File { file, index: pgoff }, false),
            What::Shared { file, pgoff } => (Source::File { file, index: pgoff }, true),
        };
        self.naive.map(
            of,
            range,
            &Page { source, is_shared, can_write, own: None, is_lazy: false, pin: None },
        );
    }

    fn settle(&mut self, of: usize, at: u64) {
        self.compare_page(of, at);
        let mm = self.machine.mms[of].unwrap();
        if let Some(view) = self.machine.memory.page_at(mm, addr(at)) {
            let found = self.machine.memory.core().ram.frame(view.pfn);
            self.naive.settle(of, at, found);
        }
    }

    fn follow_write(&mut self, file: usize, pos: u64, (len, seed): (u64, u8)) {
        // The first run may have ended early; this one ends at the same place.
        let bytes = text(seed, len as usize);
        let written = self.machine.memory.write_file(self.machine.opens[file], pos, &bytes);
        let again = self.twin.memory.pwrite(self.twin.opens[file], pos, len);
        assert_eq!(written, again);
        let nr = written.map_or_else(|error| (error.pos - pos) as usize, |()| bytes.len());
        self.naive.write_file(file, pos, &bytes[..nr]);
    }

    fn follow_pin(&mut self, of: usize, at: u64, access: Access) {
        let pin = self.machine.pins.len() - 1;
        let pfn = self.machine.pins[pin].as_ref().unwrap().pfn;
        let is_zero_page = self.machine.memory.owner_of(pfn).is_none();
        let page = self.naive.page(of, at).unwrap();
        if page.is_shared || is_zero_page {
            return;
        }
        let is_anon = page.source == Source::Anon;
        if access == Access::Write {
            // One page may have several pins; the model tracks the last.
            self.naive.own(of, at).pin = Some(pin);
        } else if !is_anon {
            self.naive.own(of, at);
        }
    }

    fn follow_device(&mut self, pin: usize, from: usize, seed: u8) {
        let Some(page) = self.naive.pinned(pin) else { return };
        let bytes = text(seed, 8);
        page.own.as_mut().unwrap()[from..from + 8].copy_from_slice(&bytes);
        let pfn = self.machine.pins[pin].as_ref().unwrap().pfn;
        let frame = self.machine.memory.frame_mut(pfn);
        frame[from..from + 8].copy_from_slice(&bytes);
    }

    fn check_partial(&self) {
        let cache = self.machine.memory.core();
        for (id, folio) in cache.folios.iter().filter(|(_, folio)| folio.is_large()) {
            let shape = cache.shape(folio.order);
            if shape.rules.counts == MapcountRule::NoPageMapcount {
                continue;
            }
            let is_mapped = |page: &u32| folio.mapcount.page_mapcount(&shape, *page) > 0;
            let nr_mapped = (0..shape.nr_pages()).filter(is_mapped).count() as u64;
            let is_partial = folio.is_anon() && (1..folio.nr_pages()).contains(&nr_mapped);
            let is_known = folio.is_partially_mapped || folio.slot().is_some();
            assert!(!is_partial || is_known, "{id:?} is partially mapped");
        }
    }

    fn compare_twins(&mut self) {
        let (with, without) = (&self.machine.memory, &self.twin.memory);
        assert_eq!(with.counters(), without.counters());
        assert_eq!(with.core().ram.counted, without.core().ram.counted);
        let free = [nr_free(with), nr_free(without)];
        assert_eq!(free[0], free[1]);
        for _ in 0..4 {
            let of = self.numbers.below(self.machine.mms.len() as u64) as usize;
            let at = addr(self.numbers.below(NR_PAGES));
            let Some(mm) = self.machine.mms[of] else { continue };
            assert_eq!(with.page_at(mm, at), without.page_at(mm, at));
        }
    }

    fn compare_bytes(&self) {
        for (of, process) in self.naive.processes.iter().enumerate() {
            for &at in process.iter().flat_map(|pages| pages.keys()) {
                self.compare_page(of, at);
            }
        }
        for (&id, file) in self.machine.files.iter().zip(&self.naive.files) {
            let cache = self.machine.memory.core();
            for index in 0..file.nr_pages() {
                let Some(entry) = cache.find(id, PageIndex(index)) else { continue };
                let pfn = cache.folios.get(entry.folio).pfn_at(PageIndex(index));
                let is_same = Some(cache.ram.frame(pfn)) == file.page(index);
                assert!(is_same, "page {index} of file {id:?} holds other bytes");
            }
        }
    }

    fn compare_around(&self, step: Step) {
        let (Step::Store { of, at, .. } | Step::Load { of, at } | Step::Pin { of, at, .. }) = step
        else {
            return;
        };
        let others = 0..self.naive.processes.len();
        for other in others.filter(|&other| other == of || self.naive.processes[other].is_some()) {
            (at.saturating_sub(1)..at + 2).for_each(|at| self.compare_page(other, at));
        }
    }

    fn compare_page(&self, of: usize, at: u64) {
        let Some(page) = self.naive.page(of, at) else { return };
        let mm = self.machine.mms[of].unwrap();
        let memory = &self.machine.memory;
        let expected = self.naive.content(page);
        let Some(found) = memory.page_at(mm, addr(at)) else {
            let is_swapped = memory.space(mm).swapped.get(addr(at).vpn(PageSize::K4)).is_some();
            let is_kept = page.own.is_none() || page.is_lazy || is_swapped;
            assert!(is_kept, "process {of} lost its store to page {at}");
            return;
        };
        let found = memory.core().ram.frame(found.pfn);
        let Some(expected) = expected else {
            panic!("process {of} maps page {at} beyond the end of its file")
        };
        let is_given_up = page.is_lazy && found.iter().all(|&byte| byte == 0);
        if *found != *expected && !is_given_up {
            let byte = found.iter().zip(&expected).position(|(a, b)| a != b).unwrap();
            let (found, expected) = (found[byte], expected[byte]);
            let (source, is_shared) = (page.source, page.is_shared);
            panic!(
                "process {of}, page {at}, byte {byte}: {found:#x}, not {expected:#x} \
                 ({source:?}, shared: {is_shared})"
            );
        }
    }

    fn load_all(&mut self) {
        for of in 0..self.naive.processes.len() {
            let pages: Vec<u64> =
                self.naive.processes[of].iter().flat_map(|pages| pages.keys().copied()).collect();
            for at in pages {
                let mm = self.machine.mms[of].unwrap();
                let loaded = self.machine.memory.touch(mm, addr(at), Access::Read);
                let page = self.naive.page(of, at).unwrap();
                let is_beyond = self.naive.content(page).is_none();
                match loaded {
                    Ok(_) => self.compare_page(of, at),
                    Err(FaultError::OutOfMemory(_) | FaultError::GroupOutOfMemory(_)) => {}
                    Err(error) => assert!(is_beyond, "page {at} of process {of}: {error}"),
                }
            }
        }
    }

    fn end(mut self) -> Counters {
        self.compare_bytes();
        self.load_all();
        self.machine.memory.validate().unwrap();
        for pin in std::mem::take(&mut self.machine.pins).into_iter().flatten() {
            self.machine.memory.unpin(pin);
        }
        for mm in self.machine.mms.into_iter().flatten() {
            self.machine.memory.exit(mm);
        }
        for file in self.machine.files {
            self.machine.memory.truncate(file, 0);
        }
        self.machine.memory.validate().unwrap();
        assert_eq!(self.machine.memory.core().folios.iter().count(), 0, "nothing is left over");
        *self.machine.memory.counters()
    }
}

fn nr_free(memory: &largefolio_mm::memory::Memory) -> u64 {
    memory.core().buddy.nr_free_pages()
}
