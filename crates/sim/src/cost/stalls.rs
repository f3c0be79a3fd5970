//! What memory stalls cost on a machine, for policies that see them.

use largefolio_mm::core::stall::StallCosts;

use super::price::{ns_each, whole_ns};
use crate::machine::{Costs, Quantity};

/// A read without a waiting disk, and reclaim as estimates count it. A cost that the machine does
/// not have is 0.
pub(crate) fn stall_costs(costs: &Costs) -> StallCosts {
    let ns = |cost: &Option<Quantity>| {
        cost.as_ref().and_then(|cost| ns_each(cost, costs)).map_or(0, whole_ns)
    };
    StallCosts {
        examined_ns: ns(&costs.reclaim_scan),
        freed_ns: ns(&costs.reclaim_page),
        read_ns: ns(&costs.storage_latency),
        swap_in_ns: ns(&costs.swap_in),
    }
}
