//! The timed rows of a study, on the running kernel and in the model.
//!
//! Both sides of a row take turns in every round, so that the machine's drift affects both.

use crate::study::{Bench, BenchWork, Measured, Measurements, Study, Subject};
use largefolio_bulk::Tuning;
use largefolio_linux::calibrate::anon::{FolioSize, Operation};
use largefolio_linux::calibrate::clear::{self, Arena, ClearWork};
use largefolio_linux::measure::{Series, interleave};
use largefolio_linux::proc::Processor;
use largefolio_linux::system::Live;
use largefolio_sim::kernel::Kernel;

use crate::Error;
use crate::bench::timed::{AnonWork, Spare, Timed, in_model, on_host};
use largefolio_results::running;

/// Bytes of anonymous regions: a multiple of every folio size.
const REGION_BYTES: u64 = 256 << 20;
/// Nanoseconds are per this many bytes.
const BASE_BYTES: u64 = 4096;
/// The alternative that a bench of clearing may compare with.
const PAGEWISE: &str = "page-at-a-time";
const IN_ONE_GO: &str = "in-one-go";
const CHOSEN: &str = "chosen";

/// Measures every row with benches.
///
/// # Errors
/// If this kernel or this user cannot measure something.
pub fn measure(
    studies: &[Study],
    nr_rounds: usize,
    progress: &mut dyn FnMut(String),
) -> Result<Measurements, Error> {
    let mut all = Measurements::new();
    for study in studies {
        for ((table, row), before, after) in study.benches() {
            let what = &study.tables[table].rows[row].what;
            let doing = format!("measuring {}: {what}", study.name);
            progress(doing.clone());
            let measured =
                pair(before, after, nr_rounds).map_err(|error| Error::about(&doing, error))?;
            all.insert((study.name.clone(), table, row), measured);
        }
    }
    Ok(all)
}

fn pair(before: &Bench, after: &Bench, nr_rounds: usize) -> Result<Measured, Error> {
    let [first, second] = if before.work == BenchWork::Clear && after.work == BenchWork::Clear {
        cleared(before, after, nr_rounds)?
    } else {
        timed(before, after, nr_rounds)?
    };
    let median = |series: &Series| series.spread().map(|spread| spread.median);
    let (Some(first_ns), Some(second_ns)) = (median(&first), median(&second)) else {
        return Err(Error::invalid("nothing was measured"));
    };
    // For a speed, more is faster.
    let is_speed = matches!(before.work, BenchWork::Clear | BenchWork::Fault);
    let ratio = if is_speed { first.ratio(&second) } else { second.ratio(&first) };
    let ratio = ratio.ok_or_else(|| Error::invalid("the measured time is 0"))?;
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let kernel = running::release();
    Ok(Measured {
        before: value(before, first_ns),
        after: value(after, second_ns),
        change: [percent(ratio.median), percent(ratio.min), percent(ratio.max)],
        n: ratio.n,
        cpu: Processor::of(&Live).name,
        kernel,
    })
}

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
    clear::Cell { work: ClearWork::Clear, len_bytes, is_hot: false }
}

fn cleared(before: &Bench, after: &Bench, nr_rounds: usize) -> Result<[Series; 2], Error> {
    if before.size != after.size || !(BASE_BYTES..=1 << 30).contains(&before.size) {
        return Err(Error::invalid("both sides must clear the same size, from 4K to 1G"));
    }
    let region = usize::try_from(before.size.max(512 << 20)).unwrap_or(usize::MAX);
    let mut arena = Arena::new(region, 0)?;
    let all = clear_cell(before).measure(&mut arena, Tuning::host(), nr_rounds);
    let of = |bench: &Bench| {
        let Subject::Named(name) = &bench.subject else {
            return Err(Error::invalid(format!(
                "clearing is measured for {PAGEWISE}, {IN_ONE_GO} and {CHOSEN}"
            )));
        };
        let chosen = all.iter().find(|(subject, _)| match subject {
            clear::Subject::Pagewise => name == PAGEWISE,
            clear::Subject::Chosen(_) => name == CHOSEN,
            clear::Subject::Whole(primitive) => name == IN_ONE_GO && *primitive == clear::PAGEWISE,
        });
        let (_, series) = chosen.ok_or_else(|| {
            Error::invalid(format!("there is no clearing method called '{name}'"))
        })?;
        Ok(series.clone())
    };
    Ok([of(before)?, of(after)?])
}

fn timed(before: &Bench, after: &Bench, nr_rounds: usize) -> Result<[Series; 2], Error> {
    let spare = Spare::default();
    let host = host(before, after)?;
    let kernels = [kernel(before)?, kernel(after)?];
    let mut subjects: Vec<Timed<'_>> = Vec::new();
    for (bench, kernel) in [before, after].into_iter().zip(&kernels) {
        let work = work(bench)?;
        subjects.push(match (kernel, &host) {
            (Some(kernel), _) => in_model(kernel, work, &spare),
            (None, Some(host)) => on_host(host, work),
            (None, None) => return Err(Error::invalid("no size is enabled")),
        });
    }
    let series = interleave(nr_rounds, &mut subjects, &mut |_| {})?;
    let [first, second] = series.try_into().map_err(|_| Error::invalid("two sides"))?;
    Ok([first, second])
}

/// Sets the folio size for the sides that run on this kernel. A setting has one value at a time,
/// and a change waits for other holders, including this process. Both sides therefore share one
/// change.
fn host(before: &Bench, after: &Bench) -> Result<Option<FolioSize>, Error> {
    let on_host = [before, after].into_iter().filter(|bench| bench.subject == Subject::Host);
    let sizes: Vec<u64> = on_host.map(|bench| bench.size).collect();
    match sizes[..] {
        [] => Ok(None),
        [first, second] if first != second => {
            Err(Error::invalid("both sides on this kernel must have the same size"))
        }
        [size, ..] => Ok(Some(FolioSize::enable(usize::try_from(size).unwrap_or(usize::MAX))?)),
    }
}

fn work(bench: &Bench) -> Result<AnonWork, Error> {
    let operation = match bench.work {
        BenchWork::Fault => None,
        BenchWork::Fork => Some(Operation::Fork),
        BenchWork::Munmap => Some(Operation::Munmap),
        BenchWork::StoreChildAlive => Some(Operation::CowCopy),
        BenchWork::StoreChildGone => Some(Operation::CowReuse),
        BenchWork::Clear => {
            return Err(Error::invalid(
                "clearing can be compared only with another clearing method",
            ));
        }
    };
    let region_bytes = REGION_BYTES.max(bench.size);
    Ok(AnonWork { operation, folio_bytes: bench.size, region_bytes })
}

fn kernel(bench: &Bench) -> Result<Option<Kernel>, Error> {
    match &bench.subject {
        Subject::Host => Ok(None),
        Subject::Named(name) => {
            Ok(Some(Kernel::parse(&format!("{name}{}", running::page_edit()))?))
        }
    }
}
