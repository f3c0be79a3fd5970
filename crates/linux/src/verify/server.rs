//! Starts a server, waits until it is ready, and stops it.
//!
//! Its processes are in their own cgroup if a version 2 cgroup can be made, and otherwise in the
//! tree of the started process. The server's usage during a load is the change in its counters.
//!
//! Invariant W1: after every run, successful or not, a server gets SIGTERM and is killed after
//! `PATIENCE`.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use largefolio_trace::shown;
use regex_lite::Regex;

use super::VerifyError;
use crate::helpers;
use crate::signals;
use crate::timed_run::failed;
use crate::timed_run::family::{Family, join, new_cgroup};
use crate::timed_run::memory_sample::MemorySample;
use crate::timed_run::output::{Capture, Output};
use crate::timed_run::{
    RunOptions, TimedRunEnd, TimedRunError, Watch, how_it_ended, observed, start_error,
};

const PATIENCE: Duration = Duration::from_secs(20);
pub(super) const READY: Duration =
    if cfg!(test) { Duration::from_secs(2) } else { Duration::from_mins(1) };
const PAUSE: Duration = Duration::from_millis(20);
const SHOWN_BYTES: usize = 400;

#[derive(Clone, Debug)]
pub enum Ready {
    Command(String),
    Pattern(Box<Regex>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    pub user: Duration,
    pub system: Duration,
    pub nr_minor_faults: u64,
    pub memory: Option<MemorySample>,
}

pub(super) struct Server {
    pub(super) family: Family,
    leader: Child,
    output: Capture,
    before: [Duration; 2],
}

impl Server {
    pub(super) fn start(
        mut command: Command,
        ready: &Ready,
        signals: &Watch,
        output: Output,
    ) -> Result<Option<Self>, VerifyError> {
        let cgroup = new_cgroup();
        let (group, procs) = cgroup.unzip();
        let mut family = Family::start(group)?;
        command.stdin(Stdio::null()).process_group(family.group());
        if let Some(procs) = procs {
            join(&mut command, procs);
        }
        signals::hand_on(&mut command);
        let output = Capture::of(&mut command, output).map_err(failed("pipe"))?;
        let started = helpers::spawn(&mut command);
        let (leader, own) = started.map_err(|source| start_error(&command, source))?;
        drop(command);
        family.is_led_by(own);
        let mut server = Self { family, leader, output, before: [Duration::ZERO; 2] };
        Ok(server.is_ready(ready, signals)?.then_some(server))
    }

    fn is_ready(&mut self, ready: &Ready, signals: &Watch) -> Result<bool, VerifyError> {
        let start = Instant::now();
        let mut why = "its output does not match".to_owned();
        loop {
            if signals.is_stopped() {
                return Ok(false);
            }
            self.check_alive("before it was ready")?;
            let is_ready = match ready {
                Ready::Pattern(pattern) => {
                    pattern.is_match(&String::from_utf8_lossy(&self.output.tail()))
                }
                Ready::Command(text) => {
                    let left = READY.saturating_sub(start.elapsed());
                    let options = RunOptions {
                        server: Some(&self.family),
                        limit: Some(left.max(PAUSE)),
                        ..RunOptions::default()
                    };
                    let mut shell = shell(text);
                    shell.stdout(Stdio::null()).stderr(Stdio::null());
                    match observed(shell, signals, &options)?.ended {
                        TimedRunEnd::Succeeded(_) => true,
                        TimedRunEnd::Stopped => false,
                        TimedRunEnd::Failed(status) => {
                            why = format!("the last time, the command {}", how_it_ended(status));
                            false
                        }
                    }
                }
            };
            if is_ready {
                return Ok(true);
            }
            if start.elapsed() > READY {
                return Err(VerifyError::NotReady {
                    seconds: READY.as_secs(),
                    why,
                    output: self.end_of_output(),
                });
            }
            thread::sleep(PAUSE);
        }
    }

    /// # Errors
    /// If none of its processes is alive.
    pub(super) fn check_alive(&mut self, when: &'static str) -> Result<(), VerifyError> {
        // A server that turned into a daemon has left its first process, which is reaped here.
        let first = self.leader.try_wait().map_err(failed("wait4"))?;
        if first.is_some() {
            self.family.has_no_leader();
        }
        if first.is_none() || !self.family.pids().is_empty() {
            return Ok(());
        }
        let how = first.map(how_it_ended).unwrap_or_default();
        // Its last output may still be in the pipes.
        self.output.stop();
        Err(VerifyError::ServerEnded { how, when, output: self.end_of_output() })
    }

    fn end_of_output(&self) -> String {
        let output = self.output.tail();
        let end = &output[output.len().saturating_sub(SHOWN_BYTES)..];
        let first = self.output.first_errors();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', "; ");
        let (first, last) = (text(&first), text(end));
        match (first.is_empty(), last.is_empty()) {
            (_, true) => String::new(),
            (true, _) => format!("; it wrote: {}", shown(&last)),
            // The end of a long output can be only the consequences of one error.
            _ if last.contains(&first) => format!("; it wrote: {}", shown(&last)),
            _ => format!("; its first errors: {}; it wrote last: {}", shown(&first), shown(&last)),
        }
    }

    pub(super) fn begin(&mut self) {
        self.before = self.family.usage().0;
    }

    pub(super) fn served(&self) -> Served {
        let ([user, system], nr_minor_faults) = self.family.usage();
        Served {
            user: user.saturating_sub(self.before[0]),
            system: system.saturating_sub(self.before[1]),
            nr_minor_faults,
            memory: MemorySample::at(&self.family.pids()),
        }
    }

    pub(super) fn stop(mut self) -> Result<(), VerifyError> {
        if self.end() {
            Ok(())
        } else {
            Err(TimedRunError::Immortal { what: "the server".into() }.into())
        }
    }

    fn end(&mut self) -> bool {
        let start = Instant::now();
        let mut signalled = BTreeSet::new();
        while !self.family.pids().is_empty() && start.elapsed() < PATIENCE {
            // Repeats this: a process whose parent has ended becomes our child only then.
            self.family.terminate(&mut signalled);
            thread::sleep(PAUSE);
        }
        let is_over = self.family.end();
        if is_over {
            let _ = self.leader.wait();
            self.family.has_no_leader();
        }
        is_over
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

pub(super) fn shell(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", text]);
    command
}
