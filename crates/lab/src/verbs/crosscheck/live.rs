//! `folio-lab crosscheck`: records the running kernel, replays and compares.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use largefolio_lab::Error;
use largefolio_lab::crosscheck::record::{
    CrosscheckError, Facts, Random, Selection, WorkloadPlan, WorkloadSet,
};
use largefolio_lab::crosscheck::result::LiveCheck;
use largefolio_results::running::rules;
use largefolio_sim::kernel::Kernel;
use largefolio_trace::shown;

use super::output::Output;
use super::select::SelectArgs;
use crate::verbs::again_as_root;
use largefolio_cli::console::{self, Console};
use largefolio_cli::errors::Exit;

pub(super) struct Chosen {
    pub(super) select: SelectArgs,
    pub(super) random: Option<Random>,
    pub(super) set: WorkloadSet,
}

impl Chosen {
    fn plan(&self, facts: &Facts, command: &str) -> Result<WorkloadPlan, CrosscheckError> {
        if let Some(random) = self.random {
            return WorkloadPlan::random(
                random,
                &self.select.selection_of_random(),
                facts,
                command,
            );
        }
        let selection = Selection { set: self.set, ..self.select.selection() };
        WorkloadPlan::new(&selection, facts, command)
    }
}

pub(crate) struct LivePlan {
    plan: WorkloadPlan,
    facts: Facts,
    kernel: Kernel,
    keep: Option<PathBuf>,
    output: Output,
    command_line: Vec<String>,
}

impl LivePlan {
    pub(super) fn new(
        chosen: &Chosen,
        kernel: Option<Kernel>,
        keep: Option<PathBuf>,
        output: Output,
        command_line: Vec<String>,
    ) -> Result<Self> {
        let facts = Facts::of_host();
        if chosen.set == WorkloadSet::Limited {
            facts.check_limits()?;
        }
        let plan = chosen.plan(&facts, &again_as_root(&command_line))?;
        let kernel = kernel.map_or_else(|| rules(&facts.release, facts.page_bytes), Ok)?;
        make(keep.as_deref())?;
        Ok(Self { plan, facts, kernel, keep, output, command_line })
    }

    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let Self { plan, facts, kernel, keep, .. } = &self;
        plan.warnings.iter().for_each(|warning| console::warn(warning));
        let bar = console::counter(plan.nr_workloads() as u64, "checking");
        let check = LiveCheck { plan, facts, kernel, keep: keep.as_ref() };
        let result = check.run(self.command_line.clone(), &mut || bar.inc(1));
        bar.finish_and_clear();
        match result {
            Ok(result) => self.output.deliver(&result, console),
            Err(error) => interrupted(error),
        }
    }
}

pub(super) fn make(keep: Option<&Path>) -> Result<()> {
    keep.map_or(Ok(()), |keep| {
        fs::create_dir_all(keep)
            .with_context(|| format!("cannot create {}; choose another --keep", shown(keep)))
    })
}

/// Reports a run that a signal ended, and exits as if the signal had ended it.
pub(super) fn interrupted(error: impl Into<Error>) -> Result<Exit> {
    let error = error.into();
    match error {
        Error::Crosscheck(CrosscheckError::Interrupted(signal)) => {
            console::say(&format!("folio: {error}"));
            Ok(Exit::Program(128_u8.saturating_add(u8::try_from(signal).unwrap_or(127))))
        }
        _ => Err(error.into()),
    }
}
