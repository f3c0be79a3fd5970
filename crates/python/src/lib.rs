#![forbid(unsafe_code)]
//! The native module of the Python package `largefolio`.
//!
//! Reading order: `errors` (Python's exceptions), `kernel`, `trace`, `arguments` (which become
//! a request), `policy` (callables), `background` (work outside the interpreter), `predict`,
//! `sweep`, `commands` (`maps`), `memory` (this process's own), `names`.
//!
//! Owns only the bridge: the crates below check and compute everything, and
//! `python/largefolio/*.py` is the public interface. JSON crosses the bridge as text, tables as
//! Arrow (the `PyCapsule` interface, no copy). Invariants:
//! - I1: long operations run without the interpreter's lock, and Ctrl-C ends them.
//! - I2: a panic below becomes an error, and never ends the interpreter.

mod arguments;
mod background;
mod commands;
mod errors;
mod kernel;
mod memory;
mod names;
mod policy;
mod predict;
mod sweep;
mod trace;

use largefolio_mm::policy::Point;
use largefolio_results::predict::sweep::NR_CELLS_OF_A_TASK;
use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::silence_caught_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<kernel::Kernel>()?;
    module.add_class::<trace::Trace>()?;
    module.add_class::<trace::Events>()?;
    module.add_class::<predict::Prediction>()?;
    module.add_class::<policy::PolicyContext>()?;
    module.add_class::<sweep::Sweep>()?;
    module.add_class::<sweep::Task>()?;
    module.add("CELLS_OF_A_TASK", NR_CELLS_OF_A_TASK)?;
    module.add("POLICY_POINTS", Point::ALL.map(Point::name))?;
    module.add_function(wrap_pyfunction!(sweep::digest, module)?)?;
    module.add_function(wrap_pyfunction!(predict::predict, module)?)?;
    module.add_class::<commands::CommandResult>()?;
    module.add_function(wrap_pyfunction!(commands::maps, module)?)?;
    module.add_function(wrap_pyfunction!(commands::elf, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_sizes, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_back, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_view, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_waste, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_collapse, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_advise, module)?)?;
    module.add_function(wrap_pyfunction!(memory::memory_split, module)?)?;
    module.add_function(wrap_pyfunction!(names::kernels, module)?)?;
    module.add_function(wrap_pyfunction!(names::machines, module)?)?;
    module.add_function(wrap_pyfunction!(names::edits, module)?)?;
    module.add_function(wrap_pyfunction!(names::filesystems, module)?)?;
    module.add_function(wrap_pyfunction!(names::set_program, module)?)
}
