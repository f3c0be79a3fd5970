//! Where a file ends, and the page there that a filesystem zeroes in part (docs/differences.md).

use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::MappingId;

const PAGE: u64 = 4096;

struct World {
    memory: Memory,
    file: MappingId,
}

impl World {
    /// Has a file of ten pages and a half.
    fn new(filesystem: &str) -> Self {
        let mut memory = Memory::new(Rules::example(), &Config::new(Arch::X86_64)).unwrap();
        let file = memory.add_file(10 * PAGE + PAGE / 2, filesystem);
        Self { memory, file }
    }

    /// Sets the length, and returns the first pages of all cached folios.
    fn truncate(&mut self, bytes: u64) -> Vec<u64> {
        self.memory.truncate(self.file, bytes);
        self.memory.validate().unwrap();
        self.memory.folios(self.file).map(|entry| entry.index.0).collect()
    }
}

/// Seen on 6.18.44, in random workloads (seeds 9462, 1100961, 1101114, 1101420, 1101912).
#[test]
fn ext4_adds_the_page_at_an_old_end_in_a_hole_and_leaves_it_clean() {
    let mut world = World::new("ext4");
    assert_eq!(world.truncate(20 * PAGE + 1), [10]);
    assert_eq!(world.truncate(30 * PAGE + 1), [10, 20]);
    let is_dirty = |world: &World, index| {
        let entry = world.memory.folios(world.file).find(|entry| entry.index.0 == index).unwrap();
        world.memory.core().folios.get(entry.folio).is_dirty
    };
    assert!(is_dirty(&world, 10));
    assert!(!is_dirty(&world, 20));
    // The end of whole blocks needs no zeroes.
    assert_eq!(world.truncate(40 * PAGE), [10, 20, 30]);
    assert_eq!(world.truncate(50 * PAGE), [10, 20, 30]);
    // A new end in a hole.
    assert_eq!(world.truncate(45 * PAGE + 1), [10, 20, 30, 45]);
}

/// Seeds 1100867 and 1100909.
#[test]
fn btrfs_adds_the_page_at_an_old_end_in_a_hole() {
    let mut world = World::new("btrfs");
    assert_eq!(world.truncate(20 * PAGE + 1), [10]);
    assert_eq!(world.truncate(30 * PAGE + 1), [10, 20]);
    // It does not zero a new end.
    assert_eq!(world.truncate(25 * PAGE + 1), [10, 20]);
}

#[test]
fn xfs_adds_the_page_at_an_old_end_only_if_there_is_data() {
    let mut world = World::new("xfs");
    assert_eq!(world.truncate(20 * PAGE + 1), [10]);
    assert_eq!(world.truncate(30 * PAGE + 1), [10]);
}
