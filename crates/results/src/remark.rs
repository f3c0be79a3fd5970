//! What is said beside a result, wherever that goes: standard error, Python's warnings.

/// A sentence about a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// It is as it was asked for, but perhaps not as it was meant.
    Warning(String),
    /// Something that was asked for by name is missing in it.
    Missing(String),
}

impl Remark {
    /// The kernel's rules are those of another version, as `note` says.
    #[must_use]
    pub fn of_rules(note: Option<&str>) -> Option<Self> {
        note.map(|note| Self::Warning(note.to_owned()))
    }
}
