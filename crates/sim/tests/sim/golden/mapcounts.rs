//! Number of mapcount updates, and which pages count as shared (docs/behaviour F.3, F.4, F.5.1).

use largefolio_mm::counters::mapcounts::MapcountUpdates;
use largefolio_mm::vma::Prot;
use largefolio_sim::bench::{AnonBench, AnonOperation, Counted};
use largefolio_sim::kernel::Kernel;

use super::world::World;

/// 4 MiB in 64 folios of 64K.
fn counted(kernel: &str, operation: AnonOperation) -> Counted {
    let kernel = Kernel::parse(&format!("{kernel}+page=4K")).unwrap();
    AnonBench::new(&kernel, 64 << 10, 4 << 20).unwrap().count(operation).unwrap()
}

fn updates(kernel: &str, operation: AnonOperation) -> [u64; 3] {
    let events = counted(kernel, operation).events;
    let MapcountUpdates { pages, folios, owner_words } =
        events.mapcounts_mapped + events.mapcounts_forked + events.mapcounts_unmapped;
    [pages, folios, owner_words]
}

#[test]
fn fork_and_munmap_change_every_page_and_each_owner_word_once() {
    let (fork, munmap) = (AnonOperation::Fork, AnonOperation::Munmap);
    assert_eq!(updates("6.18", fork), [1024, 0, 64]);
    assert_eq!(updates("6.18", munmap), [1024, 64, 64]);
    assert_eq!(updates("6.12", fork), [1024, 64, 0], "no owners yet");
    assert_eq!(updates("6.12", munmap), [1024, 128, 0]);
}

#[test]
fn without_page_map_counts_the_owner_word_is_all_that_changes_f_5_1() {
    for operation in [AnonOperation::Fork, AnonOperation::Munmap] {
        assert_eq!(updates("6.18+mapcount=folio", operation), [0, 0, 64]);
    }
}

#[test]
fn a_first_touch_stores_its_counts_plainly_f_3_3() {
    assert_eq!(updates("6.18", AnonOperation::Touch), [0; 3]);
}

#[test]
fn a_child_in_the_second_slot_is_seen_f_4() {
    let alive = counted("6.18", AnonOperation::StoreChildAlive);
    assert_eq!((alive.copied_pages, alive.reused_pages), (1024, 0));
}

/// An area of four pages of a cached 16-page folio: the first mapping counts the whole folio, later
/// ones count nothing.
#[test]
fn without_page_map_counts_the_first_mapping_counts_the_folio_f_5_2() {
    for (kernel, counts) in [("7.2+page=4K", [4, 8]), ("7.2+page=4K+mapcount=folio", [16, 16])] {
        let mut world = World::x86(kernel, "xfs", 64);
        world.cache(0, 4);
        let nr_mapped = [(4, 8), (10, 14)].map(|part| {
            world.map_part(Prot::READ, part);
            world.touch(part.0);
            world.memory.core().counters.mapped.nr_file
        });
        assert_eq!(nr_mapped, counts, "{kernel}");
        assert_eq!(world.present(), [(4, 7), (10, 13)]);
    }
}
