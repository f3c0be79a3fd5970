//! Which folio sizes back processes and files, and why not larger ones; and what programs on disk
//! allow.
//!
//! Reading order: `look` (taken and judged), `group` (by file, by order), `view` (JSON and CSV),
//! `text`, `summary` and `page` (the part of it that a page holds); `elf` with `elf_text` and
//! `elf_page` for programs on disk.

mod elf;
mod elf_page;
mod elf_text;
mod group;
mod look;
mod page;
mod plain;
mod summary;
mod text;
mod view;

use largefolio_report::ExportError;
use largefolio_report::html::frame::Page;

use crate::form::{Form, Forms};

pub use elf::ElfResult;
pub use group::Sort;
pub use look::{Look, MapsRequest, Whom};
pub use text::Show;
pub use view::MapsResult;

/// The kernel whose rules decide about programs on disk, where none is named.
pub const ELF_KERNEL: &str = "7.2";
/// Mappings that are judged for a page: those of a large system with most memory.
pub const JUDGED_OF_PAGE: usize = 2000;

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
