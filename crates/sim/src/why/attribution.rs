//! How the difference of one result is shared out.
//!
//! Invariants, in integers and for every function of the mixes:
//! - A1: the steps in order add up to the difference.
//! - A2: the effects alone, the interactions of pairs and what more do together add up to it.

use serde::Serialize;

use super::Mix;

/// What one switch does to a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Set in the first kernel: by how much the result grows.
    pub alone: i128,
    /// Left out of the second kernel: how much of the result goes.
    pub left_out: i128,
    /// Set after those before it: by how much the result grows.
    pub in_order: i128,
}

/// What two switches do together beyond the sum of what they do alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interaction {
    /// Which.
    pub switches: [usize; 2],
    /// How much.
    pub value: i128,
}

/// The difference of one result between two kernels, shared out.
///
/// ```
/// use largefolio_sim::why::{Mix, attribute};
/// // Two rules that do something only together.
/// let value = |mix: &Mix| Some(if mix.is_all() { 10 } else { 4 });
/// let shared = attribute(2, &[[0, 1]], &value).unwrap();
/// assert_eq!(shared.effects[0].alone, 0);
/// assert_eq!(shared.effects[0].left_out, 6);
/// assert_eq!(shared.interactions[0].value, 6);
/// assert_eq!(shared.together, 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribution {
    /// The result under the first kernel.
    pub before: i128,
    /// The result under the second.
    pub after: i128,
    /// Of each switch.
    pub effects: Vec<Effect>,
    /// Of each pair that was asked for.
    pub interactions: Vec<Interaction>,
    /// What all other interactions add up to.
    pub together: i128,
}

/// Shares out a result of `nr` switches, which `value` gives for each mix; `pairs` are the
/// interactions that are told apart. `None` if a value is not known.
pub fn attribute(
    nr: usize,
    pairs: &[[usize; 2]],
    value: &dyn Fn(&Mix) -> Option<i128>,
) -> Option<Attribution> {
    let before = value(&Mix::first(nr, 0))?;
    let after = value(&Mix::first(nr, nr))?;
    let alone = |one| Some(value(&Mix::alone(nr, &[one]))? - before);
    let effect = |one| {
        Some(Effect {
            alone: alone(one)?,
            left_out: after - value(&Mix::without(nr, one))?,
            in_order: value(&Mix::first(nr, one + 1))? - value(&Mix::first(nr, one))?,
        })
    };
    let effects = (0..nr).map(effect).collect::<Option<Vec<Effect>>>()?;
    let interaction = |&switches: &[usize; 2]| {
        let sum: i128 = switches.iter().map(|&one| effects[one].alone).sum();
        let value = value(&Mix::alone(nr, &switches))? - before - sum;
        Some(Interaction { switches, value })
    };
    let interactions = pairs.iter().map(interaction).collect::<Option<Vec<Interaction>>>()?;
    let told: i128 = effects.iter().map(|effect| effect.alone).sum::<i128>()
        + interactions.iter().map(|pair| pair.value).sum::<i128>();
    let together = after - before - told;
    Some(Attribution { before, after, effects, interactions, together })
}
