//! Determines which ELF file a command runs, and with whose privileges.
//!
//! Owns the lookup through `PATH` and `#!` lines. Executes nothing. Unknown cases are left to the
//! kernel: an executable but unreadable file, or another format that the kernel supports.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::elf::ElfFile;
use crate::elf::dynamic::{Dynamic, Symbols};
use crate::environment::{Environment as _, Host, Node, find_in_path};
use crate::program::head::INTERPRETERS_MAX;
use crate::program::{env_name, shebang};
use crate::trust;

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) elf: Option<(PathBuf, ElfFile)>,
    pub(super) dynamic: Dynamic,
    pub(super) has_rights: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    NotFound,
    NotExecutable,
}

impl Program {
    pub(super) fn of(command: &OsStr) -> Result<Self, Unknown> {
        let path = find_in_path(&Host, command).ok_or(Unknown::NotFound)?;
        match Host.node(&path) {
            Node::Missing => return Err(Unknown::NotFound),
            Node::Directory | Node::Plain => return Err(Unknown::NotExecutable),
            Node::Executable => {}
        }
        let elf = follow(&path, INTERPRETERS_MAX).and_then(|file| {
            let elf = ElfFile::read(&file).ok()?;
            elf.check(&file).ok()?;
            Some((file, elf))
        });
        let file = elf.as_ref().map_or(path.as_path(), |(file, _)| file);
        let dynamic = Dynamic::read(file, Symbols::Scan).unwrap_or_default();
        let has_rights = has_rights(file);
        Ok(Self { path, elf, dynamic, has_rights })
    }

    /// Returns why glibc's loader does not load it, `None` if it does.
    pub(super) fn why_not_glibc(&self) -> Option<&'static str> {
        let Some((_, elf)) = &self.elf else { return Some("the program cannot be read") };
        let Some(interpreter) = &elf.interpreter else { return Some("the program is static") };
        let name = interpreter.file_name().unwrap_or_default().as_bytes();
        let is_glibc = name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so");
        (!is_glibc).then_some("the program uses a different C library")
    }
}

fn follow(path: &Path, nr_left: usize) -> Option<PathBuf> {
    let head = Host.head(path).ok()?;
    if head.starts_with(b"\x7fELF") {
        return path.canonicalize().ok();
    }
    let (interpreter, argument) = shebang(&head).filter(|_| nr_left > 0)?;
    let next = match env_name(&interpreter, argument.as_ref()) {
        Some(name) => find_in_path(&Host, name)?,
        None => PathBuf::from(interpreter),
    };
    follow(&next, nr_left - 1)
}

fn has_rights(file: &Path) -> bool {
    file.metadata().is_ok_and(|metadata| trust::is_set_id(&metadata))
        || trust::has_capabilities(file)
}
