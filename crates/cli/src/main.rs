#![forbid(unsafe_code)]
//! `folio`: predicts large folios for real programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    largefolio_cli::main()
}
