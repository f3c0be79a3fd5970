//! Programs that lock memory, between the steps of copy-on-write programs, collapses and pins.

use largefolio_mm::vma::Lock;

use super::super::program::{LockAll, ProcessOp};
use super::Generator;

impl Generator {
    pub(super) fn locked_step(&mut self) {
        let (slot, _) = self.some_process();
        match self.rng.below(100) {
            0..14 => self.on_range(slot, |rng, range| {
                let kind = if rng.below(3) == 0 { Lock::OnFault } else { Lock::All };
                ProcessOp::Lock(range, kind)
            }),
            14..20 => self.on_range(slot, |_, range| ProcessOp::Lock(range, Lock::None)),
            20..22 => self.lock_all(slot),
            22..30 => self.collapse(slot),
            30..34 => self.pin(slot),
            34..38 => self.emit(slot, ProcessOp::Unpin),
            _ => self.step(),
        }
    }

    fn lock_all(&mut self, slot: usize) {
        let kind = [Lock::None, Lock::All, Lock::OnFault][self.rng.below(3) as usize];
        let later = kind != Lock::None && self.chance(50);
        let now = kind != Lock::None && (!later || self.chance(70));
        self.emit(slot, ProcessOp::LockAll(LockAll { kind, now, later }));
    }
}
