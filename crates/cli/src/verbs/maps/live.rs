//! The running system: examined once or again and again, and shown.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use largefolio_linux::watch::Rounds;
use largefolio_results::maps::{JUDGED_OF_PAGE, Look, MapsRequest, MapsResult, Show};
use largefolio_results::{Form, Remark};

use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::page_file::{self, PageFile};

/// A view of the running system.
pub(crate) struct LivePlan {
    pub(super) request: MapsRequest,
    pub(super) show: Show,
    pub(super) watch: Option<Duration>,
    pub(super) form: Form,
    pub(super) page: Option<PageFile>,
}

/// Mappings that are judged for what will be shown.
pub(super) fn nr_judged(form: Form, show: Show, page: Option<&PageFile>) -> usize {
    let of_page = if page.is_some() { JUDGED_OF_PAGE } else { 0 };
    match form {
        Form::Text => show.nr_judged().max(of_page),
        Form::Json => usize::MAX,
        Form::Csv => of_page,
    }
}

impl LivePlan {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        let Some(every) = self.watch else {
            let look = self.request.look()?;
            let exit = self.tell(&look);
            // Without any of the processes there is no table, but data that says so.
            let MapsRequest { files, page_cache, .. } = &self.request;
            let is_empty = files.is_empty() && page_cache.is_none() && self.request.is_over(&look);
            if !(is_empty && self.form == Form::Text) {
                self.deliver(&look, console)?;
            }
            return Ok(exit);
        };
        let mut rounds = Rounds::new(every).context("cannot watch for Ctrl-C")?;
        let is_redrawn = std::io::stdout().is_terminal() && self.form == Form::Text;
        let mut exit = Exit::Done;
        for nr in 0_u64.. {
            let look = self.request.look()?;
            if nr == 0 {
                exit = self.tell(&look);
            }
            match (is_redrawn, self.form, nr) {
                (true, ..) => console.out().write_all(b"\x1b[H\x1b[2J")?,
                (false, Form::Text, 1..) => console.out().write_all(b"\n")?,
                _ => {}
            }
            self.deliver(&look, console)?;
            if self.request.is_over(&look) || !rounds.wait() {
                break;
            }
        }
        Ok(exit)
    }

    /// Says what is missing in the result; an error where it was asked for by name.
    fn tell(&self, look: &Look) -> Exit {
        let remarks = self.request.remarks(look);
        console::remark(&remarks);
        let is_missing = remarks.iter().any(|remark| matches!(remark, Remark::Missing(_)));
        if is_missing { Exit::Error } else { Exit::Done }
    }

    fn deliver(&self, look: &Look, console: &mut Console) -> Result<()> {
        let command_line = &self.request.command_line;
        let result = if self.form == Form::Json && self.watch.is_some() {
            MapsResult::of(look, command_line).json_line()?
        } else {
            // The terminal may have another width each time.
            let show = Show { width: Console::width(), ..self.show };
            look.written(self.form, show, command_line)?
        };
        page_file::deliver(console, &result, self.page.as_ref(), || look.page(command_line))
    }
}
