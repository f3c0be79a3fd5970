//! Golden vectors, the naive twin and the exhaustive small world.

mod golden;
mod small_world;
mod twin;

use crate::units::{Order, PageSize};

use super::{Buddy, BuddyConfig, MigrateType};

/// A zone with small orders, so that pageblocks matter within a few pages.
fn small(nr_pages: u64, max_order: u8, pageblock_order: u8) -> Buddy {
    let config = BuddyConfig {
        max_order: Order::new(max_order),
        pageblock_order: Order::new(pageblock_order),
        ..BuddyConfig::new(PageSize::K4, nr_pages)
    };
    Buddy::new(config).unwrap()
}

fn list(buddy: &Buddy, order: u8, of: MigrateType) -> Vec<u64> {
    buddy.lists.blocks(Order::new(order), of).collect()
}
