//! `folio-lab`: proves and calibrates the model of `folio`.

mod verbs;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use largefolio_cli::errors::Exit;
use largefolio_cli::parse::{command_line, parsed};

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
    parsed(|cli: Cli, arguments, console| match cli.verb {
        Verb::Study(args) => args.plan(command_line(arguments))?.run(console),
        Verb::Bench(args) => args.plan(command_line(arguments))?.run(console),
        Verb::Crosscheck(args) => args.plan(command_line(arguments))?.run(console),
    })
}
