//! Environment variables that would affect the emulator as well as the program.
//!
//! QEMU is dynamically linked and runs in the recorded program's environment, so a library in
//! `LD_PRELOAD` would be loaded into both. These variables are therefore passed to QEMU under
//! different names. [`crate::restore`] restores the names in the program's memory before its first
//! instruction. `largefolio-linux` compiles this file too.

/// Prefix of such a variable's name while QEMU starts.
pub(crate) const SHIELD: &[u8] = b"FOLIO_FOR_THE_PROGRAM_";

/// Prefixes of the affected names: the dynamic loader's, glibc's and QEMU's own.
const ACTING: [&[u8]; 3] = [b"LD_", b"GLIBC_TUNABLES", b"QEMU_"];

pub(crate) fn acts_on_emulator(variable: &[u8]) -> bool {
    ACTING.iter().any(|beginning| variable.starts_with(beginning))
}
