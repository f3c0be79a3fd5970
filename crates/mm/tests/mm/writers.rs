//! Writers, running programs and huge folios: L.16, L.17, H.1.4, H.2.1, H.3, H.5.1.

use largefolio_mm::collapse::{CollapseError, Errno};
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::fault::Access;
use largefolio_mm::map::{Map, MapError};
use largefolio_mm::mapping::gate::{OpenForWrite, TextBusy};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::pgtable::LeafKind;
use largefolio_mm::rules::collapse::{CollapseRules, FileCollapse};
use largefolio_mm::rules::{Arch, Rules, Writers};
use largefolio_mm::units::{MappingId, MmId, Order, PageIndex, Vaddr};
use largefolio_mm::vma::{OpenId, Prot};

const BASE: Vaddr = Vaddr(0x4000_0000_0000);
const PAGE: u64 = 4096;
/// Huge folios in a library of 8 MiB of text.
const NR_HUGE: u64 = 4;
const LIBRARY_BYTES: u64 = NR_HUGE << 21;
/// Result of `MADV_COLLAPSE` on a file that is open for writing, up to 7.1 (H.5.1).
const REFUSED: Result<(), CollapseError> =
    Err(CollapseError { errno: Errno::Einval, refusal: CollapseRefusal::VmaCheck });

struct World {
    memory: Memory,
    file: MappingId,
    open: OpenId,
    mm: MmId,
}

impl World {
    fn new(writers: Writers, filesystem: &str) -> Self {
        let file = match writers {
            Writers::DropCache => FileCollapse::Exec,
            Writers::Keep => FileCollapse::LargeFolios,
        };
        let collapse = CollapseRules { file, ..CollapseRules::stock() };
        let rules = Rules { writers, collapse, ..Rules::example() };
        let mut memory = Memory::new(rules, &Config::new(Arch::X86_64)).unwrap();
        let file = memory.add_file(LIBRARY_BYTES, filesystem);
        let (open, mm) = (memory.open(file), memory.new_space());
        let map = Map::file(open, 0, LIBRARY_BYTES, Prot::READ_EXEC).at(BASE);
        memory.mmap(mm, map).unwrap();
        Self { memory, file, open, mm }
    }

    fn small() -> Self {
        Self::new(Writers::DropCache, "ext2")
    }

    fn touch(&mut self, page: u64) -> LeafKind {
        let kind = self.memory.touch(self.mm, addr(page), Access::Exec).unwrap().leaf.kind;
        self.check();
        kind
    }

    fn collapse(&mut self, block: u64) -> Result<(), CollapseError> {
        let collapsed = self.memory.madvise_collapse(self.mm, addr(block << 9), 2 << 20);
        self.check();
        collapsed
    }

    fn with_huge_text(mut self) -> Self {
        for block in 0..NR_HUGE {
            self.collapse(block).unwrap();
            assert_eq!(self.touch(block << 9), LeafKind::Pmd);
        }
        self
    }

    fn nr_thps(&self) -> u32 {
        self.memory.core().mapping(self.file).gate.nr_thps()
    }

    fn nr_cached(&self) -> u64 {
        self.memory.folios(self.file).map(|entry| entry.order.nr_pages()).sum()
    }

    fn nr_mapped(&self) -> usize {
        self.memory.space(self.mm).table.leaves(BASE.vpn(self.memory.rules().page), 2048).count()
    }

    fn check(&self) {
        self.memory.validate().unwrap();
    }
}

fn addr(page: u64) -> Vaddr {
    Vaddr(BASE.0 + page * PAGE)
}

#[test]
fn l16_an_open_for_write_drops_the_whole_cache_and_execution_refaults_in_base_pages() {
    let mut world = World::small().with_huge_text();
    assert_eq!((world.nr_thps(), world.nr_cached(), world.nr_mapped()), (4, 2048, 4));
    let before = *world.memory.counters();
    let writer = world.memory.open_for_write(world.file).unwrap();
    world.check();
    assert_eq!((world.nr_thps(), world.nr_cached(), world.nr_mapped()), (0, 0, 0));
    let writers = world.memory.counters().writers;
    assert_eq!((writers.nr_opens, writers.nr_drops, writers.nr_dropped_pages), (1, 1, 2048));
    assert_eq!(world.touch(1000), LeafKind::Pte);
    assert_eq!(world.memory.counters().pgmajfault, before.pgmajfault + 1);
    assert!(world.memory.folios(world.file).all(|entry| entry.order == Order::ZERO));
    assert_eq!(world.collapse(3), REFUSED);
    assert_eq!(world.nr_thps(), 0);
    world.memory.close(writer);
    assert_eq!(world.collapse(3), Ok(()));
}

#[test]
fn h3_translations_of_what_was_dropped_leave_the_tlbs() {
    let mut world = World::small().with_huge_text();
    let mut flushes = Vec::new();
    world.memory.take_flushes(&mut flushes);
    world.memory.open_for_write(world.file).unwrap();
    world.memory.take_flushes(&mut flushes);
    let nr_pages: u64 = flushes.iter().map(|flush| flush.nr_pages).sum();
    assert_eq!(nr_pages, 2048);
}

#[test]
fn h3_base_pages_stay_when_there_is_no_huge_folio() {
    let mut world = World::small();
    world.touch(0);
    let nr_cached = world.nr_cached();
    world.memory.open_for_write(world.file).unwrap();
    assert_eq!((world.nr_cached(), world.memory.counters().writers.nr_drops), (nr_cached, 0));
    assert!(nr_cached > 0 && world.nr_mapped() > 0);
}

#[test]
fn l17_filesystems_with_large_folios_keep_theirs_and_refuse_collapse_to_7_1() {
    let mut world = World::new(Writers::DropCache, "xfs").with_huge_text();
    assert_eq!((world.nr_thps(), world.nr_cached()), (0, 2048));
    world.memory.open_for_write(world.file).unwrap();
    world.check();
    assert_eq!((world.nr_cached(), world.nr_mapped()), (2048, 4));
    assert_eq!(world.memory.counters().writers.nr_drops, 0);
    let other = world.memory.add_file(LIBRARY_BYTES, "xfs");
    world.memory.open_for_write(other).unwrap();
    world.file = other;
    assert_eq!(world.collapse(0), REFUSED);
}

#[test]
fn h2_3_nothing_happens_at_open_in_7_2() {
    let mut world = World::new(Writers::Keep, "xfs").with_huge_text();
    world.memory.open_for_write(world.file).unwrap();
    world.check();
    assert_eq!((world.nr_cached(), world.nr_mapped()), (2048, 4));
}

#[test]
fn h2_1_a_running_program_cannot_be_written_while_one_of_its_processes_lives() {
    let mut world = World::small().with_huge_text();
    world.memory.run(world.mm, world.file).unwrap();
    assert_eq!(world.memory.open_for_write(world.file).unwrap_err(), TextBusy);
    let child = world.memory.fork(world.mm).unwrap();
    world.check();
    world.memory.exit(world.mm);
    world.check();
    assert_eq!(world.memory.open_for_write(world.file).unwrap_err(), TextBusy);
    assert_eq!(world.nr_thps(), 4, "a refused open drops nothing");
    world.memory.exit(child);
    world.check();
    world.memory.open_for_write(world.file).unwrap();
    let writers = world.memory.counters().writers;
    assert_eq!((writers.nr_text_busy, writers.nr_opens, writers.nr_drops), (2, 1, 1));
}

#[test]
fn h2_1_what_is_open_for_write_cannot_be_run() {
    let mut world = World::small();
    let writer = world.memory.open_for_write(world.file).unwrap();
    assert_eq!(world.memory.run(world.mm, world.file), Err(OpenForWrite));
    world.memory.close(writer);
    assert_eq!(world.memory.run(world.mm, world.file), Ok(()));
    assert_eq!(world.memory.counters().writers.nr_open_for_write, 1);
    let other = world.memory.add_file(PAGE, "ext2");
    assert_eq!(world.memory.run(world.mm, other), Ok(()));
    world.check();
    assert!(world.memory.open_for_write(world.file).is_ok());
}

#[test]
fn h1_4_a_shared_mapping_with_stores_implies_a_writer() {
    let mut world = World::small().with_huge_text();
    let open = world.memory.open(world.file);
    let shared = Map::file(open, 0, PAGE, Prot::READ).shared();
    let at = world.memory.mmap(world.mm, shared).unwrap();
    assert_eq!(world.nr_thps(), 4, "a shared mapping of a file open for read changes nothing");
    world.memory.mprotect(world.mm, at, PAGE, Prot::READ_WRITE).unwrap();
    world.check();
    assert_eq!(world.nr_thps(), 0);
    assert_eq!(world.collapse(0), REFUSED);
    world.memory.close(open);
    assert_eq!(world.collapse(0), REFUSED);
    world.memory.munmap(world.mm, at, PAGE).unwrap();
    world.check();
    assert_eq!(world.collapse(0), Ok(()));
}

#[test]
fn h1_4_a_private_mapping_with_stores_implies_none() {
    let mut world = World::small().with_huge_text();
    let private = Map::file(world.open, 0, PAGE, Prot::READ_WRITE);
    world.memory.mmap(world.mm, private).unwrap();
    assert_eq!(world.nr_thps(), 4);
}

#[test]
fn h1_4_a_busy_text_is_not_mapped_for_stores() {
    let mut world = World::small();
    world.memory.run(world.mm, world.file).unwrap();
    let shared = Map::file(world.open, 0, PAGE, Prot::READ_WRITE).shared();
    assert_eq!(world.memory.mmap(world.mm, shared), Err(MapError::TextBusy(TextBusy)));
    world.check();
}

#[test]
fn an_open_for_write_lives_as_long_as_a_descriptor_or_a_mapping() {
    let mut world = World::small();
    let is_open = |world: &World| world.memory.core().mapping(world.file).gate.is_open_for_write();
    let writer = world.memory.open_for_write(world.file).unwrap();
    world.memory.share_open(writer);
    let map = Map::file(writer, 0, PAGE, Prot::READ);
    let at = world.memory.mmap(world.mm, map).unwrap();
    let child = world.memory.fork(world.mm).unwrap();
    world.memory.close(writer);
    assert!(is_open(&world));
    world.memory.close(writer);
    assert!(is_open(&world), "two processes map it");
    world.memory.munmap(world.mm, at, PAGE).unwrap();
    assert!(is_open(&world), "the child maps it");
    world.memory.exit(child);
    world.check();
    assert!(!is_open(&world));
}

#[test]
fn private_copies_of_dropped_pages_stay() {
    let mut world = World::small();
    let private = Map::file(world.open, 0, PAGE, Prot::READ_WRITE);
    let at = world.memory.mmap(world.mm, private).unwrap();
    world.memory.touch(world.mm, at, Access::Write).unwrap();
    world.memory.drop_cache(world.file);
    world.collapse(1).unwrap();
    world.memory.open_for_write(world.file).unwrap();
    world.check();
    assert_eq!(world.nr_thps(), 0);
    let leaf = world.memory.space(world.mm).table.leaf(at.vpn(world.memory.rules().page));
    assert!(leaf.is_some(), "the private copy is mapped");
}

#[test]
fn huge_folios_that_are_split_or_truncated_are_not_counted_any_more() {
    let mut world = World::small().with_huge_text();
    let folio = world.memory.core().find(world.file, PageIndex(0)).unwrap().folio;
    world.memory.split(folio, Order::ZERO).unwrap();
    world.check();
    assert_eq!(world.nr_thps(), 3);
    world.memory.truncate(world.file, 3 << 21);
    world.check();
    assert_eq!(world.nr_thps(), 2);
    world.memory.exit(world.mm);
    world.memory.drop_cache(world.file);
    world.check();
    assert_eq!(world.nr_thps(), 0);
}
