//! Programs from the command to the answer: recorded, predicted, run plainly, and compared.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use largefolio_linux::record::RecordOutcome;
use largefolio_results::running::{self, This};
use largefolio_sim::replay::request::Detail;
use largefolio_sim::replay::{
    CacheState, Fitting, Outcome, ReplayRequest, RowsDone, SharedMoment, Sharing, replay_fitting,
};
use largefolio_trace::OpenTrace;

use crate::Error;
use crate::crosscheck::record::pool::PoolNeed;
use crate::crosscheck::record::{
    CrosscheckError, Facts, Placement, PlainOptions, PlainRun, RunPlace, RunPlan, Settings,
    WantedSettings,
};
use crate::crosscheck::run::changes::{SettingStep, changes};
use crate::crosscheck::run::{Measure, NotComparable, Numbers, Verdict};

use super::run_rows::{RunOutcome, RunRow};

/// Scripts use huge pages of this size.
const POOL_KIB: u64 = 2048;

/// Plain runs of a program: `nr`, and more of them while it differs.
#[derive(Clone, Copy, Debug)]
pub struct Runs {
    pub nr: usize,
    pub nr_max: usize,
}

/// Plain runs that are added at a time.
const NR_MORE: usize = 6;
/// Every third further run has random addresses, the others each of these places in turn. The first
/// mapping ends 255 pages above a multiple of 2 MiB: it is lowered to that multiple, to one of 64
/// KiB, to one of 32 KiB, and not at all.
const NR_FIXED_OF: usize = 3;
const PLACES: [u64; 4] = [255, 15, 7, 0];

/// The place of mappings in the further run `nr`, from 1.
fn placement(nr: usize) -> Placement {
    if nr.is_multiple_of(NR_FIXED_OF) {
        return Placement::Random;
    }
    let nth = nr - nr / NR_FIXED_OF - 1;
    Placement::Fixed { nr_pages_below: PLACES[nth % PLACES.len()] }
}

/// How a program is run.
#[derive(Clone, Debug)]
pub struct RunCheck<'a> {
    pub facts: &'a Facts,
    pub plan: RunPlan,
    pub options: PlainOptions,
    pub settings: WantedSettings,
    /// Settings that the program changes.
    pub changed: Vec<SettingStep>,
    /// Huge pages of 2 MiB in the pool; 0 leaves the pool as it is.
    pub nr_huge: u64,
    pub runs: Runs,
}

/// A program to judge.
#[derive(Clone, Debug)]
pub struct Judged {
    pub name: String,
    pub command: Vec<OsString>,
    pub script: Option<String>,
}

impl RunCheck<'_> {
    pub(super) fn row(&self, program: &Judged) -> RunRow {
        RunRow {
            name: program.name.clone(),
            filesystem: self.plan.filesystem.name().to_owned(),
            window_kb: self.plan.window_kb,
            settings: self.settings.to_string(),
            cache: if self.options.is_warm { "warm" } else { "cold" },
            limit_bytes: self.options.limit,
            script: program.script.clone(),
            ..RunRow::default()
        }
    }

    /// Records a program into `trace`, predicts it, runs it plainly and compares all numbers.
    ///
    /// # Errors
    /// If nothing can be recorded or observed. A program that cannot be recorded or predicted has a
    /// row with the reason.
    pub fn judge(
        &self,
        place: &mut RunPlace<'_>,
        program: &Judged,
        trace: &Path,
    ) -> Result<RunRow, Error> {
        let paths: Vec<PathBuf> = self.changed.iter().map(SettingStep::path).collect();
        place.set_settings(&self.settings, &paths)?;
        let pool = PoolNeed { kib: POOL_KIB, nr_pages: self.nr_huge };
        let _pool = (self.nr_huge > 0).then(|| pool.set()).transpose()?;
        place.set_window_kb(self.plan.window_kb);
        let before = Settings::now();
        let mut row = self.row(program);
        let recorded = match place.record(&program.command, trace) {
            Ok(recorded) => recorded,
            Err(CrosscheckError::Record(error)) => return Ok(row.failed(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        row.warnings.clone_from(&recorded.warnings);
        let outcome = match self.predict(trace, place.max_sectors_kb()?)? {
            Ok(outcome) => outcome,
            Err(reason) => return Ok(row.failed(reason)),
        };
        row.rules.clone_from(&outcome.kernel);
        let mut runs = Vec::new();
        let verdict = self.compare(place, program, &outcome, &mut runs)?;
        row.take(&verdict);
        if let Some(reason) = unlike(&recorded, &runs) {
            return Ok(row.failed(reason));
        }
        let changes = before.changes(&Settings::now());
        if row.outcome == RunOutcome::Different && !changes.is_empty() {
            let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
            return Ok(row.failed(format!("a setting changed: {}", changes.join(", "))));
        }
        Ok(row)
    }

    fn compare(
        &self,
        place: &mut RunPlace<'_>,
        program: &Judged,
        outcome: &Outcome,
        runs: &mut Vec<PlainRun>,
    ) -> Result<Verdict, Error> {
        let folder = place.folder().to_path_buf();
        let mut nr_wanted = self.runs.nr;
        loop {
            while runs.len() < nr_wanted {
                let placement = match runs.len().checked_sub(self.runs.nr) {
                    Some(further) => placement(further + 1),
                    None => Placement::Random,
                };
                let options = PlainOptions { placement, ..self.options };
                runs.push(place.plain(&program.command, options)?);
            }
            let verdict = verdict(outcome, runs, &folder, self.facts.page_bytes);
            if verdict.is_equal() || nr_wanted >= self.runs.nr_max {
                return Ok(verdict);
            }
            nr_wanted = (nr_wanted + NR_MORE).min(self.runs.nr_max);
        }
    }

    /// Predicts as `folio predict --kernel this` does, on the place's disk. The inner error is the
    /// reason why this trace cannot be predicted.
    fn predict(&self, trace: &Path, io_kb: u64) -> Result<Result<Outcome, String>, Error> {
        let mut name = format!("{}+readahead={}K+io={io_kb}K", running::THIS, self.plan.window_kb);
        if self.nr_huge > 0 {
            let _ = write!(name, "+hugepages.{POOL_KIB}={}", self.nr_huge);
        }
        if let Some(huge) = self.settings.tmpfs() {
            let _ = write!(name, "+tmpfs-huge={huge}");
        }
        let kernel = This::new().named(&name)?;
        let host = running::machine()?;
        let limit = self.options.limit.map(|bytes| bytes.to_string().parse());
        let limit = limit.transpose().map_err(|error| Error::invalid(format!("{error}")))?;
        let trace = OpenTrace::open(trace)?;
        let request = ReplayRequest {
            cgroups: limit.into_iter().collect(),
            changes: changes(&self.changed, &trace)?,
            cache: if self.options.is_warm { CacheState::Warm } else { CacheState::Cold },
            walks: host.walks,
            shared_memory: SharedMoment::End,
            detail: Detail::Drawn,
            ..ReplayRequest::new(vec![kernel], vec![host.machine])
        };
        request.check_trace(trace.meta())?;
        let mut go_on = |_| ControlFlow::Continue(());
        let replayed = replay_fitting(
            &trace,
            &request.specs()?,
            Sharing::All,
            &mut RowsDone::default(),
            &mut go_on,
        );
        Ok(match replayed {
            Ok(Fitting { outcomes, .. }) => match outcomes.into_iter().next() {
                Some((_, outcome)) => Ok(outcome),
                None => Err("the model's memory is too small for this program".to_owned()),
            },
            Err(error) => Err(format!("the trace cannot be predicted: {error}")),
        })
    }
}

/// Why the recorded program is another one than the plain program.
fn unlike(recorded: &RecordOutcome, runs: &[PlainRun]) -> Option<String> {
    use std::os::unix::process::ExitStatusExt as _;
    let status = runs.first()?.status;
    let ended = status.code().or_else(|| status.signal().map(|signal| signal + 128))?;
    let of_recording = i32::from(recorded.ended.exit_code());
    (ended != of_recording).then(|| {
        format!("the recorded program ended with {of_recording}, the plain one with {ended}")
    })
}

fn verdict(outcome: &Outcome, runs: &[PlainRun], folder: &Path, page_bytes: u64) -> Verdict {
    let cached = runs.iter().flat_map(|run| &run.cached);
    let paths: BTreeSet<PathBuf> = cached.map(|file| file.path.clone()).collect();
    let file = |path: &str| {
        let path = Path::new(path);
        let name = path.strip_prefix(folder).unwrap_or(path);
        paths.contains(path).then(|| name.to_string_lossy().into_owned())
    };
    let real: Vec<Numbers> = runs.iter().map(|run| Numbers::real(run, page_bytes, file)).collect();
    let has_vdso = runs.iter().any(|run| run.observed.vdso_bytes > 0);
    let has_killed = runs.iter().any(|run| run.observed.nr_unobserved > 0);
    let unless = |measure: &Measure| match measure {
        Measure::Cached { .. } => None,
        _ if has_killed => Some(NotComparable::Killed),
        Measure::PssKib if has_vdso => Some(NotComparable::Vdso),
        _ => None,
    };
    Verdict::new(&Numbers::predicted(outcome, file), &real, unless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_runs_have_every_place_and_random_ones() {
        let mut places = BTreeSet::new();
        let mut nr_random = 0;
        for nr in 1..=NR_MORE {
            match placement(nr) {
                Placement::Fixed { nr_pages_below } => drop(places.insert(nr_pages_below)),
                Placement::Random => nr_random += 1,
            }
        }
        assert_eq!((places, nr_random), (PLACES.into(), 2));
    }
}
