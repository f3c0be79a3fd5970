//! Measures the model's cost of fork, first touches and munmap of 1 GiB of anonymous memory.
//!
//! `cargo run --release -p largefolio-mm --example anon_cost`. Each round runs all variants, and
//! the medians are printed. docs/design/anon.md has the kernel's figures.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]
#![expect(clippy::cast_precision_loss, reason = "times for people")]

use std::time::{Duration, Instant};

use largefolio_mm::fault::Access;
use largefolio_mm::map::Map;
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::anon::{AnonRules, Enabled, Mapcount, SizeMode};
use largefolio_mm::rules::{Arch, Rules};
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;

const BASE: u64 = 0x4000_0000_0000;
const BYTES: u64 = 1 << 30;
const ROUNDS: usize = 9;

/// Seconds of one run: first touch of every page, fork, a store while the child is alive, munmap.
struct Run {
    touch: Duration,
    fork: Duration,
    cow: Duration,
    exit: Duration,
    unmap: Duration,
}

fn rules(kib: u64, mapcount: Mapcount) -> Rules {
    let mut anon = AnonRules { mapcount, ..AnonRules::stock() };
    match kib {
        4 => {}
        2048 => anon.thp = Enabled::Always,
        kib => anon.set_size(kib << 10, SizeMode::Always).unwrap(),
    }
    Rules { anon, ..Rules::example() }
}

fn run(kib: u64, mapcount: Mapcount) -> Run {
    let config = Config { ram_bytes: 4 << 30, ..Config::new(Arch::X86_64) };
    let mut memory = Memory::new(rules(kib, mapcount), &config).unwrap();
    let mm = memory.new_space();
    let map = Map::anon(BYTES, Prot::READ_WRITE).at(Vaddr(BASE));
    memory.mmap(mm, map).unwrap();
    let start = Instant::now();
    for addr in (BASE..BASE + BYTES).step_by(4096) {
        memory.touch(mm, Vaddr(addr), Access::Write).unwrap();
    }
    let touch = start.elapsed();
    let start = Instant::now();
    let child = memory.fork(mm).unwrap();
    let fork = start.elapsed();
    let start = Instant::now();
    for addr in (BASE..BASE + BYTES).step_by(1 << 20) {
        memory.touch(child, Vaddr(addr), Access::Write).unwrap();
    }
    let cow = start.elapsed();
    let start = Instant::now();
    memory.exit(child);
    let exit = start.elapsed();
    let start = Instant::now();
    memory.munmap(mm, Vaddr(BASE), BYTES).unwrap();
    let unmap = start.elapsed();
    Run { touch, fork, cow, exit, unmap }
}

fn median(runs: &[Run], get: impl Fn(&Run) -> Duration) -> f64 {
    let mut times: Vec<_> = runs.iter().map(get).collect();
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn main() {
    let variants = [
        (4, Mapcount::PerPage),
        (64, Mapcount::PerPage),
        (64, Mapcount::PerFolio),
        (2048, Mapcount::PerPage),
    ];
    let mut runs: Vec<Vec<Run>> = variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        for (&(kib, mapcount), runs) in variants.iter().zip(&mut runs) {
            runs.push(run(kib, mapcount));
        }
    }
    let nr_pages = (BYTES / 4096) as f64;
    println!("1 GiB anonymous, medians of {ROUNDS} interleaved rounds");
    println!("size  counts    touch us/4K  fork ms  cow us  exit ms  munmap ms");
    for (&(kib, mapcount), runs) in variants.iter().zip(&runs) {
        println!(
            "{kib:>4}K {mapcount:<9?} {:>10.3} {:>8.2} {:>7.2} {:>8.2} {:>10.2}",
            median(runs, |run| run.touch) * 1e6 / nr_pages,
            median(runs, |run| run.fork) * 1e3,
            median(runs, |run| run.cow) * 1e6 / 1024.0,
            median(runs, |run| run.exit) * 1e3,
            median(runs, |run| run.unmap) * 1e3,
        );
    }
}
