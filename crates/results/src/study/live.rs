//! The rows of a study that are timed, on the running kernel and in the model.
//!
//! Both sides of a row take turns in every round, so that drift of the machine meets both.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use largefolio_bulk::Tuning;
use largefolio_linux::bench::anon::{FolioSize, Operation};
use largefolio_linux::bench::clear::{self, Arena, Work};
use largefolio_linux::measure::{Series, interleave};
use largefolio_mm::ram::Bytes;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::study::{Bench, BenchWork, Measured, Measurements, Study, Subject};

use crate::console;
use crate::verbs::bench::{anon, fault};
use crate::verbs::running;

/// Bytes of anonymous regions, a multiple of every folio size.
const REGION_BYTES: u64 = 256 << 20;
/// Base page of the hosts that are measured.
const BASE_BYTES: u64 = 4096;
/// What a bench of clearing may compare.
const PAGEWISE: &str = "page-at-a-time";
const IN_ONE_GO: &str = "in-one-go";
const CHOSEN: &str = "chosen";

/// Takes one round's time.
type Timed<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

/// Every row that has benches.
pub(super) fn measure(studies: &[Study], nr_rounds: usize) -> Result<Measurements> {
    let line = console::status();
    let mut all = Measurements::new();
    for study in studies {
        for ((table, row), before, after) in study.benches() {
            let what = &study.tables[table].rows[row].what;
            line.set_message(format!("measuring {}: {what}", study.name));
            let measured = pair(before, after, nr_rounds)
                .with_context(|| format!("measuring {}: {what}", study.name))?;
            all.insert((study.name.clone(), table, row), measured);
        }
    }
    line.finish_and_clear();
    Ok(all)
}

fn pair(before: &Bench, after: &Bench, nr_rounds: usize) -> Result<Measured> {
    let [first, second] = if before.work == BenchWork::Clear && after.work == BenchWork::Clear {
        cleared(before, after, nr_rounds)?
    } else {
        timed(before, after, nr_rounds)?
    };
    let median = |series: &Series| series.spread().map(|spread| spread.median);
    let (Some(first_ns), Some(second_ns)) = (median(&first), median(&second)) else {
        bail!("nothing was measured");
    };
    // Of a speed, more is faster.
    let is_speed = matches!(before.work, BenchWork::Clear | BenchWork::Fault);
    let ratio = if is_speed { first.ratio(&second) } else { second.ratio(&first) };
    let ratio = ratio.ok_or_else(|| anyhow!("no time passed"))?;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let kernel = running::release();
    Ok(Measured {
        before: value(before, first_ns),
        after: value(after, second_ns),
        change: [percent(ratio.median), percent(ratio.min), percent(ratio.max)],
        n: ratio.n,
        cpu: super::of_cpuinfo(Path::new("/proc/cpuinfo")).unwrap_or_default(),
        kernel,
    })
}

/// GB/s, or nanoseconds for each 4 KiB.
#[expect(clippy::cast_precision_loss, reason = "at most 2^30 bytes")]
fn value(bench: &Bench, ns: f64) -> f64 {
    match bench.work {
        BenchWork::Clear => clear_cell(bench).moved_bytes() as f64 / ns,
        BenchWork::Fault => REGION_BYTES as f64 / ns,
        _ => ns / (REGION_BYTES / BASE_BYTES) as f64,
    }
}

fn clear_cell(bench: &Bench) -> clear::Cell {
    let len_bytes = usize::try_from(bench.size).unwrap_or(usize::MAX);
    clear::Cell { work: Work::Clear, len_bytes, is_hot: false }
}

fn cleared(before: &Bench, after: &Bench, nr_rounds: usize) -> Result<[Series; 2]> {
    if before.size != after.size || !(BASE_BYTES..=1 << 30).contains(&before.size) {
        bail!("both sides clear the same size, from 4K to 1G");
    }
    let region = usize::try_from(before.size.max(512 << 20))?;
    let mut arena = Arena::new(region, 0)?;
    let all = clear_cell(before).measure(&mut arena, Tuning::host(), nr_rounds);
    let of = |bench: &Bench| {
        let Subject::Named(name) = &bench.subject else {
            bail!("clearing is measured for {PAGEWISE}, {IN_ONE_GO} and {CHOSEN}");
        };
        let found = all.iter().find(|(subject, _)| match subject {
            clear::Subject::Pagewise => name == PAGEWISE,
            clear::Subject::Chosen(_) => name == CHOSEN,
            clear::Subject::Whole(primitive) => name == IN_ONE_GO && *primitive == clear::PAGEWISE,
        });
        let (_, series) = found.ok_or_else(|| anyhow!("nobody clears by '{name}'"))?;
        Ok(series.clone())
    };
    Ok([of(before)?, of(after)?])
}

fn timed(before: &Bench, after: &Bench, nr_rounds: usize) -> Result<[Series; 2]> {
    let ram = RefCell::new(None);
    // Held over all rounds: changing settings is no part of the benchmark.
    let host = host(before, after)?;
    let mut subjects: Vec<Timed<'_>> = Vec::new();
    for bench in [before, after] {
        subjects.push(subject(bench, host.as_ref(), &ram)?);
    }
    let series = interleave(nr_rounds, &mut subjects, &mut |_| {})?;
    let [first, second] = series.try_into().map_err(|_| anyhow!("two sides"))?;
    Ok([first, second])
}

/// The size of those sides that run on this kernel. Settings have one value at a time, and whoever
/// has changed them is waited for, ourselves included: both sides share one change.
fn host(before: &Bench, after: &Bench) -> Result<Option<FolioSize>> {
    let on_host = [before, after].into_iter().filter(|bench| bench.subject == Subject::Host);
    let sizes: Vec<u64> = on_host.map(|bench| bench.size).collect();
    match sizes[..] {
        [] => Ok(None),
        [first, second] if first != second => bail!("both sides on this kernel have the same size"),
        [size, ..] => Ok(Some(FolioSize::enable(usize::try_from(size)?)?)),
    }
}

fn subject<'a>(
    bench: &Bench,
    host: Option<&'a FolioSize>,
    ram: &'a RefCell<Option<Bytes>>,
) -> Result<Timed<'a>> {
    let (len, size) = (usize::try_from(REGION_BYTES)?, bench.size);
    let operation = match bench.work {
        BenchWork::Fault => None,
        BenchWork::Fork => Some(Operation::Fork),
        BenchWork::Munmap => Some(Operation::Munmap),
        BenchWork::StoreChildAlive => Some(Operation::CowCopy),
        BenchWork::StoreChildGone => Some(Operation::CowReuse),
        BenchWork::Clear => bail!("clearing is compared with clearing"),
    };
    let kernel = match &bench.subject {
        Subject::Host => None,
        Subject::Named(name) => Some(Kernel::parse(&format!("{name}+page=4K"))?),
    };
    Ok(match (kernel, host, operation) {
        (Some(kernel), _, Some(operation)) => {
            Box::new(move || anon::in_model(&kernel, operation, size, REGION_BYTES))
        }
        (Some(kernel), _, None) => {
            Box::new(move || fault::in_model(&kernel, size, REGION_BYTES, ram))
        }
        (None, Some(host), Some(operation)) => Box::new(move || Ok(host.time(operation, len)?)),
        (None, Some(host), None) => Box::new(move || Ok(host.fault(len)?)),
        (None, None, _) => bail!("no size is enabled"),
    })
}
