//! Settings for shared memory, and the folios that a program's file in memory has in the cache.
//!
//! ```text
//!   program 4 pages=1280 sizes=- shmem=within_size,always,64:inherit memfd=1024
//!                                      shmem_enabled, huge= of its tmpfs, sizes in KiB
//!   o 0:9 512:0*3 515:0                cached folios: first page, order, how many in a row
//! ```
//!
//! Other sizes than the named ones are off; the PMD size inherits.

use std::collections::BTreeMap;
use std::fmt;

use largefolio_mm::rules::Rules;
use largefolio_mm::rules::shmem::{ShmemEnabled, ShmemSizeMode, ShmemSizes, TmpfsHuge};

use super::range::{NR_PAGES_MAX, SIZE_KIB_MAX};
use crate::crosscheck::text::{Parsed, number_to};

/// No page-cache folio is larger.
const ORDER_MAX: u64 = 11;

pub(super) const ENABLED: [(&str, ShmemEnabled); 6] = [
    ("never", ShmemEnabled::Never),
    ("advise", ShmemEnabled::Advise),
    ("within_size", ShmemEnabled::WithinSize),
    ("always", ShmemEnabled::Always),
    ("deny", ShmemEnabled::Deny),
    ("force", ShmemEnabled::Force),
];
pub(super) const HUGE: [(&str, TmpfsHuge); 4] = [
    ("never", TmpfsHuge::Never),
    ("advise", TmpfsHuge::Advise),
    ("within_size", TmpfsHuge::WithinSize),
    ("always", TmpfsHuge::Always),
];
pub(super) const MODES: [(&str, ShmemSizeMode); 5] = [
    ("never", ShmemSizeMode::Never),
    ("advise", ShmemSizeMode::Advise),
    ("within_size", ShmemSizeMode::WithinSize),
    ("always", ShmemSizeMode::Always),
    ("inherit", ShmemSizeMode::Inherit),
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShmemSettings {
    pub(super) enabled: ShmemEnabled,
    pub(super) tmpfs: TmpfsHuge,
    pub(super) size_kib: BTreeMap<u64, ShmemSizeMode>,
}

fn named<T: Copy>(all: &[(&str, T)], word: &str) -> Parsed<T> {
    let found = all.iter().find(|(name, _)| *name == word);
    found.map(|(_, value)| *value).ok_or_else(|| format!("{word:?} is not a mode"))
}

fn name_of<'a, T: PartialEq>(all: &[(&'a str, T)], value: &T) -> &'a str {
    all.iter().find(|(_, known)| known == value).map_or("", |(name, _)| name)
}

impl ShmemSettings {
    /// Reads `shmem=GLOBAL,HUGE[,KIB:MODE..]`; `None` for another word.
    pub(super) fn of(word: &str) -> Option<Parsed<Self>> {
        Some(Self::parse(word.strip_prefix("shmem=")?))
    }

    fn parse(words: &str) -> Parsed<Self> {
        let mut words = words.split(',');
        let mut next = || words.next().unwrap_or_default();
        let (enabled, tmpfs) = (named(&ENABLED, next())?, named(&HUGE, next())?);
        let of_size = |word: &str| {
            let (kib, mode) =
                word.split_once(':').ok_or_else(|| format!("{word:?}: no KIB:MODE"))?;
            Ok((number_to(SIZE_KIB_MAX, kib)?, named(&MODES, mode)?))
        };
        let size_kib = words.map(of_size).collect::<Parsed<_>>()?;
        Ok(Self { enabled, tmpfs, size_kib })
    }

    pub(super) fn apply(&self, rules: &mut Rules) {
        rules.shmem.enabled = self.enabled;
        rules.shmem.tmpfs = self.tmpfs;
        // Older kernels have no controls of sizes, and the recording program skips them.
        if rules.shmem.sizes == ShmemSizes::PerSize {
            let named = self.size_kib.iter().map(|(kib, mode)| (kib.to_string(), *mode));
            rules.shmem.size_kib = named.collect();
        }
    }
}

impl fmt::Display for ShmemSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { enabled, tmpfs, size_kib } = self;
        write!(f, "shmem={},{}", name_of(&ENABLED, enabled), name_of(&HUGE, tmpfs))?;
        size_kib.iter().try_for_each(|(kib, mode)| write!(f, ",{kib}:{}", name_of(&MODES, mode)))
    }
}

/// A cached folio: its first page in the file, and its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedFolio {
    pub(super) first: u64,
    pub(super) order: u8,
}

impl CachedFolio {
    /// Reads `FIRST:ORDER[*NR] ..`.
    pub(super) fn all_of(words: &[&str]) -> Parsed<Vec<Self>> {
        let mut all = Vec::new();
        for word in words {
            let (folio, nr) = word.split_once('*').unwrap_or((word, "1"));
            let (first, order) = folio.split_once(':').ok_or("a folio is FIRST:ORDER")?;
            let order = number_to(ORDER_MAX, order)? as u8;
            let first = number_to(NR_PAGES_MAX - 1, first)?;
            let nr = number_to((NR_PAGES_MAX - first) >> order, nr)?;
            all.extend((0..nr).map(|by| Self { first: first + (by << order), order }));
        }
        Ok(all)
    }

    /// Writes them as [`Self::all_of`] reads them.
    pub(super) fn text(all: &[Self]) -> String {
        let follows =
            |a: &Self, b: &Self| a.order == b.order && a.first + (1 << a.order) == b.first;
        let run = |run: &[Self]| {
            let times = if run.len() > 1 { format!("*{}", run.len()) } else { String::new() };
            format!("{}:{}{times}", run[0].first, run[0].order)
        };
        all.chunk_by(follows).map(run).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_folios_are_read_as_they_are_written() {
        for text in ["shmem=never,never", "shmem=force,within_size,8:always,2048:inherit"] {
            assert_eq!(ShmemSettings::of(text).unwrap().unwrap().to_string(), text);
        }
        let folios = "0:9 512:0*3 516:2";
        let read = CachedFolio::all_of(&folios.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(read.len(), 5);
        assert_eq!(CachedFolio::text(&read), folios);
    }

    #[test]
    fn what_is_no_setting_or_folio_is_refused() {
        assert!(ShmemSettings::of("memfd=4").is_none());
        for text in ["shmem=always", "shmem=always,deny", "shmem=x,never", "shmem=never,never,64"] {
            assert!(ShmemSettings::of(text).unwrap().is_err(), "{text}");
        }
        for word in ["0", "0:12", "8192:0", "0:11*5", "0:0*8193"] {
            assert!(CachedFolio::all_of(&[word]).is_err(), "{word}");
        }
    }
}
