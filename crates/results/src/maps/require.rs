//! `folio maps --require`: whether enough memory is in large folios.

use std::str::FromStr;

use largefolio_linux::census::Access;
use largefolio_linux::census::folios::MemoryKind;
use largefolio_sim::size::parse_bytes;

use super::Reading;
use crate::figures;
use crate::{Error, Remark};

/// A share of the mapped memory, or of one kind of it, that must be in folios of a size or larger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requirement {
    kind: Option<MemoryKind>,
    folio_bytes: u64,
    percent: f64,
}

impl FromStr for Requirement {
    type Err = String;

    /// Parses `2M:95%`, or with a kind of memory, `anon:2M:95%`.
    ///
    /// ```
    /// use largefolio_results::maps::Requirement;
    /// assert!("2M:95%".parse::<Requirement>().is_ok());
    /// assert!("anon:64K:7.5%".parse::<Requirement>().is_ok());
    /// for wrong in ["2M", "2M:95", "3M:95%", "2M:101%", "heap:2M:9%", "2M:-1%", ""] {
    ///     assert!(wrong.parse::<Requirement>().is_err(), "{wrong}");
    /// }
    /// ```
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            let kinds: Vec<&str> = MemoryKind::ALL.map(MemoryKind::name).to_vec();
            format!(
                "expected a size and a percentage, such as 2M:95%, or the same for one kind of \
                 memory ({}), such as anon:2M:95%",
                kinds.join(", ")
            )
        };
        let (rest, percent) = text.rsplit_once(':').ok_or_else(form)?;
        let percent = percent.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
        let percent = percent.filter(|share| (0.0..=100.0).contains(share)).ok_or_else(form)?;
        let (kind, size) = match rest.split_once(':') {
            Some((name, size)) => {
                let kind = MemoryKind::ALL.into_iter().find(|kind| kind.name() == name);
                (Some(kind.ok_or_else(form)?), size)
            }
            None => (None, rest),
        };
        let folio_bytes = parse_bytes(size).filter(|bytes| bytes.is_power_of_two());
        Ok(Self { kind, folio_bytes: folio_bytes.ok_or_else(form)?, percent })
    }
}

impl Requirement {
    /// Returns a remark if the processes of the reading do not meet it.
    ///
    /// # Errors
    /// If the reading does not know folio sizes, or has no such memory: then nothing was checked.
    pub fn check(&self, reading: &Reading) -> Result<Option<Remark>, Error> {
        let Some(census) = reading.census() else {
            return Err(Error::request("--require checks processes; name some, or use --all"));
        };
        if census.access != Access::Full {
            return Err(Error::request(
                "--require needs folio sizes, and the kernel shows them only to root",
            ));
        }
        let is_in = |kind| self.kind.is_none_or(|own| own == kind);
        let all = census.totals.sum(|kind, _| is_in(kind)).mapped_bytes();
        if all == 0 {
            return Err(Error::request(format!(
                "--require: the processes map no {}",
                self.kind.map_or("memory", MemoryKind::name)
            )));
        }
        let page_bytes = census.geometry.page_bytes;
        let is_large = |kind, size: largefolio_linux::census::folios::Size| {
            is_in(kind) && size.bytes(page_bytes).is_some_and(|bytes| bytes >= self.folio_bytes)
        };
        let large = census.totals.sum(is_large).mapped_bytes();
        #[expect(clippy::cast_precision_loss, reason = "a share is read to three digits")]
        let share = 100.0 * large as f64 / all as f64;
        Ok((share < self.percent).then(|| {
            Remark::Warning(format!(
                "only {share:.1}% of the {} is in folios of {} or more, and --require asks for {}%",
                self.kind
                    .map_or("mapped memory".to_owned(), |kind| format!("{} memory", kind.name())),
                figures::size(self.folio_bytes),
                self.percent
            ))
        }))
    }
}
