//! Attributes the difference of one result to the switches.
//!
//! Invariants, in integers and for every function of the mixes:
//! - A1: the steps in order add up to the difference.
//! - A2: the effects of single switches, the interactions of pairs and the higher interactions add
//!   up to the difference.

use serde::Serialize;

use super::Mix;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Increase when it is set in the first kernel.
    pub alone: i128,
    /// Decrease when it is removed from the second kernel.
    pub left_out: i128,
    /// Increase when it is set after all earlier switches.
    pub in_order: i128,
}

/// The joint effect of two switches beyond the sum of their separate effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Interaction {
    pub switches: [usize; 2],
    pub value: i128,
}

/// The attributed difference of one result between two kernels.
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
    pub before: i128,
    pub after: i128,
    pub effects: Vec<Effect>,
    pub interactions: Vec<Interaction>,
    /// The sum of all other interactions.
    pub together: i128,
}

/// Attributes a result to `nr` switches. `value` returns the result for a mix; `pairs` are the
/// interactions to report. `None` if a value is unknown.
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
    let explained: i128 = effects.iter().map(|effect| effect.alone).sum::<i128>()
        + interactions.iter().map(|pair| pair.value).sum::<i128>();
    let together = after - before - explained;
    Some(Attribution { before, after, effects, interactions, together })
}
