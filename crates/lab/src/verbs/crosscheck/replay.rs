//! `folio-lab crosscheck replay`: recordings made earlier or elsewhere.

use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_lab::crosscheck::result::ReplayRequest;

use super::output::{Output, OutputArgs, RulesArgs};
use largefolio_cli::console::{self, Console};
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::confined;

/// Replay recordings and compare; needs no root
///
/// Each recording is replayed under the rules of the kernel that made it. `--kernel` selects other
/// rules; each recording still keeps its base page size, unless the name contains `page=`. A
/// recording of processes has a row for each of its programs.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab crosscheck replay here/xfs_ra128_r_plain_seq_s0.txt
  folio-lab crosscheck replay recordings --json
  folio-lab crosscheck replay recordings/packaged/deb_6.12_amd64.tar.xz --kernel 6.18

Exit status: 0 if the kernel and the model agree, 1 if they differ, 2 on error.")]
pub(super) struct ReplayArgs {
    /// Recordings (*.txt), archives of them (*.tar.xz), or folders of either
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) struct ReplayPlan {
    request: ReplayRequest,
    output: Output,
}

impl ReplayArgs {
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<ReplayPlan> {
        let mut request = ReplayRequest { paths: self.paths, kernel: None, command_line };
        request.check()?;
        request.kernel = self.rules.kernel()?;
        let output = self.output.output();
        confined::to(&request.paths, []);
        Ok(ReplayPlan { request, output })
    }
}

impl ReplayPlan {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let status = console::status();
        let result = self.request.run(&mut |nr| {
            status.set_message(format!("replayed {nr}"));
            ControlFlow::Continue(())
        });
        status.finish_and_clear();
        let result = result?.context("the replay was interrupted")?;
        self.output.deliver(&result, console)
    }
}
