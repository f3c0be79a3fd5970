//! Costs: numbers with a unit and a source. No decision in the replay depends on them;
//! [`crate::cost`] multiplies them by counts.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::interval::Interval;
use crate::size::parse_bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    #[serde(rename = "cycles")]
    Cycles,
    #[serde(rename = "ns")]
    Ns,
    #[serde(rename = "us")]
    Us,
    /// Gigahertz: cycles per nanosecond.
    #[serde(rename = "GHz")]
    GHz,
    /// Gigabytes (10^9 bytes) per second.
    #[serde(rename = "GB/s")]
    GbPerS,
    /// Average cycles per instruction.
    #[serde(rename = "cycles/instruction")]
    Cpi,
    /// Share of a time that the program waits for; 1 is all of it.
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
    /// Returns generous limits for any machine: no event takes more than a second, and no device is
    /// slower than 100 kB/s. They keep a sum of costs within the range of a nanosecond count.
    #[must_use]
    pub const fn limits(self) -> RangeInclusive<f64> {
        match self {
            Self::Cycles => 1e-6..=1e10,
            Self::Ns => 1e-6..=1e9,
            Self::Us => 1e-9..=1e6,
            Self::GHz => 0.01..=100.0,
            Self::GbPerS => 0.0001..=100_000.0,
            Self::Cpi => 0.01..=1000.0,
            // Above 1: the CPU may walk for a mispredicted next address first. Measurements on a
            // busy machine can exceed 10.
            Self::Share => 1e-6..=100.0,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    /// Above 0, and within the limits of [`Unit`].
    pub value: f64,
    pub unit: Unit,
    /// The document, or the reason for an assumption.
    pub source: String,
    /// Whether it is assumed: no document was found.
    #[serde(default)]
    pub assumed: bool,
    /// Smallest and largest plausible value: the spread of a measurement, or the range of its
    /// sources. [`Quantity::interval`] has the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

/// Default range factor of an assumed number.
pub const ASSUMED_WITHIN: f64 = 2.0;
/// Default range factor of a number with a source.
pub const SOURCED_WITHIN: f64 = 1.25;

fn bounds(value: f64, range: Option<[f64; 2]>, is_assumed: bool) -> Interval {
    match range {
        Some([low, high]) => Interval { low, mid: value, high },
        None if is_assumed => Interval::within(value, ASSUMED_WITHIN),
        None => Interval::within(value, SOURCED_WITHIN),
    }
}

impl Quantity {
    /// Returns the number with its bounds: its range, or a factor of [`ASSUMED_WITHIN`] or
    /// [`SOURCED_WITHIN`] in either direction.
    #[must_use]
    pub fn interval(&self) -> Interval {
        bounds(self.value, self.range, self.assumed)
    }
}

/// Bytes moved at a time: a power of two of at least 4 KiB, written `2M`.
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

/// A rate for sizes from `size` up to the next entry's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitRate {
    pub size: UnitBytes,
    /// 10^9 bytes per second: finite, above 0.
    pub gb_per_s: f64,
    pub source: String,
    #[serde(default)]
    pub assumed: bool,
    /// Like [`Quantity::range`], in GB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
}

/// Some CPUs write whole lines without fetching or caching them if an operation is longer than
/// their last-level cache (docs/behaviour J.2.1, K.2.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elision {
    /// Smallest operation that bypasses the cache.
    pub from: UnitBytes,
    pub source: String,
    #[serde(default)]
    pub assumed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CostKind {
    Time,
    Clock,
    Rate,
    Cpi,
    Share,
}

impl CostKind {
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

/// A machine's costs. `None` is unknown, and an estimate that needs it says so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Costs {
    /// Core clock while the traced programs run; converts cycles to time.
    pub clock: Option<Quantity>,
    /// Average cycles per instruction, without the time that other costs count. It estimates a
    /// program's run time if none was measured.
    pub cpi: Option<Quantity>,
    /// Mean time between two references of the program, which overlaps with readahead.
    pub reference: Option<Quantity>,
    /// Additional latency of a level-2 TLB hit over a level-1 hit.
    pub l2_hit: Option<Quantity>,
    /// A page-table walk, without the cache lines that it reads.
    pub walk: Option<Quantity>,
    /// A walk that ends at a PMD entry. If absent, `walk` applies.
    pub walk_pmd: Option<Quantity>,
    /// A page-table line that a walk finds in the L2 cache.
    pub walk_l2: Option<Quantity>,
    /// A page-table line that a walk finds in the last-level cache.
    pub walk_llc: Option<Quantity>,
    /// A page-table line that a walk reads from memory.
    pub walk_memory: Option<Quantity>,
    /// The program's waiting time for a walk that overlaps with others.
    pub walk_beside: Option<Quantity>,
    /// The same as a time, which hardly depends on the lines that the walk reads: the CPU's walkers
    /// are the limit. If present, `walk_beside` applies to level-2 hits only.
    pub walk_overlapped: Option<Quantity>,
    /// The program's waiting time for a single walk: other instructions hide the rest.
    pub walk_alone: Option<Quantity>,
    /// The program's waiting time for an instruction fetch's walk. It is longer than the walk if
    /// the CPU first walks for a mispredicted address.
    pub walk_fetch: Option<Quantity>,
    /// The program's waiting time for an instruction fetch that needs a walk, besides the walk. If
    /// absent, `walk_fetch` includes it.
    pub fetch_miss: Option<Quantity>,
    /// Page fault without clearing, copying or IO: entry, handler, return.
    pub fault: Option<Quantity>,
    /// Looking up the cached pages around a fault, regardless of their number. If absent, `fault`
    /// includes it.
    pub fault_around: Option<Quantity>,
    /// Allocation of a folio of any size. If absent, `fault` includes it.
    pub folio_alloc: Option<Quantity>,
    /// What a virtual machine's host adds to the first touch of a PMD folio whose memory it had
    /// taken back. If absent, no host takes memory back.
    pub host_backing: Option<Quantity>,
    /// A clean folio of a file that an allocation reclaims, without its pages. If absent, estimates
    /// omit the time that allocations spend on reclaim.
    pub reclaim_folio: Option<Quantity>,
    /// A page of such a folio.
    pub reclaim_page: Option<Quantity>,
    /// A page that reclaim examines and keeps.
    pub reclaim_scan: Option<Quantity>,
    /// A page that compaction examines. If absent, estimates omit the time that allocations spend
    /// on compaction, except for copying.
    pub compact_scan: Option<Quantity>,
    /// A page that compaction moves, without the copy.
    pub compact_move: Option<Quantity>,
    /// Setting PTEs of one folio together, regardless of their number. If absent, `map_entry`
    /// includes it.
    pub map_batch: Option<Quantity>,
    /// A PTE or PMD entry set by a fault.
    pub map_entry: Option<Quantity>,
    /// A PTE copied by fork; also a PMD entry if `fork_pmd` is absent.
    pub fork_entry: Option<Quantity>,
    /// Copying PTEs of one folio together, regardless of their number. If absent, `fork_entry`
    /// includes it.
    pub fork_batch: Option<Quantity>,
    /// `fork_batch` for a large folio. If absent, `fork_batch` applies.
    pub fork_large: Option<Quantity>,
    /// A PMD entry copied by fork.
    pub fork_pmd: Option<Quantity>,
    /// Unmapping PTEs of one folio together, regardless of their number; also a PMD entry if
    /// `unmap_pmd` is absent.
    pub unmap_batch: Option<Quantity>,
    /// `unmap_batch` for a large folio. If absent, `unmap_batch` applies.
    pub unmap_large: Option<Quantity>,
    /// Each PTE of such a batch.
    pub unmap_pte: Option<Quantity>,
    /// Unmapping a folio mapped by a PMD entry.
    pub unmap_pmd: Option<Quantity>,
    /// Freeing a folio of any size with its last entry. If absent, the unmapping costs include it;
    /// otherwise they must not.
    pub folio_free: Option<Quantity>,
    /// Each page of such a folio. If absent, the unmapping costs include it; otherwise they must
    /// not.
    pub page_free: Option<Quantity>,
    /// One atomic update of a mapcount: a page's, or a folio's in addition to its owner word. If
    /// absent, the entry and batch costs include it; otherwise they must not.
    pub page_mapcount: Option<Quantity>,
    /// One change of a large folio's owner word: lock, slots, large mapcount, unlock. If absent,
    /// the batch costs include it; otherwise they must not.
    pub owner_word: Option<Quantity>,
    /// A swap-in from zram: allocation and decompression of a page.
    pub swap_in: Option<Quantity>,
    /// A swap-out to zram: compression and write of a page.
    pub swap_out: Option<Quantity>,
    /// Rates of clearing uncached memory, by the size cleared at a time; sizes ascend.
    pub clear: Vec<UnitRate>,
    pub copy: Vec<UnitRate>,
    /// Smallest string operation that does not allocate cache lines.
    pub elision: Option<Elision>,
    pub storage_latency: Option<Quantity>,
    pub storage_rate: Option<Quantity>,
    /// Shortest time between the starts of two reads with many outstanding. If absent, only their
    /// transfers separate them.
    pub storage_interval: Option<Quantity>,
}

impl Costs {
    #[must_use]
    pub fn rates(&self) -> [(&'static str, &[UnitRate]); 2] {
        [("clear", &self.clear), ("copy", &self.copy)]
    }

    pub fn known(&self) -> impl Iterator<Item = (&'static str, &Quantity)> {
        self.quantities().into_iter().filter_map(|(name, _, known)| Some((name, known?)))
    }

    /// Fills in missing costs from `base`.
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

/// Lists the single costs with their kinds of unit. A missing cost does not compile.
macro_rules! quantities {
    ($($name:ident: $kind:ident,)*) => {
        const NR_QUANTITIES: usize = [$(stringify!($name)),*].len();

        impl Costs {
            /// Returns every single cost: its name in the file, its kind, and its value.
            pub(super) fn quantities(
                &self,
            ) -> [(&'static str, CostKind, Option<&Quantity>); NR_QUANTITIES] {
                let Self { $($name,)* clear: _, copy: _, elision: _ } = self;
                [$((stringify!($name), CostKind::$kind, $name.as_ref())),*]
            }

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
    walk_overlapped: Time,
    walk_alone: Share,
    walk_fetch: Share,
    fetch_miss: Time,
    fault: Time,
    fault_around: Time,
    folio_alloc: Time,
    host_backing: Time,
    reclaim_folio: Time,
    reclaim_page: Time,
    reclaim_scan: Time,
    compact_scan: Time,
    compact_move: Time,
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
