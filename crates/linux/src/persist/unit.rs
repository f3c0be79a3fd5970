//! Text of units: variables of a service, and words that systemd takes as they are.

use super::place::ServiceName;
use super::{Body, Line, Piece, Place};
use crate::tune::TuneError;

/// Far more than a variable of an allocator or runtime has; systemd's lines have up to 1 MiB.
const VALUE_BYTES_MAX: usize = 4096;

/// A variable of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    name: String,
    value: String,
}

impl Variable {
    /// `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`.
    ///
    /// # Errors
    /// What is no assignment, or cannot be in a unit.
    pub fn parse(assignment: &str) -> Result<Self, TuneError> {
        let error = |message: &str| TuneError::Given {
            what: format!("variable {assignment:?}"),
            message: message.to_owned(),
        };
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| error("expected NAME=VALUE, such as MALLOC_ARENA_MAX=2"))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let starts_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !starts_well || !name.bytes().all(is_plain) || name.len() > VALUE_BYTES_MAX {
            return Err(error("a name has only letters, digits and _, and begins with no digit"));
        }
        if value.chars().any(char::is_control) {
            return Err(error("systemd takes no control characters in a variable"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(error("the value is longer than 4096 bytes"));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }

    /// The part before the sign.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The part after the sign.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// The drop-in that gives a service these variables.
#[must_use]
pub fn drop_in(unit: &ServiceName, variables: &[Variable]) -> Piece {
    let line = |variable: &Variable| Line {
        key: format!("Environment=\"{}=", variable.name),
        rest: format!("{}\"", escaped(&variable.value)),
    };
    let lines = variables.iter().map(line).collect();
    let body = Body::Lines { section: "[Service]\n", lines };
    Piece { place: Place::DropIn(unit.clone()), body }
}

/// What systemd reads as `text` between double quotes, where it replaces `%` and `\`.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%")
}
