//! `folio record --live`: options of a recording by the running kernel.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use largefolio_linux::record::live::{Bounds, LiveRecording, Target};
use largefolio_linux::shell::again_as_root;
use largefolio_results::maps::Selection;

use crate::verbs::values;

/// The options that only live recordings accept.
#[derive(Args, Debug)]
#[command(next_help_heading = "Live")]
pub(super) struct LiveArgs {
    /// Run the program at full speed and record the events that the kernel reports: page faults,
    /// system calls that change memory, and file reads. Needs root
    #[arg(long)]
    live: bool,
    /// Record running processes and their children; accepts lists such as 12,13. Ctrl-C ends the
    /// recording; the processes continue
    #[arg(
        short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = values::pid,
        requires = "live", conflicts_with_all = ["command", "cgroup"]
    )]
    pids: Vec<u32>,
    /// Record the processes in a control group and its descendants. PATH is a directory, or a path
    /// as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH", requires = "live", conflicts_with = "command")]
    cgroup: Option<PathBuf>,
    /// Stop recording after this time, such as 60s; the program continues
    #[arg(long = "for", value_name = "TIME", value_parser = values::duration, requires = "live")]
    time: Option<Duration>,
    /// Stop recording when the trace reaches this size, such as 1G; the program continues
    #[arg(long, value_name = "SIZE", value_parser = values::size, requires = "live")]
    max_size: Option<u64>,
    /// Check at this interval, such as 5s, which pages have been written again; without this
    /// option, only the first store to a page is recorded. Each recorded store costs the program
    /// one extra fault
    #[arg(long, value_name = "TIME", value_parser = values::duration, requires = "live")]
    hot: Option<Duration>,
}

impl LiveArgs {
    pub(super) const fn is_live(&self) -> bool {
        self.live
    }

    pub(super) fn plan(
        self,
        command: &[OsString],
        output: Option<&Path>,
        command_line: &[String],
    ) -> Result<LiveRecording> {
        if self.max_size == Some(0) {
            bail!("a trace of 0 bytes would be empty; give --max-size a size such as 1G");
        }
        let target = match self.cgroup {
            Some(path) => Target::Running(Selection::Cgroup(path)),
            None if self.pids.is_empty() => Target::Command(command.to_vec()),
            None => Target::Running(Selection::Processes(self.pids)),
        };
        let bounds = Bounds { time: self.time, bytes: self.max_size };
        let again = again_as_root(command_line);
        Ok(LiveRecording::new(target, output, bounds, self.hot, &again)?)
    }
}
