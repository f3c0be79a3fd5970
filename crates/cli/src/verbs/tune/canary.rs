//! `folio tune --canary`: a change for a share of a service's instances, taken back if a check
//! fails.
//!
//! ```text
//!   check (nothing changed yet) -> drop-ins -> reload -> restart, one by one -> check, every 10 s
//!                                                         |  any failure, Ctrl-C      | for a time
//!                                                         v                           v
//!                                       remove the drop-ins -> reload -> restart     keep
//! ```
//!
//! The record lists the drop-ins before they are written, so `folio tune --undo` removes them after
//! a SIGKILL.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use largefolio_linux::helpers;
use largefolio_linux::persist::place::ServiceName;
use largefolio_linux::persist::{FilePiece, FilePlace, manager};
use largefolio_linux::shell::{again_as_root, as_root, quoted};
use largefolio_linux::tune::files::{self, Taken};
use largefolio_linux::tune::plan::ChangeSet;
use largefolio_linux::tune::record::{Foreign, Store};
use largefolio_linux::watch::Rounds;
use largefolio_results::tune;
use rustix::process::{Pid, Signal, kill_process_group};

use super::{TunePlan, state_folder};
use crate::console::{self, Console};
use crate::errors::Exit;

const CHECKS_EVERY: Duration = Duration::from_secs(10);
/// A check that takes longer has failed.
const CHECK_TIME_MAX: Duration = Duration::from_mins(1);
const POLL_EVERY: Duration = Duration::from_millis(20);

pub(super) struct Canary {
    pub(super) units: Vec<ServiceName>,
    pub(super) nr_all: usize,
    /// One for each of `units`.
    pub(super) pieces: Vec<FilePiece>,
    pub(super) check: String,
    pub(super) during: Duration,
    pub(super) is_restart: bool,
}

/// A share of instances, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(usize);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
        let percent = percent.filter(|percent| (1..=99).contains(percent));
        percent.map(Self).ok_or_else(|| "expected a share from 1% to 99%, such as 10%".to_owned())
    }
}

impl Share {
    /// Returns at least one instance, and leaves at least one.
    pub(super) fn of(self, nr: usize) -> usize {
        (nr * self.0).div_ceil(100).clamp(1, nr.saturating_sub(1).max(1))
    }
}

impl TunePlan {
    pub(super) fn show_canary(&self, canary: &Canary, console: &mut Console) -> Result<()> {
        let (_, written) = self.recorded()?;
        let planned = files::planned(&self.root, &written, &canary.pieces)?;
        let again = format!("{} --yes", again_as_root(&self.command_line));
        let back = self.undo_command();
        self.deliver(&tune::planned(&ChangeSet::default(), &[], &planned, &again, &back), console)?;
        console::say(&format!("folio: {}", canary.summary()));
        Ok(())
    }

    pub(super) fn apply_canary(&self, canary: &Canary, console: &mut Console) -> Result<Exit> {
        self.check_root()?;
        if !manager::is_running(&self.root) {
            bail!("--canary restarts and checks instances, but systemd does not run here");
        }
        let store = Store::open(&state_folder()?, &self.root)?;
        let is_ours = |place: &FilePlace| canary.pieces.iter().any(|piece| piece.place == *place);
        if store.files()?.into_iter().any(|file| is_ours(&file.place)) {
            bail!(
                "an earlier change of one of these instances is on record; first: {}",
                self.undo_command()
            );
        }
        let mut rounds = Rounds::new(CHECKS_EVERY)?;
        if let Err(why) = canary.check_all(&rounds) {
            bail!("{why}, before any change; nothing was changed");
        }
        console::say(&format!("folio: {}", canary.summary()));
        let written = store.persist(&canary.pieces, &[], &mut || Ok(()))?;
        let Err(why) = canary.watch(&mut rounds) else {
            self.deliver(&tune::applied(&ChangeSet::default()).wrote(&written), console)?;
            console::say(&format!(
                "folio: the check succeeded for {} s. For all instances, repeat the command without \
                 --canary and its options. To take the change back, and everything else that folio \
                 has on record: {}",
                canary.during.as_secs(),
                self.undo_command()
            ));
            return Ok(Exit::Done);
        };
        console::warn(&format!("{why}; taking the change back"));
        let taken = store.take_back_some(Foreign::Keep, &is_ours, &mut || Ok(()));
        // Before anything that may fail.
        let left = canary.deactivate();
        let taken = taken?;
        let delivered = self.deliver(&tune::undone(&[]).took(&taken), console);
        if !canary.is_restart {
            console::warn(&format!(
                "an instance that was restarted meanwhile still has the change; to restart them: {}",
                as_root(&format!(
                    "systemctl restart {}",
                    canary.names().iter().map(quoted).collect::<Vec<_>>().join(" ")
                ))
            ));
        }
        if !left.is_empty() {
            bail!(
                "the drop-ins are removed, but some instances may still run with the change: {}",
                left.join("; ")
            );
        }
        if !taken.iter().all(Taken::is_gone) {
            bail!("not every drop-in could be removed: {}", self.undo_command());
        }
        delivered?;
        Ok(Exit::No)
    }
}

impl Canary {
    fn names(&self) -> Vec<String> {
        self.units.iter().cloned().map(String::from).collect()
    }

    fn summary(&self) -> String {
        let names = self.names();
        let restart = if self.is_restart {
            "they are restarted"
        } else {
            "without --restart, it takes effect only when you restart them"
        };
        format!(
            "{} of {} instances change: {}; {restart}",
            names.len(),
            self.nr_all,
            names.join(", ")
        )
    }

    /// Makes systemd use the current files.
    fn activate(&self, rounds: &Rounds) -> Result<(), String> {
        uninterrupted(rounds)?;
        manager::reload()?;
        for unit in self.units.iter().filter(|_| self.is_restart) {
            uninterrupted(rounds)?;
            manager::restart(unit)?;
        }
        Ok(())
    }

    /// Makes systemd forget the files. Restarts every instance, also after a failure; returns what
    /// failed.
    fn deactivate(&self) -> Vec<String> {
        let reloaded = manager::reload();
        let units = self.units.iter().filter(|_| self.is_restart);
        let restarted = units.map(manager::restart);
        std::iter::once(reloaded).chain(restarted).filter_map(Result::err).collect()
    }

    /// Activates the change and checks it for the time. Returns why it failed.
    fn watch(&self, rounds: &mut Rounds) -> Result<(), String> {
        self.activate(rounds)?;
        rounds.begin();
        let start = Instant::now();
        while start.elapsed() < self.during {
            // After a signal, it returns at once.
            let _ = rounds.wait();
            self.check_all(rounds)?;
        }
        uninterrupted(rounds)
    }

    /// Checks every instance. A signal ends the check, and counts even if the check succeeded.
    fn check_all(&self, rounds: &Rounds) -> Result<(), String> {
        for unit in &self.units {
            uninterrupted(rounds)?;
            self.check(unit, rounds)?;
        }
        uninterrupted(rounds)
    }

    fn check(&self, unit: &ServiceName, rounds: &Rounds) -> Result<(), String> {
        let name = String::from(unit.clone());
        let mut command = Command::new("sh");
        command.args(["-c", &self.check]).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.env("UNIT", &name).env("INSTANCE", unit.instance());
        let (mut child, pid) = helpers::spawn(&mut command)
            .map_err(|error| format!("the check of {name} cannot start: {error}"))?;
        let start = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the check of {name} failed ({status})")),
                Ok(None) if start.elapsed() < CHECK_TIME_MAX && !rounds.is_over() => {
                    std::thread::sleep(POLL_EVERY);
                }
                Ok(None) => break,
                Err(error) => return Err(format!("the check of {name} is lost: {error}")),
            }
        }
        if let Some(group) = i32::try_from(pid.pid()).ok().and_then(Pid::from_raw) {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
        uninterrupted(rounds)?;
        Err(format!("the check of {name} took more than {} s", CHECK_TIME_MAX.as_secs()))
    }
}

fn uninterrupted(rounds: &Rounds) -> Result<(), String> {
    if rounds.is_over() { Err("interrupted".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_changes_some_and_leaves_some() {
        let of = |text: &str, nr| text.parse::<Share>().unwrap().of(nr);
        assert_eq!([of("10%", 30), of("10%", 5), of("99%", 2), of("34%", 3)], [3, 1, 1, 2]);
        for refused in ["", "10", "0%", "100%", "x%", "-1%"] {
            assert!(refused.parse::<Share>().is_err(), "{refused}");
        }
    }
}
