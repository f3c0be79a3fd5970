//! `folio predict` of one trace: one result with a column for each cell.

use std::path::PathBuf;

use anyhow::Result;
use largefolio_report::{Exporter, Html, PredictResult, Settings, TraceInfo};
use largefolio_sim::replay::{CacheState, CellSpec, Outcome, replay};
use largefolio_trace::shown::spelled;
use largefolio_trace::{Meta, digest};

use super::form::{FrameForm, Sink};
use crate::console::{self, Console};
use crate::errors::Exit;

/// A replay that can be made.
pub(crate) struct ReplayPlan {
    pub(super) trace: PathBuf,
    pub(super) nr_rows: u64,
    pub(super) specs: Vec<CellSpec>,
    pub(super) settings: Settings,
    pub(super) form: FrameForm,
    pub(super) shows_time: bool,
    pub(super) run_time_ns: Option<f64>,
    pub(super) output: Option<PathBuf>,
    pub(super) report: Option<PathBuf>,
    pub(super) command_line: Vec<String>,
    pub(super) has_idle_seeds: bool,
}

impl ReplayPlan {
    pub(super) fn run(&self, console: &mut Console) -> Result<Exit> {
        if self.has_idle_seeds {
            console::warn(super::IDLE_SEEDS);
        }
        let (meta, rows) = self.replay()?;
        let trace = TraceInfo {
            digest: Some(digest(&self.trace)?),
            ..TraceInfo::new(&spelled(&self.trace), &meta)
        };
        let report =
            PredictResult::new(self.command_line.clone(), trace, self.settings.clone(), rows);
        let report = match self.run_time_ns {
            Some(ns) => report.with_run_time(ns),
            None => report,
        };
        let mut result = Vec::new();
        let sink = if self.output.is_some() { Sink::File } else { Sink::Stream };
        self.form.exporter(sink, self.shows_time).export(&report, &mut result)?;
        if let Some(path) = &self.report {
            let mut page = Vec::new();
            Html.export(&report, &mut page)?;
            console.deliver(&page, Some(path))?;
        }
        console.deliver(&result, self.output.as_deref())?;
        Ok(Exit::Done)
    }

    fn replay(&self) -> Result<(Meta, Vec<Outcome>)> {
        let is_warm = self.specs.iter().any(|spec| spec.cache == CacheState::Warm);
        let nr_passes = if is_warm { 2 } else { 1 };
        let bar = console::bar(self.nr_rows.saturating_mul(nr_passes), "replaying");
        let (mut before, mut last) = (0, 0);
        let result = replay(&self.trace, &self.specs, &mut |nr_read| {
            if nr_read < last {
                before += last;
            }
            last = nr_read;
            bar.set_position(before + nr_read);
        });
        bar.finish_and_clear();
        Ok(result?)
    }
}
