//! `folio-lab bench clear`: clearing and copying in user space by size (series 001).

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_bulk::{Primitive, Tuning};
use largefolio_lab::bench::near::CacheUse;
use largefolio_lab::bench::{BenchRow, Scale, gaps, near, rows, short};
use largefolio_linux::calibrate::clear::{Arena, Cell, ClearWork, PAGEWISE, Subject};
use largefolio_linux::measure::{Series, Spread};
use largefolio_results::Form;

use super::{Measure, Measurements, PUBLISHED_CLEARING};
use largefolio_cli::console;
use largefolio_cli::verbs::values::{FormArgs, size, within};

/// The unit that only `--large` measures.
const LARGE_BYTES: u64 = 1 << 30;
const UNIT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=LARGE_BYTES;
const REGION_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 30;
/// Rounds of calibration; the best one counts.
const NR_CALIBRATION_ROUNDS: u32 = 9;
/// `--gaps` runs this many short rounds per round of the table.
const NR_NEAR_ROUNDS: usize = 10;

/// Time memory clearing in user space by size, cold and hot: folio's choice against alternatives
///
/// Kernels before 7.0 clear page by page with `rep stosb`. The C library's memset and every
/// primitive that the CPU supports are measured for comparison. Times are the thread's CPU time.
/// Needs no privileges.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[command(after_help = "\
Examples:
  folio-lab bench clear
  folio-lab bench clear --copy --large --region 1G
  folio-lab bench clear --gaps --rounds 5 --json

How to read it: GB/s, and the ratio to clearing page by page within a round. Cold: one of many
units, each reused only after all others. Hot: the unit is written just before and just after.")]
pub(crate) struct ClearArgs {
    /// Unit sizes to clear
    #[arg(long, value_delimiter = ',', default_value = "4K,64K,2M,32M", value_parser = size)]
    size: Vec<u64>,
    /// Also measure 1G units
    #[arg(long)]
    large: bool,
    /// Also measure copying
    #[arg(long)]
    copy: bool,
    /// Measure all primitives, not only the best
    #[arg(long)]
    every: bool,
    /// Choose by measuring on this machine instead of using the defaults
    #[arg(long)]
    calibrated: bool,
    /// Also measure how long other tasks wait, and what remains in the cache
    #[arg(long)]
    gaps: bool,
    /// Size of the region that contains the cold units, in bytes
    #[arg(long, default_value = "512M", value_parser = size)]
    region: u64,
    /// Rounds
    #[arg(long, default_value_t = 9, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    form: FormArgs,
}

pub(super) struct ClearPlan {
    args: ClearArgs,
    sizes: Vec<u64>,
    region_bytes: usize,
}

impl ClearArgs {
    pub(super) fn plan(self) -> Result<ClearPlan> {
        let sizes = self.sizes()?;
        let region_bytes = self.region_bytes(&sizes)?;
        Ok(ClearPlan { args: self, sizes, region_bytes })
    }
}

impl Measure for ClearPlan {
    fn form(&self) -> Form {
        self.args.form.form()
    }

    fn measured(&self) -> Result<Measurements> {
        let Self { args, sizes, region_bytes } = self;
        let region = *region_bytes;
        let mut arena = Arena::new(region, if args.copy { region } else { 0 })?;
        let line = console::status();
        let measured;
        let tuning = if args.calibrated {
            line.set_message("calibrating");
            measured = Tuning::calibrated(arena.to(), NR_CALIBRATION_ROUNDS)?;
            &measured
        } else {
            Tuning::host()
        };
        let works: &[_] =
            if args.copy { &[ClearWork::Clear, ClearWork::Copy] } else { &[ClearWork::Clear] };
        let mut rows = Vec::new();
        for &work in works {
            for is_hot in [false, true] {
                for &bytes in sizes {
                    let cell = Cell { work, len_bytes: usize::try_from(bytes)?, is_hot };
                    line.set_message(format!("{}, {}", name(&cell), short(bytes)));
                    rows.extend(args.cell(&mut arena, tuning, cell));
                }
            }
        }
        let mut notes = Vec::new();
        if args.gaps {
            line.set_message("gaps");
            rows.extend(args.near_rows(&mut arena)?);
            rows.extend(gap_rows(&mut arena, tuning, &mut notes)?);
        }
        line.finish_and_clear();
        Ok(Measurements { published: &PUBLISHED_CLEARING, rows, notes })
    }
}

impl ClearArgs {
    fn sizes(&self) -> Result<Vec<u64>> {
        let mut sizes = self.size.clone();
        if self.large && !sizes.contains(&LARGE_BYTES) {
            sizes.push(LARGE_BYTES);
        }
        if let Some(bad) = sizes.iter().find(|b| !b.is_power_of_two() || !UNIT_BYTES.contains(b)) {
            bail!("--size {bad}: expected powers of two from 4K to 1G");
        }
        Ok(sizes)
    }

    fn region_bytes(&self, sizes: &[u64]) -> Result<usize> {
        if !REGION_BYTES.contains(&self.region) || !self.region.is_multiple_of(2 << 20) {
            bail!("--region: expected a multiple of 2M from 4M to 64G");
        }
        let largest = sizes.iter().copied().max().unwrap_or(0);
        usize::try_from(self.region.max(largest)).context("--region")
    }

    fn rounds(&self) -> usize {
        usize::try_from(self.rounds).unwrap_or(usize::MAX)
    }

    fn cell(&self, arena: &mut Arena, tuning: &Tuning, cell: Cell) -> Vec<BenchRow> {
        let all = cell.measure(arena, tuning, self.rounds());
        let median = |series: &Series| series.spread().map_or(f64::MAX, |spread| spread.median);
        let best = all
            .iter()
            .filter(|(subject, _)| matches!(subject, Subject::Whole(_)))
            .min_by(|(_, a), (_, b)| median(a).total_cmp(&median(b)))
            .map(|(subject, _)| *subject);
        let label = |subject: Subject| match subject {
            Subject::Pagewise => Some(format!("page at a time ({PAGEWISE})")),
            Subject::Chosen(primitive) => Some(format!("chosen ({primitive})")),
            Subject::Whole(Primitive::Portable) if best == Some(subject) => {
                Some(format!("best of these rounds ({})", libc_name(cell.work)))
            }
            Subject::Whole(Primitive::Portable) => Some(libc_name(cell.work).to_owned()),
            Subject::Whole(primitive) if self.every => Some(primitive.to_string()),
            Subject::Whole(primitive) => {
                (best == Some(subject)).then(|| format!("best of these rounds ({primitive})"))
            }
        };
        let shown = all.into_iter();
        let pairs: Vec<_> =
            shown.filter_map(|(subject, series)| Some((label(subject)?, series))).collect();
        #[expect(clippy::cast_precision_loss, reason = "at most 2^30 bytes")]
        let scale = Scale::GbPerS(cell.moved_bytes() as f64);
        rows(name(&cell), &short(cell.len_bytes as u64), scale, &pairs)
    }

    fn near_rows(&self, arena: &mut Arena) -> Result<Vec<BenchRow>> {
        let left = near::measure(arena, self.rounds() * NR_NEAR_ROUNDS)?;
        let how = |how| match how {
            CacheUse::Through => "through the cache",
            CacheUse::NearThrough => "near region through it",
            CacheUse::Past => "past the cache",
            CacheUse::NotCleared => "not cleared",
        };
        let scale = Scale::NsEach(1.0, "ns");
        let rows = |operation, of: fn(&near::Left) -> &Series| {
            let pairs: Vec<_> =
                left.iter().map(|left| (how(left.how).to_owned(), of(left).clone())).collect();
            rows(operation, "2M", scale, &pairs)
        };
        let mut all = rows("reading a cleared folio's 5 near pages", |left| &left.near);
        all.extend(rows("reading 512K of other data after it", |left| &left.other));
        Ok(all)
    }
}

fn name(cell: &Cell) -> &'static str {
    match (cell.work, cell.is_hot) {
        (ClearWork::Clear, false) => "clear, cold",
        (ClearWork::Clear, true) => "clear, hot",
        (ClearWork::Copy, false) => "copy, cold",
        (ClearWork::Copy, true) => "copy, hot",
    }
}

const fn libc_name(work: ClearWork) -> &'static str {
    match work {
        ClearWork::Clear => "memset",
        ClearWork::Copy => "memcpy",
    }
}

fn gap_rows(arena: &mut Arena, tuning: &Tuning, notes: &mut Vec<String>) -> Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    for waits in gaps::measure(arena, tuning)? {
        let by = if waits.is_chosen { "chosen".to_owned() } else { PAGEWISE.to_string() };
        let subject = format!("{by}, {} time", waits.clock);
        let us = |ns: f64| ns / 1000.0;
        #[expect(clippy::cast_precision_loss, reason = "gaps of up to a minute")]
        let p99 = us(waits.p99_ns as f64);
        let gaps = waits.gaps_ns;
        let all =
            Spread { median: us(gaps.median), min: us(gaps.min), max: us(gaps.max), n: gaps.n };
        let row = |subject: String, value| BenchRow {
            operation: "gap between reschedule points, units of 8M".to_owned(),
            size: "8M".to_owned(),
            subject,
            unit: "us",
            value,
            ratio: None,
            ratio_to: None,
        };
        rows.push(row(format!("{subject}, 99 of 100"), Spread { median: p99, max: p99, ..all }));
        rows.push(row(subject.clone(), all));
        let units = waits.units_within.iter().zip(gaps::TARGETS);
        let units = units.map(|(unit, target)| {
            let unit = unit.map_or_else(|| "none from 64K up".to_owned(), short);
            format!("within {target:?}: {unit}")
        });
        let units: Vec<_> = units.collect();
        notes.push(format!("largest unit, 99 gaps of 100, {subject}: {}", units.join(", ")));
    }
    Ok(rows)
}
