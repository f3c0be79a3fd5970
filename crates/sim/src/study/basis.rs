//! The basis of a number, in words.

use serde::{Deserialize, Serialize};

/// A basis of our number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all(serialize = "snake_case", deserialize = "kebab-case"))]
pub enum Basis {
    /// A recorded trace.
    #[serde(skip_deserializing)]
    Recorded,
    /// A generated trace.
    #[serde(skip_deserializing)]
    Generated,
    /// The memory manager alone, without a trace.
    #[serde(skip_deserializing)]
    Model,
    /// The running kernel, measured now.
    #[serde(skip_deserializing)]
    Measured,
    /// A measurement that a document has.
    #[serde(skip_deserializing)]
    Quoted,
    /// Another program in place of the published one.
    Proxy,
    /// Another CPU than the published one.
    OtherCpu,
    /// The series' own number, typed in.
    #[serde(skip_deserializing)]
    OwnSeries,
}

impl Basis {
    /// Words for a table.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Recorded => "recorded trace",
            Self::Generated => "generated trace",
            Self::Model => "no trace",
            Self::Measured => "measured",
            Self::Quoted => "quoted",
            Self::Proxy => "proxy",
            Self::OtherCpu => "other CPU",
            Self::OwnSeries => "input of the series",
        }
    }
}
