//! Which folio sizes back processes and files, and why not larger ones; and what programs on disk
//! allow.
//!
//! Reading order: `look` (taken and judged), `group` (by file, by order), `view` (JSON and CSV),
//! `answer` (in a sentence), `text` with `table`, `summary` and `page` (the part of it that a page
//! holds); `state` and `change` (two looks compared) with `diff` and `diff_text`, `board` and
//! `board_rows` (what a full screen shows); `openmetrics`; `elf` with `elf_text` and `elf_page` for
//! programs on disk.

mod answer;
mod board;
mod board_rows;
mod change;
mod diff;
mod diff_text;
mod elf;
mod elf_page;
mod elf_text;
mod group;
mod look;
mod openmetrics;
mod page;
mod plain;
mod show;
mod state;
mod summary;
mod table;
mod text;
mod view;

use largefolio_mm::rules::sizes::FileSizes;
use largefolio_report::ExportError;
use largefolio_report::html::frame::Page;
use largefolio_sim::kernel::Kernel;

use crate::form::{Form, Forms};
use crate::{Error, running};

pub use board::{Board, Picture, Step};
pub use board_rows::Grid;
pub use diff::DiffResult;
pub use elf::ElfResult;
pub use group::Sort;
pub use look::{Look, MapsRequest, Whom};
pub use plain::shortened;
pub(crate) use plain::what_in;
pub use show::Show;
pub use state::State;
pub use view::MapsResult;

/// Mappings that are judged for a page: those of a large system with most memory.
pub const JUDGED_OF_PAGE: usize = 2000;

/// The kernel whose rules decide about programs on disk: of that name, else 7.2 with the base page of
/// this machine.
///
/// # Errors
/// There is no such kernel, or it has a policy or a control of sizes: what a file allows depends on
/// neither.
pub fn elf_kernel(name: Option<&str>) -> Result<Kernel, Error> {
    // Settings of the system change nothing in a file.
    let kernel = name.map_or_else(running::nearest_rules, running::named)?;
    let kernel = kernel.without_policy()?;
    if kernel.rules.sizes != FileSizes::default() {
        return Err(Error::asked(format!(
            "{}: +sizes says which folios a kernel uses, not which a file allows: leave it out; folio \
             predict replays a recording with it",
            kernel.name
        )));
    }
    Ok(kernel)
}

impl Look {
    /// In the form asked for: a text shows `show` of it, JSON and CSV have everything.
    ///
    /// # Errors
    /// None in practice: the result is names and numbers.
    pub fn written(
        &self,
        form: Form,
        show: Show,
        command_line: &[String],
    ) -> Result<String, ExportError> {
        match form {
            Form::Text => Ok(text::of(self, show)),
            Form::Csv => MapsResult::of(self, command_line).csv(),
            Form::Json => MapsResult::of(self, command_line).json(),
        }
    }

    /// As metrics for Prometheus: of processes, control groups and files the largest `show.nr_rows`.
    #[must_use]
    pub fn openmetrics(&self, show: Show) -> String {
        openmetrics::of(self, show)
    }

    /// As a page; for its pictures some mappings and files are examined once more.
    ///
    /// # Errors
    /// None in practice, as [`Look::written`].
    pub fn page(&self, command_line: &[String]) -> Result<Page, ExportError> {
        page::of(self, command_line)
    }
}

impl Forms for ElfResult {
    fn text(&self) -> String {
        elf_text::of(self)
    }

    fn csv(&self) -> Result<String, ExportError> {
        self.records()
    }
}

impl ElfResult {
    /// As a page.
    ///
    /// # Errors
    /// None in practice: the result is names and numbers.
    pub fn page(&self) -> Result<Page, ExportError> {
        elf_page::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_judged_by_the_rules_of_the_running_kernel() {
        let kernel = elf_kernel(None).unwrap();
        assert_eq!(kernel.name, running::nearest_rules().unwrap().name);
        assert_eq!(elf_kernel(Some("6.12")).unwrap().name, "6.12");
    }
}
