//! Units of our numbers: what a number counts by its name, and which units that has.
//!
//! ```text
//!   reads.bytes, folios.file.by_size.64K.aligned_bytes, cached_bytes.64K   bytes
//!   estimate.total_ns, estimate.causes.read.ns, estimate.run.ns.mid        time
//!   reads.bytes / faults.total                                             bytes for each
//!   folios.text.contpte_bytes / folios.text.mapped_bytes                   a share
//!   faults.total                                                           a count
//! ```
//!
//! Without a unit a number is printed as the JSON has it. A count takes any word that is no unit of
//! something else.

use super::metric::Metric;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Bytes,
    /// Nanoseconds.
    Time,
    /// Two numbers of one kind.
    Share,
    /// Events and the like.
    Count,
    /// One number for each of another, such as events in a nanosecond.
    Rate,
}

/// What a unit is worth; `kB` has 1,024 bytes, as in /proc, MB and GB are powers of ten, as in GB/s.
const BYTES: [(&str, f64); 7] = [
    ("bytes", 1.0),
    ("kB", 1024.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("MB", 1e6),
    ("GB", 1e9),
];
/// The same in nanoseconds.
const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
/// How often a unit is in the whole.
const SHARES: [(&str, f64); 2] = [("%", 100.0), ("permille", 1000.0)];

impl Dimension {
    /// That of a number by the steps of its name.
    pub(super) fn of(name: &[String]) -> Self {
        let is_key = |step: &str| step.bytes().all(|byte| byte.is_ascii_digit());
        let is_bound = |step: &str| matches!(step, "low" | "mid" | "high");
        let last = name.iter().rev().find(|step| !is_key(step) && !is_bound(step));
        match last.map_or("", |last| last.rsplit('_').next().unwrap_or_default()) {
            "bytes" => Self::Bytes,
            "ns" => Self::Time,
            // The sum of all causes with its bounds: `estimate.total.high`.
            "total" if name[0] == "estimate" => Self::Time,
            _ => Self::Count,
        }
    }

    /// That of a number divided by another.
    pub(super) const fn over(self, below: Self) -> Self {
        match (self, below) {
            (Self::Bytes, Self::Bytes) | (Self::Time, Self::Time) | (Self::Count, Self::Count) => {
                Self::Share
            }
            (of, Self::Count) => of,
            _ => Self::Rate,
        }
    }

    /// In words, as in "counts bytes".
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Time => "time",
            Self::Share => "a share",
            Self::Count => "a count",
            Self::Rate => "a rate",
        }
    }

    const fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Bytes => &BYTES,
            Self::Time => &TIMES,
            Self::Share => &SHARES,
            Self::Count | Self::Rate => &[],
        }
    }
}

/// Says which units `metric` has, if `unit` is none of them.
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
        [] => "leave the unit out".to_owned(),
        [first @ .., last] => format!("use {} or {last}", first.join(", ")),
    };
    Err(format!("'{unit}' is no unit of {metric}, which is {}; {expected}", dimension.words()))
}

/// A number of `metric` in `unit`, which [`check`] let pass.
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
        for (metric, unit, says) in [
            ("reads.bytes", "s", "which is bytes; use bytes, kB, KiB, MiB, GiB, MB or GB"),
            ("reads.bytes", "Gib", "'Gib' is no unit of reads.bytes"),
            ("estimate.total_ns", "MiB", "which is time; use ns, us, ms or s"),
            ("faults.cow / faults.total", "ms", "which is a share; use % or permille"),
            ("faults.total", "%", "which is a count; leave the unit out"),
            ("faults.total", "ms", "which is a count; leave the unit out"),
            ("faults.total / reads.bytes", "MiB", "which is a rate; leave the unit out"),
            ("reads.bytes + faults.total", "", "adds bytes and a count"),
        ] {
            let said = check(&Metric::parse(metric).unwrap(), unit).unwrap_err();
            assert!(said.contains(says), "{metric} in {unit}: {said}");
        }
    }
}
