//! Prints nanoseconds per lookup, without assertions.
//!
//! `cargo test --release -p largefolio-sim speed -- --ignored --nocapture --test-threads 1`

#![expect(clippy::cast_precision_loss, reason = "three digits are printed")]

use std::hint::black_box;
use std::time::Instant;

use super::*;
use crate::machine::Machine;

/// Number of rounds. Only the fastest is printed, because the others were disturbed.
const ROUNDS: u32 = 7;

fn fastest_ns(nr: u64, mut round: impl FnMut()) -> f64 {
    round();
    let ns = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64() * 1e9 / nr as f64
    });
    ns.fold(f64::INFINITY, f64::min)
}

fn random_vpns(nr: usize, pages: u64) -> Vec<u64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % pages
    };
    std::iter::repeat_with(next).take(nr).collect()
}

fn measure(what: &str, order: u8, vpns: &[u64]) {
    for name in ["altra", "cascadelake"] {
        let mut tlb = Tlb::new(&Machine::named(name).unwrap().tlb, PageSize::K4);
        let ns = fastest_ns(vpns.len() as u64, || {
            for &vpn in vpns {
                if tlb.lookup(Side::Data, Vpn(vpn), Access::Read).needs_walk() {
                    tlb.fill_walk(Side::Data, &walk(vpn, order, true));
                }
            }
        });
        let data = tlb.counters().data;
        let rate = |nr: u64| nr as f64 / data.references as f64 * 100.0;
        println!(
            "{what:34} {name:12} {ns:6.2} ns/lookup  L1 misses {:5.1}%  walks {:5.1}%",
            rate(data.l1_misses),
            rate(data.l2_misses)
        );
    }
}

#[test]
#[ignore = "prints times, asserts nothing"]
fn speed_of_lookups() {
    measure("one page", 0, &vec![77; 1 << 20]);
    measure("L1 hits, 32 pages at random", 0, &random_vpns(1 << 20, 32));
    measure("L1 hits, 4 pages in turn", 0, &(0..1 << 20).map(|nr| nr % 4).collect::<Vec<_>>());
    measure("L1 hits, 40 x 64 KiB", 4, &random_vpns(1 << 20, 640));
    measure("L2 hits, 1024 pages at random", 0, &random_vpns(1 << 20, 1024));
    measure("all levels miss, 2^22 pages", 0, &random_vpns(1 << 20, 1 << 22));
    measure("all levels miss, 64 KiB blocks", 4, &random_vpns(1 << 20, 1 << 26));
}

#[test]
#[ignore = "prints times, asserts nothing"]
fn speed_of_invalidations() {
    let mut tlb = Tlb::new(&Machine::named("altra").unwrap().tlb, PageSize::K4);
    for vpn in random_vpns(20_000, 4096) {
        let _ = read(&mut tlb, vpn, 0);
    }
    for (what, first, nr_pages) in [
        ("one page, region not resident", 1 << 20, 1),
        ("one page, region resident", 4097, 1),
        ("16 pages, region resident", 4096 - 16, 16),
        ("512 pages, not resident", 1 << 20, 512),
        ("64 MiB, not resident", 1 << 20, 16 << 10),
        ("64 GiB, scanned", 1 << 30, 16 << 20),
    ] {
        let ns = fastest_ns(1000, || {
            for _ in 0..1000 {
                tlb.invalidate(black_box(Vpn(first)), nr_pages);
            }
        });
        println!("invalidate {what:32} {ns:8.1} ns");
    }
}
