//! One visit to a program: its input, its trace, the predictions and the measured rounds.

use std::ffi::OsString;
use std::path::Path;

use largefolio_linux::record::{RecordEnd, RecordRequest, Recording};
use largefolio_linux::timed_run::Watch;

use super::bank::{Bank, Program};
use crate::Error;
use crate::trial::{Measured, Trial};

/// Visits a program. `step` receives each step's name.
///
/// # Errors
/// If a setting cannot be changed, or a directory cannot be made.
pub(super) fn visit(
    trial: &Trial,
    (bank, program): (&Bank, &Program),
    signals: &Watch,
    step: &mut dyn FnMut(&'static str),
) -> Result<Measured, Error> {
    let dir = tempfile::tempdir().map_err(Error::system("making a directory"))?;
    let here = dir.path().join("run");
    std::fs::create_dir(&here).map_err(Error::system("making a directory"))?;
    step("making its input");
    if let Err(why) = bank.prepare(program, &here) {
        return Ok(unless_stopped(signals, why));
    }
    let text = format!("exec <&- >/dev/null 2>&1; {}", program.run);
    let command: Vec<OsString> =
        ["sh", "-c", &format!("cd \"$0\" && {{ {text}\n}}")].map(OsString::from).into();
    let command: Vec<OsString> = command.into_iter().chain([here.into()]).collect();
    step("recording");
    let trace = dir.path().join("program.folio");
    if let Err(why) = record(&command, &trace)? {
        return Ok(unless_stopped(signals, why));
    }
    if signals.is_stopped() {
        return Ok(Measured::Stopped);
    }
    step("predicting");
    let estimates = match trial.estimates(&trace, &mut |_| {}) {
        Ok(estimates) => estimates,
        Err(error) => return Ok(unless_stopped(signals, error.to_string())),
    };
    // The plain runs need its space in the page cache more than we need the trace.
    let _ = std::fs::remove_file(&trace);
    step("measuring");
    trial.measure(&command, &estimates, signals)
}

fn unless_stopped(signals: &Watch, why: String) -> Measured {
    if signals.is_stopped() { Measured::Stopped } else { Measured::Unfit(why) }
}

/// Records a command; the inner error says why this one cannot be recorded.
///
/// # Errors
/// If nothing can be recorded here, such as without QEMU.
fn record(command: &[OsString], trace: &Path) -> Result<Result<(), String>, Error> {
    let request = RecordRequest { command, output: Some(trace), root: None };
    let recording = Recording::new(&request).map_err(|error| Error::request(error.to_string()))?;
    let ended = recording.run(&mut |_| {}).map(|outcome| outcome.ended);
    Ok(match ended {
        Ok(RecordEnd::Code(0)) => Ok(()),
        Ok(ended) => Err(format!("when recorded, it ended with {ended}")),
        Err(error) => Err(error.to_string()),
    })
}
