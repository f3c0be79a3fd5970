//! Hardware threads: a TLB for each thread of the program that runs.
//!
//! Owns which threads have a TLB. A [`Slot`] names one of them until the next thread ends, so that
//! whoever holds a slot has a thread: there is nothing to check. Does not own which process a thread
//! belongs to ([`super::program`]).

use std::ops::{Index, IndexMut};

use largefolio_mm::units::Vpn;
use largefolio_trace::ThreadId;

use super::curve::Stacks;
use super::program::ProcessNr;
use crate::tlb::{self, Tlb};

/// A thread and its TLB.
pub(super) struct HardwareThread {
    pub(super) thread: ThreadId,
    pub(super) process: ProcessNr,
    pub(super) tlb: Tlb,
    /// Buffers of all sizes beside the TLB, where a curve was asked for.
    pub(super) stacks: Option<Box<Stacks>>,
}

impl HardwareThread {
    /// Takes a range of pages out of the TLB.
    pub(super) fn invalidate(&mut self, first: Vpn, nr_pages: u64) {
        self.tlb.invalidate(first, nr_pages);
        if let Some(stacks) = &mut self.stacks {
            stacks.invalidate(first, nr_pages);
        }
    }
}

/// Place of a thread in [`Hardware`]; any end of a thread may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Slot {
    /// That of a thread without a TLB.
    const NONE: Self = Self(u32::MAX);
}

/// The threads that have a TLB.
#[derive(Default)]
pub(super) struct Hardware {
    /// By thread; [`Slot::NONE`] or a place in `running`.
    slots: Vec<Slot>,
    running: Vec<HardwareThread>,
    /// Counts of the threads that ended.
    ended: tlb::Counters,
}

impl Hardware {
    /// The place of a thread that has a TLB.
    #[inline]
    pub(super) fn slot_of(&self, thread: ThreadId) -> Option<Slot> {
        self.slots.get(thread as usize).copied().filter(|slot| *slot != Slot::NONE)
    }

    /// Adds a thread that has none yet.
    pub(super) fn start(&mut self, started: HardwareThread) -> Slot {
        let nr = started.thread as usize;
        if nr >= self.slots.len() {
            self.slots.resize(nr + 1, Slot::NONE);
        }
        let slot = Slot(u32::try_from(self.running.len()).unwrap_or(u32::MAX));
        self.slots[nr] = slot;
        self.running.push(started);
        slot
    }

    /// Ends a thread: its TLB's counts are kept, its TLB is not.
    pub(super) fn end(&mut self, thread: ThreadId) {
        let Some(slot) = self.slot_of(thread) else { return };
        let ended = self.running.swap_remove(slot.0 as usize);
        self.slots[thread as usize] = Slot::NONE;
        if let Some(moved) = self.running.get(slot.0 as usize) {
            self.slots[moved.thread as usize] = slot;
        }
        self.ended += *ended.tlb.counters();
    }

    /// Ends the threads of a process.
    pub(super) fn end_process(&mut self, process: ProcessNr) {
        let of_process = self.running.iter().filter(|thread| thread.process == process);
        let ended: Vec<ThreadId> = of_process.map(|thread| thread.thread).collect();
        for thread in ended {
            self.end(thread);
        }
    }

    /// Threads with a TLB.
    pub(super) fn nr_running(&self) -> usize {
        self.running.len()
    }

    /// Every thread with a TLB.
    pub(super) fn running_mut(&mut self) -> impl Iterator<Item = &mut HardwareThread> {
        self.running.iter_mut()
    }

    /// Counts of the threads that ended.
    pub(super) const fn ended(&self) -> &tlb::Counters {
        &self.ended
    }

    /// References of all threads so far.
    pub(super) fn references(&self) -> u64 {
        let of =
            |counters: &tlb::Counters| counters.instruction.references + counters.data.references;
        of(&self.ended) + self.running.iter().map(|thread| of(thread.tlb.counters())).sum::<u64>()
    }
}

impl Index<Slot> for Hardware {
    type Output = HardwareThread;

    #[inline]
    fn index(&self, slot: Slot) -> &HardwareThread {
        &self.running[slot.0 as usize]
    }
}

impl IndexMut<Slot> for Hardware {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut HardwareThread {
        &mut self.running[slot.0 as usize]
    }
}
