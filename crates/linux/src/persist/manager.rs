//! Asks systemd, and notifies it of unit changes, but only if systemd is process 1 and the root is
//! `/`. Starts and stops only folio's units; restarts the services that the user names.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::place::{FilePlace, OwnUnit, ServiceName};

/// This directory exists while systemd is process 1 (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";
const LIBRARY: &str = "libsystemd-shared-";
/// Names read in a folder of libraries.
const NAMES_MAX: usize = 1 << 14;

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

/// Restarts a service.
///
/// # Errors
/// The failed command with its message.
pub fn restart(unit: &ServiceName) -> Result<(), String> {
    systemctl(&["restart", "--", &String::from(unit.clone())])
}

/// Lists the active instances of the template `STEM@.service`, by name.
///
/// # Errors
/// A name that no service can have, or the failed command with its message.
pub fn instances(stem: &str) -> Result<Vec<ServiceName>, String> {
    let template = ServiceName::try_from(format!("{stem}@.service"))?;
    let pattern = format!("{stem}@*.service");
    let options = ["list-units", "--plain", "--no-legend", "--full", "--state=active"];
    let units = [&options[..], &["--", &pattern]].concat();
    let output = asked(&units)?;
    let names = output.lines().filter_map(|line| line.split_ascii_whitespace().next());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    // The pattern matches more: a `\` in it escapes the next character.
    let is_instance = |unit: &ServiceName| unit.template().as_ref() == Some(&template);
    let units = names.into_iter().filter_map(|name| ServiceName::try_from(name).ok());
    Ok(units.filter(is_instance).collect())
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

/// Returns systemd's version below `root`, from the name of its library; for the running system
/// from systemctl if it has no library of its own. `None` if neither shows it.
#[must_use]
pub fn version(root: &Path) -> Option<u32> {
    let of_library = library_folders(root).into_iter().find_map(|folder| {
        let names = fs::read_dir(folder).ok()?.take(NAMES_MAX).flatten();
        names.filter_map(|entry| version_of(entry.file_name().to_str()?, LIBRARY)).max()
    });
    let asked = || {
        let output = Command::new("systemctl").arg("--version").stdin(Stdio::null()).output();
        version_of(&String::from_utf8_lossy(&output.ok()?.stdout), "systemd ")
    };
    of_library.or_else(|| (root == Path::new("/")).then(asked)?)
}

/// `libsystemd-shared-252.so`, in a folder that depends on the distribution.
fn library_folders(root: &Path) -> Vec<PathBuf> {
    let libs = ["usr/lib", "usr/lib64", "lib"].map(|lib| root.join(lib));
    let below = |lib: &PathBuf| -> Vec<PathBuf> {
        let folders = fs::read_dir(lib).into_iter().flatten().take(NAMES_MAX).flatten();
        let folders = folders.filter(|entry| entry.file_name().as_bytes().ends_with(b"-linux-gnu"));
        folders.map(|entry| entry.path()).collect()
    };
    let all = libs.iter().flat_map(|lib| below(lib).into_iter().chain([lib.clone()]));
    all.map(|lib| lib.join("systemd")).collect()
}

fn version_of(text: &str, prefix: &str) -> Option<u32> {
    let rest = text.strip_prefix(prefix)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn own_paths<'a>(places: impl Iterator<Item = &'a FilePlace>) -> impl Iterator<Item = &'a OwnUnit> {
    places.filter_map(|place| match place {
        FilePlace::Unit(unit) if unit.is_path() => Some(unit),
        _ => None,
    })
}

fn systemctl(arguments: &[&str]) -> Result<(), String> {
    asked(arguments).map(|_| ())
}

fn asked(arguments: &[&str]) -> Result<String, String> {
    let command = format!("systemctl {}", arguments.join(" "));
    let output = Command::new("systemctl").args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {command}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command} failed: {}", stderr.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_names_the_version() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(version(root.path()), None);
        for (folder, name) in [
            ("usr/lib/x86_64-linux-gnu/systemd", "libsystemd-shared-252.so"),
            ("usr/lib/systemd", "libsystemd-shared-x.so"),
        ] {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(version(root.path()), Some(252));
        assert_eq!(version_of("libsystemd-shared-260.1-1.fc44.so", LIBRARY), Some(260));
        assert_eq!(version_of("systemd 257 (257.9-1)\n+PAM", "systemd "), Some(257));
        assert_eq!(version_of("systemd 99999999999", "systemd "), None);
    }
}
