//! The machine that this user calibrated.

use std::env;
use std::path::PathBuf;

use super::{Machine, MachineError};

/// Name of the machine that `folio calibrate` measured.
pub const THIS: &str = "this";

impl Machine {
    /// Loads a built-in machine, a machine file, or [`THIS`].
    ///
    /// # Errors
    /// As [`Machine::load`]; [`MachineError::NoPlace`] or [`MachineError::NotCalibrated`], and
    /// [`MachineError::Calibration`] for this machine's file.
    pub fn of_user(spec: &str) -> Result<Self, MachineError> {
        if spec != THIS {
            return Self::load(spec);
        }
        let path = this_path()?;
        if !path.exists() {
            return Err(MachineError::NotCalibrated { path });
        }
        Self::from_path(&path).map_err(|error| MachineError::Calibration(Box::new(error)))
    }
}

/// Returns the file that `folio calibrate` writes and [`Machine::of_user`] reads: below
/// `$XDG_CONFIG_HOME`, otherwise `~/.config`.
///
/// # Errors
/// [`MachineError::NoPlace`] if neither variable is an absolute path.
pub fn this_path() -> Result<PathBuf, MachineError> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let config = config.ok_or(MachineError::NoPlace)?;
    Ok(config.join("largefolio/machines/this.toml"))
}
