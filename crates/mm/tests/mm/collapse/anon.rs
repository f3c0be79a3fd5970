//! Anonymous blocks: H.6.1 .. H.6.3.

use largefolio_mm::collapse::Errno;
use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::fault::Access;
use largefolio_mm::map::Madvice;
use largefolio_mm::rules::anon::NonePtes;
use largefolio_mm::rules::collapse::{Lazyfree, ReadOnlyRange, SharedPtes};
use largefolio_mm::vma::Prot;

use crate::collapse::world::{N, PAGE, World, addr, failed, mark, new_rules, old_rules};

#[test]
fn a_block_becomes_one_folio_with_the_same_bytes_h_6_2() {
    let mut world = World::new(old_rules()).mapped(2 * N);
    world.write([3, 100, 511]);
    world.read([7]);
    let free = world.memory.core().buddy.nr_free_pages();
    let counted = world.memory.core().ram.counted;
    world.collapse(0, N).unwrap();
    assert!(world.is_huge(0));
    assert_eq!(world.order(3), 9);
    let view = world.page(3).unwrap();
    assert!(view.is_writable && view.is_anon_exclusive);
    assert_eq!(world.memory.core().buddy.nr_free_pages(), free + 3 - N);
    let now = world.memory.core().ram.counted;
    assert_eq!((now.nr_copied - counted.nr_copied, now.nr_zeroed - counted.nr_zeroed), (3, 509));
    for page in 0..N {
        let expected = if [3, 100, 511].contains(&page) { mark(page) } else { 0 };
        assert_eq!(world.byte(world.mm, page), expected, "page {page}");
    }
    let counters = world.memory.counters().collapse;
    assert_eq!((counters.thp_collapse_alloc, counters.nr_advised), (1, 1));
    assert_eq!(world.memory.space(world.mm).table.stats().nr_tables, 0);
}

#[test]
fn pages_of_large_folios_and_of_a_child_are_copied_and_the_child_keeps_its_own_h_6_3() {
    let mut rules = old_rules();
    rules.anon.set_size(64 << 10, largefolio_mm::rules::anon::SizeMode::Always).unwrap();
    let mut world = World::new(rules).mapped(N);
    world.write([0, 20, 300]);
    assert_eq!(world.order(20), 4);
    let child = world.memory.fork(world.mm).unwrap();
    let before = world.content(child, N);
    world.memory.store(world.mm, addr(20), b"parent").unwrap();
    world.collapse(0, N).unwrap();
    assert!(world.is_huge(0));
    assert_eq!(world.byte(world.mm, 20), b'p');
    for (page, (before, after)) in before.into_iter().zip(world.content(child, N)).enumerate() {
        let content = |page: Option<(_, Vec<u8>)>| page.map(|(_, bytes)| bytes);
        assert_eq!(content(after), content(before), "page {page} of the child");
    }
    assert_eq!(world.byte(child, 20), mark(20));
}

#[test]
fn each_state_of_a_page_has_its_refusal_h_6_1() {
    use CollapseRefusal::{
        ExceedNonePte, ExceedSharedPte, LackReferencedPage, PageCount, PageLock, PageLru, PageRo,
    };

    type Prepare = fn(&mut World);
    type Both = (Option<CollapseRefusal>, Option<(Errno, CollapseRefusal)>);
    let again = |refusal| (Some(refusal), Some((Errno::Eagain, refusal)));
    let cases: [(&str, Prepare, Both); 8] = [
        ("nothing wrong", |_| {}, (None, None)),
        (
            "empty pages",
            |world| {
                world.tune(|rules| rules.anon.max_ptes_none = NonePtes::Exactly(100));
            },
            (Some(ExceedNonePte), None),
        ),
        (
            "shared pages",
            |world| {
                world.tune(|rules| rules.collapse.max_ptes_shared = SharedPtes::Exactly(10));
                let _ = world.memory.fork(world.mm).unwrap();
                world.write([0]);
            },
            (Some(ExceedSharedPte), None),
        ),
        ("locked", |world| world.lock(5), again(PageLock)),
        ("off its list", |world| world.isolate(5), again(PageLru)),
        (
            "pinned",
            |world| {
                let _held = world.memory.pin(world.mm, addr(5), Access::Write).unwrap();
            },
            again(PageCount),
        ),
        (
            "not accessed",
            |world| world.advise(Madvice::Free, 0, N),
            (Some(LackReferencedPage), None),
        ),
        (
            "not writable, 6.12",
            |world| {
                world.tune(|rules| rules.collapse.read_only = ReadOnlyRange::Refused);
                world.memory.mprotect(world.mm, addr(0), N * PAGE, Prot::READ).unwrap();
            },
            (Some(PageRo), Some((Errno::Einval, PageRo))),
        ),
    ];
    for (name, prepare, (behind, advised)) in cases {
        let mut rules = old_rules();
        rules.collapse.read_only = ReadOnlyRange::Collapsed;
        let make = || {
            let mut world = World::new(rules.clone()).mapped(N);
            world.write(0..20);
            prepare(&mut world);
            world
        };
        let mut world = make();
        let before = world.content(world.mm, N);
        let refused = world.scan();
        assert_eq!(refused, behind.into_iter().collect::<Vec<_>>(), "khugepaged: {name}");
        assert_eq!(world.is_huge(0), behind.is_none(), "khugepaged: {name}");
        if behind.is_some() {
            assert!(world.content(world.mm, N) == before, "khugepaged: {name}: nothing changed");
        }
        let mut world = make();
        let collapsed = world.collapse(0, N);
        assert_eq!(collapsed.map_err(|e| (e.errno, e.refusal)).err(), advised, "advice: {name}");
        assert_eq!(world.is_huge(0), advised.is_none(), "advice: {name}");
    }
}

#[test]
fn a_clean_lazy_free_page_stops_khugepaged_from_7_2_on_and_never_advice() {
    for (lazyfree, expected) in
        [(Lazyfree::Collapsed, vec![]), (Lazyfree::Refused, vec![CollapseRefusal::PageLazyfree])]
    {
        let mut rules = new_rules();
        rules.collapse.lazyfree = lazyfree;
        let mut world = World::new(rules).mapped(N);
        world.write(0..N);
        world.advise(Madvice::Free, 9, 1);
        assert_eq!(world.scan(), expected);
        assert_eq!(world.is_huge(0), expected.is_empty());
        world.collapse(0, N).unwrap();
        assert!(world.is_huge(0));
    }
}

#[test]
fn a_range_armed_for_userfaultfd_has_no_holes_filled() {
    let mut world = World::new(old_rules()).mapped(N);
    world.write(0..N - 1);
    world.memory.arm_userfaultfd(world.mm, addr(0), N * PAGE).unwrap();
    assert_eq!(failed(world.collapse(0, N)), (Errno::Ebusy, CollapseRefusal::ExceedNonePte));
    world.write([N - 1]);
    world.collapse(0, N).unwrap();
}

#[test]
fn without_a_free_block_the_call_says_so() {
    let mut world = World::with_ram(old_rules(), 4 << 20).mapped(N);
    world.write(0..N);
    assert_eq!(failed(world.collapse(0, N)), (Errno::Enomem, CollapseRefusal::AllocHugePageFail));
    assert_eq!(world.memory.counters().collapse.thp_collapse_alloc_failed, 1);
}

#[test]
fn a_closed_range_stays_closed() {
    let mut rules = old_rules();
    rules.collapse.read_only = ReadOnlyRange::Collapsed;
    let mut world = World::new(rules).mapped(N);
    world.write(0..N);
    world.memory.mprotect(world.mm, addr(0), N * PAGE, Prot::NONE).unwrap();
    world.collapse(0, N).unwrap();
    assert!(world.is_huge(0));
    assert!(world.memory.touch(world.mm, addr(0), Access::Read).is_err());
    world.memory.mprotect(world.mm, addr(0), N * PAGE, Prot::READ_WRITE).unwrap();
    assert_eq!(world.byte(world.mm, 77), mark(77));
    world.write([77]);
    world.memory.validate().unwrap();
}
