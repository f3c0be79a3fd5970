//! Files that survive a reboot: their record, and how folio notifies systemd.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use largefolio_linux::persist::{FilePlace, Planned, manager};
use largefolio_linux::shell::{as_root, quoted};

use crate::console;

/// `$XDG_STATE_HOME/largefolio`, or else `~/.local/state/largefolio`.
pub(super) fn state_folder() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = variable("XDG_STATE_HOME")
        .or_else(|| Some(variable("HOME")?.join(".local/state")))
        .context(
            "neither XDG_STATE_HOME nor HOME is set; set one of them so that folio can store the \
             old values",
        )?;
    Ok(state.join("largefolio"))
}

/// After files were written: makes systemd read them, and starts their path units. Prints the
/// remaining steps.
pub(super) fn activate(root: &Path, files: &[Planned]) {
    let new = files.iter().filter(|file| !file.is_unchanged()).map(|file| &file.place);
    let mut new: Vec<&FilePlace> = new.collect();
    let services = new.iter().filter_map(|place| place.service());
    let services: Vec<String> = services.cloned().map(String::from).collect();
    if new.is_empty() || root != Path::new("/") {
        return;
    }
    if !manager::is_running(root) {
        console::warn(
            "systemd is not running here; the files take effect when it boots this system",
        );
        return;
    }
    new.retain(|place| place.is_of_systemd());
    if new.is_empty() {
        return;
    }
    if let Err(message) = manager::reload().and_then(|()| manager::start(new.iter().copied())) {
        console::warn(&format!(
            "the files are written, but systemd does not use them yet: {message}; to make it use \
             them, run: {}",
            as_root("systemctl daemon-reload")
        ));
    }
    for service in services {
        console::say(&format!(
            "folio: to start {service} with the change, run: {}",
            as_root(&format!("systemctl restart {}", quoted(&restarted(&service))))
        ));
    }
}

/// Returns what `systemctl restart` needs: a pattern of all instances for a template, which systemd
/// cannot restart itself.
fn restarted(service: &str) -> String {
    service.replace("@.service", "@*.service")
}

pub(super) fn stop<'a>(root: &Path, places: impl Iterator<Item = &'a FilePlace>) {
    if manager::is_running(root)
        && let Err(message) = manager::stop(places)
    {
        console::warn(&format!(
            "a unit that folio wrote may still run until the next boot: {message}"
        ));
    }
}

pub(super) fn forget<'a>(root: &Path, places: impl Iterator<Item = &'a FilePlace>) {
    let mut gone: Vec<&FilePlace> = places.filter(|place| place.is_of_systemd()).collect();
    if gone.is_empty() || !manager::is_running(root) {
        return;
    }
    if let Err(message) = manager::reload() {
        console::warn(&format!(
            "the files are removed, but systemd still uses them: {message}; run: {}",
            as_root("systemctl daemon-reload")
        ));
    }
    gone.retain(|place| place.service().is_some());
    if !gone.is_empty() {
        console::say("folio: restart the services to start them without the change");
    }
}
