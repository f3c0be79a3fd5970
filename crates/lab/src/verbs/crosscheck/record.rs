//! `folio-lab crosscheck record`: records the running kernel, for replays later or elsewhere.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_lab::Error;
use largefolio_lab::crosscheck::record::{CrosscheckError, Custom, Facts, Pause, WorkloadPlan};
use largefolio_lab::crosscheck::result::{keep_text, recorder};
use largefolio_results::running::rules;
use largefolio_trace::shown;

use super::live::interrupted;
use super::select::SelectArgs;
use crate::verbs::again_as_root;
use largefolio_cli::console;
use largefolio_cli::errors::Exit;

/// Record workloads on the running kernel
///
/// Writes `FS_raKB_PROT_ADVICE_PATTERN_sSEED.txt` for each workload, in the format of
/// recordings/README.md. With words after `--`, it records the one workload that they describe
/// instead of the built-in set.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio-lab crosscheck record -o here
  sudo folio-lab crosscheck record -o here --fs xfs --window 2M --only '*seq*'
  sudo folio-lab crosscheck record -o here -- prot=r advice=huge pattern=stride7 n=100 file=64M
  sudo folio-lab crosscheck record -o here -- pattern=ops ops=t0x20,w5,b100.0+65536x3,p

Words: prot=r|rx|rxc|rw  map=shared|private|none  advice=plain|huge|nohuge|random|seq|hugerandom|
hugeseq  pattern=seq|back|rand|hot|two[S]|strideN|midN|read[back|rand|two|opens]BYTES|ops  n=TOUCHES
seed=N  file=LENGTH  first=PAGE  pages=N  skew=PAGES  opens=N  settle=MICROSECONDS
also=PROT,MAP,ADVICE,OPEN,FIRST,PAGES  ops=ACTION,..: tPAGE (touch) wPAGE (store)
bPAGE.OFFSET+BYTES (read) sPAGE.OFFSET+BYTES (write) cPAGE.OFFSET (new length) a:ADVICE (madvise)
f:normal|random|seq|willneed (posix_fadvise) p (look), then xTIMES and /MAPPING-OR-DESCRIPTOR.")]
pub(super) struct RecordArgs {
    #[command(flatten)]
    select: SelectArgs,
    /// Directory to write to
    #[arg(short, long, value_name = "DIR", required = true)]
    output: PathBuf,
    /// A description of your own workload
    #[arg(last = true, value_name = "KEY=VALUE", conflicts_with = "only")]
    words: Vec<String>,
}

pub(crate) struct RecordPlan {
    plan: WorkloadPlan,
    facts: Facts,
    output: PathBuf,
}

impl RecordArgs {
    pub(super) fn plan(self, command_line: &[String]) -> Result<RecordPlan> {
        let (facts, selection) = (Facts::of_host(), self.select.selection());
        let command = again_as_root(command_line);
        let plan = if self.words.is_empty() {
            WorkloadPlan::new(&selection, &facts, &command)?
        } else {
            let custom = Custom::parse(&self.words)?;
            WorkloadPlan::custom(&custom, &selection, &facts, &command)?
        };
        fs::create_dir_all(&self.output)
            .with_context(|| format!("cannot make {}", shown(&self.output)))?;
        Ok(RecordPlan { plan, facts, output: self.output })
    }
}

impl RecordPlan {
    pub(super) fn run(self) -> Result<Exit> {
        self.plan.warnings.iter().for_each(|warning| console::warn(warning));
        let bar = console::counter(self.plan.nr_workloads() as u64, "recording");
        let (mut nr_recorded, mut failed) = (0_u64, Vec::new());
        let result = self.record(&mut |message| {
            bar.inc(1);
            nr_recorded += u64::from(message.is_none());
            failed.extend(message);
        });
        bar.finish_and_clear();
        for message in &failed {
            console::warn(message);
        }
        let nr_skipped = self.plan.skipped.len();
        let directory = shown(&self.output);
        console::say(&format!(
            "folio: {nr_recorded} recordings in {directory}, {nr_skipped} skipped"
        ));
        match result {
            Err(error) => interrupted(error),
            Ok(()) if failed.is_empty() => Ok(Exit::Done),
            Ok(()) => Ok(Exit::Error),
        }
    }

    /// Calls `each` once per workload, with its problem or `None`.
    fn record(&self, each: &mut dyn FnMut(Option<String>)) -> Result<(), Error> {
        // A kernel without rules can still be recorded.
        let kernel = rules(&self.facts.release, self.facts.page_bytes).ok();
        let recorder = recorder(&self.facts, kernel.as_ref())?;
        for group in &self.plan.groups {
            let mut place = recorder.place(group.filesystem, group.own_bytes())?;
            for workload in &group.workloads {
                match place.record(workload, Pause::Usual) {
                    Ok(text) => {
                        keep_text(&self.output, &workload.name, &text)?;
                        each(None);
                    }
                    Err(error @ CrosscheckError::Probe { .. }) => each(Some(error.to_string())),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}
