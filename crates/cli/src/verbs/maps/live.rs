//! The running system, examined once or repeatedly, and shown.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use largefolio_linux::census::Watch;
use largefolio_linux::watch::Rounds;
use largefolio_results::maps::{
    JUDGED_OF_PAGE, MapsRequest, MapsResult, MetricsFormat, Reading, Requirement, Show, WasteResult,
};
use largefolio_results::{Form, Forms as _, Remark};

use super::screen;
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::page_file::{self, PageFile};

pub(crate) struct LivePlan {
    pub(super) request: MapsRequest,
    pub(super) show: Show,
    pub(super) watch: Option<Duration>,
    pub(super) output: Output,
    pub(super) requirement: Option<Requirement>,
}

pub(crate) enum Output {
    /// A result, and optionally a page.
    Result {
        form: Form,
        page: Option<PageFile>,
    },
    /// To standard output without a file.
    Metrics {
        format: MetricsFormat,
        file: Option<PathBuf>,
        has_waste: bool,
    },
    Waste(Form),
}

impl Output {
    pub(super) fn nr_judged(&self, show: Show) -> usize {
        let Self::Result { form, page } = self else { return 0 };
        let page_limit = if page.is_some() { JUDGED_OF_PAGE } else { 0 };
        match form {
            Form::Text => show.nr_judged().max(page_limit),
            Form::Json => usize::MAX,
            Form::Csv => page_limit,
        }
    }

    const fn is_text(&self) -> bool {
        matches!(self, Self::Result { form: Form::Text, .. } | Self::Waste(Form::Text))
    }
}

impl LivePlan {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let Some(every) = self.watch else {
            let reading = self.request.take_reading()?;
            let exit = self.report_missing(&reading);
            // Without any process, the table is left out, but data still says so.
            if !(self.request.finds_nothing(&reading) && self.output.is_text()) {
                self.deliver(&reading, console)?;
            }
            let Some(requirement) = self.requirement.filter(|_| exit == Exit::Done) else {
                return Ok(exit);
            };
            let unmet = requirement.check(&reading)?;
            console::remark(unmet.as_slice());
            return Ok(if unmet.is_some() { Exit::No } else { Exit::Done });
        };
        if self.output.is_text() && screen::is_possible() {
            return self.on_screen(every);
        }
        let mut rounds = Rounds::new(every).context("cannot watch for Ctrl-C")?;
        let mut exit = Exit::Done;
        let mut watch = Watch::default();
        for nr in 0_u64.. {
            let reading = match &self.output {
                Output::Metrics { .. } => self.request.take_reading_again(&mut watch)?,
                Output::Result { .. } | Output::Waste(_) => self.request.take_reading()?,
            };
            if nr == 0 {
                exit = self.report_missing(&reading);
            }
            if nr > 0 && self.output.is_text() {
                console.out().write_all(b"\n")?;
            }
            self.deliver(&reading, console)?;
            // A process that is missing at the start was mistyped; later it may come back.
            let is_over =
                self.request.is_over(&reading) || nr == 0 && self.request.finds_nothing(&reading);
            if is_over || console.is_closed() || !rounds.wait() {
                break;
            }
            reading.give_back(&mut watch);
        }
        Ok(exit)
    }

    fn on_screen(self, every: Duration) -> Result<Exit> {
        let request = MapsRequest { nr_judged: 0, ..self.request.clone() };
        let reading = request.take_reading()?;
        if request.finds_nothing(&reading) {
            return Ok(self.report_missing(&reading));
        }
        let result = screen::run(&request, &reading, self.show, every);
        let exit = self.report_missing(&reading);
        result.map(|()| exit)
    }

    /// Reports what is missing: an error if it was requested by name. If no process has memory, the
    /// answer is "no".
    fn report_missing(&self, reading: &Reading) -> Exit {
        let remarks = self.request.remarks(reading);
        console::remark(&remarks);
        let is_missing = remarks.iter().any(|remark| matches!(remark, Remark::Missing(_)));
        match (is_missing, self.request.finds_nothing(reading)) {
            (true, _) => Exit::Error,
            (false, true) => Exit::No,
            (false, false) => Exit::Done,
        }
    }

    fn deliver(&self, reading: &Reading, console: &mut Console) -> Result<()> {
        match &self.output {
            Output::Metrics { format, file, has_waste } => {
                let waste = has_waste.then(|| self.waste(reading)).transpose()?;
                let metrics = reading.metrics(waste.as_ref(), self.show, *format);
                console.deliver(metrics.as_bytes(), file.as_deref())
            }
            Output::Waste(form) => {
                console.deliver(self.waste(reading)?.written(*form)?.as_bytes(), None)
            }
            Output::Result { form, page } => {
                let result = self.render(reading, *form)?;
                let command_line = &self.request.command_line;
                page_file::deliver(console, &result, page.as_ref(), || reading.page(command_line))
            }
        }
    }

    fn waste(&self, reading: &Reading) -> Result<WasteResult> {
        let Some(census) = reading.census() else {
            bail!("--waste needs processes, such as folio maps 4242 --waste");
        };
        Ok(self.request.waste(census)?)
    }

    fn render(&self, reading: &Reading, form: Form) -> Result<String> {
        let command_line = &self.request.command_line;
        if form == Form::Json && self.watch.is_some() {
            return Ok(MapsResult::of(reading, command_line).json_line()?);
        }
        // The terminal's width may have changed.
        let show = Show { width: Console::width(), prose: Console::prose_width(), ..self.show };
        Ok(reading.written(form, show, command_line)?)
    }
}
