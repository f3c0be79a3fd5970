use super::*;

fn tail() -> &'static Tail {
    let tail = Tail::create(Path::new("/nonexistent/tail"), 1, 2).expect("memory");
    // SAFETY: the mapping is never unmapped in a test.
    unsafe { tail.as_ref() }
}

fn pending(tail: &Tail) -> Vec<Row> {
    tail.pending()
        .chunks_exact(8)
        .filter_map(|row| Row::decode(u64::from_le_bytes(row.try_into().expect("8 bytes"))))
        .collect()
}

fn rows(tail: &Tail) -> Vec<(u32, u64, u64)> {
    pending(tail).iter().map(|row| (row.op, row.addr, row.count)).collect()
}

fn links(tail: &Tail) -> Vec<u32> {
    pending(tail).iter().map(|row| row.link).collect()
}

fn load(tail: &Tail, addr: u64, value: u64) {
    let _ = tail.touch(1, addr, 1, 0);
    tail.loaded(addr, value);
}

#[test]
fn references_to_one_page_by_one_op_share_a_row() {
    let tail = tail();
    for offset in 0..10 {
        assert_eq!(tail.touch(1, 0x7000 + offset, 1, 0), Room::Left);
    }
    assert_eq!(tail.touch(2, 0x7000, 1, 0), Room::Left);
    assert_eq!(tail.touch(0, 0x7123, 5, 0), Room::Left);
    assert_eq!(rows(tail), [(1, 0x7000, 10), (2, 0x7000, 1), (0, 0x7000, 5)]);
}

#[test]
fn a_row_is_found_among_the_last_eight_and_not_further() {
    let tail = tail();
    for page in 0..9 {
        assert_eq!(tail.touch(1, page << 12, 1, 0), Room::Left);
    }
    assert_eq!(tail.touch(1, 1 << 12, 1, 0), Room::Left, "row 1 of 9 is the eighth from the end");
    assert_eq!(tail.touch(1, 0, 1, 0), Room::Left, "row 0 is the ninth from the end");
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
        assert_eq!(tail.touch(0, 0x5000, COUNT_MAX, 0), Room::Left);
    }
    let rows = rows(tail);
    assert_eq!(rows.len(), 2);
    assert_eq!(rows.iter().map(|row| row.2).sum::<u64>(), touches * COUNT_MAX);
}

#[test]
fn the_last_row_reports_full_and_clear_starts_anew() {
    let tail = tail();
    for page in 1..TAIL_ROWS as u64 {
        assert_eq!(tail.touch(2, page << 12, 1, 0), Room::Left);
    }
    assert_eq!(tail.touch(2, 1 << 40, 1, 0), Room::Full);
    assert_eq!(tail.nr_pending() as usize, TAIL_ROWS);
    tail.clear();
    assert_eq!((tail.nr_pending(), tail.seq()), (0, 1));
    assert_eq!(tail.touch(2, 1 << 40, 1, 0), Room::Left);
    assert_eq!(rows(tail), [(2, 1 << 40, 1)]);
}

#[test]
fn the_highest_user_page_survives_a_row() {
    let tail = tail();
    assert_eq!(tail.touch(1, 0x7fff_ffff_f000, 1, 0), Room::Left);
    assert_eq!(rows(tail), [(1, 0x7fff_ffff_f000, 1)]);
}

#[test]
fn a_chase_links_each_row_to_the_one_before() {
    let tail = tail();
    for page in 0x100..0x120_u64 {
        load(tail, page << 12, (page + 1) << 12);
    }
    let expected: Vec<u32> = (0..32).map(|row| u32::from(row > 0)).collect();
    assert_eq!(links(tail), expected);
}

#[test]
fn a_link_counts_the_rows_of_every_op() {
    let tail = tail();
    load(tail, 0x10_0000, 0x20_0008);
    for (op, page) in [(0, 0x40), (2, 0x41), (1, 0x42)] {
        assert_eq!(tail.touch(op, page << 12, 1, 0), Room::Left);
    }
    assert_eq!(tail.touch(0, 0x20_0000, 1, 0), Room::Left);
    assert_eq!(tail.touch(2, 0x20_0010, 1, 0), Room::Left);
    assert_eq!(tail.touch(1, 0x20_0010, 1, 0), Room::Left);
    assert_eq!(links(tail), [0, 0, 0, 0, 0, 5, 6], "an exec row has no link");
}

#[test]
fn a_row_that_is_joined_keeps_its_link_and_its_count() {
    let tail = tail();
    load(tail, 0x10_0000, 0x20_0000);
    load(tail, 0x20_0000, 0);
    load(tail, 0x30_0000, 0x20_0000);
    for _ in 0..5 {
        load(tail, 0x20_0008, 0x20_0000);
    }
    assert_eq!(rows(tail), [(1, 0x10_0000, 1), (1, 0x20_0000, 6), (1, 0x30_0000, 1)]);
    assert_eq!(links(tail), [0, 1, 0]);
}

#[test]
fn the_first_of_two_loads_of_a_value_is_linked() {
    let tail = tail();
    load(tail, 0x10_0000, 0x20_0000);
    // Spilled and loaded again.
    load(tail, 0x7f_f000, 0x20_0000);
    load(tail, 0x20_0000, 0);
    assert_eq!(links(tail), [0, 0, 2]);
}

#[test]
fn a_load_more_than_fifteen_rows_back_is_not_linked() {
    for (nr_between, link) in [(14, 15), (15, 0)] {
        let tail = tail();
        load(tail, 0x10_0000, 0x20_0000);
        for page in 0..nr_between {
            assert_eq!(tail.touch(2, (0x500 + page) << 12, 1, 0), Room::Left);
        }
        load(tail, 0x20_0000, 0);
        assert_eq!(links(tail).last(), Some(&link));
    }
}

#[test]
fn numbers_and_the_own_page_are_not_noted() {
    let tail = tail();
    load(tail, 0x30_0000, 0xf000);
    load(tail, 0x30_0000, 0x30_0010);
    for page in [0xf, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x300] {
        assert_eq!(tail.touch(1, page << 12, 1, 0), Room::Left);
    }
    assert_eq!(links(tail).len(), 10, "page 0x300 left the window");
    assert!(links(tail).iter().all(|link| *link == 0), "{:?}", links(tail));
}

#[test]
fn a_flush_forgets_the_values() {
    let tail = tail();
    load(tail, 0x10_0000, 0x20_0000);
    tail.clear();
    assert_eq!(tail.touch(0, 0x5000, 1, 0), Room::Left);
    load(tail, 0x20_0000, 0x30_0000);
    load(tail, 0x30_0000, 0);
    assert_eq!(links(tail), [0, 0, 1]);
    // The load fills the tail, and its row is gone before its value is noted.
    tail.clear();
    for page in 1..TAIL_ROWS as u64 {
        assert_eq!(tail.touch(2, (0x1000 + page) << 12, 1, 0), Room::Left);
    }
    assert_eq!(tail.touch(1, 0x10_0000, 1, 0), Room::Full);
    tail.clear();
    tail.loaded(0x10_0000, 0x20_0000);
    load(tail, 0x20_0000, 0);
    assert_eq!(links(tail), [0]);
}

#[test]
fn a_row_that_is_full_and_linked_takes_no_more() {
    let tail = tail();
    load(tail, 0x10_0000, 0x20_0000);
    let nr_full = (1 << COUNT_BITS) / COUNT_MAX - 1;
    for _ in 0..nr_full + 2 {
        assert_eq!(tail.touch(1, 0x20_0000, COUNT_MAX, 0), Room::Left);
    }
    let rows = pending(tail);
    let counts: Vec<_> = rows.iter().map(|row| row.count).collect();
    assert_eq!(counts, [1, nr_full * COUNT_MAX, 2 * COUNT_MAX]);
    assert_eq!(rows[1].link, 1);
}

/// Loads `value`, the next index, from the element of 64 bytes at `index`.
fn load_index(tail: &Tail, index: u64, value: u64) {
    let addr = 0x4000_0000 + 64 * index;
    let _ = tail.touch(1, addr, 1, 0x40_1000);
    tail.loaded_number(value);
}

#[test]
fn a_chase_by_index_is_linked_from_its_third_element_on() {
    let tail = tail();
    let order: Vec<u64> = (0..40).map(|nr| 100 + nr * 7919 % 40 * 1000).collect();
    for pair in order.windows(2) {
        load_index(tail, pair[0], pair[1]);
    }
    let expected: Vec<u32> = (0..39).map(|row| u32::from(row > 2)).collect();
    assert_eq!(links(tail), expected);
}

#[test]
fn an_index_is_found_beside_a_key_and_after_a_spill() {
    let tail = tail();
    let order: Vec<u64> = (0..20).map(|nr| 100 + nr * 7919 % 20 * 1000).collect();
    for (nr, pair) in order.windows(2).enumerate() {
        load_index(tail, pair[0], pair[1]);
        // The element's key, and the index again from the stack.
        tail.loaded_number(5_000_000 + (nr * nr * 977) as u64);
        load(tail, 0x7f_f000, pair[1]);
    }
    let links: Vec<u32> =
        pending(tail).iter().filter(|row| row.addr >= 0x4000_0000).map(|row| row.link).collect();
    assert_eq!(links[..3], [0, 0, 0]);
    assert!(links[3..].iter().all(|link| (1..=2).contains(link)), "{links:?}");
}

#[test]
fn computed_addresses_and_rows_that_were_sent_are_not_linked() {
    let tail = tail();
    for nr in 1..200_u64 {
        let _ = tail.touch(1, (nr * 0x9e37_79b9) << 12 & 0xffff_ffff_f000, 1, 0x40_1000);
        tail.loaded_number(nr * 1_000_003 % 65_536);
    }
    assert!(links(tail).iter().all(|link| *link == 0));
    tail.clear();
    for nr in 0..4 {
        load_index(tail, 1000 * (nr * nr + 3), 1000 * ((nr + 1) * (nr + 1) + 3));
    }
    tail.clear();
    load_index(tail, 19_000, 28_000);
    assert_eq!(links(tail), [0], "the load of the index was sent");
    load_index(tail, 28_000, 39_000);
    assert_eq!(links(tail), [0, 1], "the factor is still known");
}
