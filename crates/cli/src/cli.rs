//! The command line.

use std::ffi::{OsStr, OsString};

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use largefolio_trace::shown;

use crate::console::Console;
use crate::errors::Exit;
use crate::verbs::advise::AdviseArgs;
use crate::verbs::align::AlignArgs;
use crate::verbs::bench::BenchArgs;
use crate::verbs::calibrate::CalibrateArgs;
use crate::verbs::collapse::CollapseArgs;
use crate::verbs::completions::CompletionsArgs;
use crate::verbs::crosscheck::CrosscheckArgs;
use crate::verbs::man::ManArgs;
use crate::verbs::maps::MapsArgs;
use crate::verbs::predict::PredictArgs;
use crate::verbs::record::RecordArgs;
use crate::verbs::run::RunArgs;
use crate::verbs::schema::SchemaArgs;
use crate::verbs::study::StudyArgs;
use crate::verbs::trace::TraceArgs;
use crate::verbs::tune::TuneArgs;
use crate::verbs::verify::VerifyArgs;
use crate::verbs::warm::WarmArgs;
use crate::version;

/// Show which folio sizes back a program, under any kernel on any machine.
///
/// Record a program once, then predict how it would run under other kernels and on other machines.
/// A model of the kernel's memory management counts folio sizes, page faults, readahead and TLB
/// misses.
#[derive(Debug, Parser)]
#[command(
    name = "folio",
    version,
    long_version = version::OF_BUILD,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  folio record -o cc1.folio -- cc1 -quiet big.i -o /dev/null
  folio predict cc1.folio --kernel 6.12,7.2 --machine altra
  folio run -- cc1 -quiet big.i -o /dev/null

Exit status: 0 done, 1 the answer is \"no\", 2 error. `folio record` and `folio run` exit like the
program. The result goes to standard output, everything else to standard error."
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Record(RecordArgs),
    Predict(PredictArgs),
    Study(StudyArgs),
    Maps(MapsArgs),
    Advise(AdviseArgs),
    Run(RunArgs),
    Warm(WarmArgs),
    Align(AlignArgs),
    Collapse(CollapseArgs),
    Tune(TuneArgs),
    Verify(VerifyArgs),
    Trace(TraceArgs),
    Bench(BenchArgs),
    Calibrate(CalibrateArgs),
    Crosscheck(CrosscheckArgs),
    Schema(SchemaArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

pub(crate) fn run() -> Result<Exit> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => {
            let error = with_printable_words(&words, error);
            return told(&error);
        }
    };
    carried_out(cli.verb, &words, &mut Console::new())
}

fn told(error: &clap::Error) -> Result<Exit> {
    if error.use_stderr() {
        let _ = error.print();
        return Ok(Exit::Error);
    }
    let text = error.render();
    let mut text = if Console::is_styled() { text.ansi().to_string() } else { text.to_string() };
    if error.kind() == ErrorKind::DisplayVersion && text.lines().count() > 1 {
        text.push_str(&version::found());
    }
    Console::new().deliver(text.as_bytes(), None)?;
    Ok(Exit::Done)
}

fn carried_out(verb: Verb, words: &[OsString], console: &mut Console) -> Result<Exit> {
    match verb {
        Verb::Record(args) => args.plan(&command_line(words))?.run(console),
        Verb::Predict(args) => args.plan(command_line(words))?.run(console),
        Verb::Study(args) => args.plan(command_line(words))?.run(console),
        Verb::Advise(args) => args.plan(command_line(words))?.run(console, &mut |more, console| {
            let words: Vec<OsString> = words.iter().take(1).chain(more).cloned().collect();
            carried_out(Cli::try_parse_from(&words)?.verb, &words, console)
        }),
        Verb::Maps(args) => args.plan(command_line(words))?.run(console),
        Verb::Run(args) => args.plan().run(),
        Verb::Warm(args) => args.plan(command_line(words))?.run(console),
        Verb::Align(args) => args.plan().run(),
        Verb::Collapse(args) => args.plan(command_line(words)).run(console),
        Verb::Tune(args) => args.plan(command_line(words))?.run(console),
        Verb::Verify(args) => args.plan(command_line(words))?.run(console),
        Verb::Trace(args) => args.plan()?.run(console),
        Verb::Bench(args) => args.plan(command_line(words))?.run(console),
        Verb::Calibrate(args) => args.plan(command_line(words))?.run(console),
        Verb::Crosscheck(args) => args.plan(command_line(words))?.run(console),
        Verb::Schema(args) => args.plan().run(console),
        Verb::Completions(args) => args.plan(Cli::command()).run(console),
        Verb::Man(args) => args.plan(Cli::command())?.run(console),
    }
}

/// Makes the command line's words in `error` printable: `folio trace info *` takes file names that
/// others chose.
fn with_printable_words(words: &[OsString], error: clap::Error) -> clap::Error {
    let shown: Vec<String> = words.iter().map(|word| shown(word).to_string()).collect();
    if shown.iter().zip(words).all(|(shown, word)| OsStr::new(shown) == word) {
        return error;
    }
    // Invalid UTF-8 was the only error: only file names may be arbitrary bytes.
    let is_foreign = |(_, word): &(&String, &OsString)| word.to_str().is_none();
    let foreign = shown.iter().zip(words).find(is_foreign).map_or("", |(shown, _)| shown);
    let cannot = format!("the name '{foreign}' must be UTF-8 here; rename the file\n");
    Cli::try_parse_from(shown).err().unwrap_or_else(|| Cli::command().error(error.kind(), cannot))
}

/// Returns the command line for results, with `folio` as program name regardless of its path.
fn command_line(words: &[OsString]) -> Vec<String> {
    let further = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("folio".to_owned()).chain(further).collect()
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    /// Returns the messages for `x` as the value of each option of `command` that expects a number
    /// or similar.
    fn refusals(command: &Command, words: &[String], said: &mut Vec<String>) {
        for option in command.get_opts().filter_map(|option| option.get_long()) {
            let words = words.iter().cloned().chain([format!("--{option}=x")]);
            let result = super::Cli::command().try_get_matches_from(words);
            said.extend(result.err().map(|error| error.to_string()));
        }
        for verb in command.get_subcommands() {
            let words = [words, &[verb.get_name().to_owned()]].concat();
            refusals(verb, &words, said);
        }
    }

    #[test]
    fn no_refusal_speaks_of_how_numbers_are_parsed() {
        let mut said = Vec::new();
        refusals(&super::Cli::command(), &["folio".to_owned()], &mut said);
        assert!(said.iter().filter(|text| text.contains("expected a whole number")).count() > 20);
        for text in said {
            assert!(!text.contains("invalid digit") && !text.contains("invalid float"), "{text}");
        }
    }
}
