//! A number of a machine file: measured here, or taken from another machine.

use largefolio_linux::calibrate::Figure;
use largefolio_linux::measure::Spread;
use largefolio_sim::cost::digits;
use largefolio_sim::machine::{Quantity, Unit};

use super::STAND_IN;

/// `median of n = 9, 1.20 to 1.31 ns`.
pub(super) fn spread_text(ns: &Spread) -> String {
    format!("median of n = {}, {:.4} to {:.4} ns", ns.n, ns.min, ns.max)
}

/// If a spread reaches below 0, the range ends at the median divided by this.
pub(super) const RANGE_WITHIN: f64 = 10.0;

pub(super) fn measured(figure: &Figure) -> Quantity {
    Quantity {
        value: digits(figure.ns.median),
        unit: Unit::Ns,
        source: format!("measured: {}; {}", figure.how, spread_text(&figure.ns)),
        assumed: false,
        range: range(&figure.ns),
    }
}

/// Returns the spread as a range around the median. A difference of two measurements may fall below
/// 0, but a cost never does.
pub(super) fn range(ns: &Spread) -> Option<[f64; 2]> {
    let least = ns.median / RANGE_WITHIN;
    (ns.median > 0.0).then(|| {
        [digits(ns.min.max(least)).min(digits(ns.median)), digits(ns.max).max(digits(ns.median))]
    })
}

pub(super) fn assumed(known: &Quantity) -> Quantity {
    Quantity {
        source: format!(
            "not measured on this machine, taken from {STAND_IN}; the top of the file gives the \
             reason"
        ),
        assumed: true,
        range: None,
        ..known.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_contains_the_median_and_is_positive() {
        let of = |min, median, max| range(&Spread { median, min, max, n: 9 });
        assert_eq!(of(8.0, 10.0, 14.0), Some([8.0, 14.0]));
        assert_eq!(of(-3.0, 10.0, 14.0), Some([1.0, 14.0]));
        assert_eq!(of(10.000_04, 10.000_04, 10.000_04), Some([10.0, 10.0]));
        assert_eq!(of(-2.0, -1.0, 3.0), None);
    }
}
