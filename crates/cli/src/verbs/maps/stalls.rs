//! `--stalls`: traces waits for memory for a while.

use std::time::Duration;

use anyhow::Result;
use largefolio_results::maps::{MapsRequest, Selection};
use largefolio_results::{Form, Forms as _};

use crate::console::{self, Console};
use crate::errors::Exit;

/// Long enough for several rounds of khugepaged, which sleeps 10 s.
pub(super) const USUAL_TIME: Duration = Duration::from_secs(30);

pub(crate) struct StallsPlan {
    request: MapsRequest,
    time: Duration,
    nr_rows: usize,
    form: Form,
}

impl StallsPlan {
    /// Without a selection, all processes count.
    pub(super) fn of(request: MapsRequest, time: Duration, nr_rows: usize, form: Form) -> Self {
        let is_all = request.selection.is_empty();
        let selection = if is_all { Selection::All } else { request.selection.clone() };
        Self { request: MapsRequest { selection, ..request }, time, nr_rows, form }
    }

    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let seconds = self.time.as_secs();
        let status = console::status();
        status.set_message(format!("tracing for {seconds} s; Ctrl-C ends it early"));
        let result = self.request.stalls(self.time, self.nr_rows)?;
        status.finish_and_clear();
        console::remark(&result.remarks());
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}
