//! A pool of huge pages for a while: set, and put back however the process ends ([`crate::setting`]).

use std::path::PathBuf;

use super::error::CrosscheckError;
use crate::proc::host;
use crate::setting::Setting;

/// Huge pages that programs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolNeed {
    /// Size of a page.
    pub kib: u64,
    /// Pages of the pool, all of them unused and promised to nobody.
    pub nr_pages: u64,
}

/// The pool as programs need it; dropping it puts the earlier one back.
#[derive(Debug)]
pub(super) struct PoolSet {
    _settings: [Setting; 2],
}

impl PoolNeed {
    fn file(self, name: &str) -> PathBuf {
        host::hugetlb(self.kib, name)
    }

    fn number(self, name: &str) -> Result<u64, CrosscheckError> {
        let value = Setting::read(&self.file(name))?;
        Ok(value.parse().unwrap_or(0))
    }

    /// Gives the pool exactly these pages.
    ///
    /// # Errors
    /// No such pool, one that somebody uses, or too little memory in one piece.
    pub(super) fn set(self) -> Result<PoolSet, CrosscheckError> {
        let Self { kib, nr_pages } = self;
        if self.number("nr_hugepages")? != self.number("free_hugepages")? {
            return Err(CrosscheckError::PoolInUse { kib });
        }
        // Promises that a kernel has lost stay until it is booted again (docs/behaviour O.5.3).
        // More given back than promised shows as a number near 2^64: nothing is held then.
        let nr_held = u64::try_from(self.number("resv_hugepages")?.cast_signed()).unwrap_or(0);
        let nr_pages = nr_pages.saturating_add(nr_held);
        let none_beyond = Setting::change(&self.file("nr_overcommit_hugepages"), "0")?;
        let pages = Setting::change(&self.file("nr_hugepages"), &nr_pages.to_string())?;
        let set = PoolSet { _settings: [none_beyond, pages] };
        let got = self.number("nr_hugepages")?;
        if got < nr_pages {
            return Err(CrosscheckError::PoolTooSmall { kib, wanted: nr_pages, got });
        }
        Ok(set)
    }
}
