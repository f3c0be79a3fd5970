//! `folio-lab crosscheck program`: a real program with all its files.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use largefolio_lab::crosscheck::record::{
    Disk, Facts, Filesystem, FreeMemory, ProgramPlan, Settings,
};
use largefolio_lab::crosscheck::result::{ProgramCheck, program_recorder};
use largefolio_sim::kernel::Kernel;

use super::live::{interrupted, make};
use super::output::{Output, OutputArgs, RulesArgs};
use super::select::{filesystem, window_kb};
use crate::verbs::again_as_root;
use largefolio_cli::console::{self, Console};
use largefolio_cli::errors::Exit;

/// Check the model with a real program: its binary, libraries and data
///
/// folio runs the program once to find the files that it reads, and copies them to a filesystem in
/// memory, where only the program sees them in place of the originals. Then folio runs the program
/// again with every file cold and replays its page faults, mappings and reads in the model. The
/// model must have the same folios as the kernel for every file. folio follows all processes and
/// threads of the program. The program runs twice, so it also writes twice; its standard output
/// goes to standard error. If the program uses a file in a way that no rule covers (`mlock`,
/// `O_DIRECT`, `splice`, `MADV_PAGEOUT`), folio names the file and stops comparing it from that
/// point on.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio-lab crosscheck program -- python3 -c 'import json'
  sudo folio-lab crosscheck program --fs xfs --window 2560K -- cc1 -quiet big.i -o /dev/null
  sudo folio-lab crosscheck program --disk later --keep here -- ls -l

Exit status: 0 if the kernel and the model agree, 1 if they differ, 2 on error.")]
pub(super) struct ProgramArgs {
    /// Filesystems: ext4, xfs, ext4-encrypt (no large folios)
    #[arg(long = "fs", value_name = "NAME,..", value_delimiter = ',', default_value = "ext4,xfs",
        value_parser = filesystem)]
    filesystems: Vec<Filesystem>,
    /// Readahead windows
    #[arg(long = "window", value_name = "SIZE,..", value_delimiter = ',',
        default_value = "128K,2560K", value_parser = window_kb)]
    windows_kb: Vec<u64>,
    /// Block device for the filesystem
    #[arg(long, value_enum, default_value_t = DiskArg::Auto)]
    disk: DiskArg,
    #[command(flatten)]
    rules: RulesArgs,
    /// Keep the recordings in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    /// Program and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DiskArg {
    /// zram if the kernel supports it, else a loop device
    Auto,
    /// zram: a read is complete when the call returns, and nothing depends on time
    Within,
    /// Loop device: a read completes later, as on a real disk
    Later,
}

impl From<DiskArg> for Disk {
    fn from(disk: DiskArg) -> Self {
        match disk {
            DiskArg::Auto => Self::Best,
            DiskArg::Within => Self::Within,
            DiskArg::Later => Self::Later,
        }
    }
}

pub(crate) struct ProgramRun {
    plans: Vec<ProgramPlan>,
    facts: Facts,
    kernel: Option<Kernel>,
    keep: Option<PathBuf>,
    output: Output,
    command_line: Vec<String>,
}

impl ProgramArgs {
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<ProgramRun> {
        let kernel = self.rules.kernel()?;
        let output = self.output.output();
        make(self.keep.as_deref())?;
        let (command, disk) = (&self.command, self.disk.into());
        let plans = self.filesystems.iter().flat_map(|&filesystem| {
            let plan = move |&window_kb: &u64| {
                let command = command.clone();
                ProgramPlan { command, filesystem, window_kb, disk }
            };
            self.windows_kb.iter().map(plan)
        });
        let (plans, facts) = (plans.collect(), Facts::of_host());
        let keep = self.keep;
        Ok(ProgramRun { plans, facts, kernel, keep, output, command_line })
    }
}

impl ProgramRun {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let recorder = program_recorder(&self.facts, &again_as_root(&self.command_line))?;
        let (settings, memory) = (Settings::now(), FreeMemory::now(self.facts.page_bytes));
        let check = ProgramCheck {
            facts: &self.facts,
            settings: &settings,
            memory: &memory,
            kernel: self.kernel.as_ref(),
            keep: self.keep.as_ref(),
        };
        let mut result = check.result(self.command_line);
        for plan in &self.plans {
            match recorder.record(plan) {
                Ok(recording) => {
                    let remark = check.add(plan, &recording, &mut result)?;
                    console::remark(remark.as_slice());
                }
                Err(error) => return interrupted(error),
            }
        }
        self.output.deliver(&result, console)
    }
}
