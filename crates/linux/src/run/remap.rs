//! The text remapper, as `folio run` uses it.
//!
//! Owns the question whether it can help a program; the moving is [`crate::remap`]'s.

use super::fallback::Fallback;
use super::program::Program;
use crate::remap::{Options, Remap, Voice};

/// Everything in place to move the program's text, and that of what it starts.
pub(super) fn prepare(program: &Program, voice: Voice) -> Result<Remap, Fallback> {
    let file = program.elf.as_ref().map_or(&program.path, |(file, _)| file);
    Remap::check(file)
        .and_then(|()| Remap::prepare(&Options { voice, ..Options::default() }))
        .map_err(|refused| Fallback::NoRemap(refused.to_string()))
}
