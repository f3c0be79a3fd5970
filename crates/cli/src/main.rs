#![forbid(unsafe_code)]
//! `folio`: predicts large folios for real programs.
//!
//! Reading order: [`cli`] (the command line), `verbs/` (one file per verb: `Args -> Plan -> run`;
//! parsing never acts, and results are types of `largefolio-results`), [`console`] (the output
//! streams), [`errors`] (exit codes), [`version`] (facts for bug reports).

mod cli;
mod console;
mod errors;
mod verbs;
mod version;
mod work;

use std::process::ExitCode;

use largefolio_linux::{setting, signals, stack};

fn main() -> ExitCode {
    errors::silence_caught_panics();
    // Without the handler, only the error message is lost.
    let _ = signals::outlive_file_limit();
    stack::with_enough(|| {
        let code = errors::exit_code(errors::guarded(cli::run));
        for said in setting::aftermath() {
            console::warn(&said.to_string());
        }
        code
    })
}
