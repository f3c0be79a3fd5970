//! `folio bench anon`: first touch, fork, munmap and copy-on-write by folio size (series 004).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_linux::bench::anon::{FolioSize, Operation};
use largefolio_linux::measure::interleave;
use largefolio_sim::bench::AnonBench;
use largefolio_sim::kernel::Kernel;

use super::measured::{self, Report, Row, Scale, short};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::running;
use crate::verbs::values::{FormArgs, folio_size, size};

/// Operations in the order of the table.
const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Touch, "first touch"),
    (Operation::Fork, "fork"),
    (Operation::Munmap, "munmap"),
    (Operation::CowCopy, "store, child alive"),
    (Operation::CowReuse, "store, child gone"),
];
/// What series 004 says (docs/behaviour J.5).
const PUBLISHED: [&str; 1] =
    ["reuse instead of copy -65% and -54% run time; without page mapcounts munmap up to -30% \
     and -70%, fork up to -20% and -10%"];
/// Regions below this are noise, above it they may not fit.
const REGION_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 30;
/// Base page of the machines this is compared with.
const BASE_BYTES: u64 = 4096;

/// Takes one round's time.
type Subject<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

/// First touch, fork, munmap and copy-on-write of anonymous memory by folio size
///
/// Needs root for sizes above the base page: the per-size settings of transparent huge pages are
/// changed while it runs and put back on every exit. Only memory of this command is touched.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio bench anon
  folio bench anon --size 4K,64K --region 1G --rounds 9 --kernel 6.12,6.18

Reading: nanoseconds for each 4 KiB of the region. The first subject of a size is this kernel, the
others are the model under the rules of a kernel.")]
pub(crate) struct AnonArgs {
    /// Folio sizes
    #[arg(long, value_delimiter = ',', default_value = "4K,64K,2M", value_parser = folio_size)]
    size: Vec<u64>,
    /// Bytes of the region
    #[arg(long, default_value = "256M", value_parser = size)]
    region: u64,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Rules the model runs under
    #[arg(long, value_delimiter = ',', default_value = "6.18,6.18+mapcount=folio,6.12")]
    kernel: Vec<String>,
    /// The model alone: needs no rights
    #[arg(long)]
    model_only: bool,
    #[command(flatten)]
    form: FormArgs,
}

/// A benchmark that can be run.
pub(super) struct AnonPlan<'a> {
    args: &'a AnonArgs,
    kernels: Vec<Kernel>,
}

impl AnonArgs {
    /// Checks kernels, sizes and the region.
    pub(super) fn plan(&self) -> Result<AnonPlan<'_>> {
        if !REGION_BYTES.contains(&self.region) || !self.region.is_multiple_of(2 << 20) {
            bail!("--region: expected a multiple of 2M from 4M to 64G");
        }
        let parse =
            |name: &String| -> Result<Kernel> { running::named(&format!("{name}+page=4K")) };
        let kernels = self.kernel.iter().map(parse).collect::<Result<Vec<_>>>()?;
        for kernel in &kernels {
            for &bytes in &self.size {
                AnonBench::new(kernel, bytes, 4 << 20)?;
            }
        }
        Ok(AnonPlan { args: self, kernels })
    }
}

impl AnonPlan<'_> {
    /// Measures and writes the table.
    pub(super) fn run(&self, command_line: Vec<String>, console: &mut Console) -> Result<Exit> {
        let line = console::status();
        let mut rows = Vec::new();
        for (operation, name) in OPERATIONS {
            for &bytes in &self.args.size {
                line.set_message(format!("{name}, {}", short(bytes)));
                rows.extend(self.measure(operation, name, bytes)?);
            }
        }
        line.finish_and_clear();
        Report::new(command_line, &PUBLISHED, rows).write(self.args.form.form(), console)?;
        Ok(Exit::Done)
    }

    fn measure(&self, operation: Operation, name: &str, bytes: u64) -> Result<Vec<Row>> {
        let region = self.args.region;
        let len = usize::try_from(region).context("--region")?;
        // Held over all rounds: changing settings is no part of the benchmark.
        let host = if self.args.model_only {
            None
        } else {
            let folio = usize::try_from(bytes).context("--size")?;
            Some(FolioSize::enable(folio)?)
        };
        let mut names = Vec::new();
        let mut subjects: Vec<Subject<'_>> = Vec::new();
        if let Some(host) = &host {
            names.push("this kernel".to_owned());
            subjects.push(Box::new(move || Ok(host.time(operation, len)?)));
        }
        for kernel in &self.kernels {
            names.push(kernel.name.trim_end_matches("+page=4K").to_owned());
            subjects.push(Box::new(move || in_model(kernel, operation, bytes, region)));
        }
        let rounds = usize::try_from(self.args.rounds).unwrap_or(usize::MAX);
        let series = interleave(rounds, &mut subjects, &mut |_| {})?;
        let pairs: Vec<_> = names.into_iter().zip(series).collect();
        #[expect(clippy::cast_precision_loss, reason = "at most 2^24 pages")]
        let nr_pages = (region / BASE_BYTES) as f64;
        let scale = Scale::NsEach(nr_pages, "ns for each 4 KiB");
        Ok(measured::rows(name, &short(bytes), scale, &pairs))
    }
}

/// The same operation in the memory manager.
pub(in crate::verbs) fn in_model(
    kernel: &Kernel,
    operation: Operation,
    bytes: u64,
    region: u64,
) -> Result<Duration> {
    let mut bench = AnonBench::new(kernel, bytes, region)?;
    if operation != Operation::Touch {
        bench.store_all()?;
    }
    let child = match operation {
        Operation::CowCopy => Some(bench.fork()?),
        Operation::CowReuse => {
            let child = bench.fork()?;
            bench.exit(child);
            None
        }
        _ => None,
    };
    let start = Instant::now();
    match operation {
        Operation::Touch | Operation::CowCopy | Operation::CowReuse => bench.store_all()?,
        Operation::Munmap => bench.munmap()?,
        Operation::Fork | Operation::ForkBeyond => {
            bench.fork()?;
        }
    }
    let taken = start.elapsed();
    if let Some(child) = child {
        bench.exit(child);
    }
    Ok(taken)
}
