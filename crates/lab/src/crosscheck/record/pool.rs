//! A temporary hugetlb pool, restored however the process ends ([`largefolio_linux::setting`]).

use std::path::PathBuf;

use super::error::CrosscheckError;
use largefolio_linux::proc::host;
use largefolio_linux::setting::Setting;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolNeed {
    pub kib: u64,
    /// Pages in the pool, all unused and unreserved.
    pub nr_pages: u64,
}

/// The pool that the programs need; dropping it restores the earlier pool.
#[derive(Debug)]
pub(crate) struct PoolSet {
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
    /// No such pool, a pool in use, or too little contiguous memory.
    pub(crate) fn set(self) -> Result<PoolSet, CrosscheckError> {
        let Self { kib, nr_pages } = self;
        if self.number("nr_hugepages")? != self.number("free_hugepages")? {
            return Err(CrosscheckError::PoolInUse { kib });
        }
        // Reservations that the kernel lost stay until reboot (docs/behaviour O.5.3). If it
        // released more than was reserved, the count is near 2^64: no page is in use then.
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
