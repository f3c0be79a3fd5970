//! Parses words into arguments; prints help, version and errors.

use std::ffi::{OsStr, OsString};

use anyhow::Result;
use clap::Parser;
use clap::error::ErrorKind;
use largefolio_trace::shown;

use crate::console::Console;
use crate::errors::Exit;
use crate::version;

/// Parses this process's command line and calls `run` with the parsed arguments and all words.
///
/// # Errors
/// As `run`, or if help cannot be printed.
pub fn parsed<C: Parser>(
    run: impl FnOnce(C, &[OsString], &mut Console) -> Result<Exit>,
) -> Result<Exit> {
    let args: Vec<OsString> = std::env::args_os().collect();
    match C::try_parse_from(&args) {
        Ok(cli) => run(cli, &args, &mut Console::default()),
        Err(error) => show(&with_printable_args::<C>(&args, error), &args),
    }
}

/// Prints an error, or the help or version that clap reports as one.
fn show(error: &clap::Error, args: &[OsString]) -> Result<Exit> {
    if error.use_stderr() {
        let _ = error.print();
        return Ok(Exit::Error);
    }
    let text = error.render();
    let mut text = if Console::is_styled() { text.ansi().to_string() } else { text.to_string() };
    if error.kind() == ErrorKind::DisplayVersion && args.iter().any(|word| word == "--verbose") {
        text.push_str(&version::details());
    }
    Console::default().deliver(text.as_bytes(), None)?;
    Ok(Exit::Done)
}

/// Makes words from the command line printable in `error`: `folio trace info *` takes file names
/// that other people chose.
fn with_printable_args<C: Parser>(args: &[OsString], error: clap::Error) -> clap::Error {
    let shown: Vec<String> = args.iter().map(|word| shown(word).to_string()).collect();
    if shown.iter().zip(args).all(|(shown, word)| OsStr::new(shown) == word) {
        return error;
    }
    // Invalid UTF-8 was the only error: only file names may be arbitrary bytes.
    let is_foreign = |(_, word): &(&String, &OsString)| word.to_str().is_none();
    let foreign = shown.iter().zip(args).find(is_foreign).map_or("", |(shown, _)| shown);
    let cannot = format!("the name '{foreign}' must be UTF-8 here; rename the file\n");
    C::try_parse_from(shown).err().unwrap_or_else(|| C::command().error(error.kind(), cannot))
}
