//! Computes the answer for two kernels: cells, numbers, shares.

use std::collections::BTreeMap;

use super::{Effect, Explained, HEADLINES, Progress, Replays, Switch, Why, WhyError, WhyQuestion};
use crate::metrics::results;
use crate::names::nearest;
use crate::replay::Outcome;
use crate::why::{Attribution, Comparison, Mix, attribute};

/// Interactions that are separated: every pair of twelve switches.
pub const NR_PAIRS_MAX: usize = 66;
/// Units of numbers that have no row if unknown. Any other number without a row is 0.
const NOT_ALWAYS_KNOWN: [&str; 2] = ["ns", "waits"];

type Key = (String, Option<u64>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Numbers(BTreeMap<Key, i128>);

impl Numbers {
    fn of(row: &Outcome) -> Self {
        let of_row = results(row).into_iter();
        let is_kept = |unit, value| value != 0 || NOT_ALWAYS_KNOWN.contains(&unit);
        let kept = of_row.filter(|number| is_kept(number.unit, number.value));
        Self(kept.map(|number| ((number.metric, number.folio_bytes), number.value)).collect())
    }

    fn value(&self, key: &Key, unit: &str) -> Option<i128> {
        let counted = self.0.get(key).copied();
        if NOT_ALWAYS_KNOWN.contains(&unit) { counted } else { Some(counted.unwrap_or(0)) }
    }
}

#[derive(Debug, Default)]
struct Active {
    switches: Vec<usize>,
    pairs: Vec<[usize; 2]>,
    nr_pairs_left_out: usize,
}

impl WhyQuestion<'_> {
    /// Answers for each pair of rows. `progress` receives the rows replayed and the total needed so
    /// far, and returns whether to continue.
    ///
    /// # Errors
    /// [`WhyError`]; [`ReplayError::Stopped`] if `progress` stops it.
    pub fn answer(&self, progress: Progress<'_>) -> Result<Vec<Why>, WhyError> {
        self.check_results()?;
        let nr_pairs = self.specs.len() / 2;
        let mut replays = Replays::new(self.trace, self.nr_rows, progress);
        (0..nr_pairs).map(|nr| self.pair(nr, nr + nr_pairs, &mut replays)).collect()
    }

    fn check_results(&self) -> Result<(), WhyError> {
        let mut known: Vec<String> = self
            .rows
            .iter()
            .flat_map(|row| Numbers::of(row).0.into_keys().map(|(metric, _)| metric))
            .collect();
        known.sort_unstable();
        known.dedup();
        match self.results.iter().find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => {
                let (result, hint) =
                    (name.clone(), nearest(name, known.iter().map(String::as_str)));
                Err(WhyError::Unknown { result, hint })
            }
        }
    }

    fn pair(
        &self,
        before: usize,
        after: usize,
        replays: &mut Replays<'_>,
    ) -> Result<Why, WhyError> {
        let comparison = Comparison::new(&self.specs[before], &self.specs[after])?;
        let nr = comparison.switches().len();
        let [first, second] = [before, after].map(|row| Numbers::of(&self.rows[row]));
        let is_same = first == second;
        let mut cells = BTreeMap::from([(Mix::first(nr, nr), second), (Mix::first(nr, 0), first)]);
        let nr_given = cells.len();
        let shares = if is_same {
            Active::default()
        } else {
            replay(&comparison, &comparison.parts(), &mut cells, replays)?;
            interactions(&comparison, &mut cells, replays)?
        };
        let switches = comparison.switches().iter().enumerate();
        let has_effect = |one| shares.switches.contains(&one);
        let mut why = Why {
            before,
            after,
            nr_cells: cells.len() - nr_given,
            switches: switches.map(|(one, of)| Switch::new(of, has_effect(one))).collect(),
            shown: self.shown(),
            results: Vec::new(),
            nr_pairs_left_out: shares.nr_pairs_left_out,
            not_known: Vec::new(),
        };
        if !is_same {
            self.explain(&mut why, &shares.pairs, &cells);
        }
        Ok(why)
    }

    fn shown(&self) -> Vec<String> {
        if self.results.is_empty() {
            return HEADLINES.iter().map(|(metric, _)| (*metric).to_owned()).collect();
        }
        self.results.to_vec()
    }

    fn explain(&self, why: &mut Why, pairs: &[[usize; 2]], cells: &BTreeMap<Mix, Numbers>) {
        let nr = why.switches.len();
        let mut seen: Vec<Key> = Vec::new();
        for row in [why.before, why.after] {
            for number in results(&self.rows[row]) {
                let key = (number.metric, number.folio_bytes);
                if seen.contains(&key) {
                    continue;
                }
                let value = |mix: &Mix| cells.get(mix)?.value(&key, number.unit);
                match attribute(nr, pairs, &value) {
                    Some(shares) if shares.before != shares.after => {
                        why.results.push(explained(&key, number.unit, &shares));
                    }
                    Some(_) => {}
                    None => why.not_known.push(key.0.clone()),
                }
                seen.push(key);
            }
        }
        why.not_known.dedup();
    }
}

fn interactions(
    comparison: &Comparison,
    cells: &mut BTreeMap<Mix, Numbers>,
    replays: &mut Replays<'_>,
) -> Result<Active, WhyError> {
    let nr = comparison.switches().len();
    let active = by_effect(nr, cells);
    let all = pairs_of(&active);
    let mut pairs: Vec<[usize; 2]> = all.iter().copied().take(NR_PAIRS_MAX).collect();
    pairs.retain(|pair| comparison.is_possible(&Mix::alone(nr, pair)));
    let mut mixes: Vec<Mix> = pairs.iter().map(|pair| Mix::alone(nr, pair)).collect();
    mixes.retain(|mix| !cells.contains_key(mix));
    replay(comparison, &mixes, cells, replays)?;
    Ok(Active { nr_pairs_left_out: all.len() - pairs.len(), switches: active, pairs })
}

fn replay(
    comparison: &Comparison,
    mixes: &[Mix],
    cells: &mut BTreeMap<Mix, Numbers>,
    replays: &mut Replays<'_>,
) -> Result<(), WhyError> {
    let outcomes = replays.run(comparison, mixes)?;
    cells.extend(mixes.iter().cloned().zip(outcomes.iter().map(Numbers::of)));
    Ok(())
}

fn explained((metric, folio_bytes): &Key, unit: &'static str, shares: &Attribution) -> Explained {
    let effects = shares.effects.iter().enumerate();
    let effects = effects.map(|(switch, effect)| Effect {
        switch,
        alone: effect.alone,
        left_out: effect.left_out,
        in_order: effect.in_order,
    });
    let is_some = |effect: &Effect| (effect.alone, effect.left_out, effect.in_order) != (0, 0, 0);
    let pairs = shares.interactions.iter().filter(|pair| pair.value != 0).copied();
    Explained {
        metric: metric.clone(),
        folio_bytes: *folio_bytes,
        unit,
        before: shares.before,
        after: shares.after,
        difference: shares.after - shares.before,
        effects: effects.filter(is_some).collect(),
        interactions: pairs.collect(),
        together: shares.together,
    }
}

fn by_effect(nr: usize, cells: &BTreeMap<Mix, Numbers>) -> Vec<usize> {
    let sides = |one: usize| {
        [
            [Mix::first(nr, 0), Mix::alone(nr, &[one])],
            [Mix::without(nr, one), Mix::first(nr, nr)],
            [Mix::first(nr, one), Mix::first(nr, one + 1)],
        ]
    };
    let mut active: Vec<usize> = (0..nr)
        .filter(|&one| sides(one).iter().any(|[old, new]| cells.get(old) != cells.get(new)))
        .collect();
    let size = |one: usize| {
        sides(one)
            .iter()
            .filter_map(|[old, new]| Some(largest(cells.get(old)?, cells.get(new)?)))
            .max()
            .unwrap_or(0)
    };
    active.sort_by_cached_key(|&one| (std::cmp::Reverse(size(one)), one));
    active
}

fn largest(old: &Numbers, new: &Numbers) -> i128 {
    let change = |metric: &str| {
        let key = (metric.to_owned(), None);
        let [old, new] = [old, new].map(|numbers| numbers.0.get(&key).copied().unwrap_or(0));
        (new - old).abs() * 1_000_000 / old.max(new).max(1)
    };
    HEADLINES.iter().map(|(metric, _)| change(metric)).max().unwrap_or(0)
}

/// Returns every pair of `active`; pairs of the first switches come first.
fn pairs_of(active: &[usize]) -> Vec<[usize; 2]> {
    let below = |(nr, &other): (usize, &usize)| {
        active[..nr].iter().map(move |&one| [one.min(other), one.max(other)]).collect::<Vec<_>>()
    };
    active.iter().enumerate().flat_map(below).collect()
}
