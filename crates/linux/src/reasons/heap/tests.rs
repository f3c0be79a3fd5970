//! Synthetic processes for the heap.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::census::folios::{Cell, MemoryKind, Size, Tally};
use crate::census::process::Mapping;
use crate::proc::Held;

const MIB: u64 = 1 << 20;
const PMD: u64 = 2 * MIB;

fn mapping(start: u64, mib: u64, permissions: [u8; 4], used_bytes: u64) -> Mapping {
    let range = start..start + mib * MIB;
    let mut tally = Tally::default();
    let cell = Cell { aligned_bytes: used_bytes, ..Cell::default() };
    tally.add(MemoryKind::Anon, Size::Order(0), &cell);
    Mapping { vma: Vma { range, permissions, ..Vma::default() }, tally, touched: None }
}

fn process(mappings: Vec<Mapping>) -> Process {
    Process {
        pid: 1,
        name: String::new(),
        mappings,
        tally: Tally::default(),
        held: Held::default(),
        nr_bad_lines: 0,
    }
}

/// Builds a JVM: an old and a young generation with room between them, a table, and code.
fn jvm() -> Process {
    let mut archive = mapping(0x7000_0000, 64, *b"rw-p", 0);
    (archive.vma.inode, archive.vma.path) = (9, PathBuf::from("/classes.jsa"));
    process(vec![
        mapping(0x4000_0000, 256, *b"rw-p", 200 * MIB),
        mapping(0x5000_0000, 256, *b"---p", 0),
        mapping(0x6000_0000, 128, *b"rw-p", 100 * MIB),
        mapping(0x6800_0000, 128, *b"---p", 0),
        archive,
        mapping(0x7f00_0010_0000, 2, *b"rwxp", MIB / 2),
        mapping(0x7f00_0030_0000, 46, *b"---p", 0),
        mapping(0x7f00_1000_0000, 8, *b"rw-p", MIB),
    ])
}

#[test]
fn a_heap_is_all_that_was_reserved_with_its_largest_mapping() {
    let jvm = jvm();
    assert_eq!(largest(&jvm), 0x4000_0000..0x5000_0000);
    assert_eq!(reservation(&jvm, largest(&jvm)), 0x4000_0000..0x7000_0000);
    let young = jvm.mappings[2].vma.range.clone();
    assert_eq!(reservation(&jvm, young), 0x4000_0000..0x7000_0000);
    assert_eq!(largest(&process(Vec::new())), 0..0);
}

#[test]
fn each_short_part_of_the_code_becomes_a_block() {
    assert_eq!(code(&jvm(), PMD), PMD - MIB / 2);
    // Fewer than eight blocks of 32M are reserved.
    assert_eq!(code(&jvm(), 32 * MIB), 0);
    let mut aligned = jvm();
    aligned.mappings[5].vma.range = 0x7f00_0000_0000..0x7f00_0030_0000;
    assert_eq!(code(&aligned, PMD), 0, "its own block is judged");
    let mut unused = jvm();
    unused.mappings[5].tally = Tally::default();
    assert_eq!(code(&unused, PMD), 0);
}

proptest! {
    #[test]
    fn a_reservation_has_the_mapping_and_no_gap(
        lengths in proptest::collection::vec((1_u64..40, 0_u64..3, any::<bool>()), 1..12),
    ) {
        let mut at = 0x4000_0000;
        let mappings = lengths.iter().map(|(mib, gap, is_used)| {
            let permissions = if *is_used { *b"rw-p" } else { *b"---p" };
            let mapping = mapping(at, *mib, permissions, 0);
            at = mapping.vma.range.end + gap * MIB;
            mapping
        });
        let process = process(mappings.collect());
        let own = largest(&process);
        let reserved = reservation(&process, own.clone());
        prop_assert!(reserved.start <= own.start && own.end <= reserved.end);
        let inside = process.mappings.iter().map(|one| &one.vma).filter(|vma| {
            reserved.contains(&vma.range.start)
        });
        let bytes: u64 = inside.map(Vma::len_bytes).sum();
        prop_assert_eq!(if own.is_empty() { 0 } else { bytes }, reserved.end - reserved.start);
        let is_near = |vma: &Vma| vma.range.end == reserved.start || vma.range.start == reserved.end;
        prop_assert!(own.is_empty() || !process.mappings.iter().any(|one| is_near(&one.vma)));
    }
}
