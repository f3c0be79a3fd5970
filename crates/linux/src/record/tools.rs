//! Which recorder is on this machine.
//!
//! Owns the search for qemu-x86_64, valgrind and the plugin, and the probe for QEMU's plugins.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::error::RecordError;
use crate::environment::{Environment, find_in_path};
use crate::library::{self, EMULATOR, RECORDER};

/// What a QEMU built without plugins says to `-plugin`.
const NO_PLUGINS: [&str; 2] = ["plugin interface not enabled", "unknown option 'plugin'"];

/// Which recorder to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum With {
    /// QEMU where it has plugins, else valgrind.
    #[default]
    Auto,
    /// QEMU or an error.
    Qemu,
    /// Valgrind or an error.
    Valgrind,
}

/// A recorder that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tool {
    /// QEMU user emulation.
    Qemu {
        /// `qemu-x86_64`.
        qemu: PathBuf,
        /// The plugin.
        plugin: PathBuf,
    },
    /// Valgrind.
    Valgrind {
        /// `valgrind`.
        valgrind: PathBuf,
        /// Why it is used though it was not asked for; empty when it was.
        reason: String,
    },
}

/// Chooses the recorder.
///
/// # Errors
/// [`RecordError::NoQemu`], [`RecordError::QemuWithoutPlugins`], [`RecordError::NoPlugin`],
/// [`RecordError::NoValgrind`] or [`RecordError::NoRecorder`], each with its remedy.
pub fn choose(environment: &dyn Environment, with: With) -> Result<Tool, RecordError> {
    match with {
        With::Qemu => find_qemu(environment),
        With::Valgrind => find_valgrind(environment, String::new()).ok_or(RecordError::NoValgrind),
        With::Auto => find_qemu(environment).or_else(|error| {
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

fn find_qemu(environment: &dyn Environment) -> Result<Tool, RecordError> {
    let qemu = find_emulator(environment)?;
    let plugin = find_plugin(environment)?;
    Ok(Tool::Qemu { qemu, plugin })
}

/// The `qemu-x86_64` that loads plugins: that of `LARGEFOLIO_QEMU`, else that of `PATH`, else the one
/// that was built for `folio`.
///
/// # Errors
/// [`RecordError::NoQemu`] or [`RecordError::QemuWithoutPlugins`].
pub fn find_emulator(environment: &dyn Environment) -> Result<PathBuf, RecordError> {
    let is_named = EMULATOR.named(environment).is_some();
    let in_path = find_in_path(environment, OsStr::new(EMULATOR.name)).filter(|_| !is_named);
    let (own, missing) = match EMULATOR.find(environment) {
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
        None => RecordError::NoQemu { command, why },
    })
}

/// Whether a QEMU loads plugins. It is given one that does not exist: a QEMU with plugins cannot open
/// it, one without refuses the option. Neither runs anything.
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

/// The plugin that QEMU loads.
///
/// # Errors
/// [`RecordError::NoPlugin`] with the places it was looked for.
pub fn find_plugin(environment: &dyn Environment) -> Result<PathBuf, RecordError> {
    RECORDER.find(environment).map_err(|missing| RecordError::NoPlugin(missing.places))
}

/// An option value of QEMU, where a comma separates and two mean one.
#[must_use]
pub fn escape_commas(value: &OsStr) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut escaped = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        escaped.extend_from_slice(if byte == b',' { b",," } else { std::slice::from_ref(&byte) });
    }
    OsString::from_vec(escaped)
}
