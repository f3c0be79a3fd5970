//! zswap in programs and their recordings: settings, page contents, and its pages after a step.
//!
//! Does not own zswap's rules ([`largefolio_mm::rules::zswap`]).

use std::fmt;

use largefolio_mm::folio::Content;
use largefolio_mm::rules::Rules;
use largefolio_mm::rules::reclaim::SwapDevice;
use largefolio_mm::units::PageSize;

use crate::crosscheck::text::{Pairs, Parsed, number_to, unknown};

const MAX_KIB_MAX: u64 = 1 << 30;
const POOL_PAGES_MAX: u64 = 1 << 20;
/// How well a page with noise in its first half compresses with lzo, in percent. The sizes at which
/// the recorded pools and groups were full show it: 2,203 to 2,218 bytes.
const HALF_NOISE_RATIO_PERCENT: u32 = 185;

/// A page's new content (`probe/process.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuffing {
    Zeroes,
    /// One value in all words.
    Same,
    /// Noise in the first half, then zeroes.
    Half,
    Noise,
}

impl Stuffing {
    const LETTERS: [(Self, &'static str); 4] =
        [(Self::Zeroes, "z"), (Self::Same, "s"), (Self::Half, "h"), (Self::Noise, "r")];

    pub(super) fn of(word: &str) -> Parsed<Self> {
        let named = Self::LETTERS.into_iter().find(|(_, letter)| *letter == word);
        named
            .map(|(stuffing, _)| stuffing)
            .ok_or_else(|| format!("stuff needs z, s, h or r, not {word:?}"))
    }

    pub(super) fn letter(self) -> &'static str {
        Self::LETTERS
            .into_iter()
            .find(|(stuffing, _)| *stuffing == self)
            .map_or("", |(_, letter)| letter)
    }

    /// A page's bytes, from a value that differs from page to page.
    pub(super) fn page(self, value: u32, page: PageSize) -> Vec<u8> {
        let nr_words = page.bytes() / 4;
        let mut noise = value;
        let words = (0..nr_words).flat_map(|at| {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            let word = match self {
                Self::Same => value,
                Self::Noise => noise,
                Self::Half if at < nr_words / 2 => noise,
                Self::Half | Self::Zeroes => 0,
            };
            word.to_le_bytes()
        });
        words.collect()
    }

    pub(super) const fn content(self) -> Content {
        match self {
            Self::Zeroes => Content::Zero,
            Self::Same | Self::Half => Content::Compressible,
            Self::Noise => Content::Incompressible,
        }
    }
}

/// A program's cgroup: `zswap=MAX,WRITEBACK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZswapLimits {
    /// `memory.zswap.max`; `None` = no limit.
    pub(super) max_kib: Option<u64>,
    /// `memory.zswap.writeback`.
    pub(super) writeback: bool,
}

impl ZswapLimits {
    /// Reads `zswap=KIB|-,1|0`; `None` for another word.
    pub(super) fn of(word: &str) -> Option<Parsed<Self>> {
        let values = word.strip_prefix("zswap=")?;
        Some(Self::of_values(values))
    }

    fn of_values(values: &str) -> Parsed<Self> {
        let (max, writeback) = values.split_once(',').ok_or("zswap= needs a limit and 1 or 0")?;
        let max_kib = if max == "-" { None } else { Some(number_to(MAX_KIB_MAX, max)?) };
        Ok(Self { max_kib, writeback: number_to(1, writeback)? == 1 })
    }

    pub(super) fn apply(self, rules: &mut Rules) {
        rules.zswap.group_max_bytes = self.max_kib.map(|kib| kib << 10);
        rules.zswap.writeback = self.writeback;
    }
}

impl fmt::Display for ZswapLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_kib {
            Some(kib) => write!(f, "zswap={kib},{}", u8::from(self.writeback)),
            None => write!(f, "zswap=-,{}", u8::from(self.writeback)),
        }
    }
}

/// A recording machine with zswap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZswapMachine {
    percent: u64,
    nr_pages_max: u64,
    device: SwapDevice,
}

impl ZswapMachine {
    /// Reads a header's `zswap=PERCENT,PAGES` and `swap=DEVICE`.
    pub(super) fn of(pairs: &Pairs<'_>) -> Parsed<Option<Self>> {
        let Some(word) = pairs.get("zswap") else { return Ok(None) };
        let (percent, pages) = word.split_once(',').ok_or("zswap= needs a percentage and pages")?;
        let percent = number_to(100, percent)?.max(1);
        let nr_pages_max = number_to(POOL_PAGES_MAX, pages)?;
        let is_zram = pairs.get("swap").is_some_and(|device| device.contains("zram"));
        let device = if is_zram { SwapDevice::Zram } else { SwapDevice::Disk };
        Ok(Some(Self { percent, nr_pages_max, device }))
    }

    pub(super) fn apply(self, rules: &mut Rules) {
        rules.reclaim.swap_device = self.device;
        rules.zswap.enabled = true;
        rules.zswap.max_pool_percent = self.percent as u32;
        rules.zswap.ratio_percent = HALF_NOISE_RATIO_PERCENT;
    }

    /// Memory of which the pool's largest size is the recorded percentage.
    pub(super) const fn ram_bytes(self, page: PageSize) -> u64 {
        (self.nr_pages_max * 100).div_ceil(self.percent) << page.shift()
    }
}

/// zswap's activity in one step, and its pages after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "counts of pages")]
pub(super) struct ZswapNumbers {
    pub(super) nr_stored: u64,
    pub(super) nr_out: u64,
    pub(super) nr_in: u64,
    pub(super) nr_back: u64,
    /// Pages swapped out or in as zeroes.
    pub(super) nr_zero: u64,
}

impl ZswapNumbers {
    /// Reads `z STORED OUT IN BACK ZERO`.
    pub(super) fn of(fields: &[&str]) -> Parsed<Self> {
        let [stored, out, r#in, back, zero] = fields else { return unknown(fields) };
        let number = |word| number_to(u64::MAX, word);
        Ok(Self {
            nr_stored: number(stored)?,
            nr_out: number(out)?,
            nr_in: number(r#in)?,
            nr_back: number(back)?,
            nr_zero: number(zero)?,
        })
    }

    pub(super) const fn still(self) -> Self {
        Self { nr_out: 0, nr_in: 0, nr_back: 0, nr_zero: 0, ..self }
    }
}

impl fmt::Display for ZswapNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nr_stored, nr_out, nr_in, nr_back, nr_zero } = self;
        write!(
            f,
            "{nr_stored} in zswap, {nr_out} stored, {nr_in} loaded, {nr_back} written back, \
             {nr_zero} zero"
        )
    }
}
