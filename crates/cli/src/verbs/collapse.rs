//! `folio collapse`.

use anyhow::Result;
use clap::{Args, ValueEnum};
use largefolio_linux::collapse::{self, CollapseKind, CollapseRequest, Forecast};
use largefolio_linux::shell::again_as_root;
use largefolio_results::collapse::{CollapseResult, forecast_sentence};
use largefolio_results::{Form, Forms as _};

use super::values::{self, FormArgs};
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Collapse the memory of a running process into PMD folios
///
/// Copies each PMD-sized block (2M; on arm64, 32M with 16K pages and 512M with 64K) that contains
/// memory into one folio. Addresses and contents stay the same. Works for anonymous memory, memfd
/// and tmpfs; since Linux 7.2 also for files on ext4, XFS and btrfs. Holes in a block are filled
/// with memory, so the resident size may grow. folio first reports how much memory the collapse
/// needs and how much is available on this machine and in the process's control groups. If too
/// little is available, folio skips the blocks with the most holes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio collapse 4242
  sudo folio collapse 4242 --kind anon --min-size 64M
  sudo folio collapse $(pidof postgres | cut -d' ' -f1) --json

Needs CAP_SYS_NICE and permission to trace the process, so usually root.

The output begins with the result, followed by the memory that was not collapsed and the reasons.

Exit status: 0 if more memory is in PMD folios than before and every whole block was collapsed; 1 if
the memory in PMD folios did not grow or some blocks were not collapsed; 2 on error. Files that this
kernel does not collapse affect the status only with --kind file. Areas where collapse is forbidden
(MADV_NOHUGEPAGE, thread stacks) affect it only if they contain at least one block of memory.")]
pub(crate) struct CollapseArgs {
    /// Process to collapse
    #[arg(value_name = "PID", value_parser = values::pid)]
    pid: u32,
    /// Kinds of memory to collapse [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    kind: Vec<KindName>,
    /// Skip areas smaller than this
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = values::size)]
    min_size: u64,
    #[command(flatten)]
    form: FormArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindName {
    /// Private memory not backed by a file
    Anon,
    /// memfd, tmpfs, shared anonymous memory
    Shmem,
    /// Files: program text and libraries
    File,
}

pub(crate) struct CollapsePlan {
    request: CollapseRequest,
    form: Form,
    command_line: Vec<String>,
}

impl VerbArgs for CollapseArgs {
    type Plan = CollapsePlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let kinds = self.kind.iter().map(|kind| match kind {
            KindName::Anon => CollapseKind::Anon,
            KindName::Shmem => CollapseKind::Shmem,
            KindName::File => CollapseKind::File,
        });
        let is_named = !self.kind.is_empty();
        let all = vec![CollapseKind::Anon, CollapseKind::Shmem, CollapseKind::File];
        let kinds = if is_named { kinds.collect() } else { all };
        let request = CollapseRequest { pid: self.pid, kinds, is_named, min_bytes: self.min_size };
        Ok(CollapsePlan { request, form: self.form.form(), command_line })
    }
}

impl VerbPlan for CollapsePlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let mut begin = |forecast: &Forecast| {
            if let Some(outlook) = forecast_sentence(forecast) {
                console::say(&outlook);
            }
        };
        let again = again_as_root(&self.command_line);
        let outcome = collapse::run(&self.request, &again, &mut begin)?;
        let result = CollapseResult::new(&self.request, &outcome, self.command_line);
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        Ok(if result.is_done() { Exit::Done } else { Exit::No })
    }
}
