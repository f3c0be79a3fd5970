//! Formats numbers for people: one unit per line, three or four significant digits.
//!
//! ```
//! use largefolio_results::figures;
//! assert_eq!(figures::count(31_234_567), "31.23 M");
//! assert_eq!(figures::bytes(3 << 19), "1.5 MiB");
//! assert_eq!(figures::size(65536), "64K");
//! ```

use std::time::Duration;

use largefolio_sim::cost::{BaseSource, Cause, Estimate, Walks};
use largefolio_sim::interval::Interval;
use largefolio_sim::machine::TimeErrors;
use largefolio_trace::Attached;
pub use largefolio_trace::shown::printable;

/// Changes of the run time below this many percent are too small to measure.
pub(crate) const SMALL_PERCENT: f64 = 0.05;
/// Below this many bytes, sizes are shown in KiB: at most six digits, and whole base pages stay
/// exact.
const KIB_BYTES_MAX: u64 = 100 << 20;
const MIB_BYTES_MAX: u64 = 100 << 30;
const MICROSECONDS_MAX: u64 = 10_000_000;
const MILLISECONDS_MAX: u64 = 10_000_000_000;
/// Counts below this are exact: seven digits.
const EXACT_MAX: u64 = 10_000_000;
const MILLIONS_MAX: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Base units per unit.
    per: u64,
    digits: usize,
    /// `KiB`, `M`, or empty.
    pub(crate) name: &'static str,
}

impl Scale {
    const ONE: Self = Self { per: 1, digits: 0, name: "" };

    pub(crate) const fn of_bytes(max: u64) -> Self {
        match max {
            ..KIB_BYTES_MAX => Self { per: 1 << 10, digits: 0, name: "KiB" },
            KIB_BYTES_MAX..MIB_BYTES_MAX => Self { per: 1 << 20, digits: 1, name: "MiB" },
            _ => Self { per: 1 << 30, digits: 1, name: "GiB" },
        }
    }

    pub(crate) const fn of_ns(max: u64) -> Self {
        match max {
            ..MICROSECONDS_MAX => Self { per: 1_000, digits: 1, name: "us" },
            MICROSECONDS_MAX..MILLISECONDS_MAX => Self { per: 1_000_000, digits: 2, name: "ms" },
            _ => Self { per: 1_000_000_000, digits: 3, name: "s" },
        }
    }

    pub(crate) const fn of_counts(max: u64) -> Self {
        match max {
            ..EXACT_MAX => Self::ONE,
            EXACT_MAX..MILLIONS_MAX => Self { per: 1_000_000, digits: 2, name: "M" },
            _ => Self { per: 1_000_000_000, digits: 2, name: "G" },
        }
    }

    /// Formats `value` in this unit, without the unit's name.
    pub(crate) fn show(self, value: u64) -> String {
        if value == 0 || self.per == 1 {
            return grouped(value);
        }
        let power = 10_u128.pow(u32::try_from(self.digits).unwrap_or(0));
        let (value, per) = (u128::from(value), u128::from(self.per));
        let scaled = (value * power + per / 2) / per;
        if scaled == 0 {
            return format!("<{}", fixed(1, self.digits));
        }
        fixed(scaled, self.digits)
    }
}

fn fixed(scaled: u128, digits: usize) -> String {
    let power = 10_u128.pow(u32::try_from(digits).unwrap_or(0));
    let whole = grouped(u64::try_from(scaled / power).unwrap_or(u64::MAX));
    if digits == 0 { whole } else { format!("{whole}.{:0digits$}", scaled % power) }
}

/// `1,234,567`.
#[must_use]
pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[must_use]
pub fn counted(value: u64, what: &str) -> String {
    let s = if value == 1 { "" } else { "s" };
    format!("{} {what}{s}", grouped(value))
}

/// Says why predicted times have their bounds.
#[must_use]
pub fn of_errors(errors: &TimeErrors) -> String {
    let nr = errors.nr_programs;
    if errors.shipped {
        return format!(
            "as they held for nine of ten of {nr} programs on another machine, and half as wide \
             again; folio calibrate --programs measures them here"
        );
    }
    format!("they held for nine of ten of {nr} programs that were predicted and measured there")
}

/// Formats a count in at most seven digits: `1,234,567`, `31.23 M`.
#[must_use]
pub fn count(value: u64) -> String {
    let scale = Scale::of_counts(value);
    if scale.name.is_empty() {
        grouped(value)
    } else {
        format!("{} {}", scale.show(value), scale.name)
    }
}

/// Formats a byte count in the unit that suits it. Whole units are exact: `16 GiB`, `1.5 MiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (value.max(1).ilog2() / 10).min(4) as usize;
    let scale = Scale { per: 1 << (10 * unit), digits: 1, name: UNITS[unit] };
    format!("{} {}", scale.show(value).trim_end_matches(".0"), scale.name)
}

/// Formats a power of two as folio sizes are named: `64K`, `2M`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let (shift, unit) = match bytes {
        ..0x10_0000 => (10, "K"),
        0x10_0000..0x4000_0000 => (20, "M"),
        _ => (30, "G"),
    };
    format!("{}{unit}", bytes >> shift)
}

pub(crate) fn is_certain(change: Interval) -> bool {
    change.low >= SMALL_PERCENT || change.high <= -SMALL_PERCENT
}

/// Formats a share in percent: `45.2%`. Empty if `whole` is 0.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, _) | (_, 0) => String::new(),
        _ => {
            let percent = 100.0 * ratio(part, whole);
            if percent < 0.05 { "<0.1%".to_owned() } else { format!("{percent:.1}%") }
        }
    }
}

/// Formats `part` per million of `whole` in three digits.
pub(crate) fn per_million(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return String::new();
    }
    let rate = 1e6 * ratio(part, whole);
    match rate {
        ..0.005 => "<0.01".to_owned(),
        ..10.0 => format!("{rate:.2}"),
        ..100.0 => format!("{rate:.1}"),
        _ => whole_number(rate),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is at most a million"
)]
fn whole_number(rate: f64) -> String {
    grouped(rate.round() as u64)
}

/// Formats the change from `before` to `now`: `-23.1%`, `=`, `x12.5`, or `new` if `before` is 0.
/// Empty if both are 0.
pub(crate) fn change(before: f64, now: f64) -> String {
    if let Some(text) = unchanged(before, now) {
        return text;
    }
    if before == 0.0 {
        return "new".to_owned();
    }
    let percent = 100.0 * (now - before) / before;
    if percent >= 1000.0 {
        return format!("x{:.1}", now / before);
    }
    signed(percent, "%")
}

/// Formats the difference of two percentages in percentage points: `+59.8pp`.
pub(crate) fn change_of_shares(before: f64, now: f64) -> String {
    unchanged(before, now).unwrap_or_else(|| signed(now - before, "pp"))
}

fn unchanged(before: f64, now: f64) -> Option<String> {
    let is_same = before.total_cmp(&now).is_eq();
    is_same.then(|| if now == 0.0 { String::new() } else { "=".to_owned() })
}

/// Formats a run's change in percent: `-1.4% (-2.0 .. -0.9)`, or says that no change is certain.
#[must_use]
pub fn change_of_run(change: Interval) -> String {
    let (short, bounds) = change_in_words(change);
    format!("{short}{bounds}")
}

/// The same change in two parts: the emphasized words and the rest.
pub(crate) fn change_in_words(change: Interval) -> (String, String) {
    let Interval { low, mid, high } = change;
    let bounds = format!("({} .. {})", points(low), points(high));
    if !is_certain(change) {
        return ("no certain difference".to_owned(), format!(" {bounds}"));
    }
    (format!("{}%", points(mid)), format!(" {bounds}"))
}

#[must_use]
pub fn points(value: f64) -> String {
    match value.abs() {
        ..0.005 => "0".to_owned(),
        ..1.0 => format!("{value:+.2}"),
        _ => format!("{value:+.1}"),
    }
}

/// Names the run that a change is relative to: `2.31 s, measured, n = 3`.
#[must_use]
pub fn run_base(estimate: &Estimate) -> String {
    let Some(base) = estimate.run_time() else { return "not known".to_owned() };
    let [low, mid, high] = [base.low, base.mid, base.high].map(seconds);
    match estimate.run.source {
        BaseSource::Measured => {
            format!("{mid} ({low} .. {high}), measured, n = {}", estimate.run.runs)
        }
        BaseSource::Cpu => format!(
            "{mid} ({low} .. {high}), CPU time plus read time of runs that took {}, n = {}",
            seconds(estimate.run.wall_ns()),
            estimate.run.runs
        ),
        BaseSource::Given => format!("{mid}, as given"),
        BaseSource::Estimated => format!("{mid} ({low} .. {high}), estimated"),
        BaseSource::NotKnown => "not known".to_owned(),
    }
}

/// Summarizes a recording of running processes: `70 page faults in 4.0 s; 42,474 pages were present
/// before`.
#[must_use]
pub fn recorded(nr_references: u64, attached: &Attached) -> String {
    let nr_faults = nr_references.saturating_sub(attached.nr_pages);
    let verb = if attached.nr_pages == 1 { "page was" } else { "pages were" };
    let seconds = Duration::from_nanos(attached.run.wall_ns).as_secs_f64();
    format!(
        "{} in {seconds:.1} s; {} {verb} present before",
        counted(nr_faults, "page fault"),
        grouped(attached.nr_pages),
    )
}

fn seconds(ns: f64) -> String {
    time(whole_ns(ns))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
pub(crate) const fn whole_ns(ns: f64) -> u64 {
    ns.max(0.0).round() as u64
}

pub(crate) fn time(ns: u64) -> String {
    let scale = Scale::of_ns(ns);
    format!("{} {}", scale.show(ns), scale.name)
}

/// Formats a value of the CSV in its unit: `1.5 MiB`, `12.3 ms`, `1,981`.
pub(crate) fn value(value: u64, unit: &str) -> String {
    match unit {
        "bytes" => bytes(value),
        "ns" => time(value),
        _ => count(value),
    }
}

/// Formats a difference with its sign; `minus` is the minus sign, and `show` formats the absolute
/// value.
pub(crate) fn difference(value: i128, minus: char, show: &dyn Fn(u64) -> String) -> String {
    let size = show(u64::try_from(value.unsigned_abs()).unwrap_or(u64::MAX));
    if value < 0 { format!("{minus}{size}") } else { format!("+{size}") }
}

pub(crate) fn signed_of(value: i128, unit: &str) -> String {
    difference(value, '-', &|size| self::value(size, unit))
}

fn signed(value: f64, unit: &str) -> String {
    let sign = if value < 0.0 { '-' } else { '+' };
    match value.abs() {
        ..0.05 => format!("{sign}<0.1{unit}"),
        size => format!("{sign}{size:.1}{unit}"),
    }
}

/// Returns `a / b`, or 0 if `b` is 0. For display only: a float may round large counts.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a ratio is read to three digits")]
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

pub(crate) fn cause(cause: Cause, walks: Walks) -> &'static str {
    match cause {
        Cause::Fault => "faults",
        Cause::Map => "entries set by faults",
        Cause::Fork => "entries copied by fork",
        Cause::Unmap => "entries removed",
        Cause::Clear => "clearing",
        Cause::Copy => "copying",
        Cause::Read => "waiting for reads",
        Cause::Swap => "swap space",
        Cause::Tlb => "level-2 TLB hits",
        Cause::Walk if walks == Walks::Nested => "nested walks",
        Cause::Walk => "walks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_unit_chosen_by_its_largest_value() {
        let scale = Scale::of_bytes(3 << 20);
        assert_eq!((scale.name, scale.show(1_273_856).as_str()), ("KiB", "1,244"));
        let scale = Scale::of_bytes(300 << 20);
        assert_eq!((scale.name, scale.show(5 << 19).as_str()), ("MiB", "2.5"));
        assert_eq!(scale.show(4096), "<0.1");
        assert_eq!(scale.show(0), "0");
        let scale = Scale::of_counts(31_234_567);
        assert_eq!((scale.name, scale.show(31_234_567).as_str()), ("M", "31.23"));
        assert_eq!(Scale::of_counts(9_999_999).show(9_999_999), "9,999,999");
        assert_eq!(Scale::of_counts(u64::MAX).show(u64::MAX), "18,446,744,073.71");
    }

    #[test]
    fn a_time_has_the_unit_of_its_line() {
        let shown = [9_999_949, 10_000_000, 12_345_678_901].map(|ns| {
            let scale = Scale::of_ns(ns);
            format!("{} {}", scale.show(ns), scale.name)
        });
        assert_eq!(shown, ["9,999.9 us", "10.00 ms", "12.346 s"]);
    }

    #[test]
    fn sizes_are_named_as_folios_are() {
        assert_eq!([4096, 1 << 16, 2 << 20, 1 << 30].map(size), ["4K", "64K", "2M", "1G"]);
        assert_eq!([0, 512, 3 << 19, 16 << 30].map(bytes), ["0 B", "512 B", "1.5 MiB", "16 GiB"]);
    }

    #[test]
    fn a_change_never_reads_as_none_when_there_is_one() {
        assert_eq!(change(100.0, 76.9), "-23.1%");
        assert_eq!(change(100.0, 100.0), "=");
        assert_eq!(change(1e9, 1e9 - 1.0), "-<0.1%");
        assert_eq!(change(2.0, 25.0), "x12.5");
        assert_eq!(change(0.0, 3.0), "new");
        assert_eq!(change(0.0, 0.0), "");
        assert_eq!(change(3.0, 0.0), "-100.0%");
        assert_eq!(change_of_shares(3.2, 63.0), "+59.8pp");
        assert_eq!(change_of_shares(3.2, 3.2), "=");
    }

    #[test]
    fn shares_and_rates_are_blank_for_nothing() {
        assert_eq!((percent(0, 5), percent(1, 2), percent(1, 1 << 40)), blank("50.0%", "<0.1%"));
        assert_eq!(
            (per_million(0, 5), per_million(1, 2), per_million(1, 1 << 40)),
            blank("500,000", "<0.01")
        );
        assert_eq!(per_million(25, 1_000_000), "25.0");
        assert_eq!(count(31_234_567), "31.23 M");
    }

    fn blank(second: &str, third: &str) -> (String, String, String) {
        (String::new(), second.to_owned(), third.to_owned())
    }
}
