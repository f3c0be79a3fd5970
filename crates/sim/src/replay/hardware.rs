//! CPUs and their TLBs: which thread runs where.
//!
//! ```text
//!   thread that first runs --> the CPU with the fewest live threads, the lowest number first
//!                              it stays there until it ends
//!   CPU: TLB              <--  the address space of the thread whose row is next; a switch keeps
//!                              the entries of as many address spaces as the machine has tags for
//! ```
//!
//! A recording does not say where the recorded threads ran, and another machine would not run them
//! there. The rule keeps threads apart for as long as there are CPUs. A TLB outlives threads: the next
//! one on that CPU finds the entries of its address space.
//!
//! Owns which threads run, and what a switch does to a TLB. A [`Slot`] names one of them until the
//! next thread ends, so that whoever holds a slot has a thread: there is nothing to check. Does not
//! own which process a thread belongs to ([`super::program`]).

use std::ops::{Index, IndexMut};

use largefolio_mm::units::{Vpn, VpnRange};
use largefolio_trace::ThreadId;

use super::curve::Stacks;
use super::program::ProcessNr;
use super::programs::ProgramNr;
use super::space::SpaceNr;
use crate::tlb::{self, Tlb};

/// A thread that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct HardwareThread {
    pub(super) thread: ThreadId,
    pub(super) process: ProcessNr,
    /// What it runs.
    pub(super) program: ProgramNr,
    pub(super) space: SpaceNr,
    /// Number of `space` in TLBs.
    pub(super) space_id: u64,
    /// Its CPU.
    pub(super) cpu: usize,
}

/// A CPU on which a thread has run.
pub(super) struct Cpu {
    pub(super) tlb: Tlb,
    /// Buffers of all sizes beside the TLB, where a curve was asked for.
    pub(super) stacks: Option<Box<Stacks>>,
    /// Threads that live here.
    nr_threads: usize,
    /// The thread of the last row.
    thread: Option<ThreadId>,
    /// What it ran.
    program: ProgramNr,
    /// Counts that programs have been charged with.
    charged: tlb::Counters,
}

impl Cpu {
    /// One that nothing ran on.
    pub(super) fn new(tlb: Tlb, stacks: Option<Box<Stacks>>) -> Self {
        let charged = tlb::Counters::default();
        Self { tlb, stacks, nr_threads: 0, thread: None, program: 0, charged }
    }

    /// Takes what left the TLB out of the buffers beside it.
    fn follow(&mut self, flushed: Option<VpnRange>) {
        if let (Some(stacks), Some(VpnRange { start, end })) = (&mut self.stacks, flushed) {
            stacks.invalidate(start, end.0 - start.0);
        }
    }

    /// What was counted since this was last asked.
    fn take_counted(&mut self) -> tlb::Counters {
        let now = *self.tlb.counters();
        now - std::mem::replace(&mut self.charged, now)
    }

    fn switch_to(&mut self, thread: ThreadId, space_id: u64) {
        if self.thread.is_some() {
            self.tlb.switch_thread();
        }
        self.thread = Some(thread);
        let flushed = self.tlb.switch_to(space_id);
        self.follow(flushed);
    }
}

/// Place of a thread in [`Hardware`]; any end of a thread may change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot(u32);

impl Slot {
    /// That of a thread that does not run.
    const NONE: Self = Self(u32::MAX);
}

/// CPUs and the threads that run on them.
pub(super) struct Hardware {
    /// By thread; [`Slot::NONE`] or a place in `running`.
    slots: Vec<Slot>,
    running: Vec<HardwareThread>,
    /// CPUs that were used so far.
    cpus: Vec<Cpu>,
    nr_cpus_max: usize,
    /// Counts by program.
    by_program: Vec<tlb::Counters>,
    /// References that TLBs looked up so far.
    pub(super) nr_references: u64,
}

impl Hardware {
    /// Nothing runs on `nr_cpus_max` CPUs.
    pub(super) fn new(nr_cpus_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            running: Vec::new(),
            cpus: Vec::new(),
            nr_cpus_max: nr_cpus_max as usize,
            by_program: Vec::new(),
            nr_references: 0,
        }
    }

    /// The place of a thread that runs.
    #[inline]
    pub(super) fn slot_of(&self, thread: ThreadId) -> Option<Slot> {
        self.slots.get(thread as usize).copied().filter(|slot| *slot != Slot::NONE)
    }

    /// Gives a thread that does not run yet its CPU; `new` makes one that nobody used.
    pub(super) fn start(&mut self, started: HardwareThread, new: impl FnOnce() -> Cpu) -> Slot {
        let nr = started.thread as usize;
        if nr >= self.slots.len() {
            self.slots.resize(nr + 1, Slot::NONE);
        }
        let cpu = self.cpu_for_next(new);
        self.cpus[cpu].nr_threads += 1;
        let slot = Slot(u32::try_from(self.running.len()).unwrap_or(u32::MAX));
        self.slots[nr] = slot;
        self.running.push(HardwareThread { cpu, ..started });
        slot
    }

    /// The CPU with the fewest threads; of several, the first. One that was never used has none.
    fn cpu_for_next(&mut self, new: impl FnOnce() -> Cpu) -> usize {
        let by_threads = self.cpus.iter().enumerate().min_by_key(|(_, cpu)| cpu.nr_threads);
        match by_threads {
            Some((nr, cpu)) if cpu.nr_threads == 0 || self.cpus.len() >= self.nr_cpus_max => nr,
            _ => {
                self.cpus.push(new());
                self.cpus.len() - 1
            }
        }
    }

    /// Ends a thread. Its CPU keeps its TLB.
    pub(super) fn end(&mut self, thread: ThreadId) {
        let Some(slot) = self.slot_of(thread) else { return };
        let ended = self.running.swap_remove(slot.0 as usize);
        self.slots[thread as usize] = Slot::NONE;
        if let Some(moved) = self.running.get(slot.0 as usize) {
            self.slots[moved.thread as usize] = slot;
        }
        let cpu = &mut self.cpus[ended.cpu];
        cpu.nr_threads -= 1;
        if cpu.thread == Some(thread) {
            cpu.tlb.switch_thread();
            cpu.thread = None;
        }
    }

    /// The CPU of a thread, which runs there from now on.
    #[inline]
    pub(super) fn run(&mut self, slot: Slot) -> &mut Cpu {
        let HardwareThread { thread, cpu, .. } = self[slot];
        if self.cpus[cpu].thread != Some(thread) {
            self.switch_to(slot);
        }
        &mut self.cpus[cpu]
    }

    #[cold]
    #[inline(never)]
    fn switch_to(&mut self, slot: Slot) {
        let HardwareThread { thread, program, space_id, cpu, .. } = self[slot];
        if self.cpus[cpu].program != program {
            self.charge(cpu);
        }
        self.cpus[cpu].program = program;
        self.cpus[cpu].switch_to(thread, space_id);
    }

    /// What a CPU counted is its program's.
    fn charge(&mut self, cpu: usize) {
        let cpu = &mut self.cpus[cpu];
        let (program, counted) = (cpu.program, cpu.take_counted());
        if program >= self.by_program.len() {
            self.by_program.resize(program + 1, tlb::Counters::default());
        }
        self.by_program[program] += counted;
    }

    /// Charges programs with what is left.
    pub(super) fn charge_all(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.charge(cpu));
    }

    /// Nothing was charged so far.
    pub(super) fn forget_charges(&mut self) {
        self.by_program.clear();
    }

    /// Counts by program.
    pub(super) fn by_program(&self) -> &[tlb::Counters] {
        &self.by_program
    }

    /// The CPU of a thread.
    #[inline]
    pub(super) fn cpu(&self, slot: Slot) -> &Cpu {
        &self.cpus[self[slot].cpu]
    }

    /// The CPU of a thread.
    #[inline]
    pub(super) fn cpu_mut(&mut self, slot: Slot) -> &mut Cpu {
        let cpu = self[slot].cpu;
        &mut self.cpus[cpu]
    }

    /// Takes changed translations of an address space out of every TLB.
    pub(super) fn invalidate(&mut self, space_id: u64, first: Vpn, nr_pages: u64) {
        for cpu in &mut self.cpus {
            let flushed = cpu.tlb.invalidate_of(space_id, first, nr_pages);
            cpu.follow(flushed);
        }
    }

    /// An address space has ended: its entries leave every TLB, and its tags are free.
    pub(super) fn end_space(&mut self, space_id: u64) {
        for cpu in &mut self.cpus {
            let flushed = cpu.tlb.end_space(space_id);
            cpu.follow(flushed);
        }
    }

    /// CPUs that were used.
    pub(super) const fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Counts of all CPUs.
    pub(super) fn counters(&self) -> tlb::Counters {
        let mut sum = tlb::Counters::default();
        for cpu in &self.cpus {
            sum += *cpu.tlb.counters();
        }
        sum
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
