//! Allocation above a watermark (docs/behaviour I.6).
//!
//! Corresponds to: `__zone_watermark_ok`.

use thiserror::Error;

use crate::units::{Order, Pfn};

use super::{Buddy, MigrateType};

/// Why an allocation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Error)]
pub enum WatermarkRefusal {
    /// Memory is short: too few free page frames would remain.
    #[error("below the watermark")]
    BelowWatermark,
    /// Memory is fragmented: enough page frames are free, but no block is large enough.
    #[error("no free block is large enough")]
    NoSuitableBlock,
}

impl Buddy {
    /// Checks a request of `order` against the watermark: `free - 2^order + 1 > watermark`, and a
    /// free block of at least `order` of any type exists.
    ///
    /// # Errors
    /// The condition that fails.
    pub fn check_watermark(
        &self,
        order: Order,
        watermark_pages: u64,
    ) -> Result<(), WatermarkRefusal> {
        if self.nr_free_pages() < watermark_pages.saturating_add(order.nr_pages()) {
            return Err(WatermarkRefusal::BelowWatermark);
        }
        let has_block = |of| self.lists.smallest(order, of).is_some();
        if MigrateType::ALL.into_iter().any(has_block) {
            Ok(())
        } else {
            Err(WatermarkRefusal::NoSuitableBlock)
        }
    }

    /// [`Buddy::alloc`] if the watermark allows it.
    ///
    /// # Errors
    /// The failed condition of the watermark check.
    pub fn try_alloc(
        &mut self,
        order: Order,
        migrate_type: MigrateType,
        watermark_pages: u64,
    ) -> Result<Pfn, WatermarkRefusal> {
        self.check_watermark(order, watermark_pages)?;
        self.alloc(order, migrate_type).ok_or(WatermarkRefusal::NoSuitableBlock)
    }
}
