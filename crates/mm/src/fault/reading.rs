//! What the faults of an area read into: the size it was annotated with, else the file's control.
//!
//! Owns the order among those wishes. Does not own the annotation (`map/prefer.rs`) nor the control
//! ([`crate::rules::sizes`]).

use super::Fault;
use crate::memory::Memory;
use crate::readahead::issue::ReadTarget;
use crate::units::Order;
use crate::vma::Vma;

/// What the faults of an area read.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// The file, and the orders that its folios may have.
    pub(crate) target: ReadTarget,
    /// Order of the window of B.4.7 that a size asked for gives; `None` = as the kernel does.
    pub(crate) order: Option<Order>,
}

impl Memory {
    /// What `fault` reads into and in which order: the area's wish, else the file's control.
    pub(crate) fn reading(&self, fault: &Fault) -> Reading {
        let file = self.open_file(fault.open()).mapping;
        let mapping = self.core.mapping(file);
        let own = |vma: &Vma| {
            let preferred = vma.advice.preferred.filter(|&order| order <= mapping.orders.max);
            preferred.or(mapping.control.exec.filter(|_| vma.prot.can_exec))
        };
        let order = own(&fault.vma);
        let always = mapping.control.always;
        let allowed = order.map_or(always, |order| always.with(order));
        Reading { target: ReadTarget { file, allowed }, order }
    }
}
