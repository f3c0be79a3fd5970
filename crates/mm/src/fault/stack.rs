//! Stacks that grow (docs/behaviour D.2.10).
//!
//! Corresponds to: `lock_mm_and_find_vma`, `expand_stack`.

use crate::memory::Memory;
use crate::units::{MmId, Vpn};
use crate::vma::{Prot, Vma};

/// Pages that stay free below a stack (`stack_guard_gap`).
const GUARD_PAGES: u64 = 256;

impl Memory {
    /// Extends the stack above `vpn` down to this page; `None` if there is no room for it.
    pub(super) fn grow_stack(&mut self, mm: MmId, vpn: Vpn) -> Option<Vma> {
        let vmas = &mut self.space_mut(mm).vmas;
        let stack = *vmas.first_from(vpn)?;
        stack.grows_to.filter(|lowest| *lowest <= vpn)?;
        let is_close = |below: &Vma| {
            below.end.plus(GUARD_PAGES) > vpn
                && below.grows_to.is_none()
                && below.prot != Prot::NONE
        };
        if vmas.last_before(vpn).is_some_and(is_close) {
            return None;
        }
        vmas.grow_down(stack.start, vpn);
        Some(Vma { start: vpn, ..stack })
    }
}
