//! Associativity in machine files: a number of ways, or `"full"`.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ways {
    Full,
    /// A number that divides the entries.
    Number(u32),
}

impl Ways {
    pub(super) const fn of(self, entries: u32) -> u32 {
        match self {
            Self::Full => entries,
            Self::Number(ways) => ways,
        }
    }
}

impl Serialize for Ways {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Full => serializer.serialize_str("full"),
            Self::Number(ways) => serializer.serialize_u32(*ways),
        }
    }
}

impl<'de> Deserialize<'de> for Ways {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WaysVisitor)
    }
}

struct WaysVisitor;

impl Visitor<'_> for WaysVisitor {
    type Value = Ways;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of ways or \"full\"")
    }

    fn visit_i64<E: de::Error>(self, ways: i64) -> Result<Ways, E> {
        let number = u32::try_from(ways)
            .map_err(|_| E::invalid_value(de::Unexpected::Signed(ways), &self))?;
        Ok(Ways::Number(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Ways, E> {
        if text == "full" {
            return Ok(Ways::Full);
        }
        Err(E::invalid_value(de::Unexpected::Str(text), &self))
    }
}
