//! TLB entry sizes in machine files: `"64K"`, `["4K", "2M"]`, `"any"`.

use std::fmt;

use largefolio_mm::units::{Order, PageSize, parse_bytes};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// From the smallest base page to the contiguous PMD block of 64 KiB pages.
const SHIFTS: std::ops::RangeInclusive<u32> = 12..=34;

/// Number of bytes that one entry covers: a power of two from 4K to 16G.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntrySize {
    shift: u32,
}

impl EntrySize {
    pub(super) const PMD_4K: Self = Self { shift: 21 };

    /// Parses `4K`, `2M`, `1G`, ..; `None` if it is not a valid size.
    ///
    /// ```
    /// # use largefolio_sim::tlb::EntrySize;
    /// assert_eq!(EntrySize::parse("2M").map(EntrySize::bytes), Some(2 << 20));
    /// assert_eq!(EntrySize::parse("3M"), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (number, unit_shift) = match text.as_bytes().last()? {
            b'K' => (&text[..text.len() - 1], 10),
            b'M' => (&text[..text.len() - 1], 20),
            b'G' => (&text[..text.len() - 1], 30),
            _ => return None,
        };
        let number: u32 = number.parse().ok()?;
        let shift = number.is_power_of_two().then(|| number.trailing_zeros() + unit_shift)?;
        SHIFTS.contains(&shift).then_some(Self { shift })
    }

    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift
    }

    /// Returns the order; `None` if smaller than a base page or larger than any folio.
    #[must_use]
    pub fn order(self, page: PageSize) -> Option<Order> {
        let order = self.shift.checked_sub(page.shift())?;
        let order = u8::try_from(order).ok()?;
        (order <= Order::LIMIT).then(|| Order::new(order))
    }
}

impl fmt::Display for EntrySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shift, unit) = match self.shift {
            30.. => (30, 'G'),
            20.. => (20, 'M'),
            _ => (10, 'K'),
        };
        write!(f, "{}{unit}", self.bytes() >> shift)
    }
}

impl Serialize for EntrySize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EntrySize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "`{text}` is not a TLB entry size; expected a power of two from \"4K\" to \"16G\""
            ))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CacheSize(pub u64);

/// As large as any real cache. Bounds the memory that a machine file can use.
const CACHE_BYTES_MAX: u64 = 1 << 30;

impl TryFrom<String> for CacheSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = parse_bytes(&text).filter(|bytes| (4096..=CACHE_BYTES_MAX).contains(bytes));
        let form = "expected bytes from \"4K\" to \"1G\", such as \"36M\"";
        bytes.map(Self).ok_or_else(|| format!("`{text}` is not a cache size: {form}"))
    }
}

impl From<CacheSize> for String {
    fn from(CacheSize(bytes): CacheSize) -> Self {
        match bytes {
            bytes if bytes % (1 << 20) == 0 => format!("{}M", bytes >> 20),
            bytes if bytes % (1 << 10) == 0 => format!("{}K", bytes >> 10),
            bytes => bytes.to_string(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntrySizes {
    /// Every size that exists with the base page.
    Any,
    Listed(Vec<EntrySize>),
}

impl EntrySizes {
    /// Returns the possible orders as a mask: bit `k` = order `k`.
    #[must_use]
    pub fn orders(&self, page: PageSize) -> u32 {
        match self {
            Self::Any => u32::MAX >> (31 - u32::from(Order::LIMIT)),
            Self::Listed(sizes) => sizes
                .iter()
                .filter_map(|size| size.order(page))
                .fold(0, |orders, order| orders | 1 << order.get()),
        }
    }
}

impl Serialize for EntrySizes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => serializer.serialize_str("any"),
            Self::Listed(sizes) => serializer.collect_seq(sizes),
        }
    }
}

impl<'de> Deserialize<'de> for EntrySizes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizesVisitor)
    }
}

struct SizesVisitor;

impl<'de> Visitor<'de> for SizesVisitor {
    type Value = EntrySizes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"any\" or a list of sizes such as [\"4K\", \"2M\"]")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<EntrySizes, E> {
        if text == "any" {
            return Ok(EntrySizes::Any);
        }
        Err(E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<EntrySizes, A::Error> {
        let mut sizes = Vec::new();
        while let Some(size) = seq.next_element()? {
            sizes.push(size);
        }
        Ok(EntrySizes::Listed(sizes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_printed_and_turned_into_orders() {
        for text in ["4K", "16K", "512K", "1M", "32M", "512M", "1G", "16G"] {
            assert_eq!(EntrySize::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "K", "4", "2K", "3K", "0K", "32G", "4k", "-4K", "99999999999K", "4 K"] {
            assert_eq!(EntrySize::parse(text), None, "{text}");
        }
        let size = |text| EntrySize::parse(text).unwrap();
        assert_eq!(size("2M").order(PageSize::K64), Some(Order::new(5)));
        assert_eq!(size("16K").order(PageSize::K64), None);
        assert_eq!(size("16G").order(PageSize::K4), None, "2^22 pages are beyond Order::LIMIT");
        let listed = EntrySizes::Listed(vec![size("4K"), size("2M")]);
        assert_eq!(listed.orders(PageSize::K4), 1 | 1 << 9);
        assert_eq!(listed.orders(PageSize::K16), 1 << 7);
        assert_eq!(EntrySizes::Any.orders(PageSize::K4).count_ones(), 21);
    }
}
