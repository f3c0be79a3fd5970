//! The rounds: each arm once a round, in an order that reverses from round to round.

use std::process::Command;
use std::time::{Duration, Instant};

use super::VerifyError;
use super::run::{Ended, Sample, Watch, how_it_ended, timed};

/// Cause of an arm that cannot be prepared.
pub type ArmError = Box<dyn std::error::Error + Send + Sync>;

/// One of the two ways in which the command is run.
pub trait Arm {
    /// `plain`, `changed`.
    fn name(&self) -> &'static str;

    /// Puts the change into effect, or takes it back. Not timed.
    ///
    /// # Errors
    /// What prevents it.
    fn prepare(&mut self) -> Result<(), ArmError>;

    /// The command as this arm runs it.
    fn command(&self) -> Command;

    /// Whether the command is run once, untimed, between the preparation and the timed run: where
    /// the preparation empties or fills caches, both arms must find them used.
    fn is_rehearsed(&self) -> bool {
        false
    }

    /// After each of its runs, whatever became of it. Not timed.
    fn finish(&mut self) {}
}

/// When enough is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// So many rounds.
    Rounds(usize),
    /// The round in which so much time has passed.
    Time(Duration),
}

/// Samples of both arms, a round each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    /// Without the change.
    pub plain: Vec<Sample>,
    /// With it.
    pub changed: Vec<Sample>,
    /// A signal ended them early.
    pub is_stopped: bool,
}

/// Runs the arms in rounds; the first round is not counted. `progress` hears the number of rounds
/// done, after each.
///
/// # Errors
/// The first run that fails.
pub fn alternate(
    plain: &mut dyn Arm,
    changed: &mut dyn Arm,
    until: Until,
    progress: &mut dyn FnMut(usize),
) -> Result<Rounds, VerifyError> {
    let signals = Watch::start()?;
    let mut rounds = Rounds::default();
    let mut start = Instant::now();
    for round in 0.. {
        let is_plain_first = round % 2 == 0;
        let first = one(if is_plain_first { plain } else { changed }, round, &signals)?;
        let second = match first {
            Some(_) => one(if is_plain_first { changed } else { plain }, round, &signals)?,
            None => None,
        };
        let (Some(first), Some(second)) = (first, second) else {
            rounds.is_stopped = true;
            return Ok(rounds);
        };
        progress(round);
        if round == 0 {
            start = Instant::now();
            continue;
        }
        let (of_plain, of_changed) = if is_plain_first { (first, second) } else { (second, first) };
        rounds.plain.push(of_plain);
        rounds.changed.push(of_changed);
        let is_enough = match until {
            Until::Rounds(nr) => round >= nr,
            Until::Time(time) => start.elapsed() >= time,
        };
        if is_enough {
            break;
        }
    }
    Ok(rounds)
}

/// One run of one arm; `None` when a signal ended it.
fn one(arm: &mut dyn Arm, round: usize, signals: &Watch) -> Result<Option<Sample>, VerifyError> {
    let name = arm.name();
    let prepared = arm.prepare().map_err(|source| VerifyError::Prepare { arm: name, source });
    let result = prepared.and_then(|()| {
        if arm.is_rehearsed() && run(arm, round, signals)?.is_none() {
            return Ok(None);
        }
        run(arm, round, signals)
    });
    arm.finish();
    result
}

fn run(arm: &dyn Arm, round: usize, signals: &Watch) -> Result<Option<Sample>, VerifyError> {
    // A signal during the preparation ends the rounds before anything is started.
    if signals.is_stopped() {
        return Ok(None);
    }
    let command = arm.command();
    let program = command.get_program().to_string_lossy().into_owned();
    match timed(command, signals)? {
        Ended::Well(sample) => Ok(Some(sample)),
        Ended::Stopped => Ok(None),
        Ended::Badly(status) => {
            let how = how_it_ended(status);
            Err(VerifyError::Failed { command: program, how, arm: arm.name(), round })
        }
    }
}
