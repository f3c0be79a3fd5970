//! `folio-lab bench anon`: first touch, fork, munmap and copy-on-write by folio size (series 004).

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_lab::bench::timed::{AnonWork, Spare, beside_the_model, on_host};
use largefolio_lab::bench::{BenchRow, Scale, rows, short};
use largefolio_linux::calibrate::anon::{FolioSize, Operation};
use largefolio_linux::geometry::Geometry;
use largefolio_results::Form;
use largefolio_sim::bench::AnonBench;
use largefolio_sim::kernel::Kernel;

use super::{Measure, Measurements, timed_kernels};
use largefolio_cli::console;
use largefolio_cli::verbs::values::{FormArgs, folio_size, size, within};

const OPERATIONS: [(Operation, &str); 5] = [
    (Operation::Touch, "first touch"),
    (Operation::Fork, "fork"),
    (Operation::Munmap, "munmap"),
    (Operation::CowCopy, "store, child alive"),
    (Operation::CowReuse, "store, child gone"),
];
/// Published results of series 004 (docs/behaviour J.5).
const PUBLISHED: [&str; 1] =
    ["reuse instead of copy -65% and -54% run time; without page mapcounts munmap up to -30% \
     and -70%, fork up to -20% and -10%"];
/// Smaller regions are too noisy; larger ones may not fit in memory.
const REGION_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=64 << 30;
/// Nanoseconds are per this many bytes, regardless of the base page size.
const BASE_BYTES: u64 = 4096;

/// Returns the base page size, 64K and the size that pays, without duplicates.
pub(super) fn usual_sizes() -> Vec<u64> {
    let machine = Geometry::running();
    let mut sizes = vec![machine.page_bytes, 64 << 10, machine.block_bytes()];
    sizes.dedup();
    sizes
}

/// Time first touch, fork, munmap and copy-on-write of anonymous memory by folio size
///
/// Sizes above the base page size need root: folio changes the per-size settings of transparent
/// huge pages while it runs, and always restores them. folio touches only its own memory.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab bench anon
  folio-lab bench anon --size 4K,64K --region 1G --rounds 9 --kernel 6.12,6.18

How to read it: nanoseconds per 4 KiB of the region. For each size, the first subject is this
kernel; the others are the model, each with the rules of one kernel.")]
pub(crate) struct AnonArgs {
    /// Folio sizes [default: the base page size, 64K, 2M]
    #[arg(long, value_delimiter = ',', value_parser = folio_size)]
    size: Vec<u64>,
    /// Region size in bytes
    #[arg(long, default_value = "256M", value_parser = size)]
    region: u64,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Kernels to model
    #[arg(long, value_delimiter = ',', default_value = "6.18,6.18+mapcount=folio,6.12")]
    kernel: Vec<String>,
    /// Run only the model, which needs no privileges
    #[arg(long)]
    model_only: bool,
    #[command(flatten)]
    form: FormArgs,
}

pub(super) struct AnonPlan {
    args: AnonArgs,
    kernels: Vec<Kernel>,
}

impl AnonArgs {
    pub(super) fn plan(mut self) -> Result<AnonPlan> {
        if self.size.is_empty() {
            self.size = usual_sizes();
        }
        if !REGION_BYTES.contains(&self.region) || !self.region.is_multiple_of(2 << 20) {
            bail!("--region: expected a multiple of 2M from 4M to 64G");
        }
        let kernels = timed_kernels(&self.kernel)?;
        for kernel in &kernels {
            for &bytes in &self.size {
                AnonBench::new(kernel, bytes, 4 << 20)?;
            }
        }
        Ok(AnonPlan { args: self, kernels })
    }
}

impl Measure for AnonPlan {
    fn form(&self) -> Form {
        self.args.form.form()
    }

    fn measured(&self) -> Result<Measurements> {
        let line = console::status();
        let mut rows = Vec::new();
        for (operation, name) in OPERATIONS {
            for &bytes in &self.args.size {
                line.set_message(format!("{name}, {}", short(bytes)));
                rows.extend(self.measure(operation, name, bytes)?);
            }
        }
        line.finish_and_clear();
        Ok(Measurements { published: &PUBLISHED, rows, notes: Vec::new() })
    }
}

impl AnonPlan {
    fn measure(&self, operation: Operation, name: &str, bytes: u64) -> Result<Vec<BenchRow>> {
        let region = self.args.region;
        // Held over all rounds: changing settings is not part of the benchmark.
        let host = if self.args.model_only {
            None
        } else {
            let folio = usize::try_from(bytes).context("--size")?;
            Some(FolioSize::given(folio, usize::try_from(region).context("--region")?)?)
        };
        let operation = Some(operation);
        let work = AnonWork { operation, folio_bytes: bytes, region_bytes: region };
        let rounds = usize::try_from(self.args.rounds).unwrap_or(usize::MAX);
        let (host, spare) = (host.as_ref(), Spare::default());
        let pairs = beside_the_model(
            work,
            host.map(|host| on_host(host, work)),
            &self.kernels,
            &spare,
            rounds,
        )?;
        #[expect(clippy::cast_precision_loss, reason = "at most 2^24 pages")]
        let nr_pages = (region / BASE_BYTES) as f64;
        let scale = Scale::NsEach(nr_pages, "ns per 4 KiB");
        Ok(rows(name, &short(bytes), scale, &pairs))
    }
}
