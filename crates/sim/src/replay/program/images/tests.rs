use largefolio_trace::event::abi::{MAP_PRIVATE, PROT_READ};
use largefolio_trace::event::mmap_flags;

use super::*;

const BASE: u64 = 0x40_0000_0000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn map(at: u64, len: u64, pos: u64, prot: u32) -> Event {
    let fixed = if pos == 0 { 0 } else { MAP_FIXED };
    let flags = mmap_flags(prot, MAP_PRIVATE | fixed);
    Event { addr: BASE + at, len, pos, flags, file: Some(0), ..Event::new(0, Op::Mmap) }
}

fn image(calls: &[Event]) -> Image {
    let mut images = Images::default();
    for event in calls {
        images.follow(event);
    }
    images.get(0).unwrap().clone()
}

fn laid(image: &LinkedImage) -> Vec<(u64, u64)> {
    image.segments.iter().map(|segment| (segment.pos, segment.addr)).collect()
}

/// The mappings of glibc for 3 MB of text linked by `ld -shared`: the whole image, then the rest.
fn by_ld() -> Vec<Event> {
    vec![
        map(0, 0x2e_e000, 0, PROT_READ),
        map(0x1000, 0x2d_d000, 0x1000, PROT_READ | PROT_EXEC),
        map(0x2d_e000, 0x2000, 0x2d_e000, PROT_READ),
        map(0x2e_0000, 0x6000, 0x2d_f000, PROT_READ | PROT_WRITE),
    ]
}

#[test]
fn text_begins_at_a_multiple_in_memory_and_in_the_file_where_it_was_separate() {
    let linked = image(&by_ld()).linked(2 * MIB, 0x2e_5970);
    // `ld -z max-page-size=2097152` laid the same input out this way, except for RELRO's alignment.
    assert_eq!(
        laid(&linked),
        [(0, 0), (2 * MIB, 2 * MIB), (6 * MIB, 6 * MIB), (0x60_1000, 0x80_1000)]
    );
    assert_eq!(linked.span, 0x80_1000 + 0x6000 + 0x8000);
    assert_eq!(linked.size_bytes, 0x2e_5970 + 0x60_1000 - 0x2d_f000);
    assert_eq!(linked.moved(0x2d_e010), 6 * MIB + 0x10);
    assert_eq!(linked.moved(0x2e_5000), 0x60_7000);
}

#[test]
fn the_pages_it_was_linked_for_give_the_image_that_was_recorded() {
    let linked = image(&by_ld()).linked(4 * KIB, 0x2e_5970);
    assert_eq!(
        laid(&linked),
        [(0, 0), (0x1000, 0x1000), (0x2d_e000, 0x2d_e000), (0x2d_f000, 0x2e_0000)]
    );
    assert_eq!((linked.span, linked.size_bytes), (0x2e_e000, 0x2e_5970));
}

#[test]
fn what_was_linked_for_2m_closes_up_for_4k() {
    let mut calls = vec![
        map(0, 0xa0_0000, 0, PROT_READ),
        // glibc removes the gaps before it maps the other segments.
        Event { addr: BASE + 0x1000, len: 0x90_0000, ..Event::new(0, Op::Mprotect) },
        map(2 * MIB, 0x2d_d000, 2 * MIB, PROT_READ | PROT_EXEC),
        map(6 * MIB, 0x2000, 6 * MIB, PROT_READ),
        map(0x9f_f000, 0x6000, 0x7f_f000, PROT_READ | PROT_WRITE),
    ];
    let linked = image(&calls).linked(4 * KIB, 0x80_59b0);
    assert_eq!(laid(&linked)[..3], [(0, 0), (0x1000, 0x1000), (0x2d_e000, 0x2d_e000)]);
    assert_eq!(laid(&linked)[3].1, 0x2e_0000);
    // Without that call, the end of the first segment is unknown.
    calls.remove(1);
    let linked = image(&calls).linked(4 * KIB, 0x80_59b0);
    assert_eq!(laid(&linked)[1], (2 * MIB, 2 * MIB));
}

#[test]
fn a_file_whose_pages_are_shared_stays_as_it_is_and_addresses_move() {
    // lld's layout: text begins in the page where the headers end.
    let linked = image(&[
        map(0, 0x40_0000, 0, PROT_READ),
        map(0x5000, 0x30_0000, 0x4000, PROT_READ | PROT_EXEC),
        map(0x30_6000, 0x1000, 0x30_4000, PROT_READ | PROT_WRITE),
    ])
    .linked(2 * MIB, 4 * MIB);
    assert_eq!(laid(&linked), [(0, 0), (0x4000, 0x20_4000), (0x30_4000, 0x70_4000)]);
    assert_eq!(linked.size_bytes, 4 * MIB);
}

#[test]
fn files_without_code_and_addresses_out_of_order_are_no_images() {
    let mut images = Images::default();
    images.follow(&map(0, 0x9000, 0, PROT_READ));
    images.by_file.retain(|_, image| image.has_code());
    assert!(images.get(0).is_none());
    let below = [map(0x9000, 0x1000, 0x1000, PROT_READ | PROT_EXEC), map(0, 0x1000, 0x2000, 0)];
    assert_eq!(image(&below).segments.len(), 1);
    let far = Event { pos: !0xfff, ..map(0, 0x1000, 0x1000, PROT_EXEC) };
    let mut images = Images::default();
    images.follow(&far);
    assert!(images.get(0).is_none());
}
