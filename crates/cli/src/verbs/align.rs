//! `folio align`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_linux::align::{self, Copied};
use largefolio_results::figures;
use largefolio_trace::shown;

use super::values;
use crate::console::Console;
use crate::console::say;
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Copy a program so that large folios can map its text
///
/// A position-independent program linked for 4K pages is loaded at a random multiple of 4K, where
/// no PMD entry fits. On arm64, programs are linked for 64K pages; with a base page size of 16K or
/// 64K, that is too little for a contpte block (2M). The copy requests a load address that is a
/// multiple of 2M, and its segments move to matching offsets in the file. No address in the program
/// changes. Symbols, debug information and build ID are kept. If you can relink the program, you do
/// not need a copy: use -Wl,-z,max-page-size=2097152.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio align server -o server.2m && folio run -- ./server.2m
  folio align libbig.so -o /opt/lib/libbig.so
  folio align server -o server.2m --validate -- --version

folio compares the copy with the original, segment by segment; --validate also runs the copy. folio
refuses packed and signed files, files with data after their sections, 32-bit files and object
files. A copy has no set-id bits and no capabilities. The alignment works for programs since Linux
5.10, and for libraries since glibc 2.35.

Exit status: 0 on success, 1 if the copy did not run, 2 on error.")]
pub(crate) struct AlignArgs {
    /// Program or shared object
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The copy; replaces an existing file
    #[arg(short, long, value_name = "COPY")]
    output: PathBuf,
    /// Alignment of the copy
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = values::folio_size)]
    align: u64,
    /// Run the copy with these arguments to check that it starts
    #[arg(long)]
    validate: bool,
    /// Arguments for --validate
    #[arg(last = true, value_name = "ARGS", requires = "validate")]
    args: Vec<OsString>,
}

pub(crate) struct AlignPlan {
    args: AlignArgs,
}

impl VerbArgs for AlignArgs {
    type Plan = AlignPlan;

    fn plan(self, _invocation: &Invocation<'_>) -> Result<Self::Plan> {
        Ok(AlignPlan { args: self })
    }
}

impl VerbPlan for AlignPlan {
    fn run(self, _console: &mut Console) -> Result<Exit> {
        let Self { args } = self;
        let copied = align::copy(&args.file, &args.output, args.align)?;
        args.print_summary(&copied);
        if args.validate { args.run_copy() } else { Ok(Exit::Done) }
    }
}

impl AlignArgs {
    fn print_summary(&self, copied: &Copied) {
        let Copied { file_bytes, copy_bytes, stored_bytes, text_bytes, nr_compared, lost } = copied;
        let (name, size) = (display(&self.output), figures::size(self.align));
        let [text, old, new, stored] =
            [text_bytes, file_bytes, copy_bytes, stored_bytes].map(|bytes| figures::bytes(*bytes));
        say(&format!(
            "folio: {name}: {text} of text in whole blocks of {size}; {old} -> {new}, {stored} on \
             disk; {nr_compared} segments and sections are identical"
        ));
        for lost in lost {
            say(&format!("folio: {name}: the copy loses the original's {lost}"));
        }
        if !self.validate {
            say("folio: to run the copy, add --validate -- ARGS to the same command");
        }
    }

    fn run_copy(&self) -> Result<Exit> {
        let path = std::path::absolute(&self.output)?;
        let name = display(&self.output);
        let status = Command::new(&path)
            .args(&self.args)
            .status()
            .with_context(|| format!("cannot run {name}; is it built for this machine?"))?;
        Ok(match (status.code(), status.signal()) {
            (_, Some(signal)) => {
                say(&format!(
                    "folio: signal {signal} killed {name}; does it also kill the original?"
                ));
                Exit::No
            }
            (code, None) => {
                let code = code.unwrap_or(0);
                say(&format!("folio: {name} ran and ended with exit code {code}"));
                Exit::Done
            }
        })
    }
}

fn display(path: &Path) -> String {
    shown(path).to_string()
}
