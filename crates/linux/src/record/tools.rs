//! Which recorder is on this machine.
//!
//! Owns the search for qemu-x86_64, valgrind and the plugin, and the probe for QEMU's plugins.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::error::RecordError;
use crate::environment::{Environment, find_in_path};
use crate::library::RECORDER;

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
            let has_qemu = !matches!(error, RecordError::NoQemu);
            find_valgrind(environment, reason.clone()).ok_or_else(|| {
                RecordError::NoRecorder(if has_qemu { reason } else { String::new() })
            })
        }),
    }
}

fn find_qemu(environment: &dyn Environment) -> Result<Tool, RecordError> {
    let qemu = find_in_path(environment, OsStr::new("qemu-x86_64")).ok_or(RecordError::NoQemu)?;
    // A plugin that does not exist: QEMU with plugins cannot open it, one without refuses the
    // option. Neither runs anything.
    let probe = ["-plugin", "/nonexistent/largefolio-probe.so", "/nonexistent/program"];
    let complaint = environment.complaint(&qemu, &probe.map(OsStr::new));
    if NO_PLUGINS.iter().any(|text| complaint.contains(text)) || complaint.contains("Usage:") {
        return Err(RecordError::QemuWithoutPlugins(qemu));
    }
    let plugin = find_plugin(environment)?;
    Ok(Tool::Qemu { qemu, plugin })
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
