//! Environment variables that would act on the emulator as well as on the program.
//!
//! QEMU is a dynamic program that runs in the environment of the recorded one: a library that
//! `LD_PRELOAD` names would be loaded into both. So these variables reach QEMU under another name,
//! and get their own back in the program's memory before its first instruction
//! ([`crate::restore`]). Both crates compile this one file.

/// Begins the name of such a variable while QEMU starts.
pub(crate) const SHIELD: &[u8] = b"FOLIO_FOR_THE_PROGRAM_";

/// Beginnings of their names: the dynamic loader's, glibc's and QEMU's own.
const ACTING: [&[u8]; 3] = [b"LD_", b"GLIBC_TUNABLES", b"QEMU_"];

/// Whether `variable`, a name or `NAME=VALUE`, acts on QEMU.
pub(crate) fn acts_on_emulator(variable: &[u8]) -> bool {
    ACTING.iter().any(|beginning| variable.starts_with(beginning))
}
