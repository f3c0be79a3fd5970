//! Kernels by name: presets, files, and edits.
//!
//! `6.12`, `./mine.toml` or `6.12+exec-block=64K+page=64K`: a base and edits, from left to right.
//! A kernel file names the one it is `based-on` and says only what changed, so that the files read
//! as the history of the rules.
//!
//! Owns the names and the files. Does not know what a rule does: that is `mm`.

mod builtin;
mod edit;
mod error;
mod load;

pub use edit::{EDITS, EditHelp};
pub use error::KernelError;

use largefolio_mm::rules::Rules;
use largefolio_mm::units::PageSize;

/// A kernel to replay under.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// The name it was asked for by, edits included.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// What it does.
    pub rules: Rules,
    /// Whether the file or an edit chose the base page size; else the machine does.
    pub is_page_given: bool,
}

impl Kernel {
    /// The kernel `text` names.
    ///
    /// # Errors
    /// Unknown names (with the nearest ones), unreadable or contradictory files, bad edits.
    pub fn parse(text: &str) -> Result<Self, KernelError> {
        let mut parts = text.split('+');
        let base = parts.next().unwrap_or_default();
        let mut kernel = load::by_name(base)?;
        for part in parts {
            edit::apply(&mut kernel, part)?;
        }
        text.clone_into(&mut kernel.name);
        kernel.check_page(if kernel.is_page_given { kernel.rules.page } else { PageSize::K64 })?;
        Ok(kernel)
    }

    /// Whether the page cache has folios as large as the smallest, with base pages of `page`.
    ///
    /// # Errors
    /// When it has not; names the largest.
    pub fn check_page(&self, page: PageSize) -> Result<(), KernelError> {
        let max = Rules { page, ..self.rules.clone() }.max_pagecache_order();
        let (bytes, max_bytes) = (self.rules.min_folio_bytes, page.bytes() << max.get());
        if bytes <= max_bytes {
            return Ok(());
        }
        let kernel = self.name.clone();
        Err(KernelError::MinFolio { kernel, page, mib: bytes >> 20, max_mib: max_bytes >> 20 })
    }

    /// Names of the kernels that are built in, oldest first; the recorded ones come last.
    pub fn names() -> impl Iterator<Item = &'static str> {
        builtin::FILES.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests;
