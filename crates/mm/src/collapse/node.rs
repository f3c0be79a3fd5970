//! The node of a collapsed folio (docs/behaviour R.5).
//!
//! Corresponds to: `hpage_collapse_find_target_node`.

use super::CollapseTarget;
use super::scan::is_hole;
use crate::memory::Memory;
use crate::mempolicy::Route;
use crate::units::{MappingId, NodeId, NodeSet, PageIndex, PageRange, Pfn};

impl Memory {
    /// The node with most of the block's pages; of several, also the others.
    pub(super) fn anon_collapse_route(&self, target: &CollapseTarget) -> Option<Route> {
        if self.core.buddy.is_single() {
            return None;
        }
        let ptes = self.ptes_of(target).unwrap_or_default();
        let pages = ptes.iter().filter(|&&pte| !is_hole(pte));
        Some(self.route_to_most(pages.map(|pte| pte.pfn())))
    }

    /// The same for a file's block. A folio counts once, whatever its size.
    pub(super) fn file_collapse_route(
        &self,
        file: MappingId,
        PageRange { first, end }: PageRange,
    ) -> Option<Route> {
        if self.core.buddy.is_single() {
            return None;
        }
        let tree = &self.core.mapping(file).tree;
        let mut pfns = Vec::new();
        let mut at = PageIndex(first);
        while let Some(entry) = tree.first_in(at, PageIndex(end - 1)) {
            pfns.push(self.core.folios.get(entry.folio).pfn);
            at = PageIndex(entry.index.0 + entry.order.nr_pages());
            if at.0 >= end {
                break;
            }
        }
        Some(self.route_to_most(pfns.into_iter()))
    }

    fn route_to_most(&self, pfns: impl Iterator<Item = Pfn>) -> Route {
        let mut loads = vec![0_u64; self.core.buddy.nr_nodes()];
        for pfn in pfns {
            loads[usize::from(self.core.buddy.node_of(pfn).0)] += 1;
        }
        let most = loads.iter().max().copied().unwrap_or(0);
        let nodes = (0..).map(NodeId).zip(&loads).filter(|(_, load)| **load == most);
        let nodes = NodeSet::of(nodes.map(|(node, _)| node));
        Route::to(nodes.nth(0).unwrap_or_default(), nodes)
    }
}
