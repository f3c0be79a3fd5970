#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]

use super::*;
use crate::generate::Rng;

fn page(width: u8, runs: &[(bool, Vec<u32>)]) -> Vec<u8> {
    let mut bytes = vec![width];
    for (is_packed, numbers) in runs {
        let nr = numbers.len() as u64;
        let mut header = if *is_packed { nr / 8 * 2 + 1 } else { nr * 2 };
        while header >= 0x80 {
            bytes.push(header as u8 | 0x80);
            header >>= 7;
        }
        bytes.push(header as u8);
        let start = bytes.len() * 8;
        let (stored, nr_bits) = if *is_packed {
            (&numbers[..], numbers.len() * usize::from(width))
        } else {
            (&numbers[..1], usize::from(width))
        };
        bytes.resize(bytes.len() + nr_bits.div_ceil(8), 0);
        for (nr, number) in stored.iter().enumerate() {
            for bit in (0..width).filter(|bit| number >> bit & 1 == 1) {
                let at = start + nr * usize::from(width) + usize::from(bit);
                bytes[at / 8] |= 1 << (at % 8);
            }
        }
    }
    bytes
}

fn runs(rng: &mut Rng, nr_known: u64) -> Vec<(bool, Vec<u32>)> {
    let run = |rng: &mut Rng| {
        let is_packed = rng.below(2) == 0;
        let nr = 1 + rng.below(20) as usize;
        let number = rng.below(nr_known) as u32;
        let numbers = if is_packed {
            (0..nr * 8).map(|_| rng.below(nr_known) as u32).collect()
        } else {
            vec![number; nr]
        };
        (is_packed, numbers)
    };
    (0..=rng.below(6)).map(|_| run(rng)).collect()
}

#[test]
fn pages_of_every_width_are_read_in_pieces_of_any_length() {
    let mut rng = Rng::new(3);
    let mut numbers = Numbers::default();
    for round in 0..33 * 40 {
        let width = (round % 33) as u8;
        let nr_known = 1 << width.min(11);
        let dictionary: Vec<u64> = (0..nr_known).map(|number| number * 3 + 5).collect();
        let runs = runs(&mut rng, nr_known);
        numbers.begin(&page(width, &runs)).unwrap();
        let wanted: Vec<u64> =
            runs.iter().flat_map(|(_, run)| run).map(|&n| u64::from(n) * 3 + 5).collect();
        let mut found = Values::default();
        while found.len() < wanted.len() {
            let nr = (1 + rng.below(30) as usize).min(wanted.len() - found.len());
            numbers.take(nr, &dictionary, &mut found).unwrap();
        }
        assert_eq!(found.as_slice(), wanted, "width {width}");
        assert_eq!(numbers.take(1, &dictionary, &mut found), None, "nothing is left");
    }
}

#[test]
fn numbers_outside_the_dictionary_are_refused() {
    for width in [3, 12, 20] {
        for nr in [0, 5, 8, 13] {
            let mut packed = vec![1; 16];
            packed[nr] = 3;
            for run in [(true, packed), (false, vec![3; 9])] {
                let mut numbers = Numbers::default();
                numbers.begin(&page(width, &[run])).unwrap();
                let taken = numbers.take(16, &[7_u8, 8, 9], &mut Values::default());
                assert_eq!(taken, None, "width {width}, number {nr}");
            }
        }
    }
}

#[test]
fn a_last_group_may_end_with_its_last_value() {
    let numbers_of = |bytes: &[u8], nr| {
        let (mut numbers, mut found) = (Numbers::default(), Values::default());
        numbers.begin(bytes)?;
        let dictionary: Vec<u32> = (0..64).collect();
        numbers.take(nr, &dictionary, &mut found)?;
        Some(found.as_slice().to_vec())
    };
    let mut bytes = page(6, &[(true, (0..16).collect())]);
    bytes.truncate(bytes.len() - 3); // 16 numbers are 12 bytes; 12 are 9.
    assert_eq!(numbers_of(&bytes, 12), Some((0..12).collect()));
    assert_eq!(numbers_of(&bytes, 13), None);
}

#[test]
fn a_page_that_declares_more_than_it_holds_ends_early() {
    let endless = [&[0_u8][..], &[0xff; 9], &[0x01]].concat();
    let cases: [&[u8]; 6] =
        [&[4], &[4, 0], &[4, 1], &[4, 0xff, 0xff, 0xff, 0xff, 0x0f], &[20, 2, 1], &[1, 0x80]];
    for bytes in cases {
        let mut numbers = Numbers::default();
        numbers.begin(bytes).unwrap();
        assert_eq!(numbers.take(1000, &[1_u32; 16], &mut Values::default()), None, "{bytes:?}");
    }
    let mut numbers = Numbers::default();
    assert_eq!(numbers.begin(&[33, 2, 0]), None);
    assert_eq!(numbers.begin(&[]), None);
    // Numbers of zero bits: as many as requested.
    numbers.begin(&endless).unwrap();
    let mut found = Values::default();
    numbers.take(1000, &[6_u32], &mut found).unwrap();
    assert_eq!(found.as_slice(), [6; 1000]);
}
