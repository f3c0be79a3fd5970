//! A policy with arbitrary answers: possible ones, impossible ones, and none.

use largefolio_mm::counters::policy::PointCounters;
use largefolio_mm::map::Map;
use largefolio_mm::policy::{Answer, Context, Point, Policy, PolicyError, Window, victim, write};
use largefolio_mm::rules::anon::AnonRules;
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

use crate::anon::program::Numbers;
use crate::anon::world::{BASE, PAGE, World, sizes, thp};

#[derive(Debug)]
pub(crate) struct Whim {
    pub(crate) numbers: Numbers,
    /// Whether it also answers at the points that no kernel has.
    pub(crate) has_later_points: bool,
}

impl Policy for Whim {
    fn handles(&self, point: Point) -> bool {
        self.has_later_points || point <= Point::Victim
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        assert_eq!(context.point, point as u64);
        let numbers = &mut self.numbers;
        if numbers.below(4) == 0 {
            return Ok(Answer::Own);
        }
        if numbers.below(16) == 0 {
            let word = |numbers: &mut Numbers| u64::MAX >> numbers.below(64);
            let (start, nr_pages) = (word(numbers), word(numbers));
            let window = Window { start, nr_pages, nr_ahead: word(numbers), order: word(numbers) };
            return Ok(match numbers.below(2) {
                0 => Answer::Window(window),
                _ => Answer::Value(start),
            });
        }
        Ok(match point {
            Point::AnonOrder | Point::Collapse | Point::SwapinOrder | Point::ShmemOrder => {
                Answer::Value(context.orders & (numbers.below(1024) | 1))
            }
            Point::Window if numbers.below(8) == 0 => Answer::Value(0),
            Point::Window => {
                let back = numbers.below(40);
                let start = match context.cause {
                    largefolio_mm::policy::cause::MARKER => context.index + 1 + back,
                    _ => context.index.saturating_sub(back),
                };
                let nr_pages = numbers.below(80) + 1;
                let (nr_ahead, order) = (numbers.below(nr_pages + 1), numbers.below(10));
                Answer::Window(Window { start, nr_pages, nr_ahead, order })
            }
            Point::Around => Answer::Value(1 << numbers.below(10)),
            Point::Write | Point::Admit => Answer::Value(numbers.below(3)),
            Point::Victim => Answer::Value(numbers.below(4)),
            Point::Evict => Answer::Value(numbers.below(200)),
            Point::Added | Point::Accessed | Point::Removed | Point::Interval => Answer::Value(0),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Always(pub(crate) Answer);

#[derive(Debug)]
struct Reclaims(u64);

impl Policy for Reclaims {
    fn handles(&self, point: Point) -> bool {
        point == Point::Victim
    }

    fn answer(&mut self, _: Point, _: &Context) -> Result<Answer, PolicyError> {
        Ok(Answer::Value(self.0))
    }
}

impl Policy for Always {
    fn handles(&self, _: Point) -> bool {
        true
    }

    fn answer(&mut self, _: Point, _: &Context) -> Result<Answer, PolicyError> {
        Ok(self.0)
    }
}

fn with(anon: AnonRules, answer: Answer) -> World {
    let mut world = World::new(anon);
    world.memory.set_policy(Box::new(Always(answer)));
    world
}

pub(crate) fn counts(world: &World, point: Point) -> (u64, u64, u64) {
    let PointCounters { nr_calls, nr_honoured, nr_refused } =
        world.memory.counters().policy[point as usize];
    (nr_calls, nr_honoured, nr_refused)
}

#[test]
fn a_fault_tries_the_orders_that_are_possible_of_those_answered() {
    let order_of = |bits: u64| {
        let mut world = with(sizes(&[16, 64]), Answer::Value(bits)).mapped(64);
        let mm = world.mm;
        let order = world.write(mm, 20).order.get();
        (order, counts(&world, Point::AnonOrder))
    };
    assert_eq!(order_of(1 << 4 | 1 << 2), (4, (1, 1, 0)));
    assert_eq!(order_of(1 << 2), (2, (1, 1, 0)));
    assert_eq!(order_of(0), (0, (1, 1, 0)));
    assert_eq!(order_of(1), (0, (1, 1, 0)));
    // Order 3 is switched off, order 9 does not fit, and order 40 does not exist.
    assert_eq!(order_of(1 << 3), (0, (1, 0, 1)));
    assert_eq!(order_of(1 << 9 | 1 << 2), (2, (1, 0, 1)));
    assert_eq!(order_of(1 << 40), (0, (1, 0, 1)));
}

#[test]
fn a_read_that_is_not_admitted_leaves_nothing_in_the_cache() {
    let read = |answer: u64| {
        let mut world = with(AnonRules::stock(), Answer::Value(answer));
        let file = world.memory.add_file(64 * PAGE, "xfs");
        let open = world.memory.open(file);
        assert_eq!(world.memory.pread(open, 0, 16 * PAGE), Ok(16 * PAGE));
        let is_cached = world.memory.folios(file).next().is_some();
        (is_cached, world.memory.counters().nr_read >= 16, counts(&world, Point::Admit))
    };
    assert_eq!(read(0), (true, true, (1, 1, 0)));
    assert_eq!(read(1), (false, true, (1, 1, 0)));
    assert_eq!(read(7), (true, true, (1, 0, 1)));
}

#[test]
fn nobody_asks_where_settings_leave_nothing_to_choose() {
    let mut world = with(AnonRules::stock(), Answer::Value(1 << 4)).mapped(64);
    let mm = world.mm;
    assert_eq!(world.write(mm, 20).order.get(), 0);
    assert_eq!(counts(&world, Point::AnonOrder), (0, 0, 0));
}

#[test]
fn a_store_copies_where_it_might_keep_and_keeps_nothing_that_others_use() {
    let stored = |answer| {
        let mut world = with(thp(), Answer::Own).mapped(512);
        let parent = world.mm;
        world.write(parent, 0);
        let child = world.memory.fork(parent).unwrap();
        world.memory.exit(child);
        world.memory.set_policy(Box::new(Always(Answer::Value(answer))));
        let before = *world.memory.counters();
        world.write(parent, 1);
        world.memory.validate().unwrap();
        let counters = world.memory.counters();
        let of_point = counts(&world, Point::Write);
        let copied = counters.nr_cow - before.nr_cow;
        (copied, of_point.1 - before.policy[Point::Write as usize].nr_honoured, of_point.2)
    };
    assert_eq!(stored(write::REUSE), (0, 1, 0));
    assert_eq!(stored(write::COPY), (1, 2, 0));
    assert_eq!(stored(7), (0, 0, 1));
    let mut world = with(thp(), Answer::Value(write::REUSE)).mapped(512);
    let parent = world.mm;
    world.memory.set_policy(Box::new(Always(Answer::Own)));
    world.write(parent, 0);
    world.memory.fork(parent).unwrap();
    world.memory.set_policy(Box::new(Always(Answer::Value(write::REUSE))));
    world.write(parent, 1);
    assert_eq!(world.memory.counters().nr_cow, 1);
    let (_, nr_honoured, nr_refused) = counts(&world, Point::Write);
    assert!(nr_honoured == 0 && nr_refused > 0);
}

/// Loads page `index` of a 256-page file. Returns the folios it reads, as start and order.
fn read(answer: Answer, index: u64) -> (Vec<(u64, u8)>, (u64, u64, u64)) {
    let mut world = with(AnonRules::stock(), answer);
    let file = world.memory.add_file(256 * PAGE, "xfs");
    let (open, mm) = (world.memory.open(file), world.mm);
    let map = Map { addr: Some(Vaddr(BASE)), ..Map::file(open, 0, 256 * PAGE, Prot::READ_EXEC) };
    world.memory.mmap(mm, map).unwrap();
    let at = Vaddr(BASE + index * PAGE);
    world.memory.touch(mm, at, largefolio_mm::fault::Access::Read).unwrap();
    world.memory.validate().unwrap();
    let folios = world.memory.folios(file).map(|entry| (entry.index.0, entry.order.get()));
    (folios.collect(), counts(&world, Point::Window))
}

#[test]
fn a_window_is_read_if_it_holds_the_page_and_is_no_larger_than_kernels_read() {
    let window = |start, nr_pages, nr_ahead, order| {
        Answer::Window(Window { start, nr_pages, nr_ahead, order })
    };
    let (folios, counts) = read(window(96, 32, 0, 4), 100);
    assert_eq!((folios, counts), (vec![(96, 4), (112, 4)], (1, 1, 0)));
    assert_eq!(read(Answer::Value(0), 100), (vec![(100, 0)], (1, 1, 0)));
    let (folios, counts) = read(window(240, 64, 0, 4), 250);
    assert_eq!((folios, counts), (vec![(240, 4)], (1, 1, 0)));
    let (folios, counts) = read(window(0, 256, 0, 63), 100);
    assert_eq!((folios, counts), (vec![(0, 8)], (1, 0, 1)));
    let own = read(Answer::Own, 100).0;
    for impossible in [
        window(0, 100, 0, 4),
        window(101, 32, 0, 4),
        window(96, 0, 0, 4),
        window(96, 32, 33, 4),
        window(0, 1025, 0, 4),
        window(u64::MAX, 2, 0, 4),
        Answer::Value(3),
    ] {
        assert_eq!(read(impossible, 100), (own.clone(), (1, 0, 1)), "{impossible:?}");
    }
}

#[test]
fn what_is_answered_around_a_load_is_a_power_of_two_within_a_table() {
    let faults = |answer| {
        let mut world = with(AnonRules::stock(), answer);
        let file = world.memory.add_memory_file(64 * PAGE);
        let (open, mm) = (world.memory.open(file), world.mm);
        let map = Map { addr: Some(Vaddr(BASE)), ..Map::file(open, 0, 64 * PAGE, Prot::READ) };
        world.memory.mmap(mm, map).unwrap();
        for round in 0..2 {
            for page in 0..64 {
                let at = Vaddr(BASE + page * PAGE);
                world.memory.touch(mm, at, largefolio_mm::fault::Access::Read).unwrap();
            }
            if round == 0 {
                world.memory.munmap(mm, Vaddr(BASE), 64 * PAGE).unwrap();
                world.memory.mmap(mm, map).unwrap();
            }
        }
        let (nr_calls, nr_honoured, nr_refused) = counts(&world, Point::Around);
        (world.memory.counters().nr_around, nr_calls == nr_honoured, nr_calls == nr_refused)
    };
    assert_eq!(faults(Answer::Own), (4, false, false));
    assert_eq!(faults(Answer::Value(64)), (1, true, false));
    assert_eq!(faults(Answer::Value(1)), (0, true, false));
    for impossible in [0, 3, 1024, u64::MAX - 1] {
        assert_eq!(faults(Answer::Value(impossible)), (4, false, true), "{impossible}");
    }
}

fn short(answer: u64) -> (World, (u64, u64, u64)) {
    let config = largefolio_mm::memory::Config {
        ram_bytes: 8 << 20,
        swap_bytes: 32 << 20,
        ..largefolio_mm::memory::Config::new(largefolio_mm::rules::Arch::X86_64)
    };
    let rules = largefolio_mm::rules::Rules {
        anon: sizes(&[64]),
        ..largefolio_mm::rules::Rules::example()
    };
    let ram = largefolio_mm::ram::Ram::new(rules.page, config.ram_bytes);
    let mut memory = largefolio_mm::memory::Memory::with_ram(rules, &config, ram).unwrap();
    memory.set_policy(Box::new(Reclaims(answer)));
    let mm = memory.new_space();
    let mut world = World { memory, mm };
    world.map(0, 4096);
    for page in 0..4096 {
        world.write(mm, page);
    }
    world.memory.validate().unwrap();
    let counts = counts(&world, Point::Victim);
    (world, counts)
}

#[test]
fn reclaim_ends_whatever_is_answered() {
    let (evicted, counts) = short(victim::EVICT);
    assert!(counts.0 > 0 && counts.0 == counts.1);
    let (kept, counts) = short(victim::KEEP);
    assert!(counts.1 > 0 && counts.2 > 0, "{counts:?}");
    let (split, _) = short(victim::SPLIT);
    let out = |world: &World| world.memory.counters().reclaim.swpout_large;
    assert!(out(&evicted) > 0 && out(&kept) > 0);
    assert_eq!(out(&split), 0);
    let (_, counts) = short(99);
    assert!(counts.0 > 0 && counts.0 == counts.2);
}

#[test]
fn after_a_failure_the_kernel_decides() {
    #[derive(Debug)]
    struct Fails;
    impl Policy for Fails {
        fn handles(&self, point: Point) -> bool {
            point == Point::AnonOrder
        }

        fn answer(&mut self, point: Point, _: &Context) -> Result<Answer, PolicyError> {
            Err(PolicyError { point, message: "no".to_owned() })
        }
    }
    let mut world = World::new(sizes(&[64])).mapped(64);
    world.memory.set_policy(Box::new(Fails));
    let mm = world.mm;
    assert_eq!(world.write(mm, 0).order.get(), 4);
    assert_eq!(world.write(mm, 40).order.get(), 4);
    assert_eq!(counts(&world, Point::AnonOrder).0, 1);
    let failure = world.memory.take_policy_failure().unwrap();
    assert_eq!(failure.to_string(), "the policy failed at anon_order: no");
    assert_eq!(world.memory.take_policy_failure(), None);
}

#[test]
fn answers_are_work_and_nobody_asks_when_it_is_spent() {
    #[derive(Debug)]
    struct Costs;
    impl Policy for Costs {
        fn handles(&self, point: Point) -> bool {
            point == Point::AnonOrder
        }

        fn answer(&mut self, _: Point, _: &Context) -> Result<Answer, PolicyError> {
            Ok(Answer::Value(0))
        }

        fn nr_steps(&self) -> u64 {
            999
        }
    }
    let mut world = World::new(sizes(&[64])).mapped(64);
    world.memory.set_policy(Box::new(Costs));
    let limit = world.memory.work().nr_steps() + 1_500;
    world.memory.work_mut().set_limit(limit);
    let mm = world.mm;
    assert_eq!([0, 16].map(|page| world.write(mm, page).order.get()), [0, 0]);
    assert!(world.memory.work().is_spent());
    assert_eq!(world.memory.policy_steps(), 2_000);
    assert_eq!(world.write(mm, 32).order.get(), 4);
    assert_eq!(counts(&world, Point::AnonOrder), (2, 2, 0));
    world.memory.work_mut().set_limit(u64::MAX);
    assert_eq!(world.write(mm, 48).order.get(), 0);
    assert_eq!(world.memory.policy_steps(), 3_000);
}
