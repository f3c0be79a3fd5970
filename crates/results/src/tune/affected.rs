//! The running programs that a change for all programs would affect.
//!
//! A change takes effect for memory that is touched later. These are amounts of present memory:
//! memory in folios that new memory would no longer get, or memory in smaller folios, of which
//! new memory may take more.

use std::collections::BTreeMap;

use largefolio_linux::census::Census;
use largefolio_linux::census::folios::{MemoryKind, Size, Tally};
use largefolio_linux::tune::plan::{ChangeSet, TuneChange};
use largefolio_sim::size::parse_bytes;
use serde::Serialize;

const NR_PROGRAMS: usize = 5;
/// Programs with less than one 2M folio are left out.
const BYTES_MIN: u64 = 2 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Effect {
    /// New memory gets smaller folios.
    Loses,
    /// New memory gets larger folios, which take more memory if the program uses it sparsely.
    MayGrow,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Affected {
    pub(super) setting: String,
    pub(super) effect: Effect,
    /// Those with most such memory.
    pub(super) programs: Vec<Program>,
    pub(super) nr_more: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Program {
    pub(super) name: String,
    /// In folios that it loses, or in folios that grow.
    pub(super) bytes: u64,
}

/// Which memory a setting is about: one size, or all large ones.
struct Concern {
    kind: MemoryKind,
    order: Option<u32>,
}

/// Whether a plan has a change that affects programs, so that a census is worth its time.
#[must_use]
pub fn needs_census(plan: &ChangeSet) -> bool {
    plan.changes.iter().any(|change| direction(change).is_some())
}

pub(super) fn all(plan: &ChangeSet, census: &Census) -> Vec<Affected> {
    plan.changes.iter().filter_map(|change| of(change, census)).collect()
}

fn of(change: &TuneChange, census: &Census) -> Option<Affected> {
    let (effect, name) = (direction(change)?, change.name.strip_prefix("thp.")?);
    let concern = concern(name, census.geometry.page_bytes)?;
    let mut programs: BTreeMap<&str, u64> = BTreeMap::new();
    for process in &census.processes {
        *programs.entry(&process.name).or_default() += concern.bytes(effect, &process.tally);
    }
    let mut programs: Vec<Program> = programs
        .into_iter()
        .filter(|(_, bytes)| *bytes >= BYTES_MIN)
        .map(|(name, bytes)| Program { name: name.to_owned(), bytes })
        .collect();
    programs.sort_by_key(|program| std::cmp::Reverse(program.bytes));
    let nr_more = programs.len().saturating_sub(NR_PROGRAMS);
    programs.truncate(NR_PROGRAMS);
    (!programs.is_empty()).then(|| Affected {
        setting: change.name.clone(),
        effect,
        programs,
        nr_more,
    })
}

/// Returns whether a change of `thp.` allows less or more; `None` if it does neither.
fn direction(change: &TuneChange) -> Option<Effect> {
    concern(change.name.strip_prefix("thp.")?, 4096)?;
    let (now, then) = (allows(&change.now)?, allows(&change.planned)?);
    match then.cmp(&now) {
        std::cmp::Ordering::Less => Some(Effect::Loses),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(Effect::MayGrow),
    }
}

/// How much a word allows, compared with others. `inherit` follows the global setting, which is
/// usually `madvise`.
fn allows(word: &str) -> Option<u32> {
    Some(match word {
        "never" | "deny" => 0,
        "madvise" | "advise" | "inherit" => 1,
        "within_size" => 2,
        "always" => 3,
        "force" => 4,
        _ => return None,
    })
}

fn concern(name: &str, page_bytes: u64) -> Option<Concern> {
    let (kind, size) = match name {
        "enabled" => return Some(Concern { kind: MemoryKind::Anon, order: None }),
        "shmem_enabled" => return Some(Concern { kind: MemoryKind::Shmem, order: None }),
        _ => match name.strip_suffix(".shmem") {
            Some(size) => (MemoryKind::Shmem, size),
            None => (MemoryKind::Anon, name),
        },
    };
    let order = (parse_bytes(size)? / page_bytes).checked_ilog2()?;
    Some(Concern { kind, order: Some(order) })
}

impl Concern {
    fn bytes(&self, effect: Effect, tally: &Tally) -> u64 {
        let is_in = |size| match (effect, size, self.order) {
            (_, Size::Unknown, _) => effect == Effect::MayGrow,
            (Effect::Loses, Size::Order(order), Some(own)) => order == own,
            (Effect::Loses, Size::Order(order), None) => order > 0,
            (Effect::MayGrow, Size::Order(order), Some(own)) => order < own,
            (Effect::MayGrow, Size::Order(order), None) => order == 0,
        };
        tally.sum(|kind, size| kind == self.kind && is_in(size)).mapped_bytes()
    }
}

#[cfg(test)]
mod tests {
    use largefolio_linux::census::folios::Cell;
    use largefolio_linux::census::process::Process;
    use largefolio_linux::census::{Access, Held, Skipped};
    use largefolio_linux::geometry::Geometry;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn census(programs: &[(&str, u32, u64)]) -> Census {
        let process = |(pid, (name, order, mib)): (u32, &(&str, u32, u64))| {
            let mut tally = Tally::default();
            let cell = Cell { aligned_bytes: mib * MIB, ..Cell::default() };
            tally.add(MemoryKind::Anon, Size::Order(*order), &cell);
            let (name, held) = ((*name).to_owned(), Held::default());
            Process { pid, name, mappings: Vec::new(), tally, held, nr_bad_lines: 0 }
        };
        Census {
            geometry: Geometry::of(4096),
            access: Access::Full,
            totals: Tally::default(),
            processes: (1..).zip(programs).map(process).collect(),
            skipped: Skipped::default(),
            nr_beyond: 0,
        }
    }

    fn affected(name: &str, now: &str, planned: &str) -> Option<(Effect, Vec<(String, u64)>)> {
        let change = TuneChange {
            name: name.to_owned(),
            now: now.to_owned(),
            planned: planned.to_owned(),
            why: String::new(),
        };
        let census = census(&[("db", 9, 30), ("db", 9, 10), ("web", 0, 50), ("small", 4, 5)]);
        let one = of(&change, &census)?;
        let programs = one.programs.into_iter();
        Some((one.effect, programs.map(|one| (one.name, one.bytes / MIB)).collect()))
    }

    #[test]
    fn programs_lose_the_folios_that_they_have_or_may_grow() {
        let all = |list: &[(&str, u64)]| -> Vec<(String, u64)> {
            list.iter().map(|(name, mib)| ((*name).to_owned(), *mib)).collect()
        };
        let (loses, grows) = (Effect::Loses, Effect::MayGrow);
        for (name, now, planned, expected) in [
            ("thp.enabled", "always", "madvise", Some((loses, all(&[("db", 40), ("small", 5)])))),
            ("thp.2M", "inherit", "never", Some((loses, all(&[("db", 40)])))),
            ("thp.enabled", "madvise", "always", Some((grows, all(&[("web", 50)])))),
            ("thp.64K", "never", "always", Some((grows, all(&[("web", 50)])))),
            ("thp.2M", "madvise", "always", Some((grows, all(&[("web", 50), ("small", 5)])))),
            ("thp.shmem_enabled", "never", "always", None),
            ("thp.defrag", "madvise", "always", None),
            ("khugepaged.max_ptes_none", "511", "64", None),
            ("readahead.vda", "128", "512", None),
        ] {
            assert_eq!(affected(name, now, planned), expected, "{name} {now} -> {planned}");
        }
    }
}
