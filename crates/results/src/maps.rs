//! Which folio sizes map processes and files, why they are not larger, and what programs on disk
//! allow.
//!
//! Reading order: `reading` (reading and judging the system), `group` (by file, in order), `view`
//! (JSON and CSV), `headline` (its first sentence), `text` with `table`, `summary` and `page`
//! (the data of a page); `state` and `change` (two readings compared) with `diff` and `diff_text`;
//! `board` and `board_rows` (the full-screen view); `metrics` with `openmetrics` and `otlp`;
//! `require` (a health check); `waste` (pages of zeroes); `stalls` with `stalls_text` (waits for
//! memory); `hot` with `hot_text` (memory in use); `elf` with `elf_text` and `elf_page` for programs
//! on disk.

mod board;
mod board_rows;
mod change;
mod diff;
mod diff_text;
mod elf;
mod elf_page;
mod elf_text;
mod group;
mod headline;
mod hot;
mod hot_text;
mod metrics;
mod openmetrics;
mod otlp;
mod page;
mod plain;
mod reading;
mod require;
mod show;
mod stalls;
mod stalls_text;
mod state;
mod summary;
mod table;
mod text;
mod view;
mod waste;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::ExportError;
use crate::figures::printable;
use crate::html::frame::Page;
use largefolio_mm::rules::sizes::FileSizes;
use largefolio_sim::kernel::Kernel;
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};

use crate::form::{Form, Forms};
use crate::{Error, running};

pub use board::{Board, Picture, Step};
pub use board_rows::Grid;
pub use diff::DiffResult;
pub use elf::ElfResult;
pub use group::Sort;
pub use hot::HotResult;
pub use plain::shortened;
pub(crate) use plain::what_in;
pub use reading::{MapsRequest, Reading, Selection};
pub use require::Requirement;
pub use show::Show;
pub use stalls::StallsResult;
pub use state::State;
pub use view::MapsResult;
pub use waste::WasteResult;

/// Maximum number of mappings that are judged for a page: those with most memory.
pub const JUDGED_OF_PAGE: usize = 2000;

/// The format of [`Reading::metrics`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// For Prometheus.
    OpenMetrics,
    /// OTLP/JSON, one line.
    Otlp,
}

/// Returns the kernel whose rules apply to programs on disk: `name`, or 7.2 with this machine's
/// base page.
///
/// # Errors
/// If no such kernel exists, or if it has a policy or size settings: neither affects what a file
/// allows.
pub fn elf_kernel(name: Option<&str>) -> Result<Kernel, Error> {
    let kernel = name.map_or_else(running::nearest_rules, running::named)?;
    let kernel = kernel.without_policy()?;
    if kernel.rules.sizes != FileSizes::default() {
        return Err(Error::request(format!(
            "{}: +sizes sets which folios a kernel uses, not which folios a file allows; omit it. \
             folio predict can replay a recording with it",
            kernel.name
        )));
    }
    Ok(kernel)
}

impl Reading {
    /// Returns the requested format. Text is limited by `show`; JSON and CSV have everything.
    ///
    /// # Errors
    /// Never in practice: the result is names and numbers.
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

    /// Returns the reading, and `waste` if it was measured, as metrics. The largest `show.nr_rows`
    /// processes, control groups and files have their own.
    #[must_use]
    pub fn metrics(
        &self,
        waste: Option<&WasteResult>,
        show: Show,
        format: MetricsFormat,
    ) -> String {
        let families = metrics::of(self, waste, show);
        match format {
            MetricsFormat::OpenMetrics => openmetrics::of(&families),
            MetricsFormat::Otlp => otlp::of(&families, &self.origin()),
        }
    }

    fn origin(&self) -> otlp::Origin {
        let uptime = clock_gettime(ClockId::Boottime);
        let uptime = Duration::try_from(uptime).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        otlp::Origin {
            host: printable(&uname().nodename().to_string_lossy()),
            release: self.release.clone(),
            // In whole seconds: a start that changes looks like another start.
            booted: Duration::from_secs(now.saturating_sub(uptime).as_secs()),
            taken: self.taken,
        }
    }

    /// Returns the page. Examines some mappings and files again for its pictures.
    ///
    /// # Errors
    /// Never in practice, as [`Reading::written`].
    pub fn page(&self, command_line: &[String]) -> Result<Page, ExportError> {
        page::of(self, command_line)
    }
}

impl Forms for HotResult {
    fn text(&self) -> String {
        hot_text::of(self)
    }

    fn csv(&self) -> Result<String, ExportError> {
        self.records()
    }
}

impl Forms for StallsResult {
    fn text(&self) -> String {
        stalls_text::of(self)
    }

    fn csv(&self) -> Result<String, ExportError> {
        self.records()
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
    /// # Errors
    /// Never in practice: the result is names and numbers.
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
