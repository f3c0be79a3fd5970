//! Converts costs to nanoseconds.

use crate::machine::{Costs, Quantity, Unit, UnitRate};

const GB: f64 = 1e9;

/// Returns the nanoseconds per event, byte (rate) or nanosecond (share); `None` without a clock.
#[must_use]
pub fn ns_each(cost: &Quantity, costs: &Costs) -> Option<f64> {
    Some(match cost.unit {
        Unit::Us => cost.value * 1e3,
        Unit::Cycles => cost.value / costs.clock.as_ref()?.value,
        Unit::GbPerS => 1e9 / (cost.value * GB),
        Unit::GHz => 1.0 / cost.value,
        Unit::Ns | Unit::Share => cost.value,
        Unit::Cpi => return None,
    })
}

pub(super) fn ns_of(events: u64, ns_each: f64) -> u64 {
    whole_ns(float(events) * ns_each)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0, saturates")]
pub(crate) fn whole_ns(ns: f64) -> u64 {
    ns.round() as u64
}

/// Returns a rate in whole bytes per second, at least 1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0, saturates")]
pub(super) fn bytes_per_s(rate: &Quantity) -> u64 {
    ((rate.value * GB).round() as u64).max(1)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate has not sixteen digits")]
pub(crate) const fn float(count: u64) -> f64 {
    count as f64
}

pub(super) fn quantity(rate: &UnitRate) -> Quantity {
    Quantity {
        value: rate.gb_per_s,
        unit: Unit::GbPerS,
        source: rate.source.clone(),
        assumed: rate.assumed,
        range: rate.range,
    }
}

/// Returns the rate of the largest unit for a cost's name, such as `clear of 4K`.
pub(super) fn rate_named<'a>(costs: &'a Costs, name: &str) -> Option<&'a UnitRate> {
    let rates = costs.rates().into_iter().find(|(kind, _)| name.starts_with(kind))?.1;
    rates.last()
}
