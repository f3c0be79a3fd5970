//! Data files: kernels, machines and studies, built in or loaded from a path.
//!
//! Finds a file's text, reads it within its size limit, parses it, and finds an error's line. Does
//! not interpret the contents.

mod locate;

use std::io;
use std::path::Path;

use largefolio_trace::disk::read_text;
use largefolio_trace::shown;
use serde::de::DeserializeOwned;

use crate::names::nearest;

#[derive(Debug, thiserror::Error)]
pub enum DataFileError {
    #[error("there is no {} '{}'{}; {hint}", .of.what, shown(name), .of.own)]
    Unknown { of: &'static DataFiles, name: String, hint: String },
    #[error("cannot read the {} file {path}: {source}", .of.what)]
    Read { of: &'static DataFiles, path: String, source: io::Error },
    #[error("the {} file {path} is larger than {} KiB", .of.what, .of.bytes_max >> 10)]
    TooLarge { of: &'static DataFiles, path: String },
    #[error("{origin}:{line}: {message}")]
    Syntax { origin: String, line: usize, message: String },
}

#[derive(Debug)]
pub struct DataFiles {
    /// The kind's name: `machine`.
    pub what: &'static str,
    /// How to specify a file that is not built in, for an error.
    pub own: &'static str,
    /// Name and text of the built-in files, in display order.
    pub built_in: &'static [(&'static str, &'static str)],
    /// A hundred times the largest built-in file: a wrong path, such as a device, must not fill
    /// memory.
    pub bytes_max: u64,
}

impl DataFiles {
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.built_in.iter().map(|(name, _)| *name)
    }

    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'static str> {
        self.built_in.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    pub fn named(&'static self, name: &str) -> Result<&'static str, DataFileError> {
        self.text(name).ok_or_else(|| {
            let lower = name.to_ascii_lowercase();
            let also: Vec<&str> = self.also_called(&lower).collect();
            let hint = match also.as_slice() {
                [] => nearest(&lower, self.names()),
                also => format!("did you mean {}?", also.join(" or ")),
            };
            DataFileError::Unknown { of: self, name: name.to_owned(), hint }
        })
    }

    /// Returns the built-in files with `name` in `also`. A core's name can be in several machines,
    /// so it selects none, but errors suggest them.
    fn also_called(&self, name: &str) -> impl Iterator<Item = &'static str> {
        let lists_it = move |text: &str| {
            let table: toml::Table = text.parse().unwrap_or_default();
            let also = table.get("also").and_then(toml::Value::as_array);
            also.is_some_and(|also| also.iter().any(|one| one.as_str() == Some(name)))
        };
        self.built_in.iter().filter(move |(_, text)| lists_it(text)).map(|(file, _)| *file)
    }

    pub fn read(&'static self, path: &Path) -> Result<(String, String), DataFileError> {
        let origin = shown(path).to_string();
        match read_text(path, self.bytes_max) {
            Ok(text) => Ok((text, origin)),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(DataFileError::TooLarge { of: self, path: origin })
            }
            Err(source) => Err(DataFileError::Read { of: self, path: origin, source }),
        }
    }
}

pub fn parse<T: DeserializeOwned>(text: &str, origin: &str) -> Result<T, DataFileError> {
    toml::from_str(text).map_err(|error| DataFileError::Syntax {
        origin: origin.to_owned(),
        line: locate::line_at(text, error.span().map_or(0, |span| span.start)),
        message: error.message().replace('\n', "; "),
    })
}

pub use locate::line_of;
