#![forbid(unsafe_code)]
//! The command line of `folio`, and the parts of it that `folio-lab` shares.
//!
//! Reading order: [`cli`] (the command line), [`verbs`] (one file per verb: `Args -> Plan -> run`;
//! parsing never acts, and results are types of `largefolio-results`), [`console`] (the output
//! streams), [`errors`] (exit codes), [`parse`] (words become arguments), [`version`] (facts for
//! bug reports).

mod cli;
pub mod console;
pub mod errors;
pub mod parse;
pub mod verbs;
pub mod version;
mod work;

use std::process::ExitCode;

use anyhow::Result;
use largefolio_linux::{setting, signals, stack};

use errors::Exit;

/// Runs `folio`.
#[must_use]
pub fn main() -> ExitCode {
    program("folio", cli::run)
}

/// Runs a command line to its end: prints its error, puts settings back, and returns the exit code.
pub fn program(name: &'static str, run: fn() -> Result<Exit>) -> ExitCode {
    console::set_program(name);
    errors::silence_caught_panics();
    // Without the handler, only the error message is lost.
    let _ = signals::outlive_file_limit();
    stack::with_enough(move || {
        let code = errors::exit_code(errors::catch_panics(run));
        for message in setting::aftermath() {
            console::warn(&message.to_string());
        }
        code
    })
}
