//! The basis of a number.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all(serialize = "snake_case", deserialize = "kebab-case"))]
pub enum Basis {
    #[serde(skip_deserializing)]
    Recorded,
    #[serde(skip_deserializing)]
    Generated,
    /// The memory manager alone, without a trace.
    #[serde(skip_deserializing)]
    Model,
    #[serde(skip_deserializing)]
    Measured,
    #[serde(skip_deserializing)]
    Quoted,
    /// Another program in place of the published one.
    Proxy,
    /// Another CPU than the published one.
    OtherCpu,
    /// The series' own number, used as an input.
    #[serde(skip_deserializing)]
    OwnSeries,
}

impl Basis {
    #[must_use]
    pub const fn label(self) -> &'static str {
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
