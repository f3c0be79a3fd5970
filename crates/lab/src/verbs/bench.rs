//! `folio-lab bench`: the micro-benchmarks of the patch series, on this kernel and in the model.

mod anon;
mod anon_cow;
mod clear;
mod exec;
mod fault;
mod owners;

use anyhow::Result;
use clap::{Args, Subcommand};
use largefolio_cli::console::Console;
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::running;
use largefolio_cli::verbs::{Invocation, VerbArgs, VerbPlan};
use largefolio_lab::bench::{BenchResult, BenchRow};
use largefolio_results::running::page_edit;
use largefolio_results::{Form, Forms as _};
use largefolio_sim::kernel::Kernel;

/// Published results of series 001 (docs/behaviour J.2): demand faults, AMD Milan, boost off.
const PUBLISHED_CLEARING: [&str; 1] = [
    "demand faults on Milan, GB/s: 2M 11.82 -> 16.48 (+39.4%); 1G 17.51 -> 40.03 (+128.6%) under \
     full or lazy preemption, 17.14 -> 17.42 (+1.6%) under none or voluntary",
];

/// Run the patch series' benchmarks, on this kernel and in the model
///
/// Every round runs each subject once, so machine drift affects them all. A result is the median
/// over all rounds; a ratio is the median of the ratios within rounds. Both are shown with their
/// smallest and largest values.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab bench clear --rounds 5
  folio-lab bench fault --size 4K,2M --kernel 6.18,7.0
  sudo folio-lab bench anon --size 4K,64K --region 64M")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Anon(anon::AnonArgs),
    AnonCow(anon_cow::AnonCowArgs),
    Clear(clear::ClearArgs),
    Exec(exec::ExecArgs),
    Fault(fault::FaultArgs),
    Owners(owners::OwnersArgs),
}

struct Measurements {
    /// The published results, if there are any.
    published: &'static [&'static str],
    rows: Vec<BenchRow>,
    /// Measurements that are missing, with the reason.
    notes: Vec<String>,
}

/// Returns the kernels to time in the model, with this machine's base page size and without
/// policies.
fn timed_kernels(names: &[String]) -> Result<Vec<Kernel>> {
    let kernels = running::all_with(names, &page_edit(), &[])?;
    Ok(kernels.into_iter().map(Kernel::without_policy).collect::<Result<_, _>>()?)
}

trait Measure {
    fn form(&self) -> Form;

    fn measured(&self) -> Result<Measurements>;
}

pub(crate) struct BenchPlan {
    benchmark: Box<dyn Measure>,
    command_line: Vec<String>,
}

impl VerbArgs for BenchArgs {
    type Plan = BenchPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let benchmark: Box<dyn Measure> = match self.what {
            What::Anon(args) => Box::new(args.plan()?),
            What::AnonCow(args) => Box::new(args.plan()?),
            What::Clear(args) => Box::new(args.plan()?),
            What::Exec(args) => Box::new(args.plan()?),
            What::Fault(args) => Box::new(args.plan()?),
            What::Owners(args) => Box::new(args),
        };
        Ok(BenchPlan { benchmark, command_line })
    }
}

impl VerbPlan for BenchPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let Measurements { published, rows, notes } = self.benchmark.measured()?;
        let result = BenchResult::new(self.command_line, published, rows).with_notes(notes);
        console.deliver(result.written(self.benchmark.form())?.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}
