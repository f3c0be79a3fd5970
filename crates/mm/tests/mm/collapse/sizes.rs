//! khugepaged and smaller sizes: the rules of H.6.4.

use largefolio_mm::counters::collapse::CollapseRefusal;
use largefolio_mm::rules::anon::{NonePtes, SizeMode};

use crate::collapse::world::{N, World, mark, new_rules};

/// Collapses a block with `pages` written. Returns the orders of its folios, `-` for none.
fn collapsed(kib: &[u64], none: NonePtes, pages: impl IntoIterator<Item = u64>) -> (String, World) {
    let mut world = World::new(new_rules()).mapped(N);
    world.write(pages);
    world.tune(|rules| rules.anon.max_ptes_none = none);
    world.tune(|rules| rules.anon.pmd = SizeMode::Never);
    for &kib in kib {
        world.tune(|rules| rules.anon.set_size(kib << 10, SizeMode::Always).unwrap());
    }
    world.scan();
    let mut shown: Vec<String> = Vec::new();
    let mut page = 0;
    while page < N {
        let order = world.page(page).map(|view| view.order.get());
        let text = order.map_or("-".to_owned(), |order| format!("o{order}"));
        match shown.last_mut() {
            Some(last) if last.starts_with(&format!("{text}x")) => {
                let nr: u64 = last[text.len() + 1..].parse().unwrap();
                *last = format!("{text}x{}", nr + 1);
            }
            _ => shown.push(format!("{text}x1")),
        }
        page += order.map_or(1, |order| 1 << order);
    }
    (shown.join(" "), world)
}

#[test]
fn by_default_the_largest_size_wins_h_6_4_h() {
    let (shown, _) = collapsed(&[64, 2048], NonePtes::AllButOne, [300]);
    assert_eq!(shown, "o9x1");
    let (shown, world) = collapsed(&[64], NonePtes::AllButOne, [300]);
    assert_eq!(shown, "-x288 o4x1 -x208");
    let view = world.page(300).unwrap();
    assert!(view.is_writable && view.is_anon_exclusive && !view.is_partially_mapped);
    assert_eq!(world.memory.counters().size(view.order).nr_anon, 1);
    let (shown, _) = collapsed(&[64, 256], NonePtes::AllButOne, [300]);
    assert_eq!(shown, "-x256 o6x1 -x192");
}

#[test]
fn empty_pages_below_the_pmd_order_h_6_4_c() {
    let half = || (0..N).filter(|page| page % 16 < 8);
    let full_third = || (0..N).filter(|page| page % 16 < 8 || page / 16 == 3);
    let (shown, _) = collapsed(&[64], NonePtes::AllButOne, half());
    assert_eq!(shown, "o4x32");
    for limit in [0, 255, 320] {
        let (shown, _) = collapsed(&[64], NonePtes::Exactly(limit), full_third());
        assert_eq!(shown.matches("o4x1").count(), 1, "only what is full, at {limit}: {shown}");
        assert_eq!(shown.matches("o4").count(), 1);
    }
    let (shown, _) = collapsed(&[64], NonePtes::Exactly(N - 1), half());
    assert_eq!(shown, "o4x32");
}

#[test]
fn a_failure_that_a_smaller_size_avoids_goes_down_h_6_4_d() {
    let mut world = World::new(new_rules()).mapped(N);
    world.write(0..N);
    for kib in [16, 64, 2048] {
        world.tune(|rules| rules.anon.set_size(kib << 10, SizeMode::Always).unwrap());
    }
    world.isolate(16 * 16 + 5);
    // The scan of the whole block already refuses it: nothing is collapsed.
    assert_eq!(world.scan(), [CollapseRefusal::PageLru]);
    assert!((0..N).all(|page| world.order(page) == 0));
    world.putback(16 * 16 + 5);
    // No PMD block is free: every range falls back to 64 KiB.
    let mut world = World::with_ram(new_rules(), 4 << 20).mapped(N);
    world.write(0..N - 1);
    for kib in [16, 64, 2048] {
        world.tune(|rules| rules.anon.set_size(kib << 10, SizeMode::Always).unwrap());
    }
    let refused = world.scan();
    assert_eq!(refused, []);
    assert!(world.memory.counters().collapse.thp_collapse_alloc_failed > 0);
    assert!((0..N).all(|page| world.order(page) == 4));
    assert_eq!(world.byte(world.mm, 77), mark(77));
    assert_eq!(world.wake(), [CollapseRefusal::AllocHugePageFail], "nothing new: f");
}

#[test]
fn nothing_shared_is_copied_below_the_pmd_order_h_6_4_e() {
    let make = |kib: u64| {
        let mut world = World::new(new_rules()).mapped(N);
        world.write(0..100);
        let child = world.memory.fork(world.mm).unwrap();
        world.write(0..64);
        world.tune(|rules| rules.anon.pmd = SizeMode::Never);
        world.tune(|rules| rules.anon.set_size(kib << 10, SizeMode::Always).unwrap());
        (world, child)
    };
    let (mut world, _child) = make(64);
    world.scan();
    let orders: Vec<u8> = (0..100).step_by(16).map(|page| world.order(page)).collect();
    assert_eq!(orders, [4, 4, 4, 4, 0, 0, 0]);
    let (mut world, child) = make(2048);
    world.scan();
    assert!(world.is_huge(0));
    assert_eq!(world.byte(child, 70), mark(70));
}
