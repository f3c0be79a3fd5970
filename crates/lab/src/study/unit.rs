//! Checks a number's unit and converts the number.
//!
//! Without a unit, a number is printed as in the JSON. A count accepts any word that is not a unit
//! of another dimension.

use super::dimension::{BYTES, Dimension, SHARES, TIMES};
use super::metric::Metric;

/// Checks that `unit` is valid for `metric`; the error lists the valid ones.
pub(super) fn check(metric: &Metric, unit: &str) -> Result<(), String> {
    let dimension = metric.dimension()?;
    let is_known = |units: &[(&str, f64)]| units.iter().any(|(name, _)| *name == unit);
    let is_of_others = [&BYTES[..], &TIMES, &SHARES[..1]].into_iter().any(is_known);
    let fits = match dimension {
        Dimension::Count => !is_of_others,
        _ => is_known(dimension.units()),
    };
    if unit.is_empty() || fits {
        return Ok(());
    }
    let names: Vec<&str> = dimension.units().iter().map(|(name, _)| *name).collect();
    let expected = match names.as_slice() {
        [] => "omit the unit".to_owned(),
        [first @ .., last] => format!("use {} or {last}", first.join(", ")),
    };
    Err(format!("'{unit}' is not a unit of {metric}, which is {}; {expected}", dimension.label()))
}

/// Converts a number of `metric` to `unit`, which passed [`check`].
pub(super) fn scaled(number: f64, metric: &Metric, unit: &str) -> f64 {
    let Ok(dimension) = metric.dimension() else { return number };
    let worth = dimension.units().iter().find(|(name, _)| *name == unit).map(|(_, worth)| *worth);
    match (dimension, worth) {
        (_, None) => number,
        (Dimension::Share, Some(parts)) => number * parts,
        (_, Some(worth)) => number / worth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_printed_in_the_unit_that_is_named() {
        let shown = |number, metric: &str, unit| {
            let metric = Metric::parse(metric).unwrap();
            check(&metric, unit).map(|()| scaled(number, &metric, unit))
        };
        let bytes = |unit| shown(1_610_612_736.0, "reads.bytes", unit);
        assert_eq!([bytes("GiB"), bytes("MiB"), bytes("KiB")], [1.5, 1536.0, 1_572_864.0].map(Ok));
        assert_eq!([bytes("GB"), bytes("MB")], [1.610_612_736, 1_610.612_736].map(Ok));
        assert_eq!([bytes("kB"), bytes("bytes")], [1_572_864.0, 1_610_612_736.0].map(Ok));
        assert_eq!(bytes(""), bytes("bytes"));
        for metric in ["estimate.total_ns", "estimate.run.ns.mid", "estimate.total.high"] {
            let time = |unit| shown(2.5e9, metric, unit);
            let expected = [2.5, 2500.0, 2.5e6, 2.5e9].map(Ok);
            assert_eq!([time("s"), time("ms"), time("us"), time("ns")], expected, "{metric}");
        }
        assert_eq!(shown(0.25, "faults.cow / faults.total", "%"), Ok(25.0));
        assert_eq!(shown(4096.0, "reads.bytes / faults.total", "KiB"), Ok(4.0));
        assert_eq!(shown(2048.0, "cached_bytes.64K", "KiB"), Ok(2.0));
        assert_eq!(shown(7.0, "faults.total", "faults"), Ok(7.0));
    }

    #[test]
    fn a_unit_of_something_else_is_answered_with_those_that_fit() {
        for (metric, unit, expected) in [
            ("reads.bytes", "s", "which is bytes; use bytes, kB, KiB, MiB, GiB, MB or GB"),
            ("reads.bytes", "Gib", "'Gib' is not a unit of reads.bytes"),
            ("estimate.total_ns", "MiB", "which is time; use ns, us, ms or s"),
            ("faults.cow / faults.total", "ms", "which is a share; use % or permille"),
            ("faults.total", "%", "which is a count; omit the unit"),
            ("faults.total", "ms", "which is a count; omit the unit"),
            ("faults.total / reads.bytes", "MiB", "which is a rate; omit the unit"),
            ("reads.bytes + faults.total", "", "adds bytes and a count"),
        ] {
            let message = check(&Metric::parse(metric).unwrap(), unit).unwrap_err();
            assert!(message.contains(expected), "{metric} in {unit}: {message}");
        }
    }
}
