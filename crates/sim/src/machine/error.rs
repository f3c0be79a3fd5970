//! Why there is no such machine.

use std::fmt;
use std::io;

use largefolio_mm::units::PageSize;

use crate::tlb::ConfigError;

use super::load::MAX_FILE_BYTES;

/// Why a machine could not be loaded or changed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum MachineError {
    #[error("no machine is called '{name}' (a file is given by its path, *.toml); {hint}")]
    Unknown { name: String, hint: String },
    #[error("cannot read the machine file {path}: {error}")]
    Read { path: String, error: io::Error },
    #[error("the machine file {path} is larger than {} KiB", MAX_FILE_BYTES >> 10)]
    TooLarge { path: String },
    #[error("{origin}:{line}: {message}")]
    Toml { origin: String, line: usize, message: String },
    #[error("{origin}: {error}")]
    Tlb { origin: String, error: ConfigError },
    #[error("{origin}: page_sizes is empty; list the base pages, such as [\"4K\"]")]
    NoPageSize { origin: String },
    #[error("{origin}: default_page_size is {page}, but page_sizes has {supported}")]
    DefaultPageSize { origin: String, page: PageSize, supported: Listed },
    #[error("{origin}: costs.{cost}: {value} is no cost; expected a number from 0 up")]
    Cost { origin: String, cost: &'static str, value: f64 },
    #[error(
        "{origin}: costs.{cost}: no source; \
         name the document, or set assumed = true and give the reason"
    )]
    NoSource { origin: String, cost: &'static str },
    #[error("{origin}: costs.{cost}: list the sizes from small to large, each once")]
    RateOrder { origin: String, cost: &'static str },
    #[error("the machine {machine} has no {page} base pages; it has {supported}")]
    PageSize { machine: String, page: PageSize, supported: Listed },
}

/// Names in a message: `a, b and c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed(Vec<String>);

impl<T: ToString> From<Vec<T>> for Listed {
    fn from(items: Vec<T>) -> Self {
        Self(items.iter().map(ToString::to_string).collect())
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("none"),
            [only] => f.write_str(only),
            [first @ .., last] => write!(f, "{} and {last}", first.join(", ")),
        }
    }
}
