//! Parses option values, and defines the options that several verbs share.

use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use largefolio_results::Form;
use largefolio_sim::size::parse_bytes;

/// `64K`, `16G`.
pub fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "expected bytes, such as 4096, 64K, 2M or 16G".to_owned())
}

pub fn page_bytes(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    let is_page = matches!(bytes, 0x1000 | 0x4000 | 0x10000);
    if is_page { Ok(bytes) } else { Err("the base page size is 4K, 16K or 64K".to_owned()) }
}

/// A folio size: a base page of 4 KiB times a power of two.
pub fn folio_size(text: &str) -> Result<u64, String> {
    parse_bytes(text)
        .filter(|&bytes| bytes.is_power_of_two() && (4 << 10..=1 << 30).contains(&bytes))
        .ok_or_else(|| "expected a power of two from 4K to 1G, such as 64K or 2M".to_owned())
}

pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a whole number below 2^64".to_owned())
}

pub fn within<T>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            format!("expected a whole number from {} to {}", range.start(), range.end())
        })
    }
}

/// Parses `12.3s`, `250ms` or `5m` as nanoseconds.
pub(crate) fn time_ns(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    digits.parse::<f64>().ok().map(|number| number * unit)
}

/// From a second to a week.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = time_ns(text).map(|ns| ns / 1e9);
    let possible = seconds.filter(|seconds| (1.0..=7.0 * 86_400.0).contains(seconds));
    possible
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "expected a time such as 90s, 5m or 1h, at most a week".to_owned())
}

/// From a second to a day; a number without a unit means seconds.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let plain = text.parse().ok().map(Duration::from_secs);
    plain
        .or_else(|| duration(text).ok())
        .filter(|time| (1..=86_400).contains(&time.as_secs()))
        .ok_or_else(|| "expected seconds or a time such as 5s or 2m, at most a day".to_owned())
}

pub(crate) fn pid(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a PID; pgrep -d, NAME prints PIDs by name".to_owned())
}

/// The program to start, after all options.
#[derive(Args, Clone, Debug)]
pub(crate) struct ProgramArgs {
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// The options that choose the output format.
#[derive(Args, Clone, Copy, Debug)]
pub struct FormArgs {
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Write CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl FormArgs {
    #[must_use]
    pub fn form(self) -> Form {
        match (self.json, self.csv) {
            (true, _) => Form::Json,
            (false, true) => Form::Csv,
            (false, false) => Form::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_process() {
        assert_eq!(pid("12"), Ok(12));
        assert!(pid("postgres").unwrap_err().contains("pgrep"));
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time_ns("12.5s"), Some(12.5e9));
        assert_eq!((time_ns("250ms"), time_ns("2h")), (Some(250e6), Some(7200e9)));
        for refused in ["", "5", "m", "8d", "infs", "nans", "5µ", "1 s"] {
            assert_eq!(time_ns(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_duration_is_from_a_second_to_a_week() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        for refused in ["", "5", "0s", "900ms", "-1s", "8d", "169h", "99999999999999999999s"] {
            assert!(duration(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn an_interval_without_a_unit_is_in_seconds() {
        for (text, seconds) in [("1", 1), ("5s", 5), ("2m", 120), ("24h", 86_400)] {
            assert_eq!(interval(text), Ok(Duration::from_secs(seconds)));
        }
        for refused in ["", "0", "0.5s", "-2", "x", "86401", "25h"] {
            assert!(interval(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn an_out_of_range_error_names_the_range() {
        let runs = within(1..=1000_u16);
        assert_eq!((runs("1"), runs("1000")), (Ok(1), Ok(1000)));
        for refused in ["", "0", "1001", "70000", "x", "1.5"] {
            let expected = "expected a whole number from 1 to 1000".to_owned();
            assert_eq!(runs(refused), Err(expected), "{refused}");
        }
    }

    #[test]
    fn a_non_number_error_names_what_is_expected() {
        assert_eq!(number(&u64::MAX.to_string()), Ok(u64::MAX));
        for refused in ["", "x", "-1", "1.5", "18446744073709551616"] {
            let message = number::<u64>(refused).unwrap_err();
            assert_eq!(message, "expected a whole number below 2^64", "{refused}");
        }
    }

    #[test]
    fn a_folio_is_a_power_of_two_of_base_pages() {
        assert_eq!(folio_size("64K"), Ok(64 << 10));
        for refused in ["3K", "2K", "96K", "4G", "x"] {
            assert!(folio_size(refused).is_err(), "{refused}");
        }
    }
}
