use super::*;
use crate::wire::row_parts;

fn tail() -> &'static Tail {
    let tail = Tail::create(Path::new("/nonexistent/tail"), 1, 2).expect("memory");
    // SAFETY: the mapping is never unmapped in a test.
    unsafe { tail.as_ref() }
}

fn rows(tail: &Tail) -> Vec<(u32, u64, u64)> {
    tail.pending()
        .chunks_exact(8)
        .filter_map(|row| row_parts(u64::from_le_bytes(row.try_into().expect("8 bytes"))))
        .collect()
}

#[test]
fn references_to_one_page_by_one_op_share_a_row() {
    let tail = tail();
    for offset in 0..10 {
        assert_eq!(tail.touch(1, 0x7000 + offset, 1), Room::Left);
    }
    assert_eq!(tail.touch(2, 0x7000, 1), Room::Left);
    assert_eq!(tail.touch(0, 0x7123, 5), Room::Left);
    assert_eq!(rows(tail), [(1, 0x7000, 10), (2, 0x7000, 1), (0, 0x7000, 5)]);
}

#[test]
fn a_row_is_found_among_the_last_eight_and_not_further() {
    let tail = tail();
    for page in 0..9 {
        assert_eq!(tail.touch(1, page << 12, 1), Room::Left);
    }
    assert_eq!(tail.touch(1, 1 << 12, 1), Room::Left, "row 1 of 9 is the eighth from the end");
    assert_eq!(tail.touch(1, 0, 1), Room::Left, "row 0 is the ninth from the end");
    let rows = rows(tail);
    assert_eq!(rows.len(), 10);
    assert_eq!(rows[1], (1, 0x1000, 2));
    assert_eq!(rows[9], (1, 0, 1));
}

#[test]
fn a_full_count_starts_another_row() {
    let tail = tail();
    let touches = (1 << COUNT_BITS) / COUNT_MAX + 2;
    for _ in 0..touches {
        assert_eq!(tail.touch(0, 0x5000, COUNT_MAX), Room::Left);
    }
    let rows = rows(tail);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), touches * COUNT_MAX);
}

#[test]
fn the_last_row_reports_full_and_clear_starts_anew() {
    let tail = tail();
    for page in 1..TAIL_ROWS as u64 {
        assert_eq!(tail.touch(2, page << 12, 1), Room::Left);
    }
    assert_eq!(tail.touch(2, 1 << 40, 1), Room::Full);
    assert_eq!(tail.nr_pending() as usize, TAIL_ROWS);
    tail.clear();
    assert_eq!((tail.nr_pending(), tail.seq()), (0, 1));
    assert_eq!(tail.touch(2, 1 << 40, 1), Room::Left);
    assert_eq!(rows(tail), [(2, 1 << 40, 1)]);
}

#[test]
fn the_highest_user_page_survives_a_row() {
    let tail = tail();
    assert_eq!(tail.touch(1, 0x7fff_ffff_f000, 1), Room::Left);
    assert_eq!(rows(tail), [(1, 0x7fff_ffff_f000, 1)]);
}
