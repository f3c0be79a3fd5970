//! A number's dimension, derived from its name, and the units it allows.
//!
//! ```text
//!   reads.bytes, folios.file.by_size.64K.aligned_bytes, cached_bytes.64K   bytes
//!   estimate.total_ns, estimate.causes.read.ns, estimate.run.ns.mid        time
//!   reads.bytes / faults.total                                             bytes per event
//!   folios.text.contpte_bytes / folios.text.mapped_bytes                   a share
//!   faults.total                                                           a count
//! ```

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Bytes,
    Time,
    /// A quotient of two numbers of one dimension.
    Share,
    Count,
    /// A quotient of different dimensions, such as events per nanosecond.
    Rate,
}

/// Units in bytes. `kB` has 1,024 bytes, as in /proc; MB and GB are powers of ten, as in GB/s.
pub(super) const BYTES: [(&str, f64); 7] = [
    ("bytes", 1.0),
    ("kB", 1024.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("MB", 1e6),
    ("GB", 1e9),
];
pub(super) const TIMES: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
/// Number of units in the whole.
pub(super) const SHARES: [(&str, f64); 2] = [("%", 100.0), ("permille", 1000.0)];

impl Dimension {
    pub(super) fn of(name: &[String]) -> Self {
        let is_key = |step: &str| step.bytes().all(|byte| byte.is_ascii_digit());
        let is_bound = |step: &str| matches!(step, "low" | "mid" | "high");
        let last = name.iter().rev().find(|step| !is_key(step) && !is_bound(step));
        match last.map_or("", |last| last.rsplit('_').next().unwrap_or_default()) {
            "bytes" => Self::Bytes,
            "ns" => Self::Time,
            // The sum of all causes has bounds: `estimate.total.high`.
            "total" if name[0] == "estimate" => Self::Time,
            _ => Self::Count,
        }
    }

    pub(super) const fn over(self, below: Self) -> Self {
        match (self, below) {
            (Self::Bytes, Self::Bytes) | (Self::Time, Self::Time) | (Self::Count, Self::Count) => {
                Self::Share
            }
            (of, Self::Count) => of,
            _ => Self::Rate,
        }
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Time => "time",
            Self::Share => "a share",
            Self::Count => "a count",
            Self::Rate => "a rate",
        }
    }

    pub(super) const fn units(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Bytes => &BYTES,
            Self::Time => &TIMES,
            Self::Share => &SHARES,
            Self::Count | Self::Rate => &[],
        }
    }
}
