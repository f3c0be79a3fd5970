//! Valid names: kernels, machines and edits with help; filesystems.

use std::path::PathBuf;

use largefolio_sim::kernel::{EDITS, Kernel};
use largefolio_sim::machine::{self, Machine};
use largefolio_sim::replay::request;
use pyo3::prelude::*;

use crate::errors::Failure;

#[pyfunction]
pub(crate) fn kernels() -> Result<Vec<(String, String)>, Failure> {
    let described = |name| Ok((String::from(name), Kernel::parse(name)?.description));
    Kernel::names().map(described).collect()
}

#[pyfunction]
pub(crate) fn machines() -> Result<Vec<(String, String)>, Failure> {
    let described = |name| Ok((String::from(name), Machine::named(name)?.description));
    machine::names().map(described).collect()
}

#[pyfunction]
pub(crate) fn edits() -> Vec<(&'static str, &'static str, &'static str)> {
    EDITS.iter().map(|edit| (&*edit.name, &*edit.value, &*edit.help)).collect()
}

/// Sets the path of the command `folio` for messages that suggest a command.
#[pyfunction]
pub(crate) fn set_program(path: PathBuf) {
    largefolio_results::set_program(path);
}

#[pyfunction]
pub(crate) fn filesystems() -> Vec<String> {
    request::filesystems().into_iter().collect()
}
