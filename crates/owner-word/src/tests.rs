//! loom runs every interleaving of both protocols; the limits are tested directly.

pub(crate) mod explore;
mod owners;

use super::{Layout, MapcountOverflow, MmOwnerId, Narrow, NotExclusive, Owners, State, Wide};

const A: MmOwnerId = MmOwnerId::new(1).unwrap();
const B: MmOwnerId = MmOwnerId::new(2).unwrap();
const C: MmOwnerId = MmOwnerId::new(3).unwrap();

fn overflow_is_refused<L: Layout>(stop_above: Option<u32>) {
    let folio = Owners::<L>::new(stop_above);
    for _ in 0..1 << 16 {
        folio.add(A, 1 << 15).unwrap();
    }
    assert_eq!(folio.mapcount(), 1 << 31);
    let before = folio.snapshot();
    let refused = MapcountOverflow { large_mapcount: i32::MAX, nr: 1 };
    assert_eq!(folio.add(B, 1), Err(refused));
    assert_eq!(folio.snapshot(), before);
    assert_eq!(folio.remove(A, 1), i32::MAX.cast_unsigned());
}

#[test]
fn a_mapcount_that_would_overflow_is_refused_and_nothing_changes() {
    overflow_is_refused::<Wide>(None);
    overflow_is_refused::<Narrow>(None);
    overflow_is_refused::<Wide>(Some(64));
}

#[test]
fn a_narrow_slot_that_overflows_is_freed_and_the_folio_counts_as_shared() {
    let folio = Owners::<Narrow>::new(None);
    folio.add(A, 1 << 15).unwrap();
    assert!(!folio.maybe_mapped_shared());
    folio.add(A, 1).unwrap();
    assert!(folio.maybe_mapped_shared());
    assert_eq!(folio.snapshot().slot_of(Some(A)), None);
    folio.validate().unwrap();
}

#[test]
fn tracking_stops_above_the_limit_and_stays_stopped() {
    let folio = Owners::<Wide>::new(Some(8));
    folio.add(A, 4).unwrap();
    folio.add(B, 4).unwrap();
    assert!(!folio.snapshot().is_stopped, "8 mappings are not above 8");
    folio.add(C, 1).unwrap();
    assert_eq!(folio.snapshot(), State::stopped(8));
    folio.remove(C, 1);
    folio.remove(B, 4);
    assert!(folio.maybe_mapped_shared(), "A's mappings are no longer known as the only ones");
    assert_eq!(folio.try_exclusive(A, || 4), Err(NotExclusive::Shared));
    folio.remove(A, 3);
    assert!(!folio.maybe_mapped_shared(), "one mapping belongs to one process");
    folio.remove(A, 1);
    folio.add(B, 2).unwrap();
    assert_eq!(folio.snapshot(), State::stopped(1));
}

#[test]
#[should_panic(expected = "5 mappings are removed of 4")]
fn more_mappings_than_there_are_cannot_be_removed() {
    let folio = Owners::<Wide>::new(None);
    folio.add(A, 4).unwrap();
    folio.remove(A, 5);
}

#[test]
#[should_panic(expected = "does not fit in the layout")]
fn an_id_of_a_wider_layout_is_refused() {
    let _ = Owners::<Narrow>::new(None).add(MmOwnerId::new(1 << 15).unwrap(), 1);
}

#[test]
fn the_words_fit_where_the_kernel_keeps_them() {
    assert_eq!((size_of::<Owners<Wide>>(), size_of::<Owners<Narrow>>()), (24, 16));
}
