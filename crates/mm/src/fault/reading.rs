//! The orders that an area's faults read: the area's preferred size comes first, then the file's
//! control.

use super::Fault;
use crate::memory::Memory;
use crate::readahead::issue::ReadTarget;
use crate::units::Order;
use crate::vma::Vma;

#[derive(Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) target: ReadTarget,
    /// Order of the B.4.7 window for a requested size; `None` = the kernel's choice.
    pub(crate) order: Option<Order>,
}

impl Memory {
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
