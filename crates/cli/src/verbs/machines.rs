//! Machines by name: those built in, files, and the one this user calibrated.

use std::path::PathBuf;

use anyhow::{Result, bail};
use largefolio_sim::machine::Machine;

/// Name of the machine `folio calibrate` measured.
pub(crate) const THIS: &str = "this";

/// Where `folio calibrate` writes and [`load`] looks: below `$XDG_CONFIG_HOME`, else `~/.config`.
pub(crate) fn this_path() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    match config {
        Some(config) => Ok(config.join("largefolio/machines/this.toml")),
        None => bail!(
            "neither XDG_CONFIG_HOME nor HOME is an absolute path, so that there is no place for \
             this machine's file; give one: folio calibrate -o FILE"
        ),
    }
}

/// A built-in machine, a file, or `this`.
pub(crate) fn load(spec: &str) -> Result<Machine> {
    if spec != THIS {
        return Ok(Machine::load(spec)?);
    }
    let path = this_path()?;
    if !path.exists() {
        bail!(
            "no calibration of this machine ({} is missing): run folio calibrate",
            path.display()
        );
    }
    Ok(Machine::from_path(&path)?)
}
