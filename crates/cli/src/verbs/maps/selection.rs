//! The options that select processes.

use std::path::PathBuf;

use clap::Args;
use largefolio_results::maps::Selection;

use crate::verbs::values;

/// One way to select processes.
#[derive(Args, Debug)]
#[group(id = "selection", multiple = false)]
pub(super) struct SelectionArgs {
    /// Show these processes; accepts lists such as 12,13
    #[arg(value_name = "PID", value_delimiter = ',', value_parser = values::pid)]
    pub(super) pids: Vec<u32>,
    /// Show all processes
    #[arg(long, short = 'a')]
    all: bool,
    /// Show processes with this name: the program's file name, or the name in /proc/PID/comm; may
    /// be repeated
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Show the processes of a systemd unit, such as nginx or nginx.service
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Show the processes in the container with this ID or ID prefix
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// Show the processes in a control group and its descendants. PATH is a directory, or a path as
    /// in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
}

impl SelectionArgs {
    pub(super) fn selection(self) -> Selection {
        let Self { pids, all, name, unit, container, cgroup } = self;
        let named = (!name.is_empty()).then_some(Selection::Names(name));
        all.then_some(Selection::All)
            .or(named)
            .or(unit.map(Selection::Unit))
            .or(container.map(Selection::Container))
            .or(cgroup.map(Selection::Cgroup))
            .unwrap_or(Selection::Processes(pids))
    }
}
