//! The command line.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, bail};
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::console::Console;
use crate::errors::Exit;
use crate::parse::parsed;
use crate::verbs::advise::AdviseArgs;
use crate::verbs::align::AlignArgs;
use crate::verbs::calibrate::CalibrateArgs;
use crate::verbs::collapse::CollapseArgs;
use crate::verbs::completions::CompletionsArgs;
use crate::verbs::man::ManArgs;
use crate::verbs::maps::MapsArgs;
use crate::verbs::predict::PredictArgs;
use crate::verbs::record::RecordArgs;
use crate::verbs::run::RunArgs;
use crate::verbs::schema::SchemaArgs;
use crate::verbs::trace::TraceArgs;
use crate::verbs::tune::TuneArgs;
use crate::verbs::verify::VerifyArgs;
use crate::verbs::warm::WarmArgs;
use crate::verbs::{Invocation, VerbArgs as _};

/// Show which folio sizes back a program, under any kernel on any machine.
///
/// Record a program once, then predict how it would run under other kernels and on other machines.
/// A model of the kernel's memory management reports folio sizes, page faults, readahead and TLB
/// misses.
#[derive(Debug, Parser)]
#[command(
    name = "folio",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  folio record -o cc1.folio -- cc1 -quiet big.i -o /dev/null
  folio predict cc1.folio --kernel 6.12,7.2 --machine altra
  folio run -- cc1 -quiet big.i -o /dev/null

Exit status: 0 on success, 1 if the answer is \"no\", 2 on error. `folio record` and `folio run`
return the program's status. The result goes to standard output, everything else to standard error."
)]
struct Cli {
    /// With --version: also print the build, the schema versions and the files that folio uses
    #[arg(long)]
    verbose: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Record(RecordArgs),
    Predict(Box<PredictArgs>),
    Maps(MapsArgs),
    Advise(AdviseArgs),
    Run(RunArgs),
    Warm(WarmArgs),
    Align(AlignArgs),
    Collapse(CollapseArgs),
    Tune(TuneArgs),
    Verify(VerifyArgs),
    Trace(TraceArgs),
    Calibrate(CalibrateArgs),
    Schema(SchemaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Verbs that exist only in the unpublished program `folio-lab`.
const OF_LAB: [&str; 3] = ["study", "crosscheck", "bench"];

pub(crate) fn run() -> Result<Exit> {
    let first = std::env::args_os().nth(1);
    if let Some(verb) = OF_LAB.iter().find(|verb| first.as_deref() == Some(OsStr::new(verb))) {
        bail!(
            "`folio {verb}` is now `folio-lab {verb}`, which is not installed; in a checkout, \
             build it with `cargo build --release --bin folio-lab`"
        );
    }
    parsed(execute)
}

fn execute(cli: Cli, words: &[OsString], console: &mut Console) -> Result<Exit> {
    if cli.verbose {
        bail!("--verbose adds facts to --version; add --version, or leave --verbose out");
    }
    let invocation = Invocation {
        words,
        root: Cli::command,
        execute: |words, console| execute(Cli::try_parse_from(words)?, words, console),
    };
    match cli.verb {
        Verb::Record(args) => args.execute(&invocation, console),
        Verb::Predict(args) => args.execute(&invocation, console),
        Verb::Maps(args) => args.execute(&invocation, console),
        Verb::Advise(args) => args.execute(&invocation, console),
        Verb::Run(args) => args.execute(&invocation, console),
        Verb::Warm(args) => args.execute(&invocation, console),
        Verb::Align(args) => args.execute(&invocation, console),
        Verb::Collapse(args) => args.execute(&invocation, console),
        Verb::Tune(args) => args.execute(&invocation, console),
        Verb::Verify(args) => args.execute(&invocation, console),
        Verb::Trace(args) => args.execute(&invocation, console),
        Verb::Calibrate(args) => args.execute(&invocation, console),
        Verb::Schema(args) => args.execute(&invocation, console),
        Verb::Completions(args) => args.execute(&invocation, console),
        Verb::Man(args) => args.execute(&invocation, console),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    /// Returns the error messages for the value `x`, for each option of `command` that expects a
    /// number or similar.
    fn refusals(command: &Command, args: &[String], messages: &mut Vec<String>) {
        for option in command.get_opts().filter_map(|option| option.get_long()) {
            let args = args.iter().cloned().chain([format!("--{option}=x")]);
            let result = super::Cli::command().try_get_matches_from(args);
            messages.extend(result.err().map(|error| error.to_string()));
        }
        for verb in command.get_subcommands() {
            let args = [args, &[verb.get_name().to_owned()]].concat();
            refusals(verb, &args, messages);
        }
    }

    #[test]
    fn no_error_exposes_the_number_parser() {
        let mut messages = Vec::new();
        refusals(&super::Cli::command(), &["folio".to_owned()], &mut messages);
        assert!(
            messages.iter().filter(|text| text.contains("expected a whole number")).count() > 20
        );
        for text in messages {
            assert!(!text.contains("invalid digit") && !text.contains("invalid float"), "{text}");
        }
    }
}
