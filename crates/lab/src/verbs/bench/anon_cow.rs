//! `folio-lab bench anon-cow`: concurrent copy-on-write by several processes (series 004).

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_lab::bench::anon_cow::{Order, cow_by_children};
use largefolio_lab::bench::{BenchRow, Scale, rows, short};
use largefolio_linux::calibrate::anon::{BenchError, FolioSize};
use largefolio_linux::measure::interleave;
use largefolio_results::Form;

use super::anon::usual_sizes;
use super::{Measure, Measurements};
use largefolio_cli::console;
use largefolio_cli::verbs::values::{FormArgs, folio_size, size, within};

/// Published results of series 004 (docs/behaviour J.5).
const PUBLISHED: [&str; 1] =
    ["vm-scalability anon-cow-seq and anon-cow-rand with owner tracking: \
                               no significant change on 2 x 10 cores, less than 1% on 192"];
/// Smaller regions are too noisy; every child copies its own region.
const REGION_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 30;

/// Time concurrent copy-on-write of anonymous memory by several processes, in order and at random
///
/// The children of one process store to every page of its memory. Sizes above the base page size
/// need root, as in folio-lab bench anon.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab bench anon-cow
  folio-lab bench anon-cow --size 4K,2M --children 1,2,4 --region 256M

How to read it: nanoseconds that a child takes per 4 KiB that it writes, until the last child has
ended. The first number of children is the baseline: 1.00x with more children means perfect scaling.")]
pub(crate) struct AnonCowArgs {
    /// Folio sizes [default: the base page size, 64K, 2M]
    #[arg(long, value_delimiter = ',', value_parser = folio_size)]
    size: Vec<u64>,
    /// Number of children that store at the same time
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_parser = within::<u32>(1..=1024))]
    children: Vec<u32>,
    /// Region size in bytes: a power of two
    #[arg(long, default_value = "64M", value_parser = size)]
    region: u64,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    form: FormArgs,
}

impl AnonCowArgs {
    pub(super) fn plan(mut self) -> Result<Self> {
        if self.size.is_empty() {
            self.size = usual_sizes();
        }
        if !REGION_BYTES.contains(&self.region) || !self.region.is_power_of_two() {
            bail!("--region: expected a power of two from 1M to 16G, such as 64M");
        }
        Ok(self)
    }
}

impl Measure for AnonCowArgs {
    fn form(&self) -> Form {
        self.form.form()
    }

    fn measured(&self) -> Result<Measurements> {
        let line = console::status();
        let mut rows = Vec::new();
        for (order, name) in
            [(Order::Sequential, "every child in order"), (Order::Random, "every child at random")]
        {
            for &bytes in &self.size {
                line.set_message(format!("{name}, {}", short(bytes)));
                rows.extend(self.measure(order, name, bytes)?);
            }
        }
        line.finish_and_clear();
        Ok(Measurements { published: &PUBLISHED, rows, notes: Vec::new() })
    }
}

impl AnonCowArgs {
    fn measure(&self, order: Order, name: &str, bytes: u64) -> Result<Vec<BenchRow>> {
        let len = usize::try_from(self.region).context("--region")?;
        let host = FolioSize::given(usize::try_from(bytes).context("--size")?, len)?;
        let mut subjects: Vec<_> =
            self.children.iter().map(|&nr| subject(&host, order, nr, len)).collect();
        let rounds = usize::try_from(self.rounds).unwrap_or(usize::MAX);
        let series = interleave(rounds, &mut subjects, &mut |_| {})?;
        let names = self.children.iter().map(|nr| match nr {
            1 => "1 child".to_owned(),
            nr => format!("{nr} children"),
        });
        let pairs: Vec<_> = names.zip(series).collect();
        let nr_pages = u32::try_from(self.region >> 12).context("--region")?;
        let scale = Scale::NsEach(f64::from(nr_pages), "ns per 4 KiB");
        Ok(rows(name, &short(bytes), scale, &pairs))
    }
}

type Subject<'a> = Box<dyn FnMut() -> Result<std::time::Duration, BenchError> + 'a>;

fn subject(host: &FolioSize, order: Order, nr_children: u32, len: usize) -> Subject<'_> {
    Box::new(move || cow_by_children(host, order, nr_children as usize, len))
}
