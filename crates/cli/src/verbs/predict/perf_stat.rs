//! `--perf-stat`: the program's time and counters from another tool.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use largefolio_linux::measure::perf_stat::{self, PerfStat};
use largefolio_sim::replay::CellSpec;
use largefolio_trace::disk;
use largefolio_trace::{OpenTrace, PlainRun, shown};

use crate::console;

/// Reads one run per file.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<PlainRun>> {
    paths.iter().map(|path| read_one(path)).collect()
}

fn read_one(path: &Path) -> Result<PlainRun> {
    let about = || format!("cannot use {} for --perf-stat", shown(path));
    let text = disk::read_text(path, perf_stat::BYTES_MAX).with_context(about)?;
    let PerfStat { run, incomplete } = perf_stat::parse(&text).with_context(about)?;
    for what in incomplete {
        console::warn(&format!("{}: {what}", shown(path)));
    }
    Ok(run)
}

/// Replaces the plain runs of the trace by `runs`, which are of the first machine's CPU.
pub(super) fn give(
    runs: Vec<PlainRun>,
    trace: &mut OpenTrace,
    specs: &mut [CellSpec],
) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    if trace.meta().faults_only || trace.meta().attached.is_some() {
        bail!(
            "--perf-stat: this recording of a running process has page faults only; record the \
             program with folio record -- CMD"
        );
    }
    let Some(first) = specs.first().map(|spec| spec.machine.clone()) else { return Ok(()) };
    let cpu = first.cpu.unwrap_or_else(|| first.name.clone());
    for spec in specs.iter_mut().filter(|spec| spec.machine.name == first.name) {
        spec.machine.cpu = Some(cpu.clone());
    }
    trace.set_runs(runs, &cpu);
    Ok(())
}
