//! Policies in Python: objects with a method for each point that they answer.
//!
//! Invariants:
//! - I1: each cell has its own object, so that cells do not depend on each other's order.
//! - I2: an exception ends the prediction and is raised to the caller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use largefolio_mm::policy::{Answer, Context, Point, Policy, PolicyError, Window};
use largefolio_sim::policy::{KernelPolicy, OWN, OWN_OF_INT, Source};
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};

use crate::background::Stop;
use crate::errors::Failure;

/// A policy by name, or a callable that creates one.
#[derive(FromPyObject)]
pub(crate) enum PolicyArgument {
    Name(String),
    Factory { name: String, make: Py<PyAny> },
}

/// The first exception of one call's policies, and the call's stop flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct Raised {
    kept: Arc<Mutex<Option<PyErr>>>,
    stop: Arc<Mutex<Stop>>,
}

impl Raised {
    fn first_error(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, error: PyErr) {
        self.first_error().get_or_insert(error);
    }

    /// Returns the exception if there was one, otherwise `failure`.
    pub(crate) fn instead_of(&self, failure: Failure) -> Failure {
        self.first_error().take().map_or(failure, Failure::Python)
    }

    /// Stops calling policies once `stop` is set.
    pub(crate) fn until(&self, stop: Stop) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = stop;
    }

    fn stop(&self) -> Stop {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PolicyArgument {
    pub(crate) fn policy(&self, py: Python<'_>, raised: &Raised) -> Result<KernelPolicy, Failure> {
        match self {
            Self::Name(name) => {
                Ok(KernelPolicy::named(name).map_err(|error| Failure::Kernel(error.into()))?)
            }
            Self::Factory { name, make } => {
                let (name, make) = (name.clone(), make.clone_ref(py));
                Ok(KernelPolicy(Arc::new(PythonPolicy { name, make, raised: raised.clone() })))
            }
        }
    }
}

#[derive(Debug)]
struct PythonPolicy {
    name: String,
    make: Py<PyAny>,
    raised: Raised,
}

impl Source for PythonPolicy {
    fn name(&self) -> &str {
        &self.name
    }

    fn digest(&self) -> Option<&str> {
        None
    }

    fn object(&self) -> Option<&[u8]> {
        None
    }

    fn start(&self) -> Result<Box<dyn Policy>, String> {
        Python::attach(|py| {
            let running = self.raised.stop().interruptible(py, || {
                self.make.call0(py).and_then(|object| RunningPolicy::new(py, &object, &self.raised))
            });
            running.map(|running| Box::new(running) as Box<dyn Policy>).map_err(|error| {
                let text = error.to_string();
                self.raised.keep(error);
                text
            })
        })
    }
}

#[derive(Debug)]
struct RunningPolicy {
    methods: [Option<Py<PyAny>>; Point::ALL.len()],
    raised: Raised,
    stop: Stop,
}

impl RunningPolicy {
    fn new(py: Python<'_>, object: &Py<PyAny>, raised: &Raised) -> PyResult<Self> {
        let mut methods = [const { None }; Point::ALL.len()];
        for (method, point) in methods.iter_mut().zip(Point::ALL) {
            *method = method_of(object.bind(py), point.name())?.map(Bound::unbind);
        }
        if methods.iter().all(Option::is_none) {
            let points = Point::ALL.map(Point::name).join(", ");
            let text = format!("a policy has one method per point at which it decides: {points}");
            return Err(PyTypeError::new_err(text));
        }
        Ok(Self { methods, raised: raised.clone(), stop: raised.stop() })
    }

    fn ask(&self, point: Point, context: &Context) -> PyResult<Answer> {
        let Some(method) = &self.methods[point as usize] else { return Ok(Answer::Own) };
        Python::attach(|py| {
            let call = || method.bind(py).call1((PolicyContext(*context),));
            let answer = self.stop.interruptible(py, call)?;
            to_answer(point, &answer)
        })
    }
}

/// Returns the method `name` of `object`, if it has one. An error in a property of its class is the
/// user's error, not an absence.
fn method_of<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    let method = match object.getattr(name) {
        Err(error) if error.is_instance_of::<PyAttributeError>(object.py()) => {
            if object.get_type().hasattr(name)? {
                return Err(error);
            }
            None
        }
        method => Some(method?),
    };
    Ok(method.filter(|method| !method.is_none()))
}

/// Converts `None`, a number, or a window.
fn to_answer(point: Point, answer: &Bound<'_, PyAny>) -> PyResult<Answer> {
    if answer.is_none() {
        return Ok(Answer::Own);
    }
    if point == Point::Window
        && let Ok(window) = answer.cast::<PyTuple>()
        && !window.iter().any(|number| number.is_instance_of::<PyBool>())
        && let Ok((start, nr_pages, nr_ahead, order)) = window.extract()
    {
        return Ok(Answer::Window(Window { start, nr_pages, nr_ahead, order }));
    }
    match answer.extract::<u64>() {
        // FOLIO_OWN of the C header, also as an int.
        Ok(OWN | OWN_OF_INT) => Ok(Answer::Own),
        Ok(number) if !answer.is_instance_of::<PyBool>() => Ok(Answer::Value(number)),
        _ => {
            let expected = match point {
                Point::Window => "None, 0 or a Window of four ints from 0 to 2**64 - 1",
                _ => "None or an int from 0 to 2**64 - 1",
            };
            let (point, answer) = (point.name(), answer.repr()?);
            Err(PyTypeError::new_err(format!("{point}: expected {expected}, not {answer}")))
        }
    }
}

impl Policy for RunningPolicy {
    fn handles(&self, point: Point) -> bool {
        self.methods[point as usize].is_some()
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        if self.stop.is_requested() || self.raised.first_error().is_some() {
            return Err(PolicyError { point, message: "the prediction was stopped".to_owned() });
        }
        self.ask(point, context).map_err(|error| {
            let message = error.to_string();
            self.raised.keep(error);
            PolicyError { point, message }
        })
    }
}

fn read_only_error(name: &str) -> PyErr {
    PyAttributeError::new_err(format!("{name}: a policy can read the context but not change it"))
}

/// A policy's input: the numbers of `struct folio_context` by their names.
#[pyclass(frozen, module = "largefolio._native")]
pub(crate) struct PolicyContext(Context);

#[pymethods]
impl PolicyContext {
    #[getter]
    fn comm(&self) -> String {
        let name = self.0.comm.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Free blocks of exactly each order.
    #[getter]
    fn free<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.free)
    }

    fn __getattr__(&self, name: &str) -> PyResult<u64> {
        self.0.number(name).ok_or_else(|| {
            PyAttributeError::new_err(format!(
                "a policy has no {name}; see help(largefolio.Policy)"
            ))
        })
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __setattr__(&self, name: &str, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(read_only_error(name))
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __delattr__(&self, name: &str) -> PyResult<()> {
        Err(read_only_error(name))
    }

    #[expect(clippy::unused_self, reason = "Python calls it on an object")]
    fn __dir__(&self) -> Vec<&'static str> {
        ["comm", "free"].into_iter().chain(Context::NAMES.iter().copied()).collect()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}
