#![forbid(unsafe_code)]
//! The native module of the Python package `largefolio`.
//!
//! Reading order: `errors` (what Python is told), `kernel`, `trace`, `asked` (arguments
//! become a request), `predict` (the replay, beside an interpreter that goes on), `names`.
//!
//! Owns the bridge and nothing else: every check and every number is that of the crates below, and
//! what people call is `python/largefolio/*.py`. JSON crosses the bridge as text, tables as Arrow
//! (the `PyCapsule` interface, no copy). Invariants:
//! - I1: whatever takes time runs without the interpreter's lock, and Ctrl-C ends it.
//! - I2: a panic below becomes an error, and never ends the interpreter.

mod asked;
mod errors;
mod kernel;
mod names;
mod predict;
mod trace;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::silence_caught_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<kernel::Kernel>()?;
    module.add_class::<trace::Trace>()?;
    module.add_class::<trace::Events>()?;
    module.add_class::<predict::Prediction>()?;
    module.add_function(wrap_pyfunction!(predict::predict, module)?)?;
    module.add_function(wrap_pyfunction!(names::kernels, module)?)?;
    module.add_function(wrap_pyfunction!(names::machines, module)?)?;
    module.add_function(wrap_pyfunction!(names::edits, module)?)?;
    module.add_function(wrap_pyfunction!(names::filesystems, module)?)
}
