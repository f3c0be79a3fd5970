//! Every sequence of a few operations on a 16-page file, validated.

use largefolio_mm::fault::Access;
use largefolio_mm::map::Madvice;
use largefolio_mm::memory::Config;
use largefolio_mm::rules::Arch;
use largefolio_mm::vma::Prot;
use largefolio_sim::kernel::Kernel;

use super::random::may_fail;
use super::world::World;

const ALL: Prot = Prot { can_read: true, can_write: true, can_exec: true };

type Operation = fn(&mut World);

fn touch(world: &mut World, index: u64, access: Access) {
    may_fail(world.memory.touch(world.mm, world.addr(index), access));
}

const OPERATIONS: [Operation; 10] = [
    |world| touch(world, 3, Access::Read),
    |world| touch(world, 9, Access::Exec),
    |world| touch(world, 5, Access::Write),
    |world| may_fail(world.memory.pread(world.open, 0, 3 * world.page_bytes())),
    |world| world.memory.munmap(world.mm, world.addr(4), 4 * world.page_bytes()).unwrap(),
    |world| world.advise(Madvice::Hugepage),
    |world| world.memory.truncate(world.file, 6 * world.page_bytes()),
    |world| may_fail(world.memory.pwrite(world.open, 0, 16 * world.page_bytes())),
    |world| world.mm = world.memory.fork(world.mm).unwrap(),
    |world| world.memory.drop_cache(world.file),
];

fn run(kernel: &Kernel, numbers: &[usize]) {
    let ram_bytes = 80 * kernel.rules.page.bytes();
    let config = Config { ram_bytes, ..Config::new(Arch::Arm64) };
    let mut world = World::under(kernel.rules.clone(), &config, "xfs", 16).mapped(ALL);
    for &number in numbers {
        OPERATIONS[number](&mut world);
    }
    if let Err(violation) = world.memory.validate() {
        panic!("{} {numbers:?}: {violation}", kernel.name);
    }
}

fn run_all(kernel: &str, depth: usize) {
    let kernel = Kernel::parse(kernel).unwrap();
    let mut sequences: Vec<Vec<usize>> = vec![vec![]];
    for _ in 0..depth {
        let with = |sequence: &Vec<usize>, next| sequence.iter().copied().chain([next]).collect();
        let nexts = 0..OPERATIONS.len();
        let longer = |sequence| nexts.clone().map(move |next| with(sequence, next));
        sequences = sequences.iter().flat_map(longer).collect();
        for sequence in &sequences {
            run(&kernel, sequence);
        }
    }
}

#[test]
fn every_sequence_of_four_is_sound() {
    for kernel in ["6.1", "6.12+exec-block=64K", "7.0+min-folio=16K", "7.2", "7.2+page=64K"] {
        run_all(kernel, 4);
    }
}

#[test]
fn every_sequence_of_five_is_sound_in_6_18() {
    run_all("6.18", 5);
}
