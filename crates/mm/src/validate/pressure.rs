//! What memory pressure keeps: I14, I15.

use super::Violation;
use crate::memory::Memory;
use crate::ram::Ram;

impl<R: Ram> Memory<R> {
    /// I14, I15.
    pub(super) fn check_reclaim(&self) -> Result<(), Violation> {
        self.cache
            .folios
            .validate_lru()
            .map_err(|(folio, what)| Violation::I14 { folio, what })
    }
}
