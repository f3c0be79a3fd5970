//! The plugin's command-line arguments, which an execve passes on to the next QEMU.
//!
//! ```text
//!   -plugin FILE,dir=DIRECTORY,qemu=QEMU,exe=PROGRAM,root=DIRECTORY,generation=NUMBER,
//!                blocked=SIGNALS
//! ```

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::arch::Arch;

static ARGUMENTS: OnceLock<Arguments> = OnceLock::new();

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) arch: Arch,
    pub(crate) plugin: PathBuf,
    pub(crate) directory: PathBuf,
    pub(crate) qemu: PathBuf,
    /// The target of the program's `/proc/self/exe`.
    pub(crate) program: PathBuf,
    /// The program's absolute paths are looked up here first.
    pub(crate) root: Option<PathBuf>,
    pub(crate) generation: u32,
    /// Signals that the program blocks at its start. If `None`, QEMU's own mask applies.
    pub(crate) blocked: Option<u64>,
}

impl Arguments {
    pub(crate) fn parse<'a>(arch: Arch, words: impl Iterator<Item = &'a [u8]>) -> Self {
        let (plugin, directory, qemu, program) = Default::default();
        let mut arguments = Self {
            arch,
            plugin,
            directory,
            qemu,
            program,
            root: None,
            generation: 0,
            blocked: None,
        };
        for word in words {
            let Some(at) = word.iter().position(|byte| *byte == b'=') else { continue };
            let (key, value) = (&word[..at], &word[at + 1..]);
            let path = || PathBuf::from(OsStr::from_bytes(value));
            match key {
                b"self" => arguments.plugin = path(),
                b"dir" => arguments.directory = path(),
                b"qemu" => arguments.qemu = path(),
                b"exe" => arguments.program = path(),
                b"root" => arguments.root = Some(path()),
                b"generation" => {
                    let text = std::str::from_utf8(value).ok();
                    arguments.generation = text.and_then(|text| text.parse().ok()).unwrap_or(0);
                }
                b"blocked" => {
                    let text = std::str::from_utf8(value).ok();
                    arguments.blocked = text.and_then(|text| u64::from_str_radix(text, 16).ok());
                }
                _ => {}
            }
        }
        arguments
    }

    pub(crate) fn keep(self) -> &'static Self {
        ARGUMENTS.get_or_init(|| self)
    }

    pub(crate) fn kept() -> Option<&'static Self> {
        ARGUMENTS.get()
    }

    /// Returns the value of `-plugin` for the next program of this process, which blocks the
    /// signals in `blocked`.
    pub(crate) fn option_for(&self, program: &Path, blocked: u64) -> OsString {
        let mut option = escaped(&self.plugin);
        let paths = [
            ("self", self.plugin.as_path()),
            ("dir", &self.directory),
            ("qemu", &self.qemu),
            ("exe", program),
        ];
        let root = self.root.as_deref().map(|root| ("root", root));
        for (key, path) in paths.into_iter().chain(root) {
            option.push(format!(",{key}="));
            option.push(escaped(path));
        }
        option.push(format!(",generation={}", self.generation.wrapping_add(1)));
        option.push(format!(",blocked={blocked:x}"));
        option
    }
}

/// Escapes an option value: QEMU splits at a comma and reads two commas as one.
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
        let words =
            ["self=/p,1.so", "dir=/d", "qemu=/q", "exe=/bin/a", "root=/r", "generation=4", "odd"];
        let arguments = Arguments::parse(Arch::Arm64, words.into_iter().map(str::as_bytes));
        assert_eq!(arguments.blocked, None);
        assert_eq!(
            arguments.option_for(Path::new("/bin/b,=c"), 0x4002),
            "/p,,1.so,self=/p,,1.so,dir=/d,qemu=/q,exe=/bin/b,,=c,root=/r,generation=5,blocked=4002"
        );
        let next = Arguments::parse(Arch::Arm64, [&b"blocked=4002"[..]].into_iter());
        assert_eq!(next.blocked, Some(0x4002));
    }
}
