//! A file's smallest folio order, as a preference only (docs/behaviour K.1.4).
//!
//! Differs: no kernel has this. In a kernel, a mapping's minimum order is a hard limit. Block sizes
//! above the base page size depend on it, and a read fails if no folio of this order is free.
//!
//! Owns the fallback. Does not own insertion itself ([`super::Core`]).

use super::{Core, InsertRefusal, NewFolio};
use crate::folio::FolioId;
use crate::units::{Order, PageIndex};

impl Core {
    /// Inserts `new`. If its order is only a preference, falls back to base pages when no block is
    /// free or base pages are already cached in the range.
    ///
    /// # Errors
    /// A refusal changes nothing.
    pub(crate) fn insert(&mut self, new: NewFolio) -> Result<FolioId, InsertRefusal> {
        let refused = match self.insert_one(new) {
            Ok(id) => return Ok(id),
            Err(refused) => refused,
        };
        let mapping = self.mapping(new.file);
        let Some(page) = mapping.soft_min.filter(|_| new.order == mapping.orders.min) else {
            return Err(refused);
        };
        let end = (new.index.0 + new.order.nr_pages()).min(mapping.nr_file_pages(page));
        let (mut first, mut is_marked) = (Err(refused), new.is_marked);
        for index in (new.index.0..end).map(PageIndex) {
            if self.find(new.file, index).is_some() {
                continue;
            }
            let base = NewFolio { index, order: Order::ZERO, is_marked, ..new };
            match self.insert_one(base) {
                Ok(id) => (first, is_marked) = (first.or(Ok(id)), false),
                Err(_) => break,
            }
        }
        first
    }
}
