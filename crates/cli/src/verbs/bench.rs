//! `folio bench`: the series' micro-benchmarks, on this kernel and in the model.

pub(super) mod anon;
mod anon_cow;
mod clear;
mod exec;
pub(super) mod fault;
mod measured;
mod owners;

/// What series 001 says (docs/behaviour J.2): demand faults, AMD Milan, boost off.
const PUBLISHED_CLEARING: [&str; 1] = [
    "demand faults on Milan, GB/s: 2M 11.82 -> 16.48 (+39.4%); 1G 17.51 -> 40.03 (+129.9%) under \
     full or lazy preemption, 17.14 -> 17.42 (+1.6%) under none or voluntary",
];

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::console::Console;
use crate::errors::Exit;

/// Time what the patch series time, on this kernel and in the model
///
/// Every round runs each subject once, so that drift of the machine meets all of them; a result is
/// the median over rounds, a ratio the median of ratios within a round, each with its smallest and
/// largest value.
#[derive(Args, Debug)]
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

impl BenchArgs {
    /// Checks the arguments and measures; `command_line` goes into the JSON.
    pub(crate) fn run(&self, command_line: Vec<String>, console: &mut Console) -> Result<Exit> {
        match &self.what {
            What::Anon(args) => args.plan()?.run(command_line, console),
            What::AnonCow(args) => args.run(command_line, console),
            What::Clear(args) => args.run(command_line, console),
            What::Exec(args) => args.plan()?.run(command_line, console),
            What::Fault(args) => args.plan()?.run(command_line, console),
            What::Owners(args) => args.run(command_line, console),
        }
    }
}
