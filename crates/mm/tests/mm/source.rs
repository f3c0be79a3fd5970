//! Writes of memory that is not resident (docs/behaviour A.7.5).

use largefolio_mm::fault::Access;
use largefolio_mm::io::WriteData;
use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::readahead::WriteSource;
use largefolio_mm::rules::{Arch, LargeFolios, Rules};
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

struct Case {
    filesystem: &'static str,
    rule: WriteSource,
    pos: u64,
    len_bytes: u64,
    /// Every such page of the source is resident; 0 = none.
    every: u64,
}

const CASE: Case = Case {
    filesystem: "ext4",
    rule: WriteSource::Short,
    pos: 4096,
    len_bytes: 1_000_000,
    every: 0,
};

/// Returns the file's folios, and the write's faults.
fn written(case: &Case) -> (String, u64) {
    let mut rules = Rules::example();
    rules.filesystems.insert("ext4".to_owned(), LargeFolios::Ext4);
    rules.readahead.write_source = case.rule;
    let config = Config { ram_bytes: 64 << 20, ..Config::new(Arch::X86_64) };
    let mut memory = Memory::new(rules, &config).unwrap();
    let file = memory.add_file(0, case.filesystem);
    let (open, mm) = (memory.open(file), memory.new_space());
    let at = memory.mmap(mm, Map::anon(2 << 20, Prot::READ_WRITE)).unwrap();
    for page in (0..512).filter(|page| case.every > 0 && page % case.every == 0) {
        memory.touch(mm, Vaddr(at.0 + (page << 12)), Access::Write).unwrap();
    }
    let before = memory.counters().pgfault;
    let source = WriteData { mm, addr: Vaddr(at.0 + 333) };
    memory.pwrite_from(open, case.pos, case.len_bytes, source).unwrap();
    memory.validate().unwrap();
    assert_eq!(memory.core().mapping(file).size_bytes, case.pos + case.len_bytes);
    let folios: Vec<_> = memory.folios(file).map(|e| format!("{}@{}", e.order, e.index)).collect();
    (folios.join(" "), memory.counters().pgfault - before)
}

const WHOLE: &str =
    "o0@1 o1@2 o2@4 o3@8 o4@16 o5@32 o6@64 o6@128 o5@192 o4@224 o2@240 o0@244 o0@245";

fn base_pages(first: u64) -> String {
    let pages: Vec<String> = (first..246).map(|index| format!(" o0@{index}")).collect();
    pages.concat()
}

#[test]
fn a_resident_source_gets_large_folios_a_7_5() {
    assert_eq!(written(&Case { every: 1, ..CASE }), (WHOLE.to_owned(), 0));
}

/// As measured on 6.18.44, ext4.
#[test]
fn an_absent_source_ends_in_base_pages_from_6_15_on_a_7_5() {
    let expected = "o0@1 o1@2 o2@4 o3@8 o2@16".to_owned() + &base_pages(20);
    assert_eq!(written(&CASE), (expected, 245));
    let expected = "o0@1 o1@2 o2@4 o3@8".to_owned() + &base_pages(16);
    assert_eq!(written(&Case { every: 2, ..CASE }), (expected, 122));
    let short = Case { pos: 70_000, len_bytes: 78_939, ..CASE };
    let expected = "o0@17 o1@18 o2@20 o3@24 o2@32 o0@36".to_owned();
    assert_eq!(written(&short), (expected, 20));
}

#[test]
fn an_absent_source_faults_first_before_6_15_a_7_5() {
    let rule = WriteSource::FaultedFirst;
    assert_eq!(written(&Case { rule, ..CASE }), (WHOLE.to_owned(), 245));
}

/// As measured on 6.18.44.
#[test]
fn xfs_faults_first_a_7_5() {
    assert_eq!(written(&Case { filesystem: "xfs", ..CASE }), (WHOLE.to_owned(), 245));
}
