//! The running programs that a change for all programs would affect.
//!
//! A change takes effect for memory that is touched later. These are amounts of present memory:
//! memory in folios that new memory would no longer get, or memory in smaller folios, of which
//! new memory may take more.

use std::collections::{BTreeMap, BTreeSet};

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

/// Which memory a setting is about.
struct Concern {
    kind: MemoryKind,
    /// Empty: all large folios, on a kernel whose sizes have no settings.
    orders: BTreeSet<u32>,
}

/// The settings by name, now and after the plan.
struct Settings<'a> {
    now: &'a BTreeMap<String, String>,
    planned: BTreeMap<String, String>,
}

/// Whether a plan has a change that affects programs, so that a census is worth its time. `now` are
/// the current settings by name.
#[must_use]
pub fn needs_census(plan: &ChangeSet, now: &BTreeMap<String, String>) -> bool {
    let settings = Settings::of(plan, now);
    plan.changes.iter().any(|change| settings.direction(change).is_some())
}

pub(super) fn all(
    plan: &ChangeSet,
    now: &BTreeMap<String, String>,
    census: &Census,
) -> Vec<Affected> {
    let settings = Settings::of(plan, now);
    plan.changes.iter().filter_map(|change| of(change, &settings, census)).collect()
}

fn of(change: &TuneChange, settings: &Settings<'_>, census: &Census) -> Option<Affected> {
    let effect = settings.direction(change)?;
    let concern = settings.concern(&change.name, census.geometry.page_bytes)?;
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

impl<'a> Settings<'a> {
    fn of(plan: &ChangeSet, now: &'a BTreeMap<String, String>) -> Self {
        let mut planned = now.clone();
        planned.extend(plan.changes.iter().map(|one| (one.name.clone(), one.planned.clone())));
        Self { now, planned }
    }

    /// Returns whether a change of `thp.` allows less or more; `None` if it does neither.
    fn direction(&self, change: &TuneChange) -> Option<Effect> {
        self.concern(&change.name, 4096)?;
        let now = allows(effective(&change.name, &change.now, self.now)?)?;
        let then = allows(effective(&change.name, &change.planned, &self.planned)?)?;
        match then.cmp(&now) {
            std::cmp::Ordering::Less => Some(Effect::Loses),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Effect::MayGrow),
        }
    }

    /// Returns the memory that a setting is about: for a setting of all sizes, those that inherit.
    /// `None` if there is none.
    fn concern(&self, name: &str, page_bytes: u64) -> Option<Concern> {
        let order = |name: &str| (size_of(name)? / page_bytes).checked_ilog2();
        let kind = if has_shmem(name) { MemoryKind::Shmem } else { MemoryKind::Anon };
        if !is_global(name) {
            return Some(Concern { kind, orders: [order(name)?].into() });
        }
        let inherits = |one: &&String| {
            let is_same = has_shmem(one) == has_shmem(name);
            is_same && [self.now, &self.planned].iter().all(|all| all[*one] == INHERIT)
        };
        let mut sizes = self.now.keys().filter(|one| size_of(one).is_some()).peekable();
        let has_sizes = sizes.peek().is_some();
        let orders: BTreeSet<u32> = sizes.filter(inherits).filter_map(|one| order(one)).collect();
        (!has_sizes || !orders.is_empty()).then_some(Concern { kind, orders })
    }
}

const INHERIT: &str = "inherit";

fn is_global(name: &str) -> bool {
    ["thp.enabled", "thp.shmem_enabled"].contains(&name)
}

fn has_shmem(name: &str) -> bool {
    name == "thp.shmem_enabled" || name.strip_suffix(".shmem").is_some()
}

/// Returns the folio size that a setting such as `thp.64K.shmem` is about.
fn size_of(name: &str) -> Option<u64> {
    let size = name.strip_prefix("thp.")?;
    parse_bytes(size.strip_suffix(".shmem").unwrap_or(size))
}

/// Returns `value`, or the one that it inherits; `None` if that is unknown.
fn effective<'a>(name: &str, value: &'a str, all: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let global = if has_shmem(name) { "thp.shmem_enabled" } else { "thp.enabled" };
    if value == INHERIT { all.get(global).map(String::as_str) } else { Some(value) }
}

/// How much a word allows, compared with others.
fn allows(word: &str) -> Option<u32> {
    Some(match word {
        "never" | "deny" => 0,
        "madvise" | "advise" => 1,
        "within_size" => 2,
        "always" => 3,
        "force" => 4,
        _ => return None,
    })
}

impl Concern {
    fn bytes(&self, effect: Effect, tally: &Tally) -> u64 {
        let is_own = |order| {
            if self.orders.is_empty() { order > 0 } else { self.orders.contains(&order) }
        };
        // New memory gets folios up to the largest of these.
        let is_smaller = |order| self.orders.last().map_or(order == 0, |largest| order < *largest);
        let is_in = |size| match (effect, size) {
            (_, Size::Unknown) => effect == Effect::MayGrow,
            (Effect::Loses, Size::Order(order)) => is_own(order),
            (Effect::MayGrow, Size::Order(order)) => is_smaller(order),
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

    type Found = Option<(Effect, Vec<(String, u64)>)>;

    /// `settings` are current values without `thp.`.
    fn affected(settings: &[(&str, &str)], (name, now, planned): (&str, &str, &str)) -> Found {
        let settings = settings.iter();
        let mut settings: BTreeMap<String, String> =
            settings.map(|(name, value)| (format!("thp.{name}"), (*value).to_owned())).collect();
        settings.insert(name.to_owned(), now.to_owned());
        let change = TuneChange {
            name: name.to_owned(),
            now: now.to_owned(),
            planned: planned.to_owned(),
            why: String::new(),
        };
        let census = census(&[("db", 9, 30), ("db", 9, 10), ("web", 0, 50), ("small", 4, 5)]);
        let plan = ChangeSet { changes: vec![change], ..ChangeSet::default() };
        let one = all(&plan, &settings, &census).pop()?;
        assert!(needs_census(&plan, &settings));
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
            let settings: &[(&str, &str)] =
                if name == "thp.2M" { &[("enabled", "always")] } else { &[] };
            let found = affected(settings, (name, now, planned));
            assert_eq!(found, expected, "{name} {now} -> {planned}");
        }
    }

    #[test]
    fn inherited_values_are_resolved() {
        let names = |settings: &[(&str, &str)], change| {
            let (effect, programs) = affected(settings, change)?;
            let names = programs.into_iter().map(|(name, _)| name);
            Some((effect, names.collect::<Vec<_>>().join(" ")))
        };
        let loses = |names: &str| Some((Effect::Loses, names.to_owned()));
        let grows = |names: &str| Some((Effect::MayGrow, names.to_owned()));
        let to_madvise = ("thp.2M", "inherit", "madvise");
        assert_eq!(names(&[("enabled", "always")], to_madvise), loses("db"));
        assert_eq!(names(&[("enabled", "madvise")], to_madvise), None);
        assert_eq!(names(&[("enabled", "never")], to_madvise), grows("web small"));
        // Only sizes that inherit change with the setting of all.
        let own = [("2M", "never"), ("64K", "inherit"), ("2M.shmem", "inherit")];
        assert_eq!(names(&own, ("thp.enabled", "always", "never")), loses("small"));
        assert_eq!(names(&own, ("thp.enabled", "never", "always")), grows("web"));
        assert_eq!(names(&[("2M", "never")], ("thp.enabled", "always", "never")), None);
    }
}
