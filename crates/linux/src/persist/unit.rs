//! Text for unit files: a service's variables, and words escaped for systemd.

use super::PersistError;
use super::place::ServiceName;
use super::{Body, FileLine, FilePiece, FilePlace};

/// Far more than an allocator's or runtime's variable needs. A systemd line can have up to 1 MiB.
const VALUE_BYTES_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    name: String,
    value: String,
}

impl Variable {
    /// Parses an assignment such as `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`.
    ///
    /// # Errors
    /// Text that is not an assignment or cannot be in a unit.
    pub fn parse(assignment: &str) -> Result<Self, PersistError> {
        let error = |message: &str| PersistError::Given {
            what: format!("variable {assignment:?}"),
            message: message.to_owned(),
        };
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| error("expected NAME=VALUE, such as MALLOC_ARENA_MAX=2"))?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let starts_well = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !starts_well || !name.bytes().all(is_plain) || name.len() > VALUE_BYTES_MAX {
            return Err(error(
                "a name contains only letters, digits and _ and does not begin with a digit",
            ));
        }
        if value.chars().any(char::is_control) {
            return Err(error("systemd does not allow control characters in a variable"));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(error("the value is longer than 4096 bytes"));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

#[must_use]
pub fn drop_in(unit: &ServiceName, variables: &[Variable]) -> FilePiece {
    let line = |variable: &Variable| FileLine {
        key: format!("Environment=\"{}=", variable.name),
        rest: format!("{}\"", escaped(&variable.value)),
    };
    let lines = variables.iter().map(line).collect();
    let body = Body::Lines { section: "[Service]\n", replaced: Vec::new(), lines };
    FilePiece { place: FilePlace::drop_in(unit.clone()), body }
}

/// Escapes `text` for systemd's double quotes, in which it replaces `%` and `\`.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('%', "%%")
}
