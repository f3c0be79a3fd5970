//! Finds the recorder on this machine.
//!
//! Owns the search for QEMU, valgrind and the plugin, and the probe for plugin support.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::error::RecordError;
use super::qemu::arch::Arch;
use crate::environment::{Environment, find_in_path};
use crate::library::{self, Library, QEMU_AARCH64, QEMU_X86_64, RECORDER};

/// The answers to `-plugin` of a QEMU built without plugins.
const NO_PLUGINS: [&str; 2] = ["plugin interface not enabled", "unknown option 'plugin'"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum With {
    /// QEMU if it supports plugins, else valgrind.
    #[default]
    Auto,
    Qemu,
    Valgrind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    Qemu {
        /// `qemu-x86_64` or `qemu-aarch64`.
        qemu: PathBuf,
        plugin: PathBuf,
    },
    Valgrind {
        valgrind: PathBuf,
        /// Why it replaces QEMU; empty if the user chose it.
        reason: String,
    },
}

/// Chooses the recorder of a program for `arch`.
///
/// # Errors
/// [`RecordError::NoQemu`], [`RecordError::QemuWithoutPlugins`], [`RecordError::NoPlugin`], [`RecordError::NoValgrind`], [`RecordError::NotUnderValgrind`] or [`RecordError::NoRecorder`], each with its remedy.
pub(super) fn choose(
    environment: &dyn Environment,
    arch: Arch,
    with: With,
) -> Result<Tool, RecordError> {
    match with {
        With::Valgrind if !arch.is_native() => Err(RecordError::NotUnderValgrind(arch.name())),
        With::Valgrind => find_valgrind(environment, String::new()).ok_or(RecordError::NoValgrind),
        With::Qemu => find_qemu(environment, arch),
        With::Auto if !arch.is_native() => find_qemu(environment, arch),
        With::Auto => find_qemu(environment, arch).or_else(|error| {
            let reason = error.to_string();
            let has_qemu = !matches!(error, RecordError::NoQemu { .. });
            find_valgrind(environment, reason.clone()).ok_or_else(|| {
                let command = library::emulator_command(environment);
                let reason = if has_qemu { reason } else { String::new() };
                RecordError::NoRecorder { command, reason }
            })
        }),
    }
}

fn find_qemu(environment: &dyn Environment, arch: Arch) -> Result<Tool, RecordError> {
    let qemu = find_emulator_of(environment, arch)?;
    let plugin = find_plugin(environment)?;
    Ok(Tool::Qemu { qemu, plugin })
}

/// Finds a QEMU that loads plugins and runs programs for the ELF `machine`: in `LARGEFOLIO_QEMU`
/// (`LARGEFOLIO_QEMU_AARCH64`), then in `PATH`, then the one built for `folio`.
///
/// # Errors
/// [`RecordError::NoQemu`] or [`RecordError::QemuWithoutPlugins`]; [`RecordError::ForeignMachine`] for a machine that cannot be recorded.
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
    let or = if arch.is_native() { ", or use --with valgrind" } else { "" };
    Err(match without {
        Some(qemu) => RecordError::QemuWithoutPlugins { qemu, command, why, or },
        None => RecordError::NoQemu { name: emulator.name, command, why, or },
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

fn find_valgrind(environment: &dyn Environment, reason: String) -> Option<Tool> {
    let valgrind = find_in_path(environment, OsStr::new("valgrind"))?;
    Some(Tool::Valgrind { valgrind, reason })
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
