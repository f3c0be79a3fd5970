//! `folio-lab bench fault`: demand faults by page size (series 001).

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_lab::bench::fault::{Gigantic, enabled_sizes};
use largefolio_lab::bench::timed::{
    AnonWork, GIGANTIC_BYTES, Spare, beside_the_model, on_gigantic_host, on_host,
};
use largefolio_lab::bench::{BenchRow, Scale, rows, short};
use largefolio_linux::calibrate::anon::FolioSize;
use largefolio_linux::geometry::Geometry;
use largefolio_results::Form;
use largefolio_sim::bench::AnonBench;
use largefolio_sim::kernel::Kernel;

use super::{Measure, Measurements, PUBLISHED_CLEARING, timed_kernels};
use largefolio_cli::console;
use largefolio_cli::verbs::values::{FormArgs, folio_size, size, within};

const OPERATION: &str = "demand faults, one store to every folio";
/// Smaller regions are too noisy; larger ones may not fit in memory.
const REGION_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=16 << 30;

/// Time demand faults by folio size: a fresh region, one store to every folio
///
/// Repeats the measurement from series 001. The model allocates real memory and clears it by the
/// kernel's rule; that memory is on this machine's base pages unless huge pages are enabled for all
/// memory. Times are the thread's CPU time. Sizes above the base page size need root: folio changes
/// the per-size settings of transparent huge pages, or for 1G the hugetlb pool, while it runs, and
/// always restores them.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab bench fault
  folio-lab bench fault --size 4K,64K,2M --region 1G --kernel 6.18,7.0
  folio-lab bench fault --size 2M,1G --model-only --kernel 6.19,6.19+clear=posted

How to read it: GB/s of zeroed memory. For each size, the first subject is this kernel; the others
are the model, each with the rules of one kernel.")]
pub(crate) struct FaultArgs {
    /// Folio sizes up to 2M, or 1G [default: the base page size, the enabled sizes, 2M]
    #[arg(long, value_delimiter = ',', value_parser = folio_size)]
    size: Vec<u64>,
    /// Region size in bytes; at least 1G for 1G pages
    #[arg(long, default_value = "256M", value_parser = size)]
    region: u64,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Kernels to model
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "6.18+clear=converging,6.18+clear=posted,6.18+clear=merged,6.18+clear=one-pass"
    )]
    kernel: Vec<String>,
    /// Run only the model, which needs no privileges
    #[arg(long)]
    model_only: bool,
    #[command(flatten)]
    form: FormArgs,
}

pub(super) struct FaultPlan {
    args: FaultArgs,
    sizes: Vec<u64>,
    kernels: Vec<Kernel>,
    /// The memory that all rules share.
    spare: Spare,
    /// The shared memory for 1 GiB pages.
    gigantic: Spare,
}

impl FaultArgs {
    pub(super) fn plan(self) -> Result<FaultPlan> {
        if !REGION_BYTES.contains(&self.region) || !self.region.is_multiple_of(2 << 20) {
            bail!("--region: expected a multiple of 2M from 4M to 16G");
        }
        let kernels = timed_kernels(&self.kernel)?;
        let mut sizes = self.size.clone();
        if sizes.is_empty() {
            let Geometry { page_bytes, .. } = Geometry::running();
            sizes = vec![page_bytes, 2 << 20];
            if !self.model_only {
                // Order 1 is a size of the kernel's file memory; anonymous memory in the model has
                // none (D.1.3).
                let is_usual = |bytes: &u64| (4 * page_bytes..=2 << 20).contains(bytes);
                sizes.extend(enabled_sizes()?.into_iter().filter(is_usual));
            }
            sizes.sort_unstable();
            sizes.dedup();
        }
        let is_anon = |bytes: u64| bytes <= 2 << 20;
        if let Some(bad) = sizes.iter().find(|&&bytes| !is_anon(bytes) && bytes != GIGANTIC_BYTES) {
            bail!("--size {}: expected sizes up to 2M, or 1G", short(*bad));
        }
        for kernel in &kernels {
            for &bytes in sizes.iter().filter(|&&bytes| is_anon(bytes)) {
                AnonBench::new(kernel, bytes, 4 << 20)?;
            }
        }
        let (spare, gigantic) = (Spare::default(), Spare::default());
        Ok(FaultPlan { args: self, sizes, kernels, spare, gigantic })
    }
}

impl Measure for FaultPlan {
    fn form(&self) -> Form {
        self.args.form.form()
    }

    fn measured(&self) -> Result<Measurements> {
        let line = console::status();
        let mut rows = Vec::new();
        for &bytes in &self.sizes {
            line.set_message(format!("faults of {}", short(bytes)));
            rows.extend(self.measure(bytes)?);
        }
        line.finish_and_clear();
        Ok(Measurements { published: &PUBLISHED_CLEARING, rows, notes: Vec::new() })
    }
}

impl FaultPlan {
    fn rounds(&self) -> usize {
        usize::try_from(self.args.rounds).unwrap_or(usize::MAX)
    }

    fn measure(&self, bytes: u64) -> Result<Vec<BenchRow>> {
        if bytes == GIGANTIC_BYTES {
            return self.gigantic();
        }
        let region = self.args.region;
        let host = if self.args.model_only {
            None
        } else {
            Some(FolioSize::enable(usize::try_from(bytes).context("--size")?)?)
        };
        let work = AnonWork { operation: None, folio_bytes: bytes, region_bytes: region };
        let host = host.as_ref().map(|host| on_host(host, work));
        let pairs = beside_the_model(work, host, &self.kernels, &self.spare, self.rounds())?;
        Ok(rows(OPERATION, &short(bytes), scale(region), &pairs))
    }

    fn gigantic(&self) -> Result<Vec<BenchRow>> {
        let region = self.args.region.next_multiple_of(GIGANTIC_BYTES);
        let nr = usize::try_from(region / GIGANTIC_BYTES).context("--region")?;
        let host = if self.args.model_only { None } else { Some(Gigantic::reserve(nr)?) };
        let work = AnonWork { operation: None, folio_bytes: GIGANTIC_BYTES, region_bytes: region };
        let host = host.as_ref().map(on_gigantic_host);
        let pairs = beside_the_model(work, host, &self.kernels, &self.gigantic, self.rounds())?;
        Ok(rows(OPERATION, "1G", scale(region), &pairs))
    }
}

#[expect(clippy::cast_precision_loss, reason = "at most 16 GiB")]
const fn scale(region_bytes: u64) -> Scale {
    Scale::GbPerS(region_bytes as f64)
}
