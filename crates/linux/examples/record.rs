//! Records a command: `record [--valgrind] OUTPUT COMMAND..`; prints speed and warnings.
//!
//! For measurements of the recorder alone; users have `folio record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use largefolio_linux::record::{Recording, With};

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut with = With::Qemu;
    if arguments.first().is_some_and(|first| first == "--valgrind") {
        with = With::Valgrind;
        arguments.remove(0);
    }
    let output = PathBuf::from(arguments.remove(0));
    let result =
        Recording::new(&arguments, Some(&output), with).and_then(|plan| plan.run(&mut |_| {}));
    match result {
        Ok(outcome) => {
            report(&outcome);
            ExitCode::from(outcome.ended.exit_code())
        }
        Err(error) => {
            show(&error.to_string());
            ExitCode::from(2)
        }
    }
}

fn report(outcome: &largefolio_linux::record::Outcome) {
    let seconds = outcome.elapsed.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "printed with few digits")]
    let [references, rows, bytes] =
        [outcome.nr_references, outcome.nr_rows, outcome.trace_bytes].map(|count| count as f64);
    show(&format!(
        "{} refs, {} rows, {} B, {:.3} s, {:.1} M refs/s, {:.4} rows/ref, {:.4} B/ref, {} threads, \
         {} processes, {}",
        outcome.nr_references,
        outcome.nr_rows,
        outcome.trace_bytes,
        seconds,
        references / seconds / 1e6,
        rows / references,
        bytes / references,
        outcome.nr_threads,
        outcome.nr_processes,
        outcome.ended,
    ));
    for warning in &outcome.warnings {
        show(&format!("warning: {warning}"));
    }
}

#[expect(clippy::print_stderr, reason = "an example speaks to its user")]
fn show(text: &str) {
    eprintln!("{text}");
}
