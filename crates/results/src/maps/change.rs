//! Compares two states: pairs their processes, and finds the difference of each pair.
//!
//! ```text
//!   pid and name      the same process, in the same boot
//!   name alone        one ended and one appeared: the second replaced the first, as at a restart
//!   neither           ended, or appeared
//! ```
//!
//! Owns the pairing. Invariant D1: each process of either state is in exactly one pair.

use std::collections::{BTreeMap, VecDeque};

use largefolio_linux::census::folios::Tally;
use serde::Serialize;

use super::state::{Mappings, ProcessState, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fate {
    Same,
    Replaced,
    Appeared,
    Ended,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pair<'a> {
    pub(super) old: Option<&'a ProcessState>,
    pub(super) new: Option<&'a ProcessState>,
}

impl<'a> Pair<'a> {
    pub(super) fn fate(&self) -> Fate {
        match (self.old, self.new) {
            (Some(old), Some(new)) if old.pid == new.pid => Fate::Same,
            (Some(_), Some(_)) => Fate::Replaced,
            (None, _) => Fate::Appeared,
            (_, None) => Fate::Ended,
        }
    }

    pub(super) fn process(&self) -> &'a ProcessState {
        match (self.new, self.old) {
            (Some(process), _) | (None, Some(process)) => process,
            (None, None) => unreachable!("D1: a pair is of at least one process"),
        }
    }

    pub(super) fn tallies(&self) -> (Tally, Tally) {
        let tally = |process: Option<&ProcessState>| process.map(|one| one.tally.clone());
        (tally(self.old).unwrap_or_default(), tally(self.new).unwrap_or_default())
    }

    pub(super) fn mappings(&self) -> Vec<(&'a (String, String), Tally, Tally)> {
        let of = |process: Option<&'a ProcessState>| process.map(|process| &process.mappings);
        changed(of(self.old), of(self.new))
    }
}

pub(super) fn changed<'a>(
    old: Option<&'a Mappings>,
    new: Option<&'a Mappings>,
) -> Vec<(&'a (String, String), Tally, Tally)> {
    let keys = old.into_iter().chain(new).flat_map(BTreeMap::keys);
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    let tally = |of: Option<&Mappings>, key| of.and_then(|of| of.get(key)).cloned();
    let both = keys
        .into_iter()
        .map(|key| (key, tally(old, key).unwrap_or_default(), tally(new, key).unwrap_or_default()));
    both.filter(|(_, old, new)| old != new).collect()
}

/// Pairs the processes of both states, in ascending order of the later pid; ended processes come
/// last.
pub(super) fn pairs<'a>(old: &'a State, new: &'a State) -> Vec<Pair<'a>> {
    let is_same_boot = old.boot_id.is_some() && old.boot_id == new.boot_id;
    let mut by_pid: BTreeMap<(u32, &str), &ProcessState> = BTreeMap::new();
    let mut by_name: BTreeMap<&str, VecDeque<&ProcessState>> = BTreeMap::new();
    for process in old.processes.iter().filter(|_| is_same_boot) {
        by_pid.insert((process.pid, &process.name), process);
    }
    let mut predecessors: Vec<Option<&ProcessState>> =
        new.processes.iter().map(|one| by_pid.remove(&(one.pid, &one.name))).collect();
    let left = old
        .processes
        .iter()
        .filter(|one| !is_same_boot || by_pid.contains_key(&(one.pid, &one.name)));
    for process in left {
        by_name.entry(&process.name).or_default().push_back(process);
    }
    for (process, predecessor) in new.processes.iter().zip(&mut predecessors) {
        if predecessor.is_none() {
            *predecessor = by_name.get_mut(&*process.name).and_then(VecDeque::pop_front);
        }
    }
    let both =
        new.processes.iter().zip(predecessors).map(|(new, old)| Pair { old, new: Some(new) });
    let ended = by_name.into_values().flatten().map(|old| Pair { old: Some(old), new: None });
    both.chain(ended).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use largefolio_linux::census::Access;
    use largefolio_linux::census::folios::{Cell, MemoryKind, Size};
    use largefolio_linux::geometry::Geometry;

    use super::*;

    /// Builds a state from processes with pid, name, and KiB in base pages and in 2M folios.
    pub(in super::super) fn state(boot: &str, processes: &[(u32, &str, u64, u64)]) -> State {
        let mut totals = Tally::default();
        let process = |&(pid, name, small, large): &(u32, &str, u64, u64)| {
            let mut tally = Tally::default();
            let cell = |kib: u64| Cell { aligned_bytes: kib << 10, ..Cell::default() };
            tally.add(MemoryKind::Anon, Size::Order(0), &cell(small));
            tally.add(
                MemoryKind::Anon,
                Size::Order(9),
                &Cell { pmd_bytes: large << 10, ..cell(large) },
            );
            let mappings = Mappings::from([(("[heap]".into(), "rw-p".into()), tally.clone())]);
            let group = format!("/system.slice/{name}.service");
            ProcessState { pid, name: name.to_owned(), group, tally, mappings }
        };
        let processes: Vec<ProcessState> = processes.iter().map(process).collect();
        for process in &processes {
            totals.add_all(&process.tally);
        }
        State {
            source: None,
            kernel: "6.18.1".to_owned(),
            boot_id: Some(boot.to_owned()),
            taken_unix_s: 0,
            geometry: Geometry::of(4096),
            access: Access::Full,
            nr_refused: 0,
            totals,
            processes,
            files: Mappings::new(),
        }
    }

    fn fates(old: &State, new: &State) -> Vec<(u32, Fate)> {
        pairs(old, new).iter().map(|pair| (pair.process().pid, pair.fate())).collect()
    }

    #[test]
    fn processes_are_paired_by_number_then_by_name() {
        let old = state("a", &[(1, "init", 4, 0), (5, "db", 4, 0), (6, "gone", 4, 0)]);
        let new = state("a", &[(1, "init", 4, 0), (5, "other", 4, 0), (9, "db", 4, 0)]);
        let expected =
            [(1, Fate::Same), (5, Fate::Appeared), (9, Fate::Replaced), (6, Fate::Ended)];
        assert_eq!(fates(&old, &new), expected);
    }

    #[test]
    fn numbers_mean_nothing_after_a_reboot() {
        let old = state("a", &[(4, "db", 4, 0), (5, "db", 4, 0)]);
        let new = state("b", &[(5, "db", 8, 0)]);
        let pairs = pairs(&old, &new);
        assert_eq!(pairs[0].old.map(|old| old.pid), Some(4));
        assert_eq!((pairs.len(), pairs[1].fate()), (2, Fate::Ended));
    }

    #[test]
    fn only_changed_mappings_are_reported() {
        let old = state("a", &[(1, "same", 4, 0), (2, "more", 4, 0)]);
        let new = state("a", &[(1, "same", 4, 0), (2, "more", 4, 2048)]);
        let changed: Vec<usize> =
            pairs(&old, &new).iter().map(|pair| pair.mappings().len()).collect();
        assert_eq!(changed, [0, 1]);
    }
}
