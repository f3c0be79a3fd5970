//! `folio-lab crosscheck`.

mod cow;
mod live;
mod output;
mod program;
mod record;
mod replay;
mod run;
mod select;
mod workloads;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use largefolio_lab::crosscheck::record::WorkloadSet;

use self::output::{OutputArgs, RulesArgs};
use self::select::{RandomArgs, SelectArgs};
use largefolio_cli::console::Console;
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::{Invocation, VerbArgs, VerbPlan};

/// Check the model against the running kernel
///
/// Runs small workloads on the running kernel, on filesystems in memory, and records the page
/// cache's activity through tracefs. Then it replays the same accesses in the model under this
/// kernel's rules and reports every difference. Needs root and 300 MiB of memory. It changes no
/// system settings and leaves nothing behind, even after Ctrl-C.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sudo folio-lab crosscheck                                ext4 and XFS, four windows, a minute
  sudo folio-lab crosscheck --fs xfs --window 128K --only '*rand*'
  sudo folio-lab crosscheck --kernel 6.12 --json           under the rules of another kernel
  sudo folio-lab crosscheck --random 2000 --seed 7         random workloads
  sudo folio-lab crosscheck --limited                      too little memory: what reclaim evicts
  sudo folio-lab crosscheck record -o here -- prot=r advice=huge pattern=stride7 n=100
  sudo folio-lab crosscheck run -- python3 -c pass         a prediction and a plain run
  sudo folio-lab crosscheck program -- python3 -c pass     a real program with all its files
  folio-lab crosscheck replay here recordings/packaged     no root needed
  sudo folio-lab crosscheck cow --programs 2000            fork and copy-on-write
  sudo folio-lab crosscheck collapse --programs 2000       MADV_COLLAPSE
  sudo folio-lab crosscheck shared --programs 2000         shared memory in large folios
  sudo folio-lab crosscheck nodes --programs 2000          memory policies on two NUMA nodes

Exit status: 0 if the kernel and the model agree, 1 if they differ, 2 on error."
)]
pub(crate) struct CrosscheckArgs {
    #[command(subcommand)]
    verb: Option<CrosscheckVerb>,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    random: RandomArgs,
    /// Run each workload, with its own readahead window, in a memory cgroup too small for it, and
    /// compare what reclaim evicts with the model
    #[arg(long, conflicts_with_all = ["random", "windows_kb"])]
    limited: bool,
    #[command(flatten)]
    rules: RulesArgs,
    /// Keep the recordings in this directory; with --random, only those that differ
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum CrosscheckVerb {
    Run(run::RunArgs),
    Program(program::ProgramArgs),
    Cow(cow::CowArgs),
    Collapse(cow::CollapseArgs),
    Shared(cow::SharedArgs),
    Nodes(cow::NodesArgs),
    Record(record::RecordArgs),
    Replay(replay::ReplayArgs),
    Workloads(workloads::WorkloadsArgs),
}

pub(crate) enum CrosscheckPlan {
    Live(Box<live::LivePlan>),
    Run(Box<run::RunVerb>),
    Program(Box<program::ProgramRun>),
    Cow(Box<cow::CowPlan>),
    Record(Box<record::RecordPlan>),
    Replay(Box<replay::ReplayPlan>),
    Workloads(workloads::WorkloadsPlan),
}

impl VerbArgs for CrosscheckArgs {
    type Plan = CrosscheckPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        Ok(match self.verb {
            None => {
                let kernel = self.rules.kernel()?;
                let output = self.output.output();
                let set = if self.limited { WorkloadSet::Limited } else { WorkloadSet::Usual };
                let chosen =
                    live::Chosen { select: self.select, random: self.random.random(), set };
                let plan = live::LivePlan::new(&chosen, kernel, self.keep, output, command_line)?;
                CrosscheckPlan::Live(Box::new(plan))
            }
            Some(CrosscheckVerb::Run(args)) => {
                CrosscheckPlan::Run(Box::new(args.plan(command_line)?))
            }
            Some(CrosscheckVerb::Program(args)) => {
                CrosscheckPlan::Program(Box::new(args.plan(command_line)?))
            }
            Some(CrosscheckVerb::Cow(args)) => {
                CrosscheckPlan::Cow(Box::new(args.plan(command_line)?))
            }
            Some(CrosscheckVerb::Collapse(args)) => {
                CrosscheckPlan::Cow(Box::new(args.plan(command_line)?))
            }
            Some(CrosscheckVerb::Shared(args)) => {
                CrosscheckPlan::Cow(Box::new(args.plan(command_line)?))
            }
            Some(CrosscheckVerb::Nodes(args)) => {
                CrosscheckPlan::Cow(Box::new(args.plan(command_line)?))
            }
            Some(CrosscheckVerb::Record(args)) => {
                CrosscheckPlan::Record(Box::new(args.plan(&command_line)?))
            }
            Some(CrosscheckVerb::Replay(args)) => {
                CrosscheckPlan::Replay(Box::new(args.plan(command_line)?))
            }
            Some(CrosscheckVerb::Workloads(args)) => CrosscheckPlan::Workloads(args.plan()),
        })
    }
}

impl VerbPlan for CrosscheckPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        match self {
            Self::Live(plan) => plan.run(console),
            Self::Run(plan) => plan.run(console),
            Self::Program(plan) => plan.run(console),
            Self::Cow(plan) => plan.run(console),
            Self::Record(plan) => plan.run(),
            Self::Replay(plan) => plan.run(console),
            Self::Workloads(plan) => plan.run(console),
        }
    }
}
