//! One command under several settings, in interleaved rounds.

use std::path::PathBuf;
use std::process::Command;

use super::{Sample, TimedRunEnd, TimedRunError, Watch, how_it_ended, timed};
use crate::measure::turns;
use crate::setting::{Setting, SettingError};

#[derive(Debug, thiserror::Error)]
pub enum RoundsError {
    #[error(transparent)]
    Run(#[from] TimedRunError),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("the program {0}")]
    Failed(String),
}

/// A setting's file and value.
pub type SettingValue = (PathBuf, String);

/// Runs a command `nr_rounds` times under each of the `arms`, after a round that does not count.
/// The arms' order reverses from round to round. Each arm lists its differences from the system's
/// settings. Returns the samples by round and arm; `None` after a signal.
///
/// # Errors
/// The first run that fails, or a setting that cannot be changed. All settings are restored.
pub fn under_settings(
    command: &dyn Fn() -> Command,
    arms: &[Vec<SettingValue>],
    nr_rounds: usize,
    signals: &Watch,
) -> Result<Option<Vec<Vec<Sample>>>, RoundsError> {
    let mut rounds = Vec::new();
    for round in 0..=nr_rounds {
        let mut samples = vec![Sample::default(); arms.len()];
        for arm in turns(round, arms.len()) {
            let changes = arms[arm].iter();
            let held: Result<Vec<Setting>, SettingError> =
                changes.map(|(path, value)| Setting::change(path, value)).collect();
            let held = held?;
            let ended = timed(command(), signals)?;
            drop(held);
            match ended {
                TimedRunEnd::Succeeded(sample) => samples[arm] = sample,
                TimedRunEnd::Failed(status) => {
                    return Err(RoundsError::Failed(how_it_ended(status)));
                }
                TimedRunEnd::Stopped => return Ok(None),
            }
        }
        if round > 0 {
            rounds.push(samples);
        }
    }
    Ok(Some(rounds))
}
