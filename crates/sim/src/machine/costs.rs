//! Costs: numbers with a unit and a source. None of them takes part in a decision of the replay, and
//! none is turned into an estimate of time yet.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::size::parse_bytes;

/// Unit of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Cycles of the core.
    #[serde(rename = "cycles")]
    Cycles,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Ns,
    /// Gigabytes (10^9 bytes) per second.
    #[serde(rename = "GB/s")]
    GbPerS,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cycles => "cycles",
            Self::Ns => "ns",
            Self::GbPerS => "GB/s",
        })
    }
}

/// One number of a machine file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// The number: finite, not negative.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// The document, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed: no document was found.
    #[serde(default)]
    pub assumed: bool,
}

/// Bytes moved in one go: a power of two of at least 4 KiB, written `2M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UnitBytes(pub u64);

impl TryFrom<String> for UnitBytes {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = parse_bytes(&text).filter(|bytes| bytes.is_power_of_two() && *bytes >= 4096);
        let form = "expected a power of two from \"4K\", such as \"2M\"";
        bytes.map(Self).ok_or_else(|| format!("`{text}` is no unit: {form}"))
    }
}

impl From<UnitBytes> for String {
    fn from(UnitBytes(bytes): UnitBytes) -> Self {
        match bytes {
            large if large >= 1 << 30 => format!("{}G", large >> 30),
            middle if middle >= 1 << 20 => format!("{}M", middle >> 20),
            small => format!("{}K", small >> 10),
        }
    }
}

/// A rate for units from one size up to the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitRate {
    /// Smallest unit the rate holds for.
    pub size: UnitBytes,
    /// 10^9 bytes a second: finite, above 0.
    pub gb_per_s: f64,
    /// The document, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed: no document was found.
    #[serde(default)]
    pub assumed: bool,
}

/// Some CPUs write whole lines without fetching or keeping them once an operation is longer than
/// their last cache (BEHAVIOUR.md J.2.1, K.2.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elision {
    /// Smallest operation that does.
    pub from: UnitBytes,
    /// The document, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed: no document was found.
    #[serde(default)]
    pub assumed: bool,
}

/// Costs of a machine; `None` is not known, and an estimate that needs it says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Clock of the core while it runs the traced programs: turns cycles into time.
    pub clock: Option<Quantity>,
    /// Extra latency of a level-2 TLB hit over a level-1 hit.
    pub l2_hit: Option<Quantity>,
    /// Page-table walk to a PTE without virtualisation.
    pub walk_native: Option<Quantity>,
    /// Page-table walk to a PMD entry without virtualisation.
    pub walk_native_pmd: Option<Quantity>,
    /// Two-dimensional walk to a PTE in a virtual machine.
    pub walk_nested: Option<Quantity>,
    /// Two-dimensional walk to a PMD entry in a virtual machine.
    pub walk_nested_pmd: Option<Quantity>,
    /// Page fault without allocation or IO: entry, handler, return.
    pub fault: Option<Quantity>,
    /// Rates of clearing memory that is not in the cache, by the size that is cleared in one go;
    /// sizes ascend.
    pub clear: Vec<UnitRate>,
    /// The same for copying.
    pub copy: Vec<UnitRate>,
    /// From which size on a string operation stops allocating cache lines.
    pub elision: Option<Elision>,
    /// Latency of one read of the storage device.
    pub storage_latency: Option<Quantity>,
    /// Rate of sequential reads of the storage device.
    pub storage_rate: Option<Quantity>,
}

impl Costs {
    /// The rates by their name in the file.
    #[must_use]
    pub fn rates(&self) -> [(&'static str, &[UnitRate]); 2] {
        [("clear", &self.clear), ("copy", &self.copy)]
    }

    /// The known costs by their name in the file.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, &Quantity)> {
        [
            ("clock", &self.clock),
            ("l2_hit", &self.l2_hit),
            ("walk_native", &self.walk_native),
            ("walk_native_pmd", &self.walk_native_pmd),
            ("walk_nested", &self.walk_nested),
            ("walk_nested_pmd", &self.walk_nested_pmd),
            ("fault", &self.fault),
            ("storage_latency", &self.storage_latency),
            ("storage_rate", &self.storage_rate),
        ]
        .into_iter()
        .filter_map(|(name, quantity)| Some((name, quantity.as_ref()?)))
    }
}
