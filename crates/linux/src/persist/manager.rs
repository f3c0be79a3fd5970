//! Notifies a running systemd of unit changes, but only if systemd is process 1 and the root is
//! `/`. Starts, stops and restarts only folio's units.

use std::path::Path;
use std::process::{Command, Stdio};

use super::place::{FilePlace, OwnUnit};

/// This directory exists while systemd is process 1 (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";

#[must_use]
pub fn is_running(root: &Path) -> bool {
    root == Path::new("/") && Path::new(BOOTED).is_dir()
}

/// Makes systemd reload its units.
///
/// # Errors
/// The failed command with its message.
pub fn reload() -> Result<(), String> {
    systemctl(&["daemon-reload"])
}

/// Starts the path units among `places`.
///
/// # Errors
/// The failed command with its message.
pub fn start<'a>(places: impl Iterator<Item = &'a FilePlace>) -> Result<(), String> {
    own_paths(places).try_for_each(|unit| systemctl(&["start", unit.name()]))
}

/// Stops the path units among `places`, before their files are removed.
///
/// # Errors
/// The failed command with its message.
pub fn stop<'a>(places: impl Iterator<Item = &'a FilePlace>) -> Result<(), String> {
    own_paths(places).try_for_each(|unit| systemctl(&["stop", unit.name()]))
}

fn own_paths<'a>(places: impl Iterator<Item = &'a FilePlace>) -> impl Iterator<Item = &'a OwnUnit> {
    places.filter_map(|place| match place {
        FilePlace::Unit(unit) if unit.is_path() => Some(unit),
        _ => None,
    })
}

fn systemctl(arguments: &[&str]) -> Result<(), String> {
    let command = format!("systemctl {}", arguments.join(" "));
    let output = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {command}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command} failed: {}", stderr.trim()))
}
