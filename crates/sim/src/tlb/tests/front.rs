//! Compares rows served from the front with a TLB that looks up every row.

#![expect(clippy::cast_possible_truncation, reason = "small numbers")]

use largefolio_trace::Op;
use largefolio_trace::generate::Rng;

use super::super::front::Rows;
use super::*;
use crate::machine::Machine;

type Row = (Op, u64, u64);

fn kind(op: Op) -> (Side, Access) {
    match op {
        Op::Exec => (Side::Instruction, Access::Read),
        Op::Write => (Side::Data, Access::Write),
        _ => (Side::Data, Access::Read),
    }
}

/// Processes one row as a replay does. Placed pages are `shift` pages above the recorded ones.
fn refer(tlb: &mut Tlb, (op, page, len): Row, shift: u64) {
    let (side, access) = kind(op);
    let vpn = Vpn(page + shift);
    if tlb.lookup_run(side, vpn, access, len).needs_walk() {
        let is_writable = access == Access::Write || page % 8 != 0;
        tlb.fill_walk(side, &walk(vpn.0, if page % 5 == 0 { 2 } else { 0 }, is_writable));
    }
}

fn any_page(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => rng.below(1 << 20),
        1 => 4096 + rng.below(4) * 1024,
        2 => (1 << 52) - 1 - rng.below(3),
        _ => rng.below(40),
    }
}

fn run(machine: &str, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let tlb = || Tlb::new(&Machine::named(machine).unwrap().tlb, PageSize::K4);
    let (mut fronted, mut plain) = (tlb(), tlb());
    let (mut epoch, mut shift, mut nr_served) = (0, 0, 0);
    for _ in 0..40 {
        let ops = [Op::Exec, Op::Read, Op::Write];
        let row = |rng: &mut Rng| (ops[rng.below(3) as usize], any_page(rng), 1 + rng.below(9));
        let rows: Vec<Row> = (0..rng.below(300)).map(|_| row(&mut rng)).collect();
        let op_numbers: Vec<u8> = rows.iter().map(|row| row.0 as u8).collect();
        let addrs: Vec<u64> = rows.iter().map(|row| row.1 << 12).collect();
        let lens: Vec<u64> = rows.iter().map(|row| row.2).collect();
        let mut at = 0;
        while at < rows.len() {
            let limit = if rng.below(4) == 0 { rng.below(30) } else { u64::MAX };
            let rest = Rows { ops: &op_numbers[at..], addrs: &addrs[at..], lens: &lens[at..] };
            let served = fronted.serve(rest, limit, epoch);
            let done = &rows[at..at + served.nr_rows];
            assert_eq!(served.nr_references, done.iter().map(|row| row.2).sum::<u64>());
            assert!(served.nr_references < limit || served.nr_rows == 0);
            for &row in done {
                refer(&mut plain, row, shift);
            }
            nr_served += served.nr_rows as u64;
            at += served.nr_rows;
            if let Some(&row) = rows.get(at) {
                refer(&mut fronted, row, shift);
                fronted.remember(
                    kind(row.0).0,
                    row.1 << 12,
                    Vpn(row.1 + shift),
                    row.0 == Op::Write,
                );
                refer(&mut plain, row, shift);
                at += 1;
            }
            assert_eq!(fronted.counters(), plain.counters(), "{machine}, seed {seed}");
        }
        let (first, nr_pages) = (Vpn(any_page(&mut rng) + shift), rng.below(20));
        fronted.invalidate(first, nr_pages);
        plain.invalidate(first, nr_pages);
        if rng.below(3) == 0 {
            // The program's pages move onto each other's old places.
            (epoch, shift) = (epoch + 1, rng.below(4));
        }
        fronted.validate().unwrap();
    }
    nr_served
}

#[test]
fn rows_served_from_the_front_count_and_age_as_lookups() {
    for machine in ["altra", "cascadelake"] {
        let nr_served: u64 = (0..30).map(|seed| run(machine, seed)).sum();
        assert!(nr_served > 10_000, "{nr_served} rows were served on {machine}");
    }
}

#[test]
fn the_first_store_to_a_page_is_left_to_the_caller() {
    let mut tlb = Tlb::new(&Machine::named("altra").unwrap().tlb, PageSize::K4);
    refer(&mut tlb, (Op::Read, 7, 1), 0);
    let rows = Rows { ops: &[1, 2], addrs: &[7 << 12; 2], lens: &[1; 2] };
    for (is_store, nr_rows) in [(false, 1), (true, 2)] {
        tlb.remember(Side::Data, 7 << 12, Vpn(7), is_store);
        assert_eq!(tlb.serve(rows, u64::MAX, 0).nr_rows, nr_rows);
    }
}

#[test]
fn a_row_that_is_no_reference_is_left_to_the_caller() {
    let mut tlb = Tlb::new(&Machine::named("altra").unwrap().tlb, PageSize::K4);
    refer(&mut tlb, (Op::Read, 7, 1), 0);
    tlb.remember(Side::Data, 7 << 12, Vpn(7), true);
    for (ops, nr_rows) in [([1, 2, 1], 3), ([1, Op::Mmap as u8, 1], 1), ([1, 255, 1], 1)] {
        let rows = Rows { ops: &ops, addrs: &[7 << 12; 3], lens: &[2; 3] };
        assert_eq!(tlb.serve(rows, u64::MAX, 0).nr_rows, nr_rows, "{ops:?}");
    }
}
