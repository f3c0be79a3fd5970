//! Serves rows of a trace with remembered TLB entries: the first thing a replay tries.
//!
//! Nearly every row repeats a recent one. A table maps a *recorded* page to the slot of level 1
//! that held its entry ([`super::hints`]). If the slot still holds the entry, the row needs no
//! translation and no search. The caller reports where recorded pages are ([`Tlb::remember`]) and
//! when that changes (`epoch`).
//!
//! Invariants:
//! - F1: a row is served only if the slot still holds the remembered entry, which by I1 is the
//!   entry that a search would find. It counts and ages exactly as in [`Tlb::lookup_run`].
//! - F2: a hint from another epoch is never used.
//! - F3: a store is served only after one to the same recorded page, because the caller notes which
//!   pages of a large folio were written.

use largefolio_mm::units::Vpn;
use largefolio_trace::Op;
use largefolio_trace::validate::REFERENCE_PAGE_BYTES;

use super::access::Side;
use super::hierarchy::Tlb;
use super::hints::{Hint, hint_of};
use super::level::Level;

const RECORDED_SHIFT: u32 = REFERENCE_PAGE_BYTES.trailing_zeros();
const EXEC: u8 = Op::Exec as u8;
const READ: u8 = Op::Read as u8;

/// Rows of one thread, in order. All columns have the same length.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Op numbers. Rows that are not references are not served.
    pub ops: &'a [u8],
    pub addrs: &'a [u64],
    pub lens: &'a [u64],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    pub nr_rows: usize,
    pub nr_references: u64,
}

impl Tlb {
    /// Looks up rows while remembered entries of level 1 serve them. Stops before the total number
    /// of references reaches `limit`. `epoch` is the epoch of the recorded pages' places.
    #[expect(clippy::needless_bitwise_bool, reason = "one branch instead of three")]
    pub fn serve(&mut self, rows: Rows<'_>, limit: u64, epoch: u64) -> Served {
        if self.front.epoch != epoch {
            self.front.begin(epoch);
        }
        let hints = &*self.front.hints;
        let mut levels = self.l1.each_mut().map(Level::slots_mut);
        let (mut clock, mut nr_fetched) = (self.clock, 0);
        let mut served = Served::default();
        for ((&op, &addr), &len) in rows.ops.iter().zip(rows.addrs).zip(rows.lens) {
            let side = usize::from(op != EXEC);
            let page = addr >> RECORDED_SHIFT;
            let hint = &hints[hint_of(side, page)];
            let nr_references = served.nr_references.saturating_add(len);
            let (keys, uses) = &mut levels[side];
            let (slot, is_written) = hint.slot_of(page);
            let (Some(&key), Some(last_use)) = (keys.get(slot), uses.get_mut(slot)) else { break };
            let op_max = READ + u8::from(last_use.is_writable() & is_written);
            if !((hint.key == key) & (op <= op_max) & (nr_references < limit)) {
                break;
            }
            clock += 1;
            *last_use = last_use.again(clock);
            nr_fetched += if side == 0 { len } else { 0 };
            served.nr_references = nr_references;
            served.nr_rows += 1;
        }
        self.clock = clock;
        self.counters.side_mut(Side::Instruction).references += nr_fetched;
        self.counters.side_mut(Side::Data).references += served.nr_references - nr_fetched;
        served
    }

    /// Remembers the entry that a lookup of `vpn` (recorded at `addr`) has just used or filled, and
    /// whether it was a store.
    #[inline]
    pub fn remember(&mut self, side: Side, addr: u64, vpn: Vpn, is_store: bool) {
        if let Some((key, slot)) = self.last_hit(side, vpn) {
            let page = addr >> RECORDED_SHIFT;
            self.front.hints[hint_of(side as usize, page)] = Hint::new(page, slot, key, is_store);
        }
    }
}
