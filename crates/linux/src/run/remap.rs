//! The text remapper for `folio run`.
//!
//! Checks whether it can help a program. [`crate::remap`] moves the text.

use std::path::Path;

use super::fallback::Fallback;
use super::program::Program;
use crate::remap::{Options, Refused, Remap, Voice, find_library};

pub(super) fn prepare(program: &Program, voice: Voice) -> Result<Remap, Fallback> {
    let file = program.elf.as_ref().map_or(&program.path, |(file, _)| file);
    check(file)
        .and_then(|()| Remap::prepare(&Options { voice, ..Options::default() }))
        .map_err(|refused| Fallback::NoRemap(refused.to_string()))
}

pub(super) fn check(file: &Path) -> Result<(), Refused> {
    find_library()?;
    Remap::check(file)
}
