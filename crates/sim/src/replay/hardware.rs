//! Hardware threads: a TLB for each thread of the program that runs.
//!
//! Owns when a thread gets a TLB and loses it. Does not own which process a thread belongs to
//! ([`super::program`]): the first thread runs it, every other is announced by the fork that made
//! it, and one that never was is an error.

use largefolio_trace::ThreadId;

use super::cell::{Cell, CellError};
use super::curve::Stacks;
use super::program::ProcessNr;
use crate::tlb::{self, Tlb};

/// Thread ids of a trace: dense numbers, so more are a damaged trace.
pub(super) const NR_THREADS_MAX: usize = 1 << 20;
/// Threads with a TLB at one time; the recorder follows as many.
pub(super) const NR_RUNNING_MAX: usize = 1 << 12;

/// One hardware thread.
pub(super) struct Thread {
    pub(super) process: ProcessNr,
    pub(super) tlb: Tlb,
    /// Buffers of all sizes beside the TLB, where a curve was asked for.
    pub(super) stacks: Option<Box<Stacks>>,
}

impl Cell {
    /// References of all threads so far.
    pub(super) fn references(&self) -> u64 {
        let of =
            |counters: &tlb::Counters| counters.instruction.references + counters.data.references;
        self.count_steps(1 + self.running.len() / 16);
        let running = self.running.iter().filter_map(|&nr| self.hardware[nr as usize].as_ref());
        of(&self.finished_tlbs) + running.map(|thread| of(thread.tlb.counters())).sum::<u64>()
    }

    /// The process of a thread.
    pub(super) fn process_of(&self, thread: ThreadId) -> Result<ProcessNr, CellError> {
        self.threads.process_of(thread).ok_or(CellError::UnknownThread(thread))
    }

    /// A thread that has a TLB.
    #[inline]
    pub(super) fn running_thread(&mut self, nr: usize) -> Result<&mut Thread, CellError> {
        match &mut self.hardware[nr] {
            Some(thread) => Ok(thread),
            None => Err(unknown(nr)),
        }
    }

    /// The hardware thread of a recorded one, made when it first runs.
    #[inline]
    pub(super) fn hardware_of(&mut self, thread: ThreadId) -> Result<usize, CellError> {
        let nr = thread as usize;
        if nr >= self.hardware.len() || self.hardware[nr].is_none() {
            self.start_thread(thread)?;
        }
        Ok(nr)
    }

    #[cold]
    fn start_thread(&mut self, thread: ThreadId) -> Result<(), CellError> {
        let nr = thread as usize;
        if nr >= NR_THREADS_MAX || self.running.len() >= NR_RUNNING_MAX {
            return Err(CellError::TooManyThreads(thread));
        }
        if nr >= self.hardware.len() {
            self.hardware.resize_with(nr + 1, || None);
        }
        let process = self.process_of(thread)?;
        let tlb = Tlb::new(&self.spec.machine.tlb, self.memory.rules().page);
        let stacks = self.detail.is_some() && !self.is_warming();
        let stacks = stacks.then(|| Box::new(Stacks::new(self.memory.rules().page)));
        self.hardware[nr] = Some(Box::new(Thread { process, tlb, stacks }));
        self.running.push(thread);
        Ok(())
    }

    /// Ends a thread: its TLB's counts are kept, its TLB is not.
    pub(super) fn end_thread(&mut self, thread: ThreadId) {
        if let Some(ended) = self.hardware.get_mut(thread as usize).and_then(Option::take) {
            self.finished_tlbs += *ended.tlb.counters();
            self.running.retain(|&running| running != thread);
        }
    }

    /// Takes changed translations out of the TLBs (I1).
    pub(super) fn drain_flushes(&mut self) {
        self.memory.take_flushes(&mut self.flushes);
        self.count_steps(self.flushes.len() * self.running.len());
        for flush in &self.flushes {
            for &running in &self.running {
                let Some(thread) = &mut self.hardware[running as usize] else { continue };
                if self.processes[thread.process].mm == flush.mm {
                    thread.tlb.invalidate(flush.first, flush.nr_pages);
                    if let Some(stacks) = &mut thread.stacks {
                        stacks.invalidate(flush.first, flush.nr_pages);
                    }
                }
            }
        }
    }
}

/// A place without a thread.
#[cold]
fn unknown(nr: usize) -> CellError {
    CellError::UnknownThread(ThreadId::try_from(nr).unwrap_or(ThreadId::MAX))
}
