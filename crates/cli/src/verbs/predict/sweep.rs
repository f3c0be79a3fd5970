//! `folio predict --sweep`: replays many traces into one data set.

use std::path::PathBuf;

use anyhow::{Context, Result};
use largefolio_linux::signals::Stop;
use largefolio_results::figures::{counted, grouped};
use largefolio_results::json;
use largefolio_results::predict::sweep::local::{self, Callbacks};
use largefolio_results::predict::sweep::manifest::SweepRun;
use largefolio_results::predict::sweep::{
    Counts, Failure, IsStopped, Manifest, RunEnding, Sweep, SweepError, SweepRequest,
};
use largefolio_trace::disk::MadeDirs;
use largefolio_trace::shown;

use crate::console::{self, Console};
use crate::errors::Exit;

const SIGNALLED: i32 = 128;

/// Maximum number of failures reported one by one; the manifest has all of them.
const NR_PRINTED_MAX: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Summary {
    Text,
    Json,
}

pub(crate) struct SweepPlan {
    pub(super) dir: PathBuf,
    pub(super) request: SweepRequest,
    pub(super) summary: Summary,
    /// Directories created for the sweep, which are removed if nothing is written.
    pub(super) made: MadeDirs,
}

impl SweepPlan {
    pub(super) fn run(&mut self, console: &mut Console) -> Result<Exit> {
        if self.request.cells.has_idle_seeds() {
            console::warn(super::IDLE_SEEDS);
        }
        let stop = Stop::watch().context("watching for signals")?;
        let is_stopped = || stop.asked_by().is_some();
        let mut sweep = match Sweep::open(&self.dir, &self.request, &is_stopped) {
            Err(error @ SweepError::Stopped) => {
                console::warn(&error.to_string());
                return Ok(stopped_by(&stop));
            }
            opened => opened?,
        };
        self.made.keep();
        if let Some(note) = sweep.note() {
            console::warn(&format!("{}: {note}", shown(&self.dir)));
        }
        for renamed in sweep.set_aside() {
            console::warn(&format!(
                "{}: {}; renamed to {}, {}",
                shown(&self.dir.join(&renamed.file)),
                renamed.why,
                shown(&renamed.now),
                renamed.lost()
            ));
        }
        let ended = replay(&mut sweep, &is_stopped);
        let failures = sweep.failures();
        let manifest = sweep.finish(*ended.as_ref().unwrap_or(&RunEnding::Stopped), &is_stopped);
        // The error that ended it says more than the manifest's error on the same full disk.
        let (_, manifest) = (ended?, manifest?);
        print_failures(&failures);
        if let Some(dropped) = manifest.last().and_then(SweepRun::dropped) {
            console::warn(&format!("{}: {dropped}", shown(&self.dir)));
        }
        self.print_summary(&manifest, console)?;
        Ok(match manifest.last().map(|run| run.ended) {
            Some(RunEnding::Interrupted) => stopped_by(&stop),
            Some(RunEnding::Done) => Exit::Done,
            _ => Exit::No,
        })
    }

    fn print_summary(&self, manifest: &Manifest, console: &mut Console) -> Result<()> {
        if self.summary == Summary::Json {
            return console.deliver(json::pretty(manifest)?.as_bytes(), None);
        }
        let text = manifest.last().map(|run| self.summary_text(manifest, run)).unwrap_or_default();
        console.deliver(text.as_bytes(), None)
    }

    /// Writes one line, and a second if something is missing.
    fn summary_text(&self, manifest: &Manifest, run: &SweepRun) -> String {
        let dir = shown(&self.dir);
        let done = format!(
            "{dir}: {} done, {} found, {} failed; {} in {}, \
             read_parquet('{dir}/part-*.parquet', union_by_name = true)\n",
            counted(run.nr_done as u64, "cell"),
            grouped(run.nr_found as u64),
            grouped(run.nr_failed as u64),
            counted(manifest.nr_cells as u64, "row"),
            counted(manifest.nr_parts as u64, "part"),
        );
        match run.nr_asked - run.nr_found - run.nr_done - run.nr_failed {
            0 => done,
            nr_left => format!(
                "{done}{} left; the same command continues from there\n",
                counted(nr_left as u64, "cell")
            ),
        }
    }
}

fn stopped_by(stop: &Stop) -> Exit {
    let signal = stop.asked_by().unwrap_or_default();
    Exit::Program(u8::try_from(SIGNALLED + signal).unwrap_or(u8::MAX))
}

fn replay(sweep: &mut Sweep, is_stopped: IsStopped<'_>) -> Result<RunEnding, SweepError> {
    let bar = console::counter(sweep.counts().nr_asked as u64, "cells");
    let mut progress = |counts: Counts| {
        bar.set_position((counts.nr_found + counts.nr_done + counts.nr_failed) as u64);
    };
    let callbacks = Callbacks { progress: &mut progress, is_stopped };
    let ended = local::run(sweep, callbacks);
    bar.finish_and_clear();
    ended
}

fn print_failures(failures: &[Failure]) {
    for failure in failures.iter().take(NR_PRINTED_MAX) {
        let cells = match failure.cells.as_slice() {
            [cell] => format!("{} on {}", cell.kernel, cell.machine),
            _ => counted(failure.nr_cells as u64, "cell"),
        };
        console::warn(&format!("{}, {cells} failed: {}", shown(&failure.trace), failure.error));
    }
    if let Some(nr_more) = failures.len().checked_sub(NR_PRINTED_MAX).filter(|&nr| nr > 0) {
        console::warn(&format!("the manifest lists {nr_more} more failures"));
    }
}
