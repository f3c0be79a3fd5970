//! `folio-lab`: proves and calibrates the model of `folio`.

mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory as _, Parser, Subcommand};
use largefolio_cli::console::Console;
use largefolio_cli::errors::Exit;
use largefolio_cli::parse::parsed;
use largefolio_cli::verbs::{Invocation, VerbArgs as _};

use verbs::bench::BenchArgs;
use verbs::crosscheck::CrosscheckArgs;
use verbs::study::StudyArgs;

/// Validate and calibrate folio's model
///
/// Compares the model with real kernels, with published numbers and with this machine. It needs a
/// checkout of the repository.
#[derive(Debug, Parser)]
#[command(
    name = "folio-lab",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  folio-lab study exec-order
  folio-lab bench clear --rounds 5
  sudo folio-lab crosscheck

Exit status: 0 on success, 1 if the answer is \"no\", 2 on error. The result goes to standard \
                                                output,
everything else to standard error."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[expect(clippy::large_enum_variant, reason = "one value per run of the program")]
#[derive(Debug, Subcommand)]
enum Verb {
    Study(StudyArgs),
    Bench(BenchArgs),
    Crosscheck(CrosscheckArgs),
}

fn main() -> ExitCode {
    largefolio_cli::program("folio-lab", run)
}

fn run() -> Result<Exit> {
    parsed(execute)
}

fn execute(cli: Cli, words: &[OsString], console: &mut Console) -> Result<Exit> {
    let invocation = Invocation {
        words,
        root: Cli::command,
        execute: |words, console| execute(Cli::try_parse_from(words)?, words, console),
    };
    match cli.verb {
        Verb::Study(args) => args.execute(&invocation, console),
        Verb::Bench(args) => args.execute(&invocation, console),
        Verb::Crosscheck(args) => args.execute(&invocation, console),
    }
}
