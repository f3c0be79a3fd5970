//! The options that select processes.

use std::path::PathBuf;

use clap::Args;
use largefolio_results::maps::Selection;

use crate::verbs::values;

/// One way to select processes.
#[derive(Args, Debug)]
#[group(id = "selection", multiple = false)]
pub(super) struct SelectionArgs {
    /// Processes; lists such as 12,13 too
    #[arg(value_name = "PID", value_delimiter = ',', value_parser = values::pid)]
    pub(super) pids: Vec<u32>,
    /// All processes
    #[arg(long, short = 'a')]
    all: bool,
    /// Processes with this name: the name of the program's file or of /proc/PID/comm; may be
    /// repeated
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,
    /// Processes of a systemd unit, such as nginx or nginx.service
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// Processes of a container: its id or the start of it
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// Processes in a control group and its descendants: a directory, or a path as in
    /// /proc/PID/cgroup
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
