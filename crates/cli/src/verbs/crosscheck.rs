//! `folio crosscheck`.

mod cow;
mod live;
mod page;
mod program;
mod record;
mod replay;
mod report;
mod select;
mod text;
mod workloads;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use largefolio_sim::kernel::Kernel;

use self::report::Output;
use self::select::{RandomArgs, SelectArgs};
use super::page_file::PageArgs;
use super::values::FormArgs;
use crate::console::Console;
use crate::errors::Exit;

/// Check the model against the running kernel
///
/// Runs small workloads on the running kernel, on a filesystem of its own in memory, records under
/// tracefs what the page cache does, replays the same touches in the model under this kernel's
/// rules, and reports every difference. Needs root and 300 MiB of memory. No setting of the system
/// is changed, and nothing is left behind, also after Ctrl-C.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  sudo folio crosscheck                                ext4 and XFS, four windows, a minute
  sudo folio crosscheck --fs xfs --window 128K --only '*rand*'
  sudo folio crosscheck --kernel 6.12 --json           under the rules of another kernel
  sudo folio crosscheck --report check.html            and as a page
  sudo folio crosscheck --random 2000 --seed 7         workloads nobody listed
  sudo folio crosscheck record -o here -- prot=r advice=huge pattern=stride7 n=100
  sudo folio crosscheck program -- python3 -c pass     a real program with all its files
  folio crosscheck replay here recordings/packaged     no root needed
  sudo folio crosscheck cow --programs 2000            fork and copy-on-write
  sudo folio crosscheck collapse --programs 2000       MADV_COLLAPSE

Exit status: 0 kernel and model agree, 1 they differ, 2 error."
)]
pub(crate) struct CrosscheckArgs {
    #[command(subcommand)]
    verb: Option<CrosscheckVerb>,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    random: RandomArgs,
    #[command(flatten)]
    rules: RulesArgs,
    /// Directory to keep the recordings in; with --random those that differ
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Subcommand)]
enum CrosscheckVerb {
    Program(program::ProgramArgs),
    Cow(cow::CowArgs),
    Collapse(cow::CollapseArgs),
    Record(record::RecordArgs),
    Replay(replay::ReplayArgs),
    Workloads(workloads::WorkloadsArgs),
}

/// The options that say where the result goes.
#[derive(Args, Debug)]
struct OutputArgs {
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArgs,
}

impl OutputArgs {
    /// Checks that a page has a place that is none of `inputs`.
    fn output<'a>(self, inputs: impl IntoIterator<Item = &'a Path>) -> Result<Output> {
        Ok(Output { form: self.form.form(), page: self.page.file(inputs)? })
    }
}

/// The option that chooses the rules.
#[derive(Args, Debug)]
struct RulesArgs {
    /// Rules to replay under, with edits [default: those of the kernel that was recorded]
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,
}

impl RulesArgs {
    fn kernel(&self) -> Result<Option<Kernel>> {
        Ok(self.kernel.as_deref().map(Kernel::parse).transpose()?)
    }
}

impl CrosscheckArgs {
    /// Checks what was asked for and does it.
    pub(crate) fn run(self, command_line: Vec<String>, console: &mut Console) -> Result<Exit> {
        match self.verb {
            None => {
                let kernel = self.rules.kernel()?;
                let output = self.output.output([])?;
                let chosen = live::Chosen { select: self.select, random: self.random.random() };
                live::LivePlan::new(&chosen, kernel, self.keep, command_line)?.run(&output, console)
            }
            Some(CrosscheckVerb::Program(args)) => args.plan(command_line)?.run(console),
            Some(CrosscheckVerb::Cow(args)) => args.run(&command_line, console),
            Some(CrosscheckVerb::Collapse(args)) => args.run(&command_line, console),
            Some(CrosscheckVerb::Record(args)) => args.plan(&command_line)?.run(),
            Some(CrosscheckVerb::Replay(args)) => args.plan(command_line)?.run(console),
            Some(CrosscheckVerb::Workloads(args)) => args.run(console),
        }
    }
}
