//! Folio sizes that an area prefers: the loader's annotation and the program's advice.
//!
//! Differs: proposed in the discussion of series 000 (docs/behaviour K.1.4), in no kernel. An area
//! with a preferred size is read with the forward window of B.4.7, like executable memory. A size
//! that the filesystem does not support is ignored.

use super::MapError;
use crate::memory::Memory;
use crate::units::{MmId, Order, Vaddr};

impl Memory {
    /// Requests folios of `bytes` in a range; `None` removes the preference.
    ///
    /// ```
    /// use largefolio_mm::fault::Access;
    /// use largefolio_mm::map::Map;
    /// use largefolio_mm::memory::{Config, Memory};
    /// use largefolio_mm::rules::{Arch, Rules};
    /// use largefolio_mm::vma::Prot;
    ///
    /// let mut memory = Memory::new(Rules::example(), &Config::new(Arch::X86_64))?;
    /// let file = memory.add_file(1 << 20, "xfs");
    /// let (open, mm) = (memory.open(file), memory.new_space());
    /// let at = memory.mmap(mm, Map::file(open, 0, 1 << 20, Prot::READ))?;
    /// memory.prefer_folios(mm, at, 1 << 20, Some(64 << 10))?;
    /// memory.touch(mm, at, Access::Read)?;
    /// let orders: Vec<_> = memory.folios(file).map(|folio| folio.order.get()).collect();
    /// assert_eq!(orders, [4, 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the range is invalid, or the page cache has no folios of this size.
    pub fn prefer_folios(
        &mut self,
        mm: MmId,
        addr: Vaddr,
        len_bytes: u64,
        bytes: Option<u64>,
    ) -> Result<(), MapError> {
        let range = self.checked_range(addr, len_bytes)?;
        let preferred = bytes.map(|bytes| self.folio_order(bytes)).transpose()?;
        self.change_areas(mm, range, |vma| vma.advice.preferred = preferred);
        Ok(())
    }

    pub(crate) fn folio_order(&self, bytes: u64) -> Result<Order, MapError> {
        let page = self.rules.page;
        let order = page.order_of_bytes(bytes);
        let is_size = page.bytes() << order.get() == bytes;
        let max = self.rules.max_pagecache_order();
        if is_size && order <= max {
            return Ok(order);
        }
        let max_bytes = page.bytes() << max.get();
        Err(MapError::NoSuchFolio { bytes, page_bytes: page.bytes(), max_bytes })
    }
}
