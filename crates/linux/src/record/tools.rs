//! Finds the recorder on this machine.
//!
//! Owns the search for QEMU and the plugin, and the probe for plugin support.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::error::RecordError;
use crate::environment::{Environment, find_in_path};
use crate::library::{self, Library, QEMU_AARCH64, QEMU_X86_64, RECORDER};
use crate::program::arch::Arch;

/// The answers to `-plugin` of a QEMU built without plugins.
const NO_PLUGINS: [&str; 2] = ["plugin interface not enabled", "unknown option 'plugin'"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emulator {
    /// `qemu-x86_64` or `qemu-aarch64`.
    pub qemu: PathBuf,
    pub plugin: PathBuf,
}

/// Finds QEMU for a program of `arch`, and the plugin.
///
/// # Errors
/// [`RecordError::NoQemu`], [`RecordError::QemuWithoutPlugins`] or [`RecordError::NoPlugin`], each
/// with its remedy.
pub(super) fn find(environment: &dyn Environment, arch: Arch) -> Result<Emulator, RecordError> {
    let qemu = find_emulator_of(environment, arch)?;
    let plugin = find_plugin(environment)?;
    Ok(Emulator { qemu, plugin })
}

/// Finds a QEMU that loads plugins and runs programs for the ELF `machine`: in `LARGEFOLIO_QEMU`
/// (`LARGEFOLIO_QEMU_AARCH64`), then in `PATH`, then the one built for `folio`.
///
/// # Errors
/// [`RecordError::NoQemu`] or [`RecordError::QemuWithoutPlugins`]; [`RecordError::ForeignMachine`]
/// for a machine that cannot be recorded.
pub fn find_emulator(environment: &dyn Environment, machine: u16) -> Result<PathBuf, RecordError> {
    let arch = Arch::of_machine(machine).ok_or_else(|| RecordError::ForeignMachine {
        path: PathBuf::new(),
        machine: format!("ELF machine {machine}"),
    })?;
    find_emulator_of(environment, arch)
}

fn emulator(arch: Arch) -> Library {
    match arch {
        Arch::X86_64 => QEMU_X86_64,
        Arch::Arm64 => QEMU_AARCH64,
    }
}

fn find_emulator_of(environment: &dyn Environment, arch: Arch) -> Result<PathBuf, RecordError> {
    let emulator = emulator(arch);
    let is_named = emulator.named(environment).is_some();
    let in_path = find_in_path(environment, OsStr::new(emulator.name)).filter(|_| !is_named);
    let (own, missing) = match emulator.find(environment) {
        Ok(path) => (Some(path), None),
        Err(missing) => (None, missing.distrusted.or(is_named.then_some(missing.places))),
    };
    let mut without = None;
    for qemu in [in_path, own].into_iter().flatten() {
        if has_plugins(environment, &qemu) {
            return Ok(qemu);
        }
        without.get_or_insert(qemu);
    }
    let (command, why) = (library::emulator_command(environment), missing.unwrap_or_default());
    Err(match without {
        Some(qemu) => RecordError::QemuWithoutPlugins { qemu, command, why },
        None => RecordError::NoQemu { name: emulator.name, command, why },
    })
}

/// Probes with a missing plugin: a QEMU with plugins cannot open it, one without rejects the
/// option.
fn has_plugins(environment: &dyn Environment, qemu: &Path) -> bool {
    let probe = ["-plugin", "/nonexistent/largefolio-probe.so", "/nonexistent/program"];
    let complaint = environment.complaint(qemu, &probe.map(OsStr::new));
    let refuses = NO_PLUGINS.iter().any(|text| complaint.contains(text));
    !refuses && !complaint.contains("Usage:")
}

/// Finds the plugin that QEMU loads.
///
/// # Errors
/// [`RecordError::NoPlugin`] with the searched places.
pub fn find_plugin(environment: &dyn Environment) -> Result<PathBuf, RecordError> {
    RECORDER.find(environment).map_err(|missing| RecordError::NoPlugin(missing.places))
}

/// Escapes an option value for QEMU: a comma separates values, and two commas mean one.
#[must_use]
pub fn escape_commas(value: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut escaped = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        escaped.extend_from_slice(if byte == b',' { b",," } else { std::slice::from_ref(&byte) });
    }
    OsString::from_vec(escaped)
}
