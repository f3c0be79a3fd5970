//! Measures clearing and copying on this machine: `extents [cells|near|gaps|all] [rounds] [MiB]`.
//!
//! Rounds are outermost and the variants of a cell interleaved within a round; ratios are taken
//! within a round, and their median and quartiles reported. Speeds are in CPU time of the thread,
//! so that other programs' time slices do not count; what they do to caches and memory does.

#![expect(clippy::print_stdout, reason = "the result")]
#![expect(clippy::cast_precision_loss, reason = "shown with three digits")]

mod arena;
mod cells;
mod near;
mod spread;

use std::error::Error;
use std::time::Duration;

use arena::Arena;
use largefolio_bulk::plan::POSTED_UNIT_BYTES;
use largefolio_bulk::{Choices, Primitive, Residency, Rung, Tuning, calibrate, gaps};

/// Rounds of calibration; the best counts.
const NR_CALIBRATION_ROUNDS: u32 = 9;

/// A choice that is none: `primitive` for everything.
fn always(primitive: Primitive) -> Choices {
    let rungs = vec![Rung { from_bytes: 0, primitive }];
    Choices { cached: rungs.clone(), away: rungs, keep_bytes_max: 0, unknown_bytes_max: 0 }
}

/// Never past the cache, by what the defaults use there; copies portably.
fn through_the_cache() -> Result<Tuning, Box<dyn Error>> {
    let near = Tuning::host().clearer(4096, Residency::TouchedNow).primitive();
    Ok(Tuning::new(&always(near), &always(Primitive::Portable))?)
}

fn report_gaps(arena: &mut Arena, calibrated: &Tuning) -> Result<(), Box<dyn Error>> {
    let string = if cfg!(target_arch = "x86_64") { Primitive::RepString } else { Primitive::DcZva };
    let kernel = Tuning::new(&always(string), &always(Primitive::Portable))?;
    println!("\nGaps between reschedule points, units of 8 MiB (promise: 1 ms at 10 GB/s), us");
    for (clock_name, clock) in [("wall", gaps::wall_ns as gaps::Clock), ("CPU", cells::cpu_ns)] {
        for (name, tuning) in [("kernel's", &kernel), ("chosen", calibrated)] {
            let gaps = tuning.gaps(arena.to(), POSTED_UNIT_BYTES, clock)?;
            let us = |quantile| gaps.value_at_quantile(quantile) as f64 / 1000.0;
            let (p50, p99, max) = (us(0.5), us(0.99), gaps.max() as f64 / 1000.0);
            print!("{clock_name:>5} {name:>9}: median {p50:.0}, 99% {p99:.0}, longest {max:.0}");
            println!(", n {}", gaps.len());
        }
        for target in [Duration::from_millis(1), Duration::from_micros(100)] {
            let chosen = calibrated.unit_within(arena.to(), target, clock);
            let unit = chosen.map(|unit| format!("{} KiB", unit.unit_bytes >> 10));
            let unit = unit.unwrap_or_else(|error| error.to_string());
            println!("{clock_name:>5} unit for {target:?}, 99 times in 100: {unit}");
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let what = words.first().map_or("all", String::as_str);
    let nr_rounds = words.get(1).map_or(Ok(15), |word| word.parse())?;
    let len_mib: usize = words.get(2).map_or(Ok(1024), |word| word.parse())?;
    let mut arena = Arena::new(len_mib << 20)?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load {}, {nr_rounds} rounds", load.trim());
    let (clear, copy) = calibrate::calibrate(arena.to(), NR_CALIBRATION_ROUNDS)?;
    println!("calibrated: clear {clear:?}\n            copy {copy:?}");
    let calibrated = Tuning::new(&clear, &copy)?;
    if matches!(what, "cells" | "all") {
        cells::report(&mut arena, &calibrated, nr_rounds);
    }
    if matches!(what, "near" | "all") {
        near::report(&mut arena, &through_the_cache()?, nr_rounds * 10)?;
    }
    if matches!(what, "gaps" | "all") {
        report_gaps(&mut arena, &calibrated)?;
    }
    Ok(())
}
