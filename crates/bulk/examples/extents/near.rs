//! What is left in the cache after a 2 MiB folio was cleared: the near pages, and a working set.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use largefolio_bulk::plan::{Plan, Preemption, Rule, Shape};
use largefolio_bulk::{Residency, Tuning};

use crate::arena::Arena;
use crate::spread::Spread;

const PAGE_BYTES: usize = 4096;
const FOLIO_BYTES: usize = 2 << 20;
const FAULT_PAGE: usize = 255;
/// The five near pages.
const NEAR: std::ops::Range<usize> = 253 * PAGE_BYTES..258 * PAGE_BYTES;
/// What the program works on: half of a private cache of 1 MiB.
const WORKING_BYTES: usize = 512 << 10;
const LINE_BYTES: usize = 64;

/// Reads a word of every line.
fn read(bytes: &[u8]) -> f64 {
    let start = Instant::now();
    let sum = bytes.iter().step_by(LINE_BYTES).fold(0u64, |sum, &byte| sum + u64::from(byte));
    black_box(sum);
    start.elapsed().as_secs_f64() * 1e9
}

pub(crate) fn report(
    arena: &mut Arena,
    through: &Tuning,
    nr_rounds: u32,
) -> Result<(), Box<dyn Error>> {
    let page_bytes = PAGE_BYTES as u64;
    let nr_pages = (FOLIO_BYTES / PAGE_BYTES) as u64;
    let shape = Shape { nr_pages, fault_page: FAULT_PAGE as u64, page_bytes };
    let rule = Rule::Merged { unit_bytes: 32 << 20 };
    let plan = Plan::new(rule, shape, Preemption::Preemptible)?;
    let mut walk = arena.walk(FOLIO_BYTES);
    let (to, from) = arena.both();
    let working = &from[..WORKING_BYTES];
    let names = ["through the cache", "three extents, far past it", "all past it", "not cleared"];
    let mut near = [const { Vec::new() }; 4];
    let mut kept = [const { Vec::new() }; 4];
    for round in 0..nr_rounds as usize {
        for turn in 0..names.len() {
            let which = (turn + round) % names.len();
            let first = walk();
            let folio = &mut to[first..first + FOLIO_BYTES];
            for _ in 0..3 {
                read(working);
            }
            match which {
                0 => through.clear_folio(folio, &plan, || {})?,
                1 => Tuning::host().clear_folio(folio, &plan, || {})?,
                2 => Tuning::host().clear_extent(folio, Residency::NotTouched),
                _ => {}
            }
            near[which].push(read(&folio[NEAR]));
            kept[which].push(read(working));
        }
    }
    println!(
        "\nAfter clearing a cold 2 MiB folio: ns to read the 5 near pages, and 512 KiB of other data"
    );
    for which in 0..names.len() {
        let (pages, ratio) = (median(&near[which]), Spread::ratio(&near[which], &near[0]));
        let (other, still) = (median(&kept[which]), Spread::ratio(&kept[which], &kept[3]));
        let name = names[which];
        println!(
            "{name:27} near {pages:>6.0} = {ratio} of cached, other {other:>7.0} = {still} of untouched"
        );
    }
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values.iter().copied()).median
}
