//! Hardware events for each quantity, by CPU family. `events.toml` is the data.

use std::sync::LazyLock;

use largefolio_trace::HardwareCounters;
use serde::Deserialize;

use crate::proc::Processor;
use crate::system::System;

const TABLE: &str = include_str!("events.toml");
/// `PERF_TYPE_RAW`.
const RAW: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Counts {
    Cycles,
    Instructions,
    DataMisses,
    InstructionMisses,
    WalkCycles,
}

impl Counts {
    pub(super) const ALL: [Self; 5] = [
        Self::Cycles,
        Self::Instructions,
        Self::DataMisses,
        Self::InstructionMisses,
        Self::WalkCycles,
    ];

    pub(super) const fn of(self, counters: &mut HardwareCounters) -> &mut Option<u64> {
        match self {
            Self::Cycles => &mut counters.cycles,
            Self::Instructions => &mut counters.instructions,
            Self::DataMisses => &mut counters.dtlb_misses,
            Self::InstructionMisses => &mut counters.itlb_misses,
            Self::WalkCycles => &mut counters.walk_cycles,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Event {
    /// As `perf list` spells it, in lower case.
    pub(super) name: String,
    #[serde(default)]
    pub(super) also: Vec<String>,
    #[serde(default = "raw")]
    pub(super) kind: u32,
    pub(super) config: u64,
    pub(super) counts: Counts,
}

const fn raw() -> u32 {
    RAW
}

impl Event {
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.also.iter().any(|other| other == name)
    }

    pub(super) const fn is_raw(&self) -> bool {
        self.kind == RAW
    }
}

/// CPUs with the same events. A missing field holds for all.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Family {
    #[expect(dead_code, reason = "for readers of the file")]
    name: String,
    #[expect(dead_code, reason = "for readers of the file")]
    source: String,
    vendor: Option<String>,
    #[serde(default)]
    families: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
    arch: Option<String>,
    pub(super) events: Vec<Event>,
}

impl Family {
    fn has(&self, id: &[String], arch: &str) -> bool {
        let part = |nr: usize| id.get(nr).map_or("", String::as_str);
        let one_of =
            |all: &[String], nr: usize| all.is_empty() || all.iter().any(|one| one == part(nr));
        self.vendor.as_ref().is_none_or(|vendor| vendor == part(0))
            && one_of(&self.families, 1)
            && one_of(&self.models, 2)
            && self.arch.as_ref().is_none_or(|one| one == arch)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    pub(super) generic: Vec<Event>,
    pub(super) families: Vec<Family>,
}

pub(super) static EVENTS: LazyLock<Table> = LazyLock::new(|| {
    toml::from_str(TABLE).unwrap_or_else(|error| unreachable!("events.toml: {error}"))
});

impl Table {
    /// Returns the events of this machine's CPU; none if it is not listed.
    pub(super) fn here(&self, system: &dyn System) -> &[Event] {
        self.of(&Processor::of(system).id, std::env::consts::ARCH)
    }

    fn of(&self, id: &[String], arch: &str) -> &[Event] {
        let family = self.families.iter().find(|family| family.has(id, arch));
        family.map_or(&[], |family| &family.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_has_the_events_of_its_family() {
        let of = |id: &[&str], arch| {
            let id: Vec<String> = id.iter().map(|&part| part.to_owned()).collect();
            EVENTS.of(&id, arch).first().map(|event| (event.name.as_str(), event.config))
        };
        let skylake = Some(("dtlb_load_misses.walk_completed", 0x0e08));
        assert_eq!(of(&["GenuineIntel", "6", "85"], "x86_64"), skylake);
        let sapphire = Some(("dtlb_load_misses.walk_completed", 0x0e12));
        assert_eq!(of(&["GenuineIntel", "6", "143"], "x86_64"), sapphire);
        assert_eq!(of(&["GenuineIntel", "6", "45"], "x86_64"), None);
        let zen = Some(("ls_l1_d_tlb_miss.all_l2_miss", 0xf045));
        assert_eq!(of(&["AuthenticAMD", "26", "2"], "x86_64"), zen);
        assert_eq!(of(&["0x41", "0xd4f"], "aarch64"), Some(("dtlb_walk", 0x34)));
        assert_eq!(of(&[], "x86_64"), None);
    }

    #[test]
    fn names_are_in_lower_case_and_every_family_counts_both_kinds_of_misses() {
        for family in &EVENTS.families {
            for counts in [Counts::DataMisses, Counts::InstructionMisses] {
                assert!(family.events.iter().any(|event| event.counts == counts), "{family:?}");
            }
        }
        let all = EVENTS.families.iter().flat_map(|family| &family.events).chain(&EVENTS.generic);
        for event in all {
            assert_eq!(event.name, event.name.to_lowercase());
        }
    }
}
