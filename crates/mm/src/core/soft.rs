//! The smallest folio of a file as a preference (docs/behaviour K.1.4).
//!
//! Differs: in no kernel. A mapping's smallest order is a limit there: block sizes above the base
//! page rest on it, and a read without such a folio fails.
//!
//! Owns what comes in its place. Does not own insertion itself ([`super::Core`]).

use super::{Core, InsertRefusal, NewFolio};
use crate::folio::FolioId;
use crate::units::{Order, PageIndex};

impl Core {
    /// Inserts `new`. Where it is a folio of the smallest order that memory does not have, or that
    /// base pages of an earlier time stand in the way of, and that order is a preference, its
    /// absent pages come as base pages.
    ///
    /// # Errors
    /// Nothing is changed on a refusal.
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
