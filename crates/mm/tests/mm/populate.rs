//! Populated mappings (docs/behaviour B.2.5).

use largefolio_mm::fault::Access;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::{MmId, Vaddr};
use largefolio_mm::vma::Prot;

const BYTES: u64 = 2 << 20;

fn cold(prot: Prot) -> (Memory, MmId, Vaddr) {
    let config = Config { ram_bytes: 64 << 20, ..Config::new(Arch::X86_64) };
    let mut memory = Memory::new(Rules::example(), &config).unwrap();
    let file = memory.add_file(BYTES, "xfs");
    let (open, mm) = (memory.open(file), memory.new_space());
    let at = memory.mmap(mm, Map::file(open, 0, BYTES, prot)).unwrap();
    (memory, mm, at)
}

#[test]
fn only_an_access_and_advice_wait_in_major_faults_b_2_5() {
    let (mut memory, mm, at) = cold(Prot::READ);
    memory.populate(mm, at, BYTES).unwrap();
    assert_eq!(memory.counters().pgmajfault, 0);
    let of_populate = memory.counters().pgfault;

    let (mut memory, mm, at) = cold(Prot::READ);
    for page in 0..BYTES >> 12 {
        memory.touch(mm, Vaddr(at.0 + (page << 12)), Access::Read).unwrap();
    }
    assert_eq!(memory.counters().pgmajfault, 1);

    let (mut memory, mm, at) = cold(Prot::READ);
    memory.madvise(mm, at, BYTES, Madvice::PopulateRead).unwrap();
    assert_eq!(memory.counters().pgfault, of_populate);
    // The first fault, and one at each marker.
    assert!(memory.counters().pgmajfault > 2, "{}", memory.counters().pgmajfault);
    memory.validate().unwrap();
}

#[test]
fn some_filesystems_align_mappings_b_6_3() {
    let config = Config { ram_bytes: 64 << 20, ..Config::new(Arch::X86_64) };
    let mut memory = Memory::new(Rules::example(), &config).unwrap();
    let mm = memory.new_space();
    let mut is_aligned = |filesystem: &str| {
        let file = memory.add_file(3 * BYTES, filesystem);
        let open = memory.open(file);
        let nr_aligned = (1..5).filter(|nr_less| {
            let map = Map::file(open, 0, 3 * BYTES - (nr_less << 12), Prot::READ);
            memory.mmap(mm, map).unwrap().0.is_multiple_of(BYTES)
        });
        nr_aligned.count() == 4
    };
    // Observed on 6.18.44.
    for filesystem in ["ext2", "ext3", "ext4", "xfs", "btrfs", "erofs"] {
        assert!(is_aligned(filesystem), "{filesystem}");
    }
    for filesystem in ["squashfs", "overlay", "ramfs"] {
        assert!(!is_aligned(filesystem), "{filesystem}");
    }
}

#[test]
fn a_private_writable_mapping_is_populated_by_stores_b_2_5() {
    let (mut memory, mm, at) = cold(Prot::READ_WRITE);
    memory.populate(mm, at, BYTES).unwrap();
    let (faults, copies) = (memory.counters().pgfault, memory.counters().nr_cow);
    assert_eq!((faults, copies, memory.counters().pgmajfault), (512, 512, 0));
}
