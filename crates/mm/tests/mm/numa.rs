//! NUMA: worked examples of docs/behaviour R.1 .. R.6.

use largefolio_mm::fault::Access;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::mempolicy::{MemPolicy, PolicyMode};
use largefolio_mm::nodes::NodeConfig;
use largefolio_mm::numa::{BoundPages, NumaError};
use largefolio_mm::rules::anon::{MovedFolio, SizeMode};
use largefolio_mm::rules::numa::{HugeMarks, MemoryFiles, SharedHuge};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{MmId, NodeId, NodeSet, Vaddr};
use largefolio_mm::vma::Prot;

const PAGE: u64 = 4096;
const N: u64 = 512;
const AT: Vaddr = Vaddr(0x4000_0000_0000);
const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);

struct World {
    memory: Memory,
    mm: MmId,
}

fn rules(size_kib: &[u64]) -> Rules {
    let mut rules = Rules::example();
    rules.anon.set_size(2 << 20, SizeMode::Never);
    for kib in size_kib {
        rules.anon.set_size(kib << 10, SizeMode::Madvise);
    }
    rules
}

fn policy(mode: PolicyMode, nodes: &[NodeId]) -> Option<MemPolicy> {
    MemPolicy::new(mode, NodeSet::of(nodes.iter().copied()))
}

impl World {
    fn new(rules: Rules, ram_bytes: u64, nodes: Vec<NodeConfig>) -> Self {
        let config = Config { ram_bytes, nodes, ..Config::new(Arch::X86_64) };
        let mut memory = Memory::new(rules, &config).unwrap();
        let mm = memory.new_space();
        Self { memory, mm }
    }

    fn two(size_kib: &[u64]) -> Self {
        Self::new(rules(size_kib), 1 << 30, vec![NodeConfig::default(); 2])
    }

    fn page(at: u64) -> Vaddr {
        Vaddr(AT.0 + at * PAGE)
    }

    fn map(&mut self, nr_pages: u64) {
        let map = Map::anon(nr_pages * PAGE, Prot::READ_WRITE).at(AT);
        self.memory.mmap(self.mm, map).unwrap();
        self.memory.madvise(self.mm, AT, nr_pages * PAGE, Madvice::Hugepage).unwrap();
    }

    fn store(&mut self, page: u64) {
        self.memory.touch(self.mm, Self::page(page), Access::Write).unwrap();
        self.memory.validate().unwrap();
    }

    fn bind(&mut self, (first, nr): (u64, u64), policy: Option<MemPolicy>, pages: BoundPages) {
        let range = (Self::page(first), nr * PAGE);
        self.memory.mbind(self.mm, range, policy, pages).unwrap();
        self.memory.validate().unwrap();
    }

    /// The node and the order of a page's folio.
    fn at(&self, page: u64) -> (u8, u8) {
        let node = self.memory.node_at(self.mm, Self::page(page)).unwrap();
        let view = self.memory.page_at(self.mm, Self::page(page)).unwrap();
        (node.0, view.order.get())
    }

    /// Takes memory of a node in folios of `order` until it has none above the lowest watermark.
    fn fill(&mut self, node: NodeId, order: u8) {
        let other = self.memory.new_space();
        self.memory.set_mempolicy(other, policy(PolicyMode::Preferred, &[node])).unwrap();
        let nr_pages = 1 << 18;
        let map = Map::anon(nr_pages * PAGE, Prot::READ_WRITE).at(AT);
        self.memory.mmap(other, map).unwrap();
        self.memory.madvise(other, AT, nr_pages * PAGE, Madvice::Hugepage).unwrap();
        for page in (0..nr_pages).step_by(1 << order) {
            self.memory.touch(other, Self::page(page), Access::Write).unwrap();
            if self.memory.node_at(other, Self::page(page)) != Some(node) {
                return;
            }
        }
        panic!("the node is not full");
    }
}

#[test]
fn the_first_touch_decides_and_children_inherit_the_node() {
    let mut world = World::two(&[64]);
    world.map(64);
    world.memory.run_on(world.mm, B).unwrap();
    world.store(3);
    assert_eq!(world.at(0), (1, 4));
    let child = world.memory.fork(world.mm).unwrap();
    world.memory.run_on(world.mm, A).unwrap();
    world.store(16);
    assert_eq!(world.at(16), (0, 4));
    world.memory.touch(child, World::page(0), Access::Write).unwrap();
    assert_eq!(world.memory.node_at(child, World::page(0)), Some(B), "a copy is near its writer");
    let counters = world.memory.counters().numa;
    assert_eq!((counters.nr_local_pages, counters.nr_other_pages), (33, 0));
}

/// R.2.4: folios alternate, whatever their size.
#[test]
fn interleaving_counts_folios() {
    let mut world = World::two(&[64]);
    world.map(64);
    world.bind((0, 64), policy(PolicyMode::Interleave, &[A, B]), BoundPages::Stay);
    for page in [0, 16, 32, 48] {
        world.store(page);
    }
    assert_eq!([0, 16, 32, 48].map(|page| world.at(page)), [(0, 4), (1, 4), (0, 4), (1, 4)]);
    // An area that starts one page later: both parts of the number are rounded down, so each folio
    // has the number of the one before.
    world.bind((0, 1), policy(PolicyMode::Bind, &[A]), BoundPages::Stay);
    world.memory.madvise(world.mm, World::page(16), 48 * PAGE, Madvice::Dontneed).unwrap();
    for page in [16, 32, 48] {
        world.store(page);
    }
    assert_eq!([16, 32, 48].map(|page| world.at(page).0), [0, 1, 0]);
}

/// R.1.2: distance decides, then the next higher number.
#[test]
fn the_nearest_node_follows() {
    let far =
        |distances: [u8; 3]| NodeConfig { distances: distances.into(), ..NodeConfig::default() };
    let nodes = vec![far([10, 40, 20]), far([40, 10, 20]), far([20, 20, 10])];
    let mut world = World::new(rules(&[]), 96 << 20, nodes);
    world.map(64);
    world.fill(A, 0);
    world.store(0);
    assert_eq!(world.at(0).0, 2);
    world.bind((1, 1), policy(PolicyMode::Bind, &[B]), BoundPages::Stay);
    world.store(1);
    assert_eq!(world.at(1).0, 1);
}

/// R.3.1: the same size from another node comes before a smaller one from the near node.
#[test]
fn a_full_node_gives_way_at_the_same_size() {
    let mut world = World::new(rules(&[64]), 128 << 20, vec![NodeConfig::default(); 2]);
    world.map(64);
    world.fill(A, 4);
    world.store(0);
    assert_eq!(world.at(0), (1, 4));
    // The node still has memory above its lowest watermark.
    assert!(world.memory.core().buddy.nr_free_in(A) > 16);
}

/// R.3.2: without direct reclaim, a PMD folio comes from the near node or not at all.
#[test]
fn a_pmd_folio_is_near_or_may_reclaim() {
    let of = |advice: Madvice| {
        let mut rules = rules(&[64]);
        rules.anon.set_size(2 << 20, SizeMode::Always);
        rules.anon.set_size(64 << 10, SizeMode::Always);
        let mut world = World::new(rules, 256 << 20, vec![NodeConfig::default(); 2]);
        world.map(2 * N);
        if advice != Madvice::Hugepage {
            world.memory.munmap(world.mm, AT, 2 * N * PAGE).unwrap();
            let map = Map::anon(2 * N * PAGE, Prot::READ_WRITE).at(AT);
            world.memory.mmap(world.mm, map).unwrap();
        }
        world.fill(A, 4);
        world.store(0);
        world.at(0)
    };
    assert_eq!(of(Madvice::Hugepage), (1, 9));
    assert_eq!(of(Madvice::Nohugepage), (1, 4));
}

/// R.4.1, R.4.2: one page takes its folio along, unless another process may map it.
#[test]
fn a_page_moves_with_its_folio_unless_it_is_shared() {
    let mut world = World::two(&[64]);
    world.map(64);
    world.store(0);
    world.store(16);
    world.bind((5, 1), policy(PolicyMode::Bind, &[B]), BoundPages::Move);
    assert_eq!([0, 15, 16].map(|page| world.at(page)), [(1, 4), (1, 4), (0, 4)]);
    world.memory.fork(world.mm).unwrap();
    let pages = [World::page(0), World::page(17)];
    world.memory.move_pages(world.mm, pages, A, BoundPages::Move).unwrap();
    assert_eq!(world.at(0), (1, 4));
    world.memory.move_pages(world.mm, pages, A, BoundPages::MoveAll).unwrap();
    assert_eq!(world.at(0), (0, 4));
    world.memory.migrate_pages(world.mm, [A, B], BoundPages::MoveAll).unwrap();
    assert_eq!([0, 16].map(|page| world.at(page)), [(1, 4), (1, 4)]);
    world.memory.validate().unwrap();
    let counters = world.memory.counters().numa;
    assert_eq!((counters.nr_moved_folios, counters.nr_not_moved), (4, 0));
}

/// R.4.5: the second move splits a folio that PTEs map.
#[test]
fn the_second_move_may_split() {
    for (moved, order) in [(MovedFolio::Whole, 4), (MovedFolio::Queued, 0)] {
        let mut rules = rules(&[64]);
        rules.anon.moved = moved;
        let mut world = World::new(rules, 1 << 30, vec![NodeConfig::default(); 2]);
        world.map(64);
        world.store(0);
        for (node, order) in [(B, 4), (A, order)] {
            world.memory.move_pages(world.mm, [World::page(0)], node, BoundPages::Move).unwrap();
            assert_eq!(world.at(0), (node.0, order));
        }
    }
}

/// R.4.3: pages after a failed group stay.
#[test]
fn move_pages_stops_after_a_failure() {
    let mut world = World::two(&[]);
    world.map(8);
    (0..4).for_each(|page| world.store(page));
    let pin = world.memory.hold(world.mm, World::page(0)).unwrap();
    // Page 5 is not mapped, so the first two are moved before the others are looked at.
    let pages = [0, 1, 5, 2].map(World::page);
    world.memory.move_pages(world.mm, pages, B, BoundPages::Move).unwrap();
    assert_eq!([0, 1, 2].map(|page| world.at(page).0), [0, 1, 0]);
    world.memory.unpin(pin);
    world.memory.move_pages(world.mm, pages, B, BoundPages::Move).unwrap();
    assert_eq!([0, 1, 2].map(|page| world.at(page).0), [1, 1, 1]);
}

/// R.2.5: an mbind of one mapping of shared memory is for all.
#[test]
fn shared_memory_has_one_policy() {
    let mut world = World::two(&[]);
    let map = Map::anon(8 * PAGE, Prot::READ_WRITE).shared().at(AT);
    world.memory.mmap(world.mm, map).unwrap();
    let child = world.memory.fork(world.mm).unwrap();
    world.bind((2, 2), policy(PolicyMode::Bind, &[B]), BoundPages::Stay);
    for page in [1, 2] {
        world.memory.touch(child, World::page(page), Access::Write).unwrap();
    }
    let nodes = [1, 2].map(|page| world.memory.node_at(child, World::page(page)));
    assert_eq!(nodes, [Some(A), Some(B)]);
}

/// R.5.1: most of the block's pages decide, not the CPU.
#[test]
fn a_collapsed_block_is_where_most_of_its_pages_were() {
    let mut world = World::two(&[]);
    world.map(N);
    world.bind((0, 3), policy(PolicyMode::Bind, &[B]), BoundPages::Stay);
    world.bind((0, 3), None, BoundPages::Stay);
    (0..2).for_each(|page| world.store(page));
    world.memory.run_on(world.mm, B).unwrap();
    (2..5).for_each(|page| world.store(page));
    world.memory.run_on(world.mm, A).unwrap();
    world.memory.madvise_collapse(world.mm, AT, N * PAGE).unwrap();
    assert_eq!(world.at(0), (1, 9));
}

#[test]
fn what_the_machine_lacks_is_refused() {
    let mut world = World::two(&[]);
    world.map(4);
    let none = policy(PolicyMode::Bind, &[NodeId(3)]);
    let refused = NumaError::NoSuchNode { nr_nodes: 2 };
    assert_eq!(world.memory.set_mempolicy(world.mm, none), Err(refused));
    assert_eq!(world.memory.run_on(world.mm, NodeId(2)), Err(refused));
    let range = (AT, 5 * PAGE);
    let bound =
        world.memory.mbind(world.mm, range, policy(PolicyMode::Bind, &[B]), BoundPages::Stay);
    assert_eq!(bound, Err(NumaError::Hole(AT.0)));
    // Nodes that it lacks do not count.
    let some = policy(PolicyMode::Bind, &[B, NodeId(3)]);
    world.bind((0, 4), some, BoundPages::Stay);
    world.store(0);
    assert_eq!(world.at(0).0, 1);
}

impl World {
    /// Lets the process use marked pages on this node.
    fn marked_on(&mut self, node: NodeId) -> u64 {
        self.memory.run_on(self.mm, node).unwrap();
        self.memory.mark_for_balancing(self.mm)
    }

    fn load(&mut self, page: u64) -> u64 {
        let before = self.memory.counters().pgfault;
        self.memory.touch(self.mm, Self::page(page), Access::Read).unwrap();
        self.memory.validate().unwrap();
        self.memory.counters().pgfault - before
    }

    fn faults_of_store(&mut self, page: u64) -> u64 {
        let before = self.memory.counters().pgfault;
        self.store(page);
        self.memory.counters().pgfault - before
    }
}

/// R.6.2 .. R.6.5: one use moves the folio, and its other pages need no fault.
#[test]
fn a_hinting_fault_moves_the_folio_to_the_cpu() {
    let mut world = World::two(&[64]);
    world.map(64);
    world.store(0);
    world.store(16);
    assert_eq!(world.marked_on(A), 0, "the pages are near");
    assert_eq!(world.marked_on(B), 32);
    assert_eq!(world.memory.mark_for_balancing(world.mm), 0, "they are marked already");
    assert_eq!((world.load(3), world.load(5)), (1, 0));
    assert_eq!((world.at(0), world.at(16)), ((1, 4), (0, 4)));
    // The move made the page read-only, so the store faults a second time.
    assert_eq!((world.faults_of_store(17), world.faults_of_store(18)), (2, 1));
    let counters = world.memory.counters().numa;
    assert_eq!((counters.nr_hints, counters.nr_hint_moved_pages), (2, 32));
    assert_eq!(counters.nr_marked_pages, 32);
}

/// R.6.1: a policy of the area or the process keeps balancing away.
#[test]
fn pages_with_a_policy_get_no_hints() {
    let mut world = World::two(&[64]);
    world.map(64);
    (0..4).for_each(|nr| world.store(nr * 16));
    world.bind((0, 16), policy(PolicyMode::Preferred, &[A]), BoundPages::Stay);
    assert_eq!(world.marked_on(B), 48);
    // The policy comes after the mark.
    world.bind((16, 16), policy(PolicyMode::Preferred, &[A]), BoundPages::Stay);
    assert_eq!((world.load(16), world.load(17), world.at(16)), (1, 0, (0, 4)));
    world.memory.set_mempolicy(world.mm, policy(PolicyMode::Bind, &[A, B])).unwrap();
    assert_eq!((world.load(32), world.at(32)), (1, (0, 4)));
    assert_eq!(world.memory.mark_for_balancing(world.mm), 0);
}

/// R.6.2: after fork, pages get no hints; PMD entries do up to 6.18.
#[test]
fn shared_pages_get_no_hints_but_pmd_entries_may() {
    for (huge_marks, nr_marked) in [(HugeMarks::All, N), (HugeMarks::AsPtes, 0)] {
        let mut rules = rules(&[64, 2048]);
        rules.numa.huge_marks = huge_marks;
        let mut world = World::new(rules, 1 << 30, vec![NodeConfig::default(); 2]);
        world.map(N + 64);
        world.store(0);
        world.store(N);
        world.memory.fork(world.mm).unwrap();
        assert_eq!(world.marked_on(B), nr_marked);
        assert_eq!(world.load(5), u64::from(nr_marked > 0));
        assert_eq!(world.at(0).0, u8::from(nr_marked > 0));
    }
}

/// R.6.4: in 6.1 a PMD folio of several processes stays, and its entry is usable again.
#[test]
fn a_shared_pmd_folio_stays_up_to_6_1() {
    let mut rules = rules(&[2048]);
    rules.numa.shared_huge = SharedHuge::Stay;
    let mut world = World::new(rules, 1 << 30, vec![NodeConfig::default(); 2]);
    world.map(N);
    world.store(0);
    let child = world.memory.fork(world.mm).unwrap();
    assert_eq!(world.marked_on(B), N);
    assert_eq!((world.load(5), world.load(6), world.at(0)), (1, 0, (0, 9)));
    world.memory.exit(child);
    world.marked_on(B);
    assert_eq!((world.load(5), world.at(0)), (1, (1, 9)));
}

/// R.6.3: of several processes, the second use in a row from a node moves the page there.
#[test]
fn shared_memory_moves_to_the_second_use_in_a_row() {
    let mut rules = rules(&[]);
    rules.numa.memory_files = MemoryFiles::Marked;
    let mut world = World::new(rules, 1 << 30, vec![NodeConfig::default(); 2]);
    let map = Map::anon(8 * PAGE, Prot::READ_WRITE).shared().at(AT);
    world.memory.mmap(world.mm, map).unwrap();
    world.store(0);
    let child = world.memory.fork(world.mm).unwrap();
    world.memory.touch(child, AT, Access::Read).unwrap();
    let parent = world.mm;
    let mut use_on = |mm: MmId, node: NodeId| {
        world.mm = mm;
        assert_eq!(world.marked_on(node), 1, "shared areas are marked on every node");
        assert_eq!(world.load(0), 1);
        world.at(0).0
    };
    assert_eq!(use_on(parent, A), 0, "near");
    assert_eq!(use_on(child, B), 1, "the first use from afar");
    assert_eq!(use_on(parent, A), 1, "by another process than the last use from afar");
    assert_eq!(use_on(child, B), 1);
    assert_eq!(use_on(parent, A), 0, "the second in a row; near uses do not count");
    assert_eq!(use_on(child, B), 0);
    assert_eq!(use_on(child, B), 1, "by the same process");
}

/// R.6.4: the fault does not reclaim, and leaves memory that background reclaim wants.
#[test]
fn a_full_node_takes_nothing_over() {
    let mut world = World::new(rules(&[64]), 128 << 20, vec![NodeConfig::default(); 2]);
    world.map(64);
    world.store(0);
    world.fill(B, 4);
    assert_eq!(world.marked_on(B), 16);
    assert_eq!((world.load(3), world.load(4), world.at(0)), (1, 0, (0, 4)));
    assert_eq!(world.memory.counters().numa.nr_hint_moved_pages, 0);
}

#[test]
fn one_node_has_no_balancing() {
    let mut world = World::new(rules(&[64]), 1 << 30, Vec::new());
    world.map(64);
    world.store(0);
    assert_eq!(world.memory.mark_for_balancing(world.mm), 0);
    assert_eq!(world.load(1), 0);
}
