//! `--stalls` and `--hot`: answers that take a while, because something has to happen meanwhile.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use largefolio_results::maps::{MapsRequest, Selection};
use largefolio_results::{Form, Forms as _, Remark};

use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::values;

#[derive(Args, Debug)]
pub(super) struct WatchingArgs {
    /// Show which processes waited for memory, how long and why: direct compaction and reclaim, by
    /// folio size. Traces the kernel for the time in --for; without PIDs or names, all processes
    #[arg(long, group = "watching", conflicts_with_all = [
        "elf", "diff", "watch", "openmetrics", "otlp", "require", "report", "file", "page_cache", "waste",
        "full", "sort"
    ])]
    stalls: bool,
    /// Show which mappings the selected processes use, and in which folio sizes that memory is.
    /// Clears the accessed bits of their pages, by which the kernel chooses pages to free
    #[arg(long, group = "watching", conflicts_with_all = [
        "elf", "diff", "watch", "openmetrics", "otlp", "require", "report", "file", "page_cache", "waste",
        "full", "sort"
    ])]
    hot: bool,
    /// How long to watch [default: 30s for --stalls, 5s for --hot]. Ctrl-C ends it early and shows
    /// the result
    #[arg(long = "for", value_name = "TIME", value_parser = values::interval, requires = "watching")]
    time: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Stalls,
    Hot,
}

impl What {
    const fn usual_time(self) -> Duration {
        match self {
            // Several rounds of khugepaged, which sleeps 10 s.
            Self::Stalls => Duration::from_secs(30),
            // Most periodic work of a server.
            Self::Hot => Duration::from_secs(5),
        }
    }
}

pub(crate) struct WatchingPlan {
    what: What,
    time: Duration,
    request: MapsRequest,
    nr_rows: usize,
    form: Form,
}

impl WatchingArgs {
    pub(super) fn what(&self) -> Option<What> {
        self.stalls.then_some(What::Stalls).or_else(|| self.hot.then_some(What::Hot))
    }

    pub(super) fn plan(
        &self,
        what: What,
        request: MapsRequest,
        nr_rows: usize,
        form: Form,
    ) -> WatchingPlan {
        let time = self.time.unwrap_or_else(|| what.usual_time());
        let request = match what {
            What::Stalls if request.selection.is_empty() => {
                MapsRequest { selection: Selection::All, ..request }
            }
            What::Stalls => request,
            What::Hot => MapsRequest { nr_judged: usize::MAX, ..request },
        };
        WatchingPlan { what, time, request, nr_rows, form }
    }
}

impl WatchingPlan {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let status = console::status();
        let seconds = self.time.as_secs();
        status.set_message(format!("watching for {seconds} s; Ctrl-C ends it early"));
        let (text, is_some, remarks) = match self.what {
            What::Stalls => {
                let result = self.request.stalls(self.time, self.nr_rows)?;
                (result.written(self.form)?, true, result.remarks())
            }
            What::Hot => {
                let (result, remarks) = self.request.hot(self.time, self.nr_rows)?;
                (result.written(self.form)?, result.is_some(), remarks)
            }
        };
        status.finish_and_clear();
        console::remark(&remarks);
        // Without any process, the text would be empty, but data still says so.
        if is_some || self.form != Form::Text {
            console.deliver(text.as_bytes(), None)?;
        }
        let is_missing = remarks.iter().any(|remark| matches!(remark, Remark::Missing(_)));
        Ok(match (is_missing, is_some) {
            (true, _) => Exit::Error,
            (false, true) => Exit::Done,
            (false, false) => Exit::No,
        })
    }
}
