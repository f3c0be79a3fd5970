//! The TLB part of a machine file, and its checks.

use std::fmt;

use largefolio_mm::units::{Order, PageSize};
use serde::{Deserialize, Serialize};

use super::access::Side;
use super::coalesce::{Aggregation, Coalescing, CoalescingMode};
use super::sizes::EntrySizes;
use super::spaces::NR_SPACES_MAX;
use super::walk_cache::{MAX_WALK_ENTRIES, WalkCacheConfig};
use super::walker::WalkerConfig;
use super::ways::Ways;

/// About 20 times the largest TLB in production (Zen 5: 4,096). Bounds a machine file's memory.
pub const MAX_ENTRIES: u32 = 1 << 16;

pub const MAX_STRUCTURES: usize = 8;

/// Lines of the host's table with the entries of 1,000 base pages.
const HOST_LINES: std::ops::RangeInclusive<u32> = 1..=1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StructureConfig {
    pub name: String,
    pub entries: u32,
    pub ways: Ways,
    pub sizes: EntrySizes,
    /// The document with these numbers, or the reason for an assumption.
    pub source: String,
    #[serde(default)]
    pub assumed: bool,
}

impl StructureConfig {
    #[must_use]
    pub const fn nr_ways(&self) -> u32 {
        self.ways.of(self.entries)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoalescingConfig {
    pub modes: Vec<CoalescingMode>,
    pub source: String,
    #[serde(default)]
    pub assumed: bool,
}

/// How many address spaces keep their TLB entries on a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddressSpaces {
    /// `1..=NR_SPACES_MAX`; 1 = every switch flushes.
    pub nr: u32,
    pub source: String,
    #[serde(default)]
    pub assumed: bool,
}

impl Default for AddressSpaces {
    fn default() -> Self {
        let source = "not in the machine file: every switch flushes".to_owned();
        Self { nr: 1, source, assumed: true }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbConfig {
    pub l1_instruction: Vec<StructureConfig>,
    pub l1_data: Vec<StructureConfig>,
    /// Level 2 shared by both sides. No level 2 exists if all three are empty.
    #[serde(default)]
    pub l2: Vec<StructureConfig>,
    #[serde(default)]
    pub l2_instruction: Vec<StructureConfig>,
    #[serde(default)]
    pub l2_data: Vec<StructureConfig>,
    #[serde(default)]
    pub walk_cache: Vec<WalkCacheConfig>,
    #[serde(default)]
    pub walker: WalkerConfig,
    pub coalescing: CoalescingConfig,
    #[serde(default)]
    pub address_spaces: AddressSpaces,
}

impl TlbConfig {
    #[must_use]
    pub fn coalescing(&self) -> Coalescing {
        let mut coalescing = Coalescing::default();
        for mode in &self.coalescing.modes {
            match mode {
                CoalescingMode::Contpte => coalescing.has_contpte = true,
                CoalescingMode::Hpa => coalescing.aggregation = Aggregation::Hpa,
                CoalescingMode::Zen => coalescing.aggregation = Aggregation::Zen,
                CoalescingMode::Zen32K => coalescing.aggregation = Aggregation::Zen32K,
            }
        }
        coalescing
    }

    /// Returns the order of a host's page, if this is a virtual machine.
    pub(super) fn host_order(&self, page: PageSize) -> Option<Order> {
        let host = self.walker.is_virtual.then_some(self.walker.host_page)?;
        // A host with smaller pages than the machine's: entries cover a part of a page.
        Some(host.order(page).unwrap_or(Order::ZERO))
    }

    /// Rejects impossible TLBs.
    ///
    /// # Errors
    /// The first contradiction. Levels are checked in the file's order.
    pub fn check(&self, pages: &[PageSize]) -> Result<(), ConfigError> {
        for (level, structures) in self.levels() {
            if structures.len() > MAX_STRUCTURES {
                return Err(ConfigError::TooManyStructures { level, nr: structures.len() });
            }
            for (nr, structure) in structures.iter().enumerate() {
                check_structure(structure, &Place { level, nr, name: &structure.name })?;
            }
        }
        self.check_walk_caches()?;
        self.check_walker()?;
        self.check_address_spaces()?;
        let is_split = !(self.l2_instruction.is_empty() && self.l2_data.is_empty());
        if is_split && !self.l2.is_empty() {
            return Err(ConfigError::SharedAndSplit);
        }
        self.check_coalescing(pages)?;
        pages.iter().try_for_each(|&page| self.check_page(page))
    }

    fn levels(&self) -> [(&'static str, &[StructureConfig]); 5] {
        [
            ("l1_instruction", &self.l1_instruction),
            ("l1_data", &self.l1_data),
            ("l2", &self.l2),
            ("l2_instruction", &self.l2_instruction),
            ("l2_data", &self.l2_data),
        ]
    }

    fn check_walk_caches(&self) -> Result<(), ConfigError> {
        for (nr, cache) in self.walk_cache.iter().enumerate() {
            let place = Place { level: "walk_cache", nr, name: &cache.name };
            let shape = Shape {
                entries: cache.entries,
                entries_max: MAX_WALK_ENTRIES,
                ways: cache.nr_ways(),
                source: &cache.source,
            };
            shape.check(&place)?;
            if self.walk_cache[..nr].iter().any(|other| other.level == cache.level) {
                return Err(ConfigError::WalkCacheTwice { place: place.to_string() });
            }
        }
        Ok(())
    }

    fn check_walker(&self) -> Result<(), ConfigError> {
        let WalkerConfig { l2, llc, source, host_lines, .. } = &self.walker;
        if source.trim().is_empty() {
            return Err(ConfigError::NoSource { place: "tlb.walker".to_owned() });
        }
        if l2.0 > llc.0 {
            return Err(ConfigError::CachesTurned { l2: (*l2).into(), llc: (*llc).into() });
        }
        if host_lines.is_some_and(|host_lines| !HOST_LINES.contains(&host_lines)) {
            return Err(ConfigError::HostLines { nr: host_lines.unwrap_or(0) });
        }
        Ok(())
    }

    fn check_address_spaces(&self) -> Result<(), ConfigError> {
        let AddressSpaces { nr, source, .. } = &self.address_spaces;
        if source.trim().is_empty() {
            return Err(ConfigError::NoSource { place: "tlb.address_spaces".to_owned() });
        }
        if *nr == 0 || *nr > NR_SPACES_MAX {
            return Err(ConfigError::AddressSpaces { nr: *nr });
        }
        Ok(())
    }

    fn check_page(&self, page: PageSize) -> Result<(), ConfigError> {
        let l1 = [(Side::Instruction, &self.l1_instruction), (Side::Data, &self.l1_data)];
        for (side, structures) in l1 {
            if !structures.iter().any(|structure| structure.sizes.orders(page) & 1 == 1) {
                return Err(ConfigError::PageNotHeld { side, page });
            }
        }
        Ok(())
    }

    fn check_coalescing(&self, pages: &[PageSize]) -> Result<(), ConfigError> {
        use CoalescingMode::{Contpte, Zen, Zen32K};
        let modes = &self.coalescing.modes;
        if self.coalescing.source.trim().is_empty() {
            return Err(ConfigError::NoSource { place: "tlb.coalescing".to_owned() });
        }
        if modes.iter().filter(|mode| **mode != Contpte).count() > 1 {
            return Err(ConfigError::TwoAggregations);
        }
        if modes.iter().filter(|mode| **mode == Contpte).count() > 1 {
            return Err(ConfigError::ContpteTwice);
        }
        let has_zen = modes.iter().any(|mode| matches!(mode, Zen | Zen32K));
        match pages.iter().find(|page| **page != PageSize::K4) {
            Some(&page) if has_zen => Err(ConfigError::ZenPage { page }),
            _ => Ok(()),
        }
    }
}

struct Place<'a> {
    level: &'a str,
    nr: usize,
    name: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tlb.{}[{}] \"{}\"", self.level, self.nr, self.name)
    }
}

fn check_structure(structure: &StructureConfig, place: &Place<'_>) -> Result<(), ConfigError> {
    let shape = Shape {
        entries: structure.entries,
        entries_max: MAX_ENTRIES,
        ways: structure.nr_ways(),
        source: &structure.source,
    };
    shape.check(place)?;
    match &structure.sizes {
        EntrySizes::Listed(sizes) if sizes.is_empty() => {
            Err(ConfigError::NoSizes { place: place.to_string() })
        }
        _ => Ok(()),
    }
}

struct Shape<'a> {
    entries: u32,
    entries_max: u32,
    ways: u32,
    source: &'a str,
}

impl Shape<'_> {
    fn check(&self, place: &Place<'_>) -> Result<(), ConfigError> {
        let &Self { entries, entries_max, ways, source } = self;
        let place = || place.to_string();
        if entries == 0 {
            return Err(ConfigError::NoEntries { place: place() });
        }
        if entries > entries_max {
            return Err(ConfigError::TooManyEntries { place: place(), entries, entries_max });
        }
        if ways == 0 {
            return Err(ConfigError::NoWays { place: place() });
        }
        if ways > entries {
            return Err(ConfigError::MoreWaysThanEntries { place: place(), entries, ways });
        }
        if entries % ways != 0 {
            return Err(ConfigError::UnevenSets { place: place(), entries, ways });
        }
        if source.trim().is_empty() {
            return Err(ConfigError::NoSource { place: place() });
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{place}: it has 0 entries; omit the structure if the machine has none")]
    NoEntries { place: String },
    #[error("{place}: {entries} entries are more than the supported {entries_max}")]
    TooManyEntries { place: String, entries: u32, entries_max: u32 },
    #[error("{place}: it has 0 ways; write 1 for direct mapped or \"full\" for fully associative")]
    NoWays { place: String },
    #[error("{place}: {ways} ways are more than its {entries} entries; use \"full\" or fewer ways")]
    MoreWaysThanEntries { place: String, entries: u32, ways: u32 },
    #[error(
        "{place}: {entries} entries do not divide into whole sets of {ways} ways ({} left over)",
        entries % ways
    )]
    UnevenSets { place: String, entries: u32, ways: u32 },
    #[error("{place}: sizes is empty; list some, such as [\"4K\", \"2M\"], or write \"any\"")]
    NoSizes { place: String },
    #[error(
        "{place}: the source is missing; name the document, or set assumed = true and give \
             the reason"
    )]
    NoSource { place: String },
    #[error("tlb.{level}: {nr} structures are more than the supported {MAX_STRUCTURES}")]
    TooManyStructures { level: &'static str, nr: usize },
    #[error("{place}: another cache already holds this level's entries; give one cache per level")]
    WalkCacheTwice { place: String },
    #[error("tlb.walker: l2 = \"{l2}\" is larger than llc = \"{llc}\"")]
    CachesTurned { l2: String, llc: String },
    #[error("tlb.walker: host_lines = {nr}; the entries of 1,000 pages are in 1 to 1,000 lines")]
    HostLines { nr: u32 },
    #[error(
        "tlb.address_spaces: nr = {nr}; a CPU keeps the entries of 1 to {NR_SPACES_MAX} address \
         spaces (1: every switch flushes)"
    )]
    AddressSpaces { nr: u32 },
    #[error("tlb: l2 is shared by both sides; give either l2 or l2_instruction and l2_data")]
    SharedAndSplit,
    #[error(
        "tlb: no level-1 {side} structure holds {page} pages; add the size to one, or remove \
         {page} from page_sizes"
    )]
    PageNotHeld { side: Side, page: PageSize },
    #[error("tlb.coalescing: give at most one of \"hpa\", \"zen\" and \"zen-32K\"")]
    TwoAggregations,
    #[error("tlb.coalescing: \"contpte\" is listed twice")]
    ContpteTwice,
    #[error("tlb.coalescing: \"zen\" merges 4K pages, but page_sizes has {page}")]
    ZenPage { page: PageSize },
}

impl ConfigError {
    /// Returns the key of the contradictory value in a machine file, such as `tlb.l2[0].ways`.
    #[must_use]
    pub fn path(&self) -> String {
        let key = |place: &str, key: &str| {
            let structure = place.split(' ').next().unwrap_or_default();
            format!("{structure}.{key}")
        };
        match self {
            Self::NoEntries { place } | Self::TooManyEntries { place, .. } => key(place, "entries"),
            Self::NoWays { place }
            | Self::MoreWaysThanEntries { place, .. }
            | Self::UnevenSets { place, .. } => key(place, "ways"),
            Self::NoSizes { place } => key(place, "sizes"),
            Self::NoSource { place } => key(place, "source"),
            Self::WalkCacheTwice { place } => key(place, "level"),
            Self::TooManyStructures { level, .. } => format!("tlb.{level}"),
            Self::CachesTurned { .. } => "tlb.walker.l2".to_owned(),
            Self::HostLines { .. } => "tlb.walker.host_lines".to_owned(),
            Self::AddressSpaces { .. } => "tlb.address_spaces.nr".to_owned(),
            Self::SharedAndSplit => "tlb.l2".to_owned(),
            Self::PageNotHeld { side, .. } => format!("tlb.l1_{side}[0].sizes"),
            Self::TwoAggregations | Self::ContpteTwice | Self::ZenPage { .. } => {
                "tlb.coalescing.modes".to_owned()
            }
        }
    }
}
