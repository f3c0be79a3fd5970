//! Settings that change during the replay: `50%:thp=always`.
//!
//! Memory in use at that point stays as it is, and a file keeps the readahead window that it was
//! opened with, as on a running system.
//!
//! Owns the text form and the rows. [`crate::kernel`] decides which settings can change.

use std::fmt;
use std::str::FromStr;

use largefolio_mm::units::PageSize;

use crate::kernel::{Kernel, KernelError};

/// Maximum number of changes in a replay.
pub(crate) const NR_CHANGES_MAX: usize = 64;
/// Parts of a trace: thousandths of a percent.
const NR_PARTS: u64 = 100_000;
const NR_DECIMALS_MAX: usize = 3;

/// A share of the trace's rows, below 100%: `50%`, `12.5%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    /// Of [`NR_PARTS`].
    nr_parts: u64,
}

/// A change of settings, and the share of the trace's rows before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    share: Share,
    edits: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a share of the trace's rows below 100%, and a setting, such as 50%:thp=always")]
pub struct SettingChangeError;

impl FromStr for SettingChange {
    type Err = SettingChangeError;

    fn from_str(text: &str) -> Result<Self, SettingChangeError> {
        let (share, edits) = text.split_once("%:").ok_or(SettingChangeError)?;
        let share = Share::of(share).ok_or(SettingChangeError)?;
        if edits.is_empty() {
            return Err(SettingChangeError);
        }
        Ok(Self { share, edits: edits.to_owned() })
    }
}

impl Share {
    /// Parses a percentage below 100 with at most three decimals, without its sign.
    pub(crate) fn of(percent: &str) -> Option<Self> {
        let (whole, decimals) = percent.split_once('.').unwrap_or((percent, "0"));
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.len() > NR_DECIMALS_MAX {
            return None;
        }
        let nr_parts = format!("{whole}{decimals:0<NR_DECIMALS_MAX$}").parse().ok()?;
        (nr_parts < NR_PARTS).then_some(Self { nr_parts })
    }

    /// Returns the least share of `nr_rows` rows that has `row` of them before it.
    fn least(row: u64, nr_rows: u64) -> Self {
        let nr_parts = row.saturating_mul(NR_PARTS).div_ceil(nr_rows.max(1));
        Self { nr_parts: nr_parts.min(NR_PARTS - 1) }
    }

    /// Returns this share, twice, three times, .. as long as they are below 100%.
    pub(crate) fn multiples(self) -> impl Iterator<Item = Self> {
        let each = usize::try_from(self.nr_parts.max(1)).unwrap_or(usize::MAX);
        (self.nr_parts.max(1)..NR_PARTS).step_by(each).map(|nr_parts| Self { nr_parts })
    }

    /// Returns the first row after the share, if `nr_before` of `nr_rows` rows precede the
    /// recording.
    pub(crate) fn row(self, nr_before: u64, nr_rows: u64) -> u64 {
        let nr_counted = u128::from(nr_rows.saturating_sub(nr_before));
        let nr = nr_counted * u128::from(self.nr_parts) / u128::from(NR_PARTS);
        nr_before + u64::try_from(nr).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_percent = NR_PARTS / 100;
        let (whole, decimals) = (self.nr_parts / per_percent, self.nr_parts % per_percent);
        let text = format!("{whole}.{decimals:0NR_DECIMALS_MAX$}");
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Display for SettingChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share(), self.edits)
    }
}

impl SettingChange {
    /// A change to `edits` once `row` of `nr_rows` rows are replayed.
    #[must_use]
    pub fn at_row(row: u64, nr_rows: u64, edits: String) -> Self {
        Self { share: Share::least(row, nr_rows), edits }
    }

    /// Returns the share of the rows before the change: `50%`, `12.5%`.
    #[must_use]
    pub fn share(&self) -> String {
        self.share.to_string()
    }

    /// Returns the settings, as edits of a kernel.
    #[must_use]
    pub fn edits(&self) -> &str {
        &self.edits
    }

    /// Returns the first row with the new settings, if `nr_before` of `nr_rows` rows precede the
    /// recording.
    pub(crate) fn row(&self, nr_before: u64, nr_rows: u64) -> u64 {
        self.share.row(nr_before, nr_rows)
    }

    /// Returns the changes in the order of their rows, and the kernel after each.
    ///
    /// # Errors
    /// Edits that are no settings, or that this kernel does not have with pages of `page`.
    pub(crate) fn all<'a>(
        changes: &'a [Self],
        kernel: &Kernel,
        page: PageSize,
    ) -> Result<Vec<(&'a Self, Kernel)>, KernelError> {
        let mut ordered: Vec<&Self> = changes.iter().collect();
        ordered.sort_by_key(|change| change.share);
        let mut now = kernel.clone();
        let after = |change: &'a Self| {
            now = now.after_setting(&change.edits)?;
            now.check_page(page)?;
            Ok((change, now.clone()))
        };
        ordered.into_iter().map(after).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SettingChange, SettingChangeError> {
        text.parse()
    }

    #[test]
    fn a_change_is_written_as_it_is_read() {
        for (text, written) in [
            ("50%:thp=always", "50%:thp=always"),
            ("0%:thp=always", "0%:thp=always"),
            ("07.50%:anon-64K=always", "7.5%:anon-64K=always"),
            ("99.999%:thp=never+defrag=defer+madvise", "99.999%:thp=never+defrag=defer+madvise"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), written);
        }
    }

    #[test]
    fn a_change_at_a_row_has_the_row_before_it() {
        let at = |row, nr_rows| SettingChange::at_row(row, nr_rows, "thp=never".to_owned());
        assert_eq!(at(0, 0).to_string(), "0%:thp=never");
        assert_eq!(at(1, 3).share(), "33.334%");
        assert_eq!(at(299, 300).share(), "99.667%");
        assert_eq!(at(u64::MAX, 7).share(), "99.999%");
        assert!((0..300).all(|row| at(row, 300).row(0, 300) == row));
    }

    #[test]
    fn what_never_happens_is_refused() {
        for text in [
            "100%:thp=always",
            "50:thp=always",
            "50%:",
            "%:thp=always",
            ".5%:thp=always",
            "1.%:thp=always",
            "-1%:thp=always",
            "+1%:thp=always",
            "1.2345%:thp=always",
            "99999999999999999999%:thp=always",
            "thp=always",
        ] {
            assert_eq!(parse(text), Err(SettingChangeError), "{text}");
        }
    }

    #[test]
    fn the_share_is_of_the_recorded_rows() {
        let row = |text: &str, nr_before, nr_rows| parse(text).unwrap().row(nr_before, nr_rows);
        assert_eq!(row("0%:thp=always", 10, 110), 10);
        assert_eq!(row("50%:thp=always", 10, 110), 60);
        assert_eq!(row("12.5%:thp=always", 0, 7), 0);
        assert_eq!(row("99.999%:thp=always", 0, u64::MAX), 18_446_559_606_268_814_519);
    }

    #[test]
    fn later_changes_keep_the_earlier_ones() {
        let changes = ["60%:defrag=always", "20%:thp=always"].map(|text| parse(text).unwrap());
        let kernel = Kernel::parse("6.18").unwrap();
        let all = SettingChange::all(&changes, &kernel, PageSize::K4).unwrap();
        let shares: Vec<_> = all.iter().map(|(change, _)| change.share()).collect();
        assert_eq!(shares, ["20%", "60%"]);
        let whole = Kernel::parse("6.18+thp=always+defrag=always").unwrap();
        assert_eq!(all[1].1.rules, whole.rules);
        let small = [parse("1%:anon-16K=always").unwrap()];
        assert!(SettingChange::all(&small, &kernel, PageSize::K4).is_ok());
        assert!(SettingChange::all(&small, &kernel, PageSize::K64).is_err());
    }
}
