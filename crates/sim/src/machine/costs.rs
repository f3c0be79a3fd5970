//! Costs: numbers with a unit and a source. None of them takes part in a decision of the replay.

use std::fmt;

use serde::{Deserialize, Serialize};

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
    /// Rate of clearing memory.
    pub clear: Option<Quantity>,
    /// Rate of copying memory.
    pub copy: Option<Quantity>,
    /// Latency of one read of the storage device.
    pub storage_latency: Option<Quantity>,
    /// Rate of sequential reads of the storage device.
    pub storage_rate: Option<Quantity>,
}

impl Costs {
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
            ("clear", &self.clear),
            ("copy", &self.copy),
            ("storage_latency", &self.storage_latency),
            ("storage_rate", &self.storage_rate),
        ]
        .into_iter()
        .filter_map(|(name, quantity)| Some((name, quantity.as_ref()?)))
    }
}
