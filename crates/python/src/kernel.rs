//! A kernel's rules as a Python value; `largefolio.Rules` is built on it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use largefolio_sim::kernel::{self, KernelError};
use pyo3::prelude::*;

use crate::errors::Failure;

#[pyclass(frozen, eq, module = "largefolio._native")]
#[derive(PartialEq)]
pub(crate) struct Kernel(pub(crate) kernel::Kernel);

#[pymethods]
impl Kernel {
    /// Parses a kernel: `7.2`, `7.2+page=64K`, `./mine.toml`.
    #[staticmethod]
    fn parse(text: &str) -> Result<Self, Failure> {
        Ok(Self(kernel::Kernel::parse(text)?))
    }

    #[staticmethod]
    fn from_toml(name: &str, text: &str) -> Result<Self, Failure> {
        let bad = |error: toml::de::Error| KernelError::BadFile {
            origin: name.to_owned(),
            message: error.to_string().trim().to_owned(),
        };
        Ok(Self(kernel::Kernel::from_table(name, text.parse().map_err(bad)?)?))
    }

    #[staticmethod]
    fn from_json(name: &str, text: &str) -> Result<Self, Failure> {
        let bad = |error: serde_json::Error| KernelError::BadFile {
            origin: name.to_owned(),
            message: error.to_string(),
        };
        let table = serde_json::from_str(text).map_err(bad)?;
        Ok(Self(kernel::Kernel::from_table(name, table)?))
    }

    /// Returns the kernel with additional edits: `exec-block=64K+page=64K`.
    fn edited(&self, edits: &str) -> Result<Self, Failure> {
        Ok(Self(self.0.edited(edits)?))
    }

    fn renamed(&self, name: String) -> Self {
        Self(kernel::Kernel { name, ..self.0.clone() })
    }

    fn to_toml(&self) -> Result<String, Failure> {
        Ok(self.0.to_toml()?)
    }

    fn to_json(&self) -> Result<String, Failure> {
        let table = self.0.to_table()?;
        serde_json::to_string(&table).map_err(|error| Failure::Argument(error.to_string()))
    }

    /// Name in results.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[getter]
    fn description(&self) -> &str {
        &self.0.description
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.name.hash(&mut hasher);
        hasher.finish()
    }
}
