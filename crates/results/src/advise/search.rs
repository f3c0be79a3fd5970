//! Tries choices in the model: each by itself, then combinations of those that help.
//!
//! ```text
//!   pass 1   the current system, and each choice alone
//!   pass 2   the best effective choices of each lever, in every combination
//! ```
//!
//! Invariants:
//! - S1: candidate 0 is the current system.
//! - S2: no candidate has two choices for one lever.

use std::ops::ControlFlow;

use crate::predict::Goal;
use largefolio_sim::cost::{Anchor, Walks};
use largefolio_sim::fit;
use largefolio_sim::interval::Interval;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{
    CacheState, CellSpec, Cgroup, Fitting, Outcome, RowsDone, Sharing, replay_fitting,
};
use largefolio_trace::OpenTrace;
use serde::Serialize;

use super::choice::Choice;
use crate::Error;

const NR_BEST: usize = 3;

#[derive(Clone, Debug, Serialize)]
pub struct Candidate {
    /// Indexes of the choices; empty: the current system.
    pub choices: Vec<usize>,
    /// Change of the run time in percent; `None` if a cost is not known.
    pub time: Option<Interval>,
    /// Private memory at its peak plus the page cache then, or at the end if it is larger then.
    pub memory_bytes: u64,
    pub memory_percent: f64,
    pub faults: u64,
    /// Whether the program runs to its end within the memory limit; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fits: Option<bool>,
    /// Whether no other candidate is at least as good in time (or faults, if they are the goal) and
    /// in memory, and better in one.
    pub is_frontier: bool,
}

impl Candidate {
    /// Returns the value that memory is traded for: change of the run time, or faults.
    #[expect(clippy::cast_precision_loss, reason = "faults are compared")]
    pub(super) fn paid_for(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Time | Goal::Memory => self.time.map_or(f64::INFINITY, |time| time.mid),
            Goal::Faults => self.faults as f64,
        }
    }
}

pub(super) struct Search<'a> {
    pub(super) trace: &'a OpenTrace,
    pub(super) kernel: &'a Kernel,
    pub(super) machine: &'a Machine,
    pub(super) walks: Walks,
    pub(super) anchor: Option<&'a Anchor>,
    pub(super) cache: CacheState,
    pub(super) memory_bytes: u64,
    pub(super) limit_bytes: Option<u64>,
    pub(super) may_end: bool,
    pub(super) choices: &'a [Choice],
    pub(super) texts: &'a [String],
}

pub(super) struct SearchResult {
    pub(super) candidates: Vec<Candidate>,
    pub(super) unchanged: Outcome,
    pub(super) is_cut: bool,
}

pub(super) type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

impl Search<'_> {
    pub(super) fn run(
        &self,
        goal: Goal,
        progress: &mut Progress<'_>,
    ) -> Result<SearchResult, Error> {
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        sets.extend((0..self.choices.len()).map(|one| vec![one]));
        let mut done = RowsDone::default();
        let mut nr_all = 0;
        let first = self.replay(&sets, &mut done, &mut nr_all, progress)?;
        let (has_plain_no_room, mut is_cut) = (first.unfit.contains(&0), first.is_cut());
        let mut outcomes = outcomes_by_set(&sets, first);
        // S1: without the current system, nothing can be compared.
        let Some((_, plain)) = outcomes.first().filter(|(set, _)| set.is_empty()).cloned() else {
            let why = if has_plain_no_room {
                "the program does not fit in the memory given by --memory; allow more"
            } else {
                "--within ended the search before the program was replayed unchanged; allow more time"
            };
            return Err(Error::request(why.to_owned()));
        };
        let more = self.combinations(&outcomes, goal);
        if !more.is_empty() && !is_cut {
            let second = self.replay(&more, &mut done, &mut nr_all, progress)?;
            is_cut = second.is_cut();
            outcomes.extend(outcomes_by_set(&more, second));
        }
        let fits = match self.limit_bytes {
            Some(limit) if !is_cut => {
                let fitting = self.within((limit, &outcomes), &mut done, &mut nr_all, progress)?;
                is_cut = fitting.is_none();
                fitting
            }
            _ => None,
        };
        let all = outcomes.into_iter().enumerate();
        let mut candidates: Vec<Candidate> = all
            .map(|(nr, (choices, row))| Candidate {
                fits: fits.as_ref().map(|fits| fits[nr]),
                ..candidate(choices, &row, &plain)
            })
            .collect();
        mark_frontier(&mut candidates, goal);
        Ok(SearchResult { candidates, unchanged: plain, is_cut })
    }

    /// Returns which candidates run to their end within the limit; `None` if time ran out first.
    fn within(
        &self,
        (limit, outcomes): (u64, &[(Vec<usize>, Outcome)]),
        done: &mut RowsDone,
        nr_all: &mut u64,
        progress: &mut Progress<'_>,
    ) -> Result<Option<Vec<bool>>, Error> {
        let mut specs = Vec::new();
        for (set, row) in outcomes {
            let bytes = limit.saturating_sub(fit::kernel_bytes(row)).max(row.page_bytes);
            specs.push(CellSpec { cgroups: vec![Cgroup::for_all(bytes)], ..self.spec(set)? });
        }
        let found = self.replay_specs(&specs, done, nr_all, progress)?;
        if found.is_cut() {
            return Ok(None);
        }
        Ok(Some((0..specs.len()).map(|nr| !found.unfit.contains(&nr)).collect()))
    }

    fn replay(
        &self,
        sets: &[Vec<usize>],
        done: &mut RowsDone,
        nr_all: &mut u64,
        progress: &mut Progress<'_>,
    ) -> Result<Fitting, Error> {
        let specs = sets.iter().map(|set| self.spec(set)).collect::<Result<Vec<_>, _>>()?;
        self.replay_specs(&specs, done, nr_all, progress)
    }

    fn replay_specs(
        &self,
        specs: &[CellSpec],
        done: &mut RowsDone,
        nr_all: &mut u64,
        progress: &mut Progress<'_>,
    ) -> Result<Fitting, Error> {
        let sharing = if self.may_end { Sharing::Few } else { Sharing::All };
        *nr_all = nr_all.saturating_add(sharing.nr_rows(self.trace, specs));
        let mut on_progress = |nr_done| progress(nr_done, *nr_all);
        Ok(replay_fitting(self.trace, specs, sharing, done, &mut on_progress)?)
    }

    fn spec(&self, set: &[usize]) -> Result<CellSpec, Error> {
        let mut name = self.kernel.name.clone();
        let mut annotations = Vec::new();
        for choice in set.iter().map(|&one| &self.choices[one]) {
            if !choice.edits.is_empty() {
                name = format!("{name}+{}", choice.edits);
            }
            if let Some(size) = &choice.annotate {
                let bytes = match size.as_str() {
                    "pmd" => self.machine.page_size.bytes() * (self.machine.page_size.bytes() / 8),
                    size => largefolio_sim::size::parse_bytes(size).unwrap_or_default(),
                };
                for file in self.texts {
                    let text = format!("{file}={}K", bytes >> 10);
                    let annotation = text.parse();
                    annotations
                        .push(annotation.map_err(|error| Error::request(format!("{error}")))?);
                }
            }
        }
        let kernel = Kernel::parse(&name)?;
        Ok(CellSpec {
            annotations,
            cache: self.cache,
            walks: self.walks,
            anchor: self.anchor.cloned(),
            ram_bytes: self.memory_bytes,
            ..CellSpec::new(kernel, self.machine.clone())
        })
    }

    fn combinations(&self, outcomes: &[(Vec<usize>, Outcome)], goal: Goal) -> Vec<Vec<usize>> {
        let Some(((_, plain), alone)) = outcomes.split_first() else { return Vec::new() };
        let mut levers: Vec<(&str, Vec<(usize, f64)>)> = Vec::new();
        for (set, row) in alone {
            let one = set[0];
            let differs =
                |goal: Goal| goal.change(row, plain).is_some_and(|change| change.mid != 0.0);
            if !differs(Goal::Time) && !differs(Goal::Memory) {
                continue;
            }
            let lever = self.choices[one].lever.as_str();
            let mid = goal.change(row, plain).map_or(f64::INFINITY, |change| change.mid);
            match levers.iter_mut().find(|(name, _)| *name == lever) {
                Some((_, choices)) => choices.push((one, mid)),
                None => levers.push((lever, vec![(one, mid)])),
            }
        }
        let mut combined: Vec<Vec<usize>> = vec![Vec::new()];
        for (_, mut choices) in levers {
            choices.sort_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
            choices.truncate(NR_BEST);
            let with = |set: &Vec<usize>, one: usize| set.iter().copied().chain([one]).collect();
            let more: Vec<Vec<usize>> = combined
                .iter()
                .flat_map(|set| choices.iter().map(move |(one, _)| with(set, *one)))
                .collect();
            combined.extend(more);
        }
        combined.retain(|set| set.len() > 1);
        combined
    }
}

fn outcomes_by_set(sets: &[Vec<usize>], outcomes: Fitting) -> Vec<(Vec<usize>, Outcome)> {
    let outcomes = outcomes.outcomes.into_iter();
    outcomes.map(|(nr, outcome)| (sets[nr].clone(), outcome)).collect()
}

fn candidate(choices: Vec<usize>, row: &Outcome, plain: &Outcome) -> Candidate {
    let memory = Goal::Memory.change(row, plain).map_or(0.0, |change| change.mid);
    Candidate {
        time: Goal::Time.change(row, plain),
        memory_bytes: crate::predict::memory_bytes(row),
        memory_percent: memory,
        faults: row.faults.total,
        fits: None,
        is_frontier: false,
        choices,
    }
}

/// Marks the candidates that none dominates. Among equals, only the first, which has the fewest
/// choices.
fn mark_frontier(candidates: &mut [Candidate], goal: Goal) {
    let points: Vec<(f64, u64)> =
        candidates.iter().map(|one| (one.paid_for(goal), one.memory_bytes)).collect();
    for (nr, one) in candidates.iter_mut().enumerate() {
        let (cost, memory) = points[nr];
        let dominates = |(other, point): (usize, &(f64, u64))| {
            let is_as_good = point.0 <= cost && point.1 <= memory;
            is_as_good && (*point != (cost, memory) || other < nr) && other != nr
        };
        one.is_frontier = !points.iter().enumerate().any(dominates);
    }
}

#[cfg(test)]
mod tests {
    use largefolio_trace::event::abi::{MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
    use largefolio_trace::event::mmap_flags;
    use largefolio_trace::{Event, Meta, Op, Writer};

    use super::*;

    fn at(choices: &[usize], time: f64, memory_bytes: u64) -> Candidate {
        Candidate {
            choices: choices.to_vec(),
            time: Some(Interval::exact(time)),
            memory_bytes,
            memory_percent: 0.0,
            faults: 0,
            fits: None,
            is_frontier: false,
        }
    }

    /// A program that stores to one page in each of 64 MiB.
    fn sparse() -> OpenTrace {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse.folio");
        let (base, len) = (1 << 30, 64 << 20);
        let meta = Meta { page_bytes: 4096, ..Meta::default() };
        let mut writer = Writer::create(&path, meta).unwrap();
        let flags = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        let map = Event { addr: base, len, flags, ..Event::new(0, Op::Mmap) };
        writer.push(map).unwrap();
        for at in (base..base + len).step_by(1 << 20) {
            writer.push(Event::references(0, Op::Write, at, 1)).unwrap();
        }
        writer.finish().unwrap();
        OpenTrace::open(&path).unwrap()
    }

    fn searching(cache: CacheState, may_end: bool, tests: impl FnOnce(&Search<'_>)) {
        #[derive(serde::Deserialize)]
        struct File {
            choice: Vec<Choice>,
        }
        let File { mut choice } = toml::from_str(include_str!("choices.toml")).unwrap();
        choice.retain(|one| one.lever == "heap");
        tests(&Search {
            trace: &sparse(),
            kernel: &Kernel::parse("6.18+thp=always").unwrap(),
            machine: &Machine::load("zen5").unwrap(),
            walks: Walks::default(),
            anchor: None,
            cache,
            memory_bytes: 1 << 30,
            limit_bytes: None,
            may_end,
            choices: &choice,
            texts: &[],
        });
    }

    #[test]
    fn reports_memory_saved_by_smaller_folios() {
        searching(CacheState::Warm, false, |search| {
            let keep_going = &mut |_, _| ControlFlow::Continue(());
            let candidates = search.run(Goal::Memory, keep_going).unwrap().candidates;
            assert_eq!(candidates[0].memory_bytes, 64 << 20);
            let least = candidates.iter().min_by_key(|one| one.memory_bytes).unwrap();
            assert_eq!(search.choices[least.choices[0]].name, "no large folios for this program");
            assert_eq!(least.memory_bytes, 64 << 12);
        });
    }

    /// An early end keeps earlier results. Without any result, it is an error with advice.
    #[test]
    fn an_interrupted_search_returns_the_best_so_far() {
        searching(CacheState::Cold, true, |search| {
            let until = |nr_max: u64| {
                let mut nr = 0;
                search.run(Goal::Memory, &mut |_, _| {
                    nr += 1;
                    if nr > nr_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })
            };
            let all = until(u64::MAX).unwrap();
            let cut = until(1).unwrap();
            assert!(cut.is_cut && !all.is_cut && cut.candidates.len() < all.candidates.len());
            for (one, other) in cut.candidates.iter().zip(&all.candidates) {
                assert_eq!((&one.choices, one.memory_bytes), (&other.choices, other.memory_bytes));
            }
            let error = until(0).err().unwrap().to_string();
            assert!(error.contains("--within"), "{error}");
        });
    }

    /// Running out of time afterwards is not reported as the reason.
    #[test]
    fn reports_a_program_that_does_not_fit_even_if_interrupted() {
        searching(CacheState::Cold, true, |search| {
            let search = Search { memory_bytes: 128 << 10, ..*search };
            let nr = std::cell::Cell::new(0);
            let mut once = |_, _| {
                nr.set(nr.get() + 1);
                if nr.get() > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let error = search.run(Goal::Memory, &mut once).err().unwrap().to_string();
            assert!(error.contains("--memory"), "{error}");
        });
    }

    #[test]
    fn the_frontier_has_all_undominated_candidates() {
        let mut all = [
            at(&[], 0.0, 100),
            at(&[0], -5.0, 120),
            at(&[1], -5.0, 130),
            at(&[2], 1.0, 90),
            at(&[3], -5.0, 120),
            at(&[4], 2.0, 200),
        ];
        mark_frontier(&mut all, Goal::Time);
        let frontier: Vec<bool> = all.iter().map(|one| one.is_frontier).collect();
        assert_eq!(frontier, [true, true, false, true, false, false]);
        for (one, faults) in all.iter_mut().zip([9, 8, 7, 9, 9, 9]) {
            one.faults = faults;
        }
        mark_frontier(&mut all, Goal::Faults);
        let frontier: Vec<bool> = all.iter().map(|one| one.is_frontier).collect();
        assert_eq!(frontier, [false, true, true, true, false, false]);
    }
}
