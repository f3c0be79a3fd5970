//! Detects programs that the library cannot help, before they start.

use std::path::Path;

use super::{Refusal, Refused};
use crate::elf::{Class, ElfError, ElfFile, ElfKind};
use crate::proc::Task;
use crate::system::Live;
use crate::trust;

const OWN_MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// Checks the program at `path`. A script passes, because its interpreter decides.
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
    let is_set_id = path.metadata().is_ok_and(|metadata| trust::is_set_id(&metadata));
    if is_set_id || trust::has_capabilities(path) {
        return refused(Refusal::Secure);
    }
    Ok(())
}

/// Returns this process's number of seccomp filters, `None` if the kernel does not count them.
pub(super) fn nr_filters() -> Option<u64> {
    Task::own(&Live).status("Seccomp_filters")?.parse().ok()
}
