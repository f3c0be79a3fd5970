//! The rounds: each arm once per round, in an order that reverses from round to round.

use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use super::VerifyError;
use super::metric::{self, Metric, Source};
use super::server::{READY, Ready, Served, Server, shell};
use crate::timed_run::memory_sample::{self, MemorySample, When};
use crate::timed_run::output::Output;
use crate::timed_run::{Observed, RunOptions, Sample, TimedRunEnd, Watch, how_it_ended, observed};

/// With fewer rounds an interval is mostly luck, so the verdict is inconclusive.
pub const NR_ROUNDS_MIN: usize = 10;

/// Maximum number of untimed runs before a timed one. After a cold read, a command of 8.4 ms took
/// 9.4 ms in its second run and 8.6 ms in its fourth.
const NR_REHEARSALS_MAX: usize = 8;
/// The same on a machine whose CPU times never agree. More runs would not help.
const NR_REHEARSALS_OF_NOISE: usize = 2;
/// Two untimed runs have settled if their CPU times differ by less than this, the usual margin of a
/// verdict.
const AT_REST: f64 = 0.01;

pub type ArmError = Box<dyn std::error::Error + Send + Sync>;

pub trait Arm {
    fn name(&self) -> &'static str;

    /// Applies or reverts the change, untimed.
    ///
    /// # Errors
    /// If the change cannot be applied or reverted.
    fn prepare(&mut self) -> Result<(), ArmError>;

    fn command(&self) -> Command;

    fn server(&self) -> Option<Command> {
        None
    }

    /// Returns whether the command runs untimed after the preparation until its time settles. If
    /// the preparation empties or fills caches, both arms must find them used.
    fn is_rehearsed(&self) -> bool {
        false
    }

    /// Called after each run. Returns why the change was not always in effect, if known.
    fn disturbance(&mut self) -> Option<String> {
        None
    }

    /// Called after each run, successful or not, untimed.
    fn finish(&mut self) {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Rounds(usize),
    Time(Duration),
    Either(usize, Duration),
}

impl Until {
    fn is_enough(self, nr: usize, passed: Duration) -> bool {
        match self {
            Self::Rounds(max) => nr >= max,
            Self::Time(time) => passed >= time,
            Self::Either(max, time) => nr >= max || passed >= time,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Measure {
    pub until: Until,
    pub within: Option<Duration>,
    pub metric: Metric,
    pub prepare: Option<String>,
    pub ready: Option<Ready>,
    pub output: Output,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadRun {
    pub sample: Sample,
    pub memory: Option<MemorySample>,
    pub served: Option<Served>,
    pub metric: Option<f64>,
    pub nr_rehearsals: usize,
    /// A process of the command that continued after the command had ended.
    pub left: Option<String>,
    pub disturbance: Option<String>,
}

impl LoadRun {
    /// Returns the CPU time of the server, or of the command. Other programs disturb it least.
    fn cpu(&self) -> Duration {
        match &self.served {
            Some(served) => served.user + served.system,
            None => self.sample.user + self.sample.system,
        }
    }
}

fn is_at_rest(before: Duration, now: Duration) -> bool {
    before.abs_diff(now).as_secs_f64() <= AT_REST * now.as_secs_f64()
}

/// Returns whether two CPU times differ by noise. A cache that fills makes the later run faster.
fn is_noise(before: Duration, now: Duration) -> bool {
    now > before && !is_at_rest(before, now)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rounds {
    pub plain: Vec<LoadRun>,
    pub changed: Vec<LoadRun>,
    pub is_stopped: bool,
    /// Fraction of a run that a memory sample takes, if it is too much. No run is then sampled.
    pub too_dear: Option<f64>,
    /// A run of each arm after the rounds, sampled and untimed, if no round was sampled.
    pub untimed: Option<[LoadRun; 2]>,
}

impl Rounds {
    /// Returns the sampled plain and changed runs: the rounds, or the untimed runs if there are
    /// none.
    pub(super) fn looked_at(&self) -> (&[LoadRun], &[LoadRun]) {
        let has_memory = |run: &LoadRun| run.memory.is_some();
        match &self.untimed {
            Some([plain, changed]) if !self.plain.iter().any(has_memory) => {
                (std::slice::from_ref(plain), std::slice::from_ref(changed))
            }
            _ => (&self.plain, &self.changed),
        }
    }
}

/// Runs the arms in rounds. The first round does not count. `progress` receives the number of
/// completed rounds after each one.
///
/// # Errors
/// The first run that fails.
pub fn alternate(
    plain: &mut dyn Arm,
    changed: &mut dyn Arm,
    measure: &Measure,
    progress: &mut dyn FnMut(usize),
) -> Result<Rounds, VerifyError> {
    let signals = Watch::within(measure.within)?;
    let (mut rounds, is_noisy) = (Rounds::default(), Cell::new(false));
    let mut start = Instant::now();
    let mut when = [When::Doubling; 2];
    for round in 0.. {
        let is_plain_first = round % 2 == 0;
        let mut turn = |is_plain: bool| {
            let arm: &mut dyn Arm = if is_plain { &mut *plain } else { &mut *changed };
            let when = &mut when[usize::from(!is_plain)];
            let (name, signals, is_noisy) = (arm.name(), &signals, &is_noisy);
            let turn = Turn { name, round, measure, signals, when: *when, is_noisy };
            let Some(run) = turn.run(arm)? else { return Ok(None) };
            let too_dear = memory_sample::too_dear(run.sample.wall, run.memory.as_ref());
            *when = match (*when, too_dear.filter(|_| !measure.metric.is_looked_at())) {
                (When::Never, _) => When::Never,
                (_, None) => When::near_end(run.sample.wall),
                (_, part) => {
                    rounds.too_dear = part;
                    When::Never
                }
            };
            Ok::<_, VerifyError>(Some(run))
        };
        let first = turn(is_plain_first)?;
        let second = if first.is_some() { turn(!is_plain_first)? } else { None };
        let (Some(first), Some(second)) = (first, second) else {
            rounds.is_stopped = true;
            return Ok(rounds);
        };
        progress(round);
        // If one arm is not sampled, neither is the other.
        if when.contains(&When::Never) {
            when = [When::Never; 2];
        }
        if round == 0 {
            start = Instant::now();
            continue;
        }
        let (plain_sample, of_changed) =
            if is_plain_first { (first, second) } else { (second, first) };
        rounds.plain.push(plain_sample);
        rounds.changed.push(of_changed);
        if measure.until.is_enough(round, start.elapsed()) {
            break;
        }
    }
    if rounds.too_dear.is_some() {
        let sample_once = |arm: &mut dyn Arm, wall: Duration| {
            let (name, signals, is_noisy) = (arm.name(), &signals, &is_noisy);
            let when = When::near_end(wall);
            Turn { name, round: 0, measure, signals, when, is_noisy }.run(arm)
        };
        let wall = |runs: &[LoadRun]| runs.last().map_or(Duration::ZERO, |run| run.sample.wall);
        let plain_sample = sample_once(plain, wall(&rounds.plain))?;
        let of_changed = if plain_sample.is_some() {
            sample_once(changed, wall(&rounds.changed))?
        } else {
            None
        };
        rounds.untimed = plain_sample.zip(of_changed).map(|(plain, changed)| [plain, changed]);
    }
    Ok(rounds)
}

struct Turn<'a> {
    name: &'static str,
    round: usize,
    measure: &'a Measure,
    signals: &'a Watch,
    when: When,
    is_noisy: &'a Cell<bool>,
}

impl Turn<'_> {
    fn run(&self, arm: &mut dyn Arm) -> Result<Option<LoadRun>, VerifyError> {
        let prepared =
            arm.prepare().map_err(|source| VerifyError::Prepare { arm: self.name, source });
        let result = prepared.and_then(|()| self.prepared(arm));
        let disturbance = arm.disturbance();
        arm.finish();
        Ok(result?.map(|run| LoadRun { disturbance, ..run }))
    }

    fn prepared(&self, arm: &dyn Arm) -> Result<Option<LoadRun>, VerifyError> {
        // A signal during the preparation ends the rounds before a command starts.
        if self.signals.is_stopped() {
            return Ok(None);
        }
        let mut server = None;
        if let (Some(command), Some(ready)) = (arm.server(), &self.measure.ready) {
            server = Server::start(command, ready, self.signals, self.measure.output)?;
            if server.is_none() {
                return Ok(None);
            }
        }
        let run = self.prepared_run(arm, &mut server)?;
        server.map_or(Ok(()), Server::stop)?;
        Ok(run)
    }

    fn prepared_run(
        &self,
        arm: &dyn Arm,
        server: &mut Option<Server>,
    ) -> Result<Option<LoadRun>, VerifyError> {
        if let Some(text) = &self.measure.prepare
            && self.script("--prepare", text, server, None)?.is_none()
        {
            return Ok(None);
        }
        let nr_rehearsals = if arm.is_rehearsed() { self.rehearse(arm, server)? } else { Some(0) };
        let Some(nr_rehearsals) = nr_rehearsals else { return Ok(None) };
        let Some(run) = self.once(arm, server)? else { return Ok(None) };
        let run = LoadRun { nr_rehearsals, ..run };
        let Source::Command(text) = &self.measure.metric.source else { return Ok(Some(run)) };
        let Some(printed) = self.script("--metric", text, server, Some(READY))? else {
            return Ok(None);
        };
        let value = metric::number(&printed).map_err(|why| self.no_metric(why))?;
        Ok(Some(LoadRun { metric: Some(value), ..run }))
    }

    /// Runs it until two runs in a row take the same CPU time, up to the maximum, or twice if the
    /// machine is too noisy. Returns the number of runs.
    fn rehearse(
        &self,
        arm: &dyn Arm,
        server: &mut Option<Server>,
    ) -> Result<Option<usize>, VerifyError> {
        let mut before: Option<Duration> = None;
        for nr in 1..=NR_REHEARSALS_MAX {
            let Some(run) = self.once(arm, server)? else { return Ok(None) };
            let now = run.cpu();
            let earlier = before.replace(now);
            if earlier.is_some_and(|before| is_at_rest(before, now)) {
                return Ok(Some(nr));
            }
            if nr == NR_REHEARSALS_MAX || earlier.is_some_and(|before| is_noise(before, now)) {
                self.is_noisy.set(true);
            }
            if self.is_noisy.get() && nr >= NR_REHEARSALS_OF_NOISE {
                return Ok(Some(nr));
            }
        }
        Ok(Some(NR_REHEARSALS_MAX))
    }

    fn once(
        &self,
        arm: &dyn Arm,
        server: &mut Option<Server>,
    ) -> Result<Option<LoadRun>, VerifyError> {
        let command = arm.command();
        let program = command.get_program().to_string_lossy().into_owned();
        let pattern = match &self.measure.metric.source {
            Source::Pattern(pattern) => Some(pattern),
            _ => None,
        };
        server.iter_mut().for_each(Server::begin);
        let options = RunOptions {
            when: self.when,
            capture: pattern.map(|_| self.measure.output),
            server: server.as_ref().map(|server| &server.family),
            limit: None,
        };
        let Observed { ended, memory: sample_once, output, left } =
            observed(command, self.signals, &options)?;
        if matches!(ended, TimedRunEnd::Stopped) {
            return Ok(None);
        }
        if let Some(server) = server {
            server.check_alive("during the load")?;
        }
        let sample = match ended {
            TimedRunEnd::Succeeded(sample) => sample,
            TimedRunEnd::Stopped => return Ok(None),
            TimedRunEnd::Failed(status) => {
                let (how, arm, round) = (how_it_ended(status), self.name, self.round);
                return Err(VerifyError::Failed { command: program, how, arm, round });
            }
        };
        let metric = pattern.map(|pattern| metric::find(pattern, &output)).transpose();
        let metric = metric.map_err(|why| self.no_metric(why))?;
        let run = LoadRun { sample, memory: sample_once, metric, left, ..LoadRun::default() };
        Ok(Some(LoadRun { served: server.as_ref().map(Server::served), ..run }))
    }

    fn script(
        &self,
        option: &'static str,
        text: &str,
        server: &mut Option<Server>,
        limit: Option<Duration>,
    ) -> Result<Option<Vec<u8>>, VerifyError> {
        let options = RunOptions {
            capture: Some(Output::Discarded),
            server: server.as_ref().map(|server| &server.family),
            limit,
            ..RunOptions::default()
        };
        let start = Instant::now();
        let Observed { ended, output, left, .. } = observed(shell(text), self.signals, &options)?;
        let too_long = limit.filter(|limit| start.elapsed() > *limit);
        let how = match (ended, left) {
            (TimedRunEnd::Stopped, _) => return Ok(None),
            (TimedRunEnd::Failed(status), _) => {
                if let Some(server) = server {
                    server.check_alive("during a command of --prepare or --metric")?;
                }
                let killed = |limit: Duration| format!("took more than {} s", limit.as_secs());
                too_long.map_or_else(|| how_it_ended(status), killed)
            }
            (TimedRunEnd::Succeeded(_), None) => return Ok(Some(output)),
            (TimedRunEnd::Succeeded(_), Some(left)) => {
                format!("left {left} running, which was killed (--server starts a server)")
            }
        };
        Err(VerifyError::Script { option, how, arm: self.name, round: self.round })
    }

    fn no_metric(&self, why: String) -> VerifyError {
        VerifyError::Metric { why, arm: self.name, round: self.round }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_at_rest_when_its_cpu_time_stays() {
        let is = |before: u64, now: u64| {
            is_at_rest(Duration::from_micros(before), Duration::from_micros(now))
        };
        assert!(is(8400, 8400) && is(8480, 8400) && is(8400, 8480) && is(0, 0));
        assert!(!is(9400, 8600) && !is(8500, 8400) && !is(8400, 9400));
        let noise = |before: u64, now: u64| {
            is_noise(Duration::from_micros(before), Duration::from_micros(now))
        };
        assert!(noise(8400, 9400) && !noise(9400, 8400) && !noise(8400, 8440) && !noise(0, 0));
    }

    #[test]
    fn rounds_end_at_whichever_bound_comes_first() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        assert!(Until::Either(3, minute).is_enough(3, second));
        assert!(Until::Either(3, second).is_enough(1, minute));
        assert!(!Until::Either(3, minute).is_enough(2, second));
        assert!(Until::Rounds(3).is_enough(3, second) && !Until::Rounds(3).is_enough(2, minute));
        assert!(
            Until::Time(second).is_enough(1, minute) && !Until::Time(minute).is_enough(9, second)
        );
    }
}
