//! `folio crosscheck replay`: recordings made earlier or elsewhere.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_sim::crosscheck::files::FileSteps;
use largefolio_sim::crosscheck::{Recording, Verdict, read_all};
use largefolio_sim::kernel::Kernel;
use largefolio_trace::shown;
use rayon::prelude::*;

use super::report::{Output, Report, Row};
use super::{OutputArgs, RulesArgs};
use crate::console::{self, Console};
use crate::errors::Exit;

/// Recordings read before they are replayed together; they bound the memory.
const NR_BATCH: usize = 256;

/// Replay recordings and compare; needs no root
///
/// Each recording is replayed under the rules of the kernel that made it. `--kernel` names others:
/// the base page is then that of each recording, unless the name has a `page=`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio crosscheck replay here/xfs_ra128_r_plain_seq_s0.txt
  folio crosscheck replay recordings --json
  folio crosscheck replay recordings/packaged/deb_6.12_amd64.tar.xz --kernel 6.18

Exit status: 0 kernel and model agree, 1 they differ, 2 error.")]
pub(super) struct ReplayArgs {
    /// Recordings (*.txt), archives of them (*.tar.xz), or folders of either
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A replay that can be made.
pub(super) struct ReplayPlan {
    paths: Vec<PathBuf>,
    kernel: Option<Kernel>,
    output: Output,
    command_line: Vec<String>,
}

impl ReplayArgs {
    /// Checks rules and paths.
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<ReplayPlan> {
        for path in &self.paths {
            path.metadata().with_context(|| shown(path).to_string())?;
        }
        let kernel = self.rules.kernel()?;
        let output = self.output.output(self.paths.iter().map(PathBuf::as_path))?;
        Ok(ReplayPlan { paths: self.paths, kernel, output, command_line })
    }
}

impl ReplayPlan {
    /// Replays and reports.
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let mut report = Report::new("", self.command_line.clone());
        let status = console::status();
        let mut batch = Vec::new();
        for path in &self.paths {
            let mut failed = None;
            read_all(path, &mut |recording| {
                batch.push(recording);
                if batch.len() == NR_BATCH && failed.is_none() {
                    failed = self.replay(&mut batch, &mut report).err();
                    status.set_message(format!("replayed {}", report.rows.len()));
                }
            })?;
            failed.map_or(Ok(()), Err)?;
        }
        self.replay(&mut batch, &mut report)?;
        status.finish_and_clear();
        report.deliver(&self.output, console)
    }

    fn check(&self, one: &Recording<FileSteps>) -> Result<Verdict> {
        let kernel = self.kernel.as_ref();
        let kernel = kernel.map(|kernel| with_page(kernel, one.header.page_bytes)).transpose()?;
        Ok(one.check(kernel.as_deref())?)
    }

    fn replay(&self, batch: &mut Vec<Recording<FileSteps>>, report: &mut Report) -> Result<()> {
        let verdicts: Vec<Verdict> = batch
            .par_iter()
            .map(|one| self.check(one).with_context(|| one.name.clone()))
            .collect::<Result<_>>()?;
        for (recording, verdict) in batch.drain(..).zip(verdicts) {
            report.rows.push(row_of(&recording, verdict));
        }
        Ok(())
    }
}

/// Rules with the base page of a recording, where the name says none.
fn with_page(kernel: &Kernel, page_bytes: u64) -> Result<Cow<'_, Kernel>> {
    if kernel.is_page_given || kernel.rules.page.bytes() == page_bytes {
        return Ok(Cow::Borrowed(kernel));
    }
    Ok(Cow::Owned(kernel.edited(&format!("page={}K", page_bytes >> 10))?))
}

fn row_of(recording: &Recording<FileSteps>, verdict: Verdict) -> Row {
    let header = &recording.header;
    let is_named = !header.variant.is_empty() && header.variant != "-";
    let mut row = Row {
        name: recording.name.clone(),
        variant: if is_named { header.variant.clone() } else { header.release.clone() },
        filesystem: header.filesystem.clone(),
        window_kb: recording.window_kb(),
        ..Row::default()
    };
    row.take(verdict);
    row
}
