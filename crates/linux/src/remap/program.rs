//! Programs the library cannot help, told before they start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{Refusal, Refused};
use crate::elf::{Class, ElfError, ElfFile, ElfKind};
use crate::proc::Task;
use crate::system::Live;

/// `S_ISUID | S_ISGID`.
const SET_ID: u32 = 0o6000;

/// The architecture the library is built for, as ELF numbers it.
const OWN_MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// Checks the program at `path`. A script passes: what it starts decides.
pub(super) fn check(path: &Path) -> Result<(), Refused> {
    let refused = |refusal| Err(Refused::new(refusal, path.display().to_string()));
    let elf = match ElfFile::read(path) {
        Ok(elf) => elf,
        Err(ElfError::NotElf(_)) => return Ok(()),
        Err(_) => return refused(Refusal::Unreadable),
    };
    if elf.class != Class::Bits64 || elf.machine != OWN_MACHINE {
        return refused(Refusal::Foreign);
    }
    if elf.interpreter.is_none() && matches!(elf.kind, ElfKind::Fixed | ElfKind::Program) {
        return refused(Refusal::Static);
    }
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
    let mut value = [0_u8; 64];
    let has_capabilities = rustix::fs::getxattr(path, "security.capability", &mut value).is_ok();
    if mode & SET_ID != 0 || has_capabilities {
        return refused(Refusal::Secure);
    }
    Ok(())
}

/// Seccomp filters this process runs under; `None` when the kernel does not count them.
pub(super) fn nr_filters() -> Option<u64> {
    Task::own(&Live).status("Seccomp_filters")?.parse().ok()
}
