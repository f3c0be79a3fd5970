//! Each size, hot and cold: the choice against page-at-a-time, the C library and every primitive.

use std::ops::Range;

use largefolio_bulk::{Clearer, Copier, Primitive, Residency, Tuning};
use rustix::time::{ClockId, clock_gettime};

use crate::arena::Arena;
use crate::spread::Spread;

const PAGE_BYTES: usize = 4096;
const SIZES: [usize; 5] = [4 << 10, 64 << 10, 2 << 20, 32 << 20, 1 << 30];
/// Bytes a sample of hot memory moves at least.
const HOT_BYTES: usize = 8 << 20;
/// Bytes a sample of cold memory moves at least: more than the cache holds, so that a primitive
/// pays for writing back its own lines and not for its forerunner's.
const COLD_BYTES: usize = 64 << 20;
/// Moves the bytes of a range, of the second stretch or of nothing, to the same of the first.
type Run<'a> = Box<dyn Fn(&mut [u8], &[u8], Range<usize>) + 'a>;

/// What is compared in a cell; the first two are the choices by default and calibrated, the third
/// page-at-a-time, the fourth the C library.
struct Variant<'a> {
    name: String,
    run: Run<'a>,
}

fn variant<'a>(
    name: impl Into<String>,
    run: impl Fn(&mut [u8], &[u8], Range<usize>) + 'a,
) -> Variant<'a> {
    Variant { name: name.into(), run: Box::new(run) }
}

fn pages(range: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    range.clone().step_by(PAGE_BYTES).map(|first| first..first + PAGE_BYTES)
}

/// What the kernel clears a page by.
const PAGEWISE: Primitive =
    if cfg!(target_arch = "x86_64") { Primitive::RepString } else { Primitive::DcZva };

fn clearing(calibrated: &Tuning, hint: Residency) -> Vec<Variant<'_>> {
    let mut all = vec![
        variant("default", move |to, _, range| Tuning::host().clear_extent(&mut to[range], hint)),
        variant("calibrated", move |to, _, range| calibrated.clear_extent(&mut to[range], hint)),
    ];
    if let Some(pagewise) = Clearer::new(PAGEWISE) {
        all.push(variant("pagewise", move |to, _, range| {
            pages(&range).for_each(|page| pagewise.clear(&mut to[page]));
        }));
    }
    for clearer in Clearer::available() {
        let name = clearer.primitive().name();
        all.push(variant(name, move |to, _, range| clearer.clear(&mut to[range])));
    }
    all
}

fn copying(calibrated: &Tuning, hint: Residency) -> Vec<Variant<'_>> {
    let copy = move |tuning: &Tuning, to: &mut [u8], from: &[u8]| {
        let Ok(()) = tuning.copy_extent(to, from, hint) else { unreachable!("one range") };
    };
    let mut all = vec![
        variant("default", move |to, from, range| {
            copy(Tuning::host(), &mut to[range.clone()], &from[range]);
        }),
        variant("calibrated", move |to, from, range| {
            copy(calibrated, &mut to[range.clone()], &from[range]);
        }),
    ];
    let by = |copier: Copier, to: &mut [u8], from: &[u8], range: Range<usize>| {
        let Ok(()) = copier.copy(&mut to[range.clone()], &from[range]) else {
            unreachable!("one range")
        };
    };
    if let Some(pagewise) = Copier::new(PAGEWISE).or(Copier::new(Primitive::Portable)) {
        all.push(variant("pagewise", move |to, from, range| {
            pages(&range).for_each(|page| by(pagewise, to, from, page));
        }));
    }
    for copier in Copier::available() {
        let name = copier.primitive().name();
        all.push(variant(name, move |to, from, range| by(copier, to, from, range)));
    }
    all
}

/// CPU time of this thread.
pub(crate) fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or(0)
}

/// Speeds in GB/s of each variant, round by round.
fn speeds(arena: &mut Arena, all: &[Variant], len: usize, is_hot: bool, nr: u32) -> Vec<Vec<f64>> {
    let mut walk = arena.walk(len);
    let (to, from) = arena.both();
    let nr_repeats = if is_hot { HOT_BYTES } else { COLD_BYTES }.div_ceil(len);
    let mut speeds = vec![Vec::new(); all.len()];
    for round in 0..nr as usize {
        for turn in 0..all.len() {
            // Each follows one neighbour in one round and the other in the next.
            let which = if round % 2 == 0 { turn } else { all.len() - 1 - turn };
            if is_hot {
                to[..len].fill(1);
                (all[which].run)(to, from, 0..len);
            }
            let start = cpu_ns();
            for _ in 0..nr_repeats {
                let first = if is_hot { 0 } else { walk() };
                (all[which].run)(to, from, first..first + len);
            }
            speeds[which].push((nr_repeats * len) as f64 / (cpu_ns() - start) as f64);
        }
    }
    speeds
}

pub(crate) fn report(arena: &mut Arena, calibrated: &Tuning, nr_rounds: u32) {
    let len_max = arena.to().len();
    for (operation, variants) in
        [("clear", clearing as fn(&Tuning, Residency) -> Vec<Variant<'_>>), ("copy", copying)]
    {
        println!("\n{operation}: GB/s and ratios of the choice, median [quartiles]");
        println!("state    size  by default        GB/s  to pagewise      to libc        to best");
        for is_hot in [false, true] {
            let hint = if is_hot { Residency::TouchedNow } else { Residency::NotTouched };
            for len in SIZES.into_iter().filter(|&len| len <= len_max) {
                let all = variants(calibrated, hint);
                let speeds = speeds(arena, &all, len, is_hot, nr_rounds);
                row(&all, &speeds, (is_hot, len));
            }
        }
    }
}

/// A line for each choice, then what every primitive reached.
fn row(all: &[Variant], speeds: &[Vec<f64>], (is_hot, len): (bool, usize)) {
    let state = if is_hot { "hot" } else { "cold" };
    let median = |which: usize| Spread::of(speeds[which].iter().copied()).median;
    let best = (3..all.len()).max_by(|&a, &b| median(a).total_cmp(&median(b))).unwrap_or(3);
    for choice in 0..2 {
        let [pagewise, libc, best] =
            [2, 3, best].map(|other| Spread::ratio(&speeds[choice], &speeds[other]).to_string());
        let (name, speed) = (&all[choice].name, median(choice));
        let size = len >> 10;
        println!("{state:4} {size:>7}K  {name:10} {speed:>11.2}  {pagewise}  {libc}  {best}");
    }
    let others = (2..all.len()).map(|which| format!("{} {:.1}", all[which].name, median(which)));
    println!("               {}", others.collect::<Vec<_>>().join(", "));
}
