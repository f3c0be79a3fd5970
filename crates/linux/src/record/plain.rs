//! Times the program without a recorder; the trace stores these times with the recording.
//!
//! Only on request, because each run repeats everything the program does.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use largefolio_trace::PlainRun;

use super::error::RecordError;
use super::plan::Recording;
use crate::measure::counters::Counting;
use crate::timed_run::{Sample, TimedRunEnd, Watch, how_it_ended, timed};

impl Recording {
    /// Runs the plain program `nr` times. `progress` gets each run's number, from 1. The output is
    /// discarded.
    ///
    /// # Errors
    /// [`RecordError::PlainRun`], [`RecordError::PlainRunFailed`] for a run that fails, and
    /// [`RecordError::Interrupted`]. Nothing was recorded in these cases.
    pub fn time(&mut self, nr: usize, progress: &mut dyn FnMut(usize)) -> Result<(), RecordError> {
        if nr == 0 {
            return Ok(());
        }
        if !self.program.is_native() {
            let arch = self.program.arch;
            return Err(RecordError::NotNative(if arch.is_native() {
                "from another system (--root)".to_owned()
            } else {
                format!("for {}", arch.name())
            }));
        }
        let signals = Watch::start()?;
        for run in 1..=nr {
            progress(run);
            let one = self.time_once(&signals)?;
            self.runs.push(one);
        }
        Ok(())
    }

    #[must_use]
    pub fn plain_runs(&self) -> &[PlainRun] {
        &self.runs
    }

    fn time_once(&self, signals: &Watch) -> Result<PlainRun, RecordError> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(RecordError::NoProgram);
        };
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
        let counting = Counting::start();
        let ended = timed(command, signals)?;
        let counters = counting.and_then(Counting::end);
        match ended {
            TimedRunEnd::Succeeded(sample) => Ok(PlainRun { counters, ..of(&sample) }),
            TimedRunEnd::Failed(status) => Err(RecordError::PlainRunFailed {
                command: PathBuf::from(program),
                how: how_it_ended(status),
            }),
            TimedRunEnd::Stopped => Err(RecordError::Interrupted(signals.signal())),
        }
    }
}

fn of(sample: &Sample) -> PlainRun {
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    PlainRun {
        wall_ns: ns(sample.wall),
        user_ns: ns(sample.user),
        system_ns: ns(sample.system),
        minor_faults: sample.nr_minor_faults,
        major_faults: sample.nr_major_faults,
        counters: None,
    }
}
