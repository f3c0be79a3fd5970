//! `folio bench`: the series' micro-benchmarks, on this kernel and in the model.

mod anon;
mod anon_cow;
mod clear;
mod exec;
mod fault;
mod owners;

use anyhow::Result;
use clap::{Args, Subcommand};
use largefolio_results::bench::{BenchResult, BenchRow};
use largefolio_results::running::page_edit;
use largefolio_results::{Form, Forms as _};
use largefolio_sim::kernel::Kernel;

use crate::console::Console;
use crate::errors::Exit;
use crate::verbs::running;

/// What series 001 says (docs/behaviour J.2): demand faults, AMD Milan, boost off.
const PUBLISHED_CLEARING: [&str; 1] = [
    "demand faults on Milan, GB/s: 2M 11.82 -> 16.48 (+39.4%); 1G 17.51 -> 40.03 (+128.6%) under \
     full or lazy preemption, 17.14 -> 17.42 (+1.6%) under none or voluntary",
];

/// Run the patch series' benchmarks, on this kernel and in the model
///
/// Every round runs each subject once, so that drift of the machine affects them all. A result is
/// the median over rounds, a ratio is the median of the ratios within rounds, each with its
/// smallest and largest value.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio bench clear --rounds 5
  folio bench fault --size 4K,2M --kernel 6.18,7.0
  sudo folio bench anon --size 4K,64K --region 64M")]
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

/// What was measured.
struct Found {
    /// What the series published, where it did.
    published: &'static [&'static str],
    rows: Vec<BenchRow>,
    /// What was not measured, and why.
    notes: Vec<String>,
}

/// The kernels to time in the model, with the base page of this machine; none has a policy.
fn timed_kernels(names: &[String]) -> Result<Vec<Kernel>> {
    let kernels = running::all_with(names, &page_edit())?;
    Ok(kernels.into_iter().map(Kernel::without_policy).collect::<Result<_, _>>()?)
}

/// A benchmark that can be run.
trait Measure {
    fn form(&self) -> Form;

    /// Runs all rounds.
    fn measured(&self) -> Result<Found>;
}

/// A benchmark, and where it comes from.
pub(crate) struct BenchPlan {
    benchmark: Box<dyn Measure>,
    command_line: Vec<String>,
}

impl BenchArgs {
    /// Checks the arguments.
    pub(crate) fn plan(self, command_line: Vec<String>) -> Result<BenchPlan> {
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

impl BenchPlan {
    /// Measures, and writes the table.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
        let Found { published, rows, notes } = self.benchmark.measured()?;
        let result = BenchResult::new(self.command_line, published, rows).with_notes(notes);
        console.deliver(result.written(self.benchmark.form())?.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}
