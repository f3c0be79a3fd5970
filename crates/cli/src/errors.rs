//! Exit codes, and the messages of errors and panics.
//!
//! 0 on success, 1 if the answer is "no", 2 on error; `folio record` passes the program's code on.
//! If a reader closes the output early (`| head`), nothing is reported, and the result still
//! determines the exit code; it is 0 if printing is the whole task (`folio trace cat`).

use std::panic::{self, PanicHookInfo};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::{Error, Result, anyhow};

use crate::console;

/// How a verb ended without an error to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// Done; the answer is "no".
    No,
    /// An error that was already printed.
    Error,
    /// The exit code of the program that was run.
    Program(u8),
}

impl Exit {
    fn code(self) -> ExitCode {
        match self {
            Self::Done => ExitCode::SUCCESS,
            Self::No => ExitCode::from(1),
            Self::Error => ExitCode::from(2),
            Self::Program(code) => ExitCode::from(code),
        }
    }
}

pub(crate) fn exit_code(result: Result<Exit>) -> ExitCode {
    let error = match result {
        Ok(exit) => return exit.code(),
        Err(error) => error,
    };
    if console::is_output_closed(&error) {
        return ExitCode::SUCCESS;
    }
    console::say(&format!("{}: error: {}", console::program(), describe_error(&error)));
    ExitCode::from(2)
}

/// Formats the error and its causes without repetition: many messages already name their cause.
fn describe_error(error: &Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Silences panics that are caught and become errors: the Parquet library panics on some damaged
/// files, and the trace reader reports those. `RUST_BACKTRACE` shows all of them.
pub(crate) fn silence_caught_panics() {
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        panic::set_hook(Box::new(note_panic));
    }
}

fn note_panic(info: &PanicHookInfo<'_>) {
    *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
}

/// Runs `work` and turns an uncaught panic into an error.
pub(crate) fn catch_panics(
    work: impl FnOnce() -> Result<Exit> + panic::UnwindSafe,
) -> Result<Exit> {
    panic::catch_unwind(work).unwrap_or_else(|_| {
        let panic = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner);
        Err(anyhow!(
            "internal error; please report it with the command and the trace: {}",
            panic.replace('\n', " ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn an_uncaught_panic_becomes_an_error() {
        let error = catch_panics(|| panic!("lost")).unwrap_err().to_string();
        assert!(error.starts_with("internal error; please report it"), "{error}");
    }

    #[test]
    fn causes_are_not_repeated() {
        let cause = io::Error::other("disk on fire");
        let error = Error::new(cause).context("cannot write x");
        assert_eq!(describe_error(&error), "cannot write x: disk on fire");
        assert_eq!(
            describe_error(&error.context("late: cannot write x")),
            "late: cannot write x: disk on fire"
        );
    }
}
