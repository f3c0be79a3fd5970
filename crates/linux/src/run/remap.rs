//! The text remapper, as `folio run` uses it.
//!
//! Owns the question whether it can help a program; the moving is [`crate::remap`]'s.

use std::path::Path;

use super::fallback::Fallback;
use super::program::Program;
use crate::remap::{Options, Refused, Remap, Voice, find_library};

/// Everything in place to move the program's text, and that of what it starts.
pub(super) fn prepare(program: &Program, voice: Voice) -> Result<Remap, Fallback> {
    let file = program.elf.as_ref().map_or(&program.path, |(file, _)| file);
    check(file)
        .and_then(|()| Remap::prepare(&Options { voice, ..Options::default() }))
        .map_err(|refused| Fallback::NoRemap(refused.to_string()))
}

/// Whether the program and this system allow it; nothing is prepared.
pub(super) fn check(file: &Path) -> Result<(), Refused> {
    find_library()?;
    Remap::check(file)
}
