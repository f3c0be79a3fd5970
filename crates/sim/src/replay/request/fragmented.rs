//! Parses the initial fragmentation of memory: `500`, `64K:80%`.

use std::fmt;
use std::str::FromStr;

use largefolio_mm::buddy::Fragmentation;
use largefolio_mm::rules::sizes::size_name;
use largefolio_mm::units::{Order, PageSize};

use crate::size::parse_bytes;

pub(crate) const PERMILLE_MAX: u32 = 1000;
/// Largest order if no size is set: a PMD folio of 4 KiB pages.
const PMD_ORDER_MAX: Order = Order::new(9);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmented {
    /// The size in bytes; 0 = a PMD folio.
    pub bytes: u64,
    /// The share in thousandths; 0 = memory is not fragmented.
    pub permille: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a valid fragmentation value; expected SIZE:SHARE, such as 64K:80%, or a number \
     from 0 to {PERMILLE_MAX}, such as 500: the share of free memory, in thousandths, that is too \
     fragmented for a PMD folio"
)]
pub struct FragmentedError(String);

impl FromStr for Fragmented {
    type Err = FragmentedError;

    fn from_str(text: &str) -> Result<Self, FragmentedError> {
        let parsed = match text.split_once(':') {
            None => thousandths(text).map(|permille| Self { bytes: 0, permille }),
            Some((size, share)) => {
                let bytes = parse_bytes(size).filter(|bytes| bytes.is_power_of_two());
                let share = share.strip_suffix('%').map_or_else(|| thousandths(share), percent);
                bytes.zip(share).map(|(bytes, permille)| Self { bytes, permille })
            }
        };
        parsed.ok_or_else(|| FragmentedError(text.to_owned()))
    }
}

fn thousandths(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&permille| permille <= PERMILLE_MAX)
}

fn percent(text: &str) -> Option<u32> {
    let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
    let is_digit = tenth.len() == 1 && tenth.as_bytes()[0].is_ascii_digit();
    let whole: u32 = whole.parse().ok().filter(|&whole| whole <= PERMILLE_MAX)?;
    let permille = 10 * whole + tenth.parse::<u32>().ok()?;
    (is_digit && permille <= PERMILLE_MAX).then_some(permille)
}

impl fmt::Display for Fragmented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            0 => write!(f, "{}", self.permille),
            bytes => {
                let (whole, tenth) = (self.permille / 10, self.permille % 10);
                write!(f, "{}:{whole}.{tenth}%", size_name(bytes))
            }
        }
    }
}

impl Fragmented {
    fn order(self, page: PageSize) -> Order {
        if self.bytes == 0 {
            return page.pmd_order().min(PMD_ORDER_MAX);
        }
        page.order_of_bytes(self.bytes)
    }

    /// Returns whether the size is larger than a base page and possible for a free block.
    #[must_use]
    pub fn fits(self, page: PageSize) -> bool {
        let max_bytes = page.bytes() << page.max_page_order().get();
        self.bytes == 0 || (self.bytes > page.bytes() && self.bytes <= max_bytes)
    }

    #[must_use]
    pub fn state(self, page: PageSize, seed: u64) -> Option<Fragmentation> {
        (self.permille > 0).then(|| Fragmentation::at(self.order(page), self.permille, seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_in_percent_or_in_thousandths() {
        let of = |text: &str| text.parse::<Fragmented>().map(|one| (one.bytes, one.permille));
        assert_eq!(of("500"), Ok((0, 500)));
        assert_eq!(of("64K:80%"), Ok((64 << 10, 800)));
        assert_eq!(of("64K:12.5%"), Ok((64 << 10, 125)));
        assert_eq!(of("2M:1000"), Ok((2 << 20, 1000)));
        for wrong in ["1001", "64K:", "64K:101%", "65K:10%", ":10%", "64K:1.25%", "-1", "64K"] {
            let message = of(wrong).unwrap_err().to_string();
            assert!(
                message.contains("64K:80%") && message.contains("from 0 to 1000"),
                "{wrong}: {message}"
            );
        }
    }

    #[test]
    fn a_target_holds_for_blocks_above_the_base_page() {
        let of = |text: &str| text.parse::<Fragmented>().unwrap();
        assert!(of("64K:80%").fits(PageSize::K4) && !of("64K:80%").fits(PageSize::K64));
        assert!(!of("8M:80%").fits(PageSize::K4), "no block is as large");
        let state = of("64K:80%").state(PageSize::K4, 7).unwrap();
        assert_eq!((state.order, state.unusable_permille, state.seed), (Order::new(4), 800, 7));
        assert_eq!(of("500").state(PageSize::K4, 1).unwrap().order, Order::new(9));
        assert_eq!(of("0").state(PageSize::K4, 1), None);
    }
}
