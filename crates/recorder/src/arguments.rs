//! What the plugin was started with.
//!
//! ```text
//!   -plugin FILE,dir=DIRECTORY,qemu=QEMU,exe=PROGRAM,generation=NUMBER
//! ```
//!
//! Owns these words in both directions: an execve starts QEMU again with the same ones and another
//! program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static ARGUMENTS: OnceLock<Arguments> = OnceLock::new();

/// The words.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    /// This library.
    pub(crate) plugin: PathBuf,
    /// Directory of the recording.
    pub(crate) directory: PathBuf,
    /// The emulator.
    pub(crate) qemu: PathBuf,
    /// The program that runs: what `/proc/self/exe` is to it.
    pub(crate) program: PathBuf,
    /// Programs that this process executed before.
    pub(crate) generation: u32,
}

impl Arguments {
    /// Takes them from words `KEY=VALUE`; unknown ones mean nothing.
    pub(crate) fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut arguments = Self::default();
        for word in words {
            let Some(at) = word.iter().position(|byte| *byte == b'=') else { continue };
            let (key, value) = (&word[..at], &word[at + 1..]);
            let path = || PathBuf::from(OsStr::from_bytes(value));
            match key {
                b"self" => arguments.plugin = path(),
                b"dir" => arguments.directory = path(),
                b"qemu" => arguments.qemu = path(),
                b"exe" => arguments.program = path(),
                b"generation" => {
                    let text = std::str::from_utf8(value).ok();
                    arguments.generation = text.and_then(|text| text.parse().ok()).unwrap_or(0);
                }
                _ => {}
            }
        }
        arguments
    }

    /// Keeps them for the rest of the process.
    pub(crate) fn keep(self) -> &'static Self {
        ARGUMENTS.get_or_init(|| self)
    }

    /// What was kept.
    pub(crate) fn kept() -> Option<&'static Self> {
        ARGUMENTS.get()
    }

    /// The value of `-plugin` for the next program of this process.
    pub(crate) fn option_for(&self, program: &Path) -> OsString {
        let mut option = escaped(&self.plugin);
        let paths = [
            ("self", self.plugin.as_path()),
            ("dir", &self.directory),
            ("qemu", &self.qemu),
            ("exe", program),
        ];
        for (key, path) in paths {
            option.push(format!(",{key}="));
            option.push(escaped(path));
        }
        option.push(format!(",generation={}", self.generation.wrapping_add(1)));
        option
    }
}

/// A value of an option of QEMU, where a comma separates and two mean one.
fn escaped(path: &Path) -> OsString {
    let mut bytes = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        bytes.extend_from_slice(if byte == b',' { b",," } else { std::slice::from_ref(&byte) });
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_program_gets_the_same_words() {
        let words = ["self=/p,1.so", "dir=/d", "qemu=/q", "exe=/bin/a", "generation=4", "odd"];
        let arguments = Arguments::parse(words.into_iter().map(str::as_bytes));
        assert_eq!(
            arguments.option_for(Path::new("/bin/b,=c")),
            "/p,,1.so,self=/p,,1.so,dir=/d,qemu=/q,exe=/bin/b,,=c,generation=5"
        );
    }
}
