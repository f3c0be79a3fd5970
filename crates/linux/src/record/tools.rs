//! Which recorder is on this machine.
//!
//! Owns the search for qemu-x86_64, valgrind and the plugin, and the probe for QEMU's plugins.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::RecordError;
use super::plan::With;
use super::system::{System, find_in_path};
use crate::library::Library;

/// File name of the plugin.
pub const PLUGIN_NAME: &str = "liblargefolio_recorder.so";

/// Variable that names the plugin.
const PLUGIN_VARIABLE: &str = "LARGEFOLIO_RECORDER";

/// What a QEMU built without plugins says to `-plugin`.
const NO_PLUGINS: [&str; 2] = ["plugin interface not enabled", "unknown option 'plugin'"];

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
pub fn choose(system: &dyn System, with: With) -> Result<Tool, RecordError> {
    match with {
        With::Qemu => find_qemu(system),
        With::Valgrind => find_valgrind(system, String::new()).ok_or(RecordError::NoValgrind),
        With::Auto => find_qemu(system).or_else(|error| {
            let reason = error.to_string();
            let has_qemu = !matches!(error, RecordError::NoQemu);
            find_valgrind(system, reason.clone()).ok_or_else(|| {
                RecordError::NoRecorder(if has_qemu { reason } else { String::new() })
            })
        }),
    }
}

fn find_qemu(system: &dyn System) -> Result<Tool, RecordError> {
    let qemu = find_in_path(system, OsStr::new("qemu-x86_64")).ok_or(RecordError::NoQemu)?;
    // A plugin that does not exist: QEMU with plugins cannot open it, one without refuses the
    // option. Neither runs anything.
    let probe = ["-plugin", "/nonexistent/largefolio-probe.so", "/nonexistent/program"];
    let complaint = system.complaint(&qemu, &probe.map(OsStr::new));
    if NO_PLUGINS.iter().any(|text| complaint.contains(text)) || complaint.contains("Usage:") {
        return Err(RecordError::QemuWithoutPlugins(qemu));
    }
    let plugin = find_plugin(system)?;
    Ok(Tool::Qemu { qemu, plugin })
}

fn find_valgrind(system: &dyn System, reason: String) -> Option<Tool> {
    let valgrind = find_in_path(system, OsStr::new("valgrind"))?;
    Some(Tool::Valgrind { valgrind, reason })
}

/// The plugin that QEMU loads.
///
/// # Errors
/// [`RecordError::NoPlugin`] with the places it was looked for.
pub fn find_plugin(system: &dyn System) -> Result<PathBuf, RecordError> {
    let plugin = Library { name: PLUGIN_NAME, variable: PLUGIN_VARIABLE };
    plugin.find(system).map_err(|missing| RecordError::NoPlugin(missing.places))
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
