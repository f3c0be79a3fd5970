//! Pins: page references held by devices (GUP; docs/behaviour E.1.2, E.3.5).
//!
//! Corresponds to: `pin_user_pages_fast`, `try_grab_folio`, `gup_must_unshare`, `unpin_user_pages`.
//!
//! Pinning an anonymous page makes it exclusive to its process. If the page is copied later, the
//! other process gets the copy, and the device keeps the original page.

use crate::fault::{Access, Fault, FaultCause, FaultError, Pass};
use crate::folio::FolioId;
use crate::memory::Memory;
use crate::pgtable::{Leaf, LeafKind, Protection, PteFlags};
use crate::rules::numa::MarkedPins;
use crate::units::{MmId, Pfn, Vaddr, Vpn};
use crate::vma::Sharing;

/// A pinned page, to pass to [`Memory::unpin`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pin that is not released holds its page forever"]
pub struct Pin {
    /// Frame that the device may use until the unpin.
    pub pfn: Pfn,
    folio: Option<FolioId>,
}

impl Memory {
    /// Pins the page at `addr` for a device that reads it (`Read`) or stores to it (`Write`).
    ///
    /// # Errors
    /// Fails if the page cannot be touched that way.
    pub fn pin(&mut self, mm: MmId, addr: Vaddr, access: Access) -> Result<Pin, FaultError> {
        let vpn = addr.vpn(self.rules.page);
        self.leaf_to_pin(mm, addr, access)?;
        if access != Access::Write {
            self.unshare(mm, vpn)?;
        }
        let pfn = self.space(mm).table.pte(vpn).pfn();
        let folio = self.core.folios.of_pfn(pfn);
        if let Some(id) = folio {
            self.core.folios.get_mut(id).pin();
            self.space_mut(mm).has_pinned = true;
        }
        Ok(Pin { pfn, folio })
    }

    /// Takes a reference to the page at `addr` without pinning it (`FOLL_GET`: a pipe that
    /// `vmsplice` fills). The page stays shared, but its folio has an extra reference.
    ///
    /// # Errors
    /// Fails if the page cannot be read.
    pub fn hold(&mut self, mm: MmId, addr: Vaddr) -> Result<Pin, FaultError> {
        let vpn = addr.vpn(self.rules.page);
        let pfn = self.leaf_to_pin(mm, addr, Access::Read)?.pfn_of(vpn);
        let folio = self.core.folios.of_pfn(pfn);
        if let Some(id) = folio {
            self.core.folios.get_mut(id).pin();
        }
        Ok(Pin { pfn, folio })
    }

    /// Touches a page to refer to it. A page that NUMA balancing has marked needs no fault (R.6.2).
    fn leaf_to_pin(&mut self, mm: MmId, addr: Vaddr, access: Access) -> Result<Leaf, FaultError> {
        let vpn = addr.vpn(self.rules.page);
        let is_kept = self.rules.numa.pins == MarkedPins::Kept && access == Access::Read;
        let marked = self.space(mm).table.leaf(vpn).filter(|leaf| {
            let is_readable = || self.space(mm).vmas.find(vpn).is_some_and(|vma| vma.prot.can_read);
            is_kept && leaf.flags.contains(PteFlags::NO_ACCESS) && is_readable()
        });
        marked.map_or_else(|| Ok(self.touch(mm, addr, access)?.leaf), Ok)
    }

    /// Releases a pin; the last reference frees the page.
    #[expect(clippy::needless_pass_by_value, reason = "a pin is released once")]
    pub fn unpin(&mut self, pin: Pin) {
        let Some(id) = pin.folio else { return };
        self.core.folios.get_mut(id).unpin();
        self.core.put(id, 1);
    }

    fn unshare(&mut self, mm: MmId, vpn: Vpn) -> Result<(), FaultError> {
        let Some(&vma) = self.space(mm).vmas.find(vpn) else { return Ok(()) };
        let Some(leaf) = self.space(mm).table.leaf(vpn) else { return Ok(()) };
        let pfn = leaf.pfn_of(vpn);
        let head = if leaf.kind == LeafKind::Pmd { leaf.pfn } else { pfn };
        let is_own = self.core.folios.is_exclusive(head);
        let is_zero = leaf.flags.contains(PteFlags::SPECIAL);
        if vma.sharing == Sharing::Shared || is_own || is_zero {
            return Ok(());
        }
        let cause = FaultCause::default();
        let fault = Fault { mm, vpn, access: Access::Write, vma, pass: Pass::First, cause };
        self.core.counters.pgfault += 1;
        self.write_protect_fault(&fault)?;
        let Some(leaf) = self.space(mm).table.leaf(vpn) else {
            unreachable!("a fault that succeeds maps its page")
        };
        let (first, nr) = match leaf.kind {
            LeafKind::Pmd => (leaf.first_vpn, leaf.order.nr_pages()),
            LeafKind::Pte | LeafKind::Contpte => (vpn, 1),
        };
        let protection = Protection { set: PteFlags::NONE, clear: PteFlags::WRITABLE };
        let (space, folios) = self.space_and_folios(mm);
        space.table.protect_range(first, nr, protection, |pfn| folios.span_of(pfn));
        Ok(())
    }
}
