//! Costs: numbers with a unit and a source. None of them takes part in a decision of the replay;
//! [`crate::cost`] multiplies them with what was counted.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::interval::Interval;
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
    /// Microseconds.
    #[serde(rename = "us")]
    Us,
    /// Gigahertz: cycles in a nanosecond.
    #[serde(rename = "GHz")]
    GHz,
    /// Gigabytes (10^9 bytes) per second.
    #[serde(rename = "GB/s")]
    GbPerS,
    /// Cycles that an instruction takes on average.
    #[serde(rename = "cycles/instruction")]
    Cpi,
    /// The part of a time that is waited for: 1 is all of it.
    #[serde(rename = "share")]
    Share,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cycles => "cycles",
            Self::Ns => "ns",
            Self::Us => "us",
            Self::GHz => "GHz",
            Self::GbPerS => "GB/s",
            Self::Cpi => "cycles/instruction",
            Self::Share => "share",
        })
    }
}

impl Unit {
    /// What a cost of any machine lies within, generously: no event takes more than a second, and no
    /// device is slower than 100 kB/s. Else a sum of costs passes what a number of nanoseconds holds.
    #[must_use]
    pub const fn limits(self) -> RangeInclusive<f64> {
        match self {
            Self::Cycles => 1e-6..=1e10,
            Self::Ns => 1e-6..=1e9,
            Self::Us => 1e-9..=1e6,
            Self::GHz => 0.01..=100.0,
            Self::GbPerS => 0.0001..=100_000.0,
            Self::Cpi => 0.01..=1000.0,
            // More than 1: a wrong guess of the next address may be walked for first.
            // What a busy machine measures of one reaches above 10.
            Self::Share => 1e-6..=100.0,
        }
    }
}

/// One number of a machine file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// The number: above 0, and one that a machine may have ([`Unit`]).
    pub value: f64,
    /// Unit of `value`.
    pub unit: Unit,
    /// The document, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed: no document was found.
    #[serde(default)]
    pub assumed: bool,
    /// The smallest and the largest that it may be: the spread of a measurement, or the range of its
    /// sources. [`Quantity::interval`] says what holds without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

/// Factor either way within which an assumed number lies, unless it says a range.
pub const ASSUMED_WITHIN: f64 = 2.0;
/// Factor either way within which a number with a source lies, unless it says a range.
pub const SOURCED_WITHIN: f64 = 1.25;

/// The bounds of a number with `range`.
fn bounds(value: f64, range: Option<[f64; 2]>, is_assumed: bool) -> Interval {
    match range {
        Some([low, high]) => Interval { low, mid: value, high },
        None if is_assumed => Interval::within(value, ASSUMED_WITHIN),
        None => Interval::within(value, SOURCED_WITHIN),
    }
}

impl Quantity {
    /// The number with its bounds: its range; else a factor of [`ASSUMED_WITHIN`] either way if it
    /// is assumed, and of [`SOURCED_WITHIN`] if it has a source.
    #[must_use]
    pub fn interval(&self) -> Interval {
        bounds(self.value, self.range, self.assumed)
    }
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
        bytes.map(Self).ok_or_else(|| format!("`{text}` is not a unit: {form}"))
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
    /// 10^9 bytes per second: finite, above 0.
    pub gb_per_s: f64,
    /// The document, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed: no document was found.
    #[serde(default)]
    pub assumed: bool,
    /// As [`Quantity::range`], in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

/// Some CPUs write whole lines without fetching or keeping them once an operation is longer than
/// their last cache (docs/behaviour J.2.1, K.2.2).
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

/// What the unit of a cost must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CostKind {
    /// Cycles, nanoseconds or microseconds.
    Time,
    /// GHz.
    Clock,
    /// GB/s.
    Rate,
    /// Cycles per instruction.
    Cpi,
    /// A part of another cost.
    Share,
}

impl CostKind {
    /// Units in the order in which a message lists them.
    pub(super) const fn units(self) -> &'static [Unit] {
        match self {
            Self::Time => &[Unit::Cycles, Unit::Ns, Unit::Us],
            Self::Clock => &[Unit::GHz],
            Self::Rate => &[Unit::GbPerS],
            Self::Cpi => &[Unit::Cpi],
            Self::Share => &[Unit::Share],
        }
    }
}

/// Costs of a machine; `None` is not known, and an estimate that needs it says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Clock of the core while it runs the traced programs: turns cycles into time.
    pub clock: Option<Quantity>,
    /// Cycles of an instruction on average, without what the other costs count: how long the program
    /// runs where nobody measured it.
    pub cpi: Option<Quantity>,
    /// Mean time from one reference of the program to the next: what reads ahead overlap with.
    pub reference: Option<Quantity>,
    /// Extra latency of a level-2 TLB hit over a level-1 hit.
    pub l2_hit: Option<Quantity>,
    /// A page-table walk, without the lines that it reads.
    pub walk: Option<Quantity>,
    /// The same for a walk that ends at a PMD entry; where it is absent, `walk` is for both.
    pub walk_pmd: Option<Quantity>,
    /// A line of a page table that a walk finds in the L2 cache.
    pub walk_l2: Option<Quantity>,
    /// A line that it finds in the last-level cache.
    pub walk_llc: Option<Quantity>,
    /// A line that it has to read from memory.
    pub walk_memory: Option<Quantity>,
    /// What the program waits of a walk that runs beside others.
    pub walk_beside: Option<Quantity>,
    /// What it waits of a walk with no other near: the rest is hidden behind other instructions.
    pub walk_alone: Option<Quantity>,
    /// What it waits of a walk for instructions: more than all of it if a wrong guess of the next
    /// address is walked for first.
    pub walk_fetch: Option<Quantity>,
    /// Page fault without clearing, copying or IO: entry, handler, return.
    pub fault: Option<Quantity>,
    /// Looking for the cached pages around a fault, whatever their number; where it is absent, `fault`
    /// has it in it.
    pub fault_around: Option<Quantity>,
    /// Allocation of a folio, whatever its size; where it is absent, `fault` has it in it.
    pub folio_alloc: Option<Quantity>,
    /// Setting PTEs of one folio in one go, whatever their number; where it is absent, `map_entry` has
    /// it in it.
    pub map_batch: Option<Quantity>,
    /// A PTE or PMD entry set by a fault.
    pub map_entry: Option<Quantity>,
    /// A PTE copied by fork; a PMD entry as well where `fork_pmd` is absent.
    pub fork_entry: Option<Quantity>,
    /// Copying PTEs of one folio in one go, whatever their number; where it is absent, `fork_entry`
    /// has it in it.
    pub fork_batch: Option<Quantity>,
    /// The same for a large folio; where it is absent, `fork_batch` is for both.
    pub fork_large: Option<Quantity>,
    /// A PMD entry copied by fork.
    pub fork_pmd: Option<Quantity>,
    /// Unmapping PTEs of one folio in one go, whatever their number; a PMD entry as well where
    /// `unmap_pmd` is absent.
    pub unmap_batch: Option<Quantity>,
    /// The same for a large folio; where it is absent, `unmap_batch` is for both.
    pub unmap_large: Option<Quantity>,
    /// Each PTE of such a batch.
    pub unmap_pte: Option<Quantity>,
    /// Unmapping a folio that a PMD entry maps.
    pub unmap_pmd: Option<Quantity>,
    /// Freeing a folio with its last entry, whatever its size. Where it is absent, the costs of
    /// unmapping have it in them; where it is given, they do not.
    pub folio_free: Option<Quantity>,
    /// Each page of such a folio. The same holds for it.
    pub page_free: Option<Quantity>,
    /// One atomic update of a map count: of a page, or of the folio beside its owner word. Where it
    /// is absent, the costs of entries and batches have it in them; where it is given, they do not.
    pub page_mapcount: Option<Quantity>,
    /// One call that changes a large folio's owner word: lock, slots, large mapcount, unlock. The same
    /// holds for it and the costs of batches.
    pub owner_word: Option<Quantity>,
    /// A page that comes back from swap space in memory (zram): allocated and decompressed.
    pub swap_in: Option<Quantity>,
    /// A page that is compressed and written there.
    pub swap_out: Option<Quantity>,
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
    /// Shortest time between the starts of two reads, when many are outstanding; where it is absent,
    /// only their transfers keep them apart.
    pub storage_interval: Option<Quantity>,
}

impl Costs {
    /// The rates by their name in the file.
    #[must_use]
    pub fn rates(&self) -> [(&'static str, &[UnitRate]); 2] {
        [("clear", &self.clear), ("copy", &self.copy)]
    }

    /// The known costs by their name in the file.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, &Quantity)> {
        self.quantities().into_iter().filter_map(|(name, _, known)| Some((name, known?)))
    }

    /// These costs, and what they leave out as in `base`.
    pub(super) fn or(mut self, base: Self) -> Self {
        for ((_, own), (_, _, base)) in self.quantities_mut().into_iter().zip(base.quantities()) {
            if own.is_none() {
                *own = base.cloned();
            }
        }
        let pick = |own: Vec<UnitRate>, base| if own.is_empty() { base } else { own };
        Self {
            clear: pick(self.clear, base.clear),
            copy: pick(self.copy, base.copy),
            elision: self.elision.or(base.elision),
            ..self
        }
    }
}

/// The list of the single costs with what their units must be. One that is missing here does not
/// compile.
macro_rules! quantities {
    ($($name:ident: $kind:ident,)*) => {
        /// Single costs of a machine.
        const NR_QUANTITIES: usize = [$(stringify!($name)),*].len();

        impl Costs {
            /// Every single cost: its name in the file, what its unit must be, and itself.
            pub(super) fn quantities(
                &self,
            ) -> [(&'static str, CostKind, Option<&Quantity>); NR_QUANTITIES] {
                let Self { $($name,)* clear: _, copy: _, elision: _ } = self;
                [$((stringify!($name), CostKind::$kind, $name.as_ref())),*]
            }

            /// The same to be changed.
            pub fn quantities_mut(
                &mut self,
            ) -> [(&'static str, &mut Option<Quantity>); NR_QUANTITIES] {
                [$((stringify!($name), &mut self.$name)),*]
            }
        }
    };
}

quantities! {
    clock: Clock,
    cpi: Cpi,
    reference: Time,
    l2_hit: Time,
    walk: Time,
    walk_pmd: Time,
    walk_l2: Time,
    walk_llc: Time,
    walk_memory: Time,
    walk_beside: Share,
    walk_alone: Share,
    walk_fetch: Share,
    fault: Time,
    fault_around: Time,
    folio_alloc: Time,
    map_batch: Time,
    map_entry: Time,
    fork_entry: Time,
    fork_batch: Time,
    fork_large: Time,
    fork_pmd: Time,
    unmap_batch: Time,
    unmap_large: Time,
    unmap_pte: Time,
    unmap_pmd: Time,
    folio_free: Time,
    page_free: Time,
    page_mapcount: Time,
    owner_word: Time,
    swap_in: Time,
    swap_out: Time,
    storage_latency: Time,
    storage_rate: Rate,
    storage_interval: Time,
}
