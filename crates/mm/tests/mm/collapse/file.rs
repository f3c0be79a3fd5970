//! Files and shared memory: H.1.3, H.3, H.4, H.5, H.5.1.

use largefolio_mm::collapse::Errno;
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::fault::Access;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, FolioState, Memory};
use largefolio_mm::pgtable::PmdState::{Empty, Leaf, Table};
use largefolio_mm::ram::stored_byte;
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::anon::NonePtes;
use largefolio_mm::rules::collapse::{DirtyRange, FileCollapse, PmdTable, PrivateData, Retract};
use largefolio_mm::units::{MappingId, PageIndex, PageSize, Vaddr};
use largefolio_mm::vma::Prot;

use crate::collapse::world::{N, PAGE, World, addr, failed, mark, new_rules, old_rules};

const SHARED: Prot = Prot::READ_WRITE;

#[test]
fn the_file_rule_of_each_kernel_h_1_3() {
    // (rule, filesystem, executable, writer, running) -> collapsed
    let cases = [
        (FileCollapse::Absent, "vfat", true, false, true, false),
        (FileCollapse::DenyWrite, "vfat", true, false, true, true),
        (FileCollapse::DenyWrite, "vfat", true, false, false, false),
        (FileCollapse::Exec, "vfat", true, false, false, true),
        (FileCollapse::Exec, "vfat", false, false, false, false),
        (FileCollapse::Exec, "vfat", true, true, false, false),
        (FileCollapse::Readers, "vfat", false, false, false, true),
        (FileCollapse::Readers, "xfs", false, false, false, true),
        (FileCollapse::Readers, "xfs", false, true, false, false),
        (FileCollapse::LargeFolios, "vfat", true, false, false, false),
        (FileCollapse::LargeFolios, "xfs", false, false, false, true),
        (FileCollapse::LargeFolios, "xfs", false, true, false, true),
    ];
    for (rule, filesystem, is_exec, is_written, is_running, expected) in cases {
        let mut rules = old_rules();
        rules.collapse.file = rule;
        let prot = if is_exec { Prot::READ_EXEC } else { Prot::READ };
        let (mut world, file, _) = World::new(rules).with_file(filesystem, N, prot);
        if is_written {
            world.memory.open_for_write(file).unwrap();
        }
        if is_running {
            world.memory.run(world.mm, file).unwrap();
        }
        let case = format!("{rule:?} {filesystem} {is_exec} {is_written} {is_running}");
        let collapsed = world.collapse(0, N);
        assert_eq!(collapsed.is_ok(), expected, "{case}: {collapsed:?}");
        assert_eq!(world.is_huge(0), expected, "{case}");
        let nr_thps = world.memory.core().mapping(file).gate.nr_thps();
        assert_eq!(nr_thps > 0, expected && filesystem == "vfat", "{case}: H.3.1");
        for page in [0, 1, 200, N - 1] {
            assert_eq!(world.byte(world.mm, page), stored_byte(file, page * PAGE), "{case}");
        }
    }
}

/// The cache has one folio now. Every process that maps the block aligned maps it by PMD at its
/// next fault, unless it has private pages in the area.
#[test]
fn tables_are_retracted_and_the_next_fault_maps_the_block_h_5() {
    let (mut world, file, open) = World::new(old_rules()).with_file("vfat", 2 * N, Prot::READ_EXEC);
    world.read(0..N);
    let others: Vec<_> = (0..3)
        .map(|nr| {
            let mm = world.memory.new_space();
            let from = if nr == 2 { addr(1) } else { addr(0) };
            let map = Map::file(open, 0, 2 * N * PAGE, SHARED).at(from);
            world.memory.mmap(mm, map).unwrap();
            for page in 0..N {
                let at = Vaddr(from.0 + page * PAGE);
                world.memory.touch(mm, at, Access::Read).unwrap();
            }
            mm
        })
        .collect();
    world.memory.store(others[1], addr(N + 3), b"own").unwrap();
    world.collapse(0, N).unwrap();
    assert!(world.is_huge(0), "the caller's entry is installed");
    assert_eq!(world.memory.folios(file).map(|f| f.order.get()).max(), Some(9));
    assert_eq!(world.memory.core().mapping(file).gate.nr_thps(), 1);
    let tables = |world: &World, mm| world.memory.space(mm).table.pmd(addr(0).vpn(PageSize::K4));
    assert_eq!(tables(&world, others[0]), Empty);
    assert_eq!(tables(&world, others[1]), Table { nr_present: 0 }, "private pages in the area");
    for (nr, mm) in others.iter().enumerate() {
        let at = if nr == 2 { addr(1) } else { addr(0) };
        world.memory.touch(*mm, at, Access::Read).unwrap();
        world.memory.validate().unwrap();
        let is_leaf = tables(&world, *mm) == Leaf;
        assert_eq!(is_leaf, nr == 0, "process {nr}");
    }
    assert_eq!(world.byte(others[0], 99), stored_byte(file, 99 * PAGE));
}

#[test]
fn a_truncation_lets_the_huge_folio_go() {
    let (mut world, file, _) = World::new(old_rules()).with_file("vfat", N, Prot::READ_EXEC);
    world.collapse(0, N).unwrap();
    world.memory.truncate(file, 100 * PAGE);
    world.memory.validate().unwrap();
    assert_eq!(world.memory.core().mapping(file).gate.nr_thps(), 0);
    assert!(world.memory.folios(file).all(|folio| folio.order.get() == 0));
    assert_eq!(world.byte(world.mm, 99), stored_byte(file, 99 * PAGE));
}

#[test]
fn each_state_of_a_folio_has_its_refusal_h_5() {
    type Change = fn(&mut World, MappingId);
    let cases: [(&str, Change, Errno, CollapseRefusal); 6] = [
        (
            "locked",
            |world, file| world.change_cached(file, 33, FolioState::Locked),
            Errno::Eagain,
            CollapseRefusal::PageLock,
        ),
        (
            "private data",
            |world, file| world.change_cached(file, 33, FolioState::PrivateData),
            Errno::Einval,
            CollapseRefusal::PageHasPrivate,
        ),
        (
            "dirty, 6.12",
            |world, file| world.change_cached(file, 33, FolioState::Dirty),
            Errno::Einval,
            CollapseRefusal::Fail,
        ),
        (
            "writeback, 6.12",
            |world, file| world.change_cached(file, 33, FolioState::UnderWriteback),
            Errno::Einval,
            CollapseRefusal::Fail,
        ),
        (
            "pinned",
            |world, _| {
                let _held = world.memory.hold(world.mm, addr(33)).unwrap();
            },
            Errno::Eagain,
            CollapseRefusal::PageCount,
        ),
        ("nothing", |_, _| {}, Errno::Ebusy, CollapseRefusal::Fail),
    ];
    for (name, change, errno, refusal) in cases {
        let (mut world, file, _) = World::new(old_rules()).with_file("vfat", N, Prot::READ);
        world.read(0..N);
        let before = world.cached(file);
        change(&mut world, file);
        let collapsed = world.collapse(0, N);
        if name == "nothing" {
            collapsed.unwrap();
            continue;
        }
        assert_eq!(failed(collapsed), (errno, refusal), "{name}");
        assert!(world.cached(file) == before, "{name}: the cache is as it was");
        assert_eq!(world.memory.core().mapping(file).gate.nr_thps(), 0, "{name}");
        assert_eq!(world.byte(world.mm, 34), stored_byte(file, 34 * PAGE), "{name}");
    }
}

#[test]
fn a_folio_that_somebody_isolated_is_not_taken_h_4() {
    let (mut world, file, _) = World::new(old_rules()).with_file("vfat", N, Prot::READ);
    world.read(0..N);
    let before = world.cached(file);
    world.isolate(33);
    assert_eq!(failed(world.collapse(0, N)), (Errno::Eagain, CollapseRefusal::PageLru));
    assert!(world.cached(file) == before);
    world.putback(33);
    world.collapse(0, N).unwrap();
}

#[test]
fn private_data_is_a_matter_of_trying_again_in_7_2() {
    let mut rules = old_rules();
    rules.collapse.private_data = PrivateData::Again;
    let (mut world, file, _) = World::new(rules).with_file("vfat", N, Prot::READ);
    world.read([0]);
    world.change_cached(file, 0, FolioState::PrivateData);
    assert_eq!(failed(world.collapse(0, N)), (Errno::Eagain, CollapseRefusal::PageHasPrivate));
}

#[test]
fn a_dirty_range_h_5_1() {
    for (rule, expected) in [
        (DirtyRange::Fails, Some((Errno::Einval, CollapseRefusal::Fail))),
        (DirtyRange::Again, Some((Errno::Eagain, CollapseRefusal::PageDirtyOrWriteback))),
        (DirtyRange::WrittenBack, None),
    ] {
        let mut rules = new_rules();
        rules.collapse.dirty = rule;
        let (mut world, file, open) = World::new(rules).with_file("xfs", 2 * N, Prot::READ);
        world.memory.write_file(open, 5 * PAGE, b"written").unwrap();
        let collapsed = world.collapse(0, 2 * N);
        assert_eq!(collapsed.err().map(|e| (e.errno, e.refusal)), expected, "{rule:?}");
        assert_eq!(world.is_huge(0), expected.is_none());
        assert_eq!(world.is_huge(N), expected.is_none(), "{rule:?}: the walk stops");
        assert_eq!(world.byte(world.mm, 5), b'w');
        if expected.is_none() {
            assert!(world.memory.counters().nr_written > 0);
            world.memory.munmap(world.mm, addr(0), 2 * N * PAGE).unwrap();
            world.memory.drop_cache(file);
            assert_eq!(world.memory.folios(file).count(), 0);
            let mut again = [0; 7];
            world.memory.read_file(open, 5 * PAGE, &mut again).unwrap();
            assert_eq!(&again, b"written", "pages that were written back are read again");
        }
    }
}

/// [7.2]: a folio that looked clean turns out dirty when it is unmapped.
#[test]
fn what_an_entry_knew_is_noticed_after_unmapping() {
    let mut rules = new_rules();
    rules.collapse.dirty = DirtyRange::Again;
    let mut world = World::new(rules);
    let file = world.memory.add_file(N * PAGE, "xfs");
    let open = world.memory.open(file);
    let map = Map::file(open, 0, N * PAGE, SHARED).at(addr(0)).shared();
    world.memory.mmap(world.mm, map).unwrap();
    world.read(0..N);
    world.write([17]);
    world.change_cached(file, 17, FolioState::Clean);
    assert_eq!(
        failed(world.collapse(0, N)),
        (Errno::Eagain, CollapseRefusal::PageDirtyOrWriteback)
    );
    assert_eq!(world.byte(world.mm, 17), mark(17));
    world.tune(|rules| rules.collapse.dirty = DirtyRange::WrittenBack);
    world.collapse(0, N).unwrap();
    assert_eq!(world.byte(world.mm, 17), mark(17));
    world.write([18]);
    world.memory.validate().unwrap();
}

#[test]
fn khugepaged_and_dirty_files_h_5_1() {
    for (is_new, has_writer, collapsed) in
        [(false, false, true), (true, false, true), (true, true, false)]
    {
        let rules = if is_new { new_rules() } else { old_rules() };
        let (mut world, file, open) = World::new(rules).with_file("xfs", N, Prot::READ);
        world.read(0..N);
        world.memory.write_file(open, 0, b"x").unwrap();
        if has_writer {
            world.memory.open_for_write(file).unwrap();
        }
        let dirty =
            if is_new { CollapseRefusal::PageDirtyOrWriteback } else { CollapseRefusal::Fail };
        assert_eq!(world.scan(), [dirty]);
        assert_eq!(world.memory.counters().nr_written > 0, collapsed);
        let refused = world.wake();
        assert_eq!(refused.is_empty(), collapsed, "{is_new} {has_writer}: {refused:?}");
        let order = world.memory.core().find(file, PageIndex(0)).unwrap().order.get();
        assert_eq!(order == 9, collapsed);
        assert!(!world.is_huge(0), "khugepaged leaves the PMD empty");
        world.read([0]);
        assert_eq!(world.is_huge(0), collapsed, "the next fault maps the folio");
    }
}

#[test]
fn khugepaged_wants_enough_cached_pages_h_4_2() {
    for (limit, expected) in [(N - 1, vec![]), (100, vec![CollapseRefusal::ExceedNonePte])] {
        let mut rules = old_rules();
        rules.anon.max_ptes_none = NonePtes::Exactly(limit);
        let (mut world, file, _) = World::new(rules).with_file("vfat", N, Prot::READ);
        world.read([0]);
        assert_eq!(world.scan(), expected);
        let is_huge = world.memory.folios(file).any(|folio| folio.order.get() == 9);
        assert_eq!(is_huge, expected.is_empty());
    }
}

#[test]
fn a_block_beyond_the_end_of_a_disk_file_fails_and_one_of_shared_memory_does_not() {
    let mut rules = old_rules();
    rules.collapse.file = FileCollapse::Readers;
    for (filesystem, expected) in
        [("vfat", Some((Errno::Einval, CollapseRefusal::Fail))), ("tmpfs", None)]
    {
        let mut world = World::new(rules.clone());
        let file = world.memory.add_file(300 * PAGE, filesystem);
        let open = world.memory.open(file);
        let map = Map::file(open, 0, N * PAGE, Prot::READ).at(addr(0));
        world.memory.mmap(world.mm, map).unwrap();
        world.read([0]);
        let collapsed = world.collapse(0, N);
        assert_eq!(collapsed.err().map(|e| (e.errno, e.refusal)), expected, "{filesystem}");
    }
}

/// With 64K pages a page cache cannot hold a folio of PMD order: file areas are refused, including
/// their private pages, but anonymous memory is not (programs on 7.2).
#[test]
fn only_anonymous_memory_has_room_for_512m_h_1_1() {
    let mut rules = new_rules();
    rules.page = PageSize::K64;
    let (page, block) =
        (rules.page.bytes(), rules.page.pmd_order().nr_pages() * rules.page.bytes());
    let mut memory = Memory::new(rules, &Config::new(Arch::Arm64)).unwrap();
    let mm = memory.new_space();
    let file = memory.add_memory_file(block);
    let open = memory.open(file);
    let shared = Map::file(open, 0, block, SHARED).shared();
    let maps = [shared, Map::file(open, 0, block, SHARED), Map::anon(block, SHARED)];
    let collapsed = maps.map(|map| {
        memory.mmap(mm, map.at(addr(0))).unwrap();
        memory.touch(mm, Vaddr(addr(0).0 + page), Access::Write).unwrap();
        let collapsed = memory.madvise_collapse(mm, addr(0), block);
        memory.validate().unwrap();
        memory.munmap(mm, addr(0), block).unwrap();
        collapsed.map_err(|error| (error.errno, error.refusal))
    });
    let refused = Err((Errno::Einval, CollapseRefusal::VmaCheck));
    assert_eq!(collapsed, [refused, refused, Ok(())]);
}

/// Shared anonymous memory (observed on 6.18.44): advice collapses it with `shmem_enabled` = never.
#[test]
fn shared_memory_is_collapsed_with_its_holes() {
    let mut world = World::new(old_rules());
    let map = Map::anon(2 * N * PAGE, SHARED).at(addr(0)).shared();
    world.memory.mmap(world.mm, map).unwrap();
    assert_eq!(
        failed(world.collapse(0, N)),
        (Errno::Einval, CollapseRefusal::Truncated),
        "all hole"
    );
    world.write([5, 300]);
    let child = world.memory.fork(world.mm).unwrap();
    world.memory.touch(child, addr(5), Access::Read).unwrap();
    world.collapse(0, N).unwrap();
    assert!(world.is_huge(0));
    for page in 0..N {
        let expected = if [5, 300].contains(&page) { mark(page) } else { 0 };
        assert_eq!(world.byte(child, page), expected);
    }
    world.write([6]);
    assert_eq!(world.byte(child, 6), 0x86, "still shared");
    world.memory.validate().unwrap();
    assert!(world.memory.page_at(child, addr(0)).unwrap().order.get() == 9);
    world.memory.exit(child);
    world.memory.munmap(world.mm, addr(0), 2 * N * PAGE).unwrap();
    world.memory.validate().unwrap();
}

/// Observed on 6.18.44: a private copy prevents the caller's PMD entry, but not the folio.
#[test]
fn a_private_copy_keeps_the_table() {
    let (mut world, file, _) = World::new(old_rules()).with_file("tmpfs", N, SHARED);
    world.read(0..N);
    world.write([8]);
    assert_eq!(failed(world.collapse(0, N)), (Errno::Einval, CollapseRefusal::Fail));
    assert!(!world.is_huge(0));
    assert_eq!(world.memory.folios(file).next().unwrap().order.get(), 9);
    assert_eq!(world.byte(world.mm, 8), 0x88);
    world.read(0..N);
    world.memory.validate().unwrap();
    assert_eq!(world.byte(world.mm, 9), stored_byte(file, 9 * PAGE));
}

#[test]
fn a_watched_hole_of_shared_memory_stays_a_hole() {
    let mut world = World::new(old_rules());
    let map = Map::anon(N * PAGE, SHARED).at(addr(0)).shared();
    world.memory.mmap(world.mm, map).unwrap();
    world.write(1..N);
    world.memory.arm_userfaultfd(world.mm, addr(0), N * PAGE).unwrap();
    assert_eq!(failed(world.collapse(0, N)), (Errno::Ebusy, CollapseRefusal::ExceedNonePte));
    world.write([0]);
    world.collapse(0, N).unwrap();
}

#[test]
fn a_folio_that_is_huge_already_gets_its_entry() {
    let (mut world, file, open) = World::new(new_rules()).with_file("xfs", N, Prot::READ);
    world.collapse(0, N).unwrap();
    let other = world.memory.new_space();
    world.memory.mmap(other, Map::file(open, 0, N * PAGE, SHARED).at(addr(0))).unwrap();
    world.memory.store(other, addr(0), b"own").unwrap();
    world.memory.touch(other, addr(1), Access::Read).unwrap();
    let refused = world.memory.madvise_collapse(other, addr(0), N * PAGE);
    assert_eq!(failed(refused), (Errno::Einval, CollapseRefusal::Fail));
    world.memory.madvise(other, addr(0), PAGE, Madvice::Dontneed).unwrap();
    world.memory.madvise_collapse(other, addr(0), N * PAGE).unwrap();
    world.memory.validate().unwrap();
    let view = world.memory.page_at(other, addr(7)).unwrap();
    assert_eq!(view.kind, largefolio_mm::pgtable::LeafKind::Pmd);
    assert_eq!(world.memory.counters().collapse.nr_advised, 2);
    assert_eq!(world.memory.folios(file).count(), 1);
}

#[test]
fn which_table_a_block_needs_depends_on_the_kernel_c_6_3() {
    // Touched: nothing, a page of the next block, a page of the block.
    for (table, [nothing, next, own]) in [
        (PmdTable::Block, [false, false, true]),
        (PmdTable::Needed, [false, true, true]),
        (PmdTable::Made, [true, true, true]),
    ] {
        for (touched, expected) in [(None, nothing), (Some(N + 3), next), (Some(3), own)] {
            let mut rules = old_rules();
            rules.collapse.pmd_table = table;
            let world = World::new(rules).with_file("vfat", 2 * N, Prot::READ);
            let (mut world, file, _) = world;
            world.read(touched);
            let collapsed = world.collapse(0, N);
            assert_eq!(collapsed.is_ok(), expected, "{table:?} {touched:?}: {collapsed:?}");
            assert_eq!(world.is_huge(0), expected, "{table:?} {touched:?}");
            let largest = world.memory.folios(file).map(|folio| folio.order.get()).max();
            assert_eq!(largest, Some(9), "{table:?} {touched:?}");
            world.memory.validate().unwrap();
        }
    }
}

#[test]
fn whose_tables_go_depends_on_the_kernel_h_5() {
    for (retract, keeps) in [(Retract::Own, true), (Retract::All, false)] {
        let mut rules = old_rules();
        rules.collapse.retract = retract;
        let (mut world, _, open) = World::new(rules).with_file("vfat", N, Prot::READ);
        world.read([3]);
        let other = world.memory.new_space();
        let map = Map::file(open, 0, N * PAGE, Prot::READ).at(addr(0));
        world.memory.mmap(other, map).unwrap();
        world.memory.touch(other, addr(3), Access::Read).unwrap();
        world.collapse(0, N).unwrap();
        let vpn = addr(0).vpn(PageSize::K4);
        let has_table = world.memory.space(other).table.pmd(vpn) != Empty;
        assert_eq!(has_table, keeps, "{retract:?}");
    }
}
