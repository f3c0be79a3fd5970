//! Remarks about a result, printed to standard error or raised as Python warnings.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// The result is as requested, but perhaps not as intended.
    Warning(String),
    Missing(String),
}

impl Remark {
    /// Says, as in `note`, that the rules belong to another version than the kernel.
    #[must_use]
    pub fn of_rules(note: Option<&str>) -> Option<Self> {
        note.map(|note| Self::Warning(note.to_owned()))
    }
}
