//! What can be asked for: name and help of kernels, machines, edits; filesystems.

use std::path::PathBuf;

use largefolio_sim::kernel::{EDITS, Kernel};
use largefolio_sim::machine::{self, Machine};
use largefolio_sim::replay::request;
use pyo3::prelude::*;

use crate::errors::Failure;

/// Name and description of each built-in kernel.
#[pyfunction]
pub(crate) fn kernels() -> Result<Vec<(String, String)>, Failure> {
    let described = |name| Ok((String::from(name), Kernel::parse(name)?.description));
    Kernel::names().map(described).collect()
}

/// Name and description of each built-in machine.
#[pyfunction]
pub(crate) fn machines() -> Result<Vec<(String, String)>, Failure> {
    let described = |name| Ok((String::from(name), Machine::named(name)?.description));
    machine::names().map(described).collect()
}

/// Name, form of the value and help of each edit.
#[pyfunction]
pub(crate) fn edits() -> Vec<(&'static str, &'static str, &'static str)> {
    EDITS.iter().map(|edit| (&*edit.name, &*edit.value, &*edit.help)).collect()
}

/// Path of the command `folio` that stands in what is to be typed.
#[pyfunction]
pub(crate) fn set_program(path: PathBuf) {
    largefolio_results::set_program(path);
}

/// Filesystems that have large folios under some kernel.
#[pyfunction]
pub(crate) fn filesystems() -> Vec<String> {
    request::filesystems().into_iter().collect()
}
