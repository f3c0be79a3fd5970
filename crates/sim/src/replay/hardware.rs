//! CPUs and their TLBs, and which thread runs where.
//!
//! ```text
//!   thread that first runs --> the CPU with the fewest live threads, the lowest number first
//!                              it stays there until it ends
//!   CPU: TLB              <--  the address space of the thread whose row is next; a switch keeps
//!                              the entries of as many address spaces as the machine has tags for
//! ```
//!
//! A recording does not say which CPUs the threads ran on. This rule keeps threads on separate CPUs
//! while there are enough of them. A TLB outlives its threads: the next thread on that CPU finds
//! the entries of its own address space.
//!
//! Owns the running threads and the effect of a switch on a TLB. A [`Slot`] stays valid until any
//! thread ends, so a lookup by slot needs no check.

pub mod clock;

use std::ops::{Index, IndexMut};

use largefolio_mm::fault;
use largefolio_mm::pgtable::{AccessBits, Leaf, PageTable, PteFlags};
use largefolio_mm::units::{Order, Vpn, VpnRange};
use largefolio_trace::ThreadId;

use crate::replay::observers::keeper::Stacks;
use crate::replay::observers::programs::ProgramNr;
use crate::replay::program::ProcessNr;
use crate::replay::program::space::SpaceNr;
use crate::tlb;
use crate::tlb::{Aggregation, Coalescing, Side, Tlb, Walk};

const STORED: PteFlags = PteFlags::WRITABLE.with(PteFlags::DIRTY);

#[derive(Clone, Copy, Debug)]
pub(crate) struct HardwareThread {
    pub(crate) thread: ThreadId,
    pub(crate) process: ProcessNr,
    pub(crate) program: ProgramNr,
    pub(crate) space: SpaceNr,
    pub(crate) space_id: u64,
    pub(crate) cpu: usize,
}

pub(crate) struct Cpu {
    pub(crate) tlb: Tlb,
    pub(crate) stacks: Option<Box<Stacks>>,
    nr_threads: usize,
    thread: Option<ThreadId>,
    program: ProgramNr,
    charged: tlb::Counters,
}

impl Cpu {
    pub(crate) fn new(tlb: Tlb, stacks: Option<Box<Stacks>>) -> Self {
        let charged = tlb::Counters::default();
        Self { tlb, stacks, nr_threads: 0, thread: None, program: 0, charged }
    }

    fn follow(&mut self, flushed: Option<VpnRange>) {
        if let (Some(stacks), Some(VpnRange { start, end })) = (&mut self.stacks, flushed) {
            stacks.invalidate(start, end.0 - start.0);
        }
    }

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl Slot {
    const NONE: Self = Self(u32::MAX);
}

pub(crate) struct Hardware {
    slots: Vec<Slot>,
    running: Vec<HardwareThread>,
    cpus: Vec<Cpu>,
    nr_cpus_max: usize,
    by_program: Vec<tlb::Counters>,
    pub(crate) nr_references: u64,
}

impl Hardware {
    pub(crate) fn new(nr_cpus_max: u32) -> Self {
        Self {
            slots: Vec::new(),
            running: Vec::new(),
            cpus: Vec::new(),
            nr_cpus_max: nr_cpus_max as usize,
            by_program: Vec::new(),
            nr_references: 0,
        }
    }

    #[inline]
    pub(crate) fn slot_of(&self, thread: ThreadId) -> Option<Slot> {
        self.slots.get(thread as usize).copied().filter(|slot| *slot != Slot::NONE)
    }

    pub(crate) fn start(&mut self, started: HardwareThread, new: impl FnOnce() -> Cpu) -> Slot {
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

    /// Returns the CPU with the fewest threads, the first of several. An unused CPU has no threads.
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
    pub(crate) fn end(&mut self, thread: ThreadId) {
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

    #[inline]
    pub(crate) fn run(&mut self, slot: Slot) -> &mut Cpu {
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

    fn charge(&mut self, cpu: usize) {
        let cpu = &mut self.cpus[cpu];
        let (program, counted) = (cpu.program, cpu.take_counted());
        if program >= self.by_program.len() {
            self.by_program.resize(program + 1, tlb::Counters::default());
        }
        self.by_program[program] += counted;
    }

    pub(crate) fn charge_all(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.charge(cpu));
    }

    pub(crate) fn forget_charges(&mut self) {
        self.by_program.clear();
    }

    pub(crate) fn by_program(&self) -> &[tlb::Counters] {
        &self.by_program
    }

    #[inline]
    pub(crate) fn cpu(&self, slot: Slot) -> &Cpu {
        &self.cpus[self[slot].cpu]
    }

    #[inline]
    pub(crate) fn cpu_mut(&mut self, slot: Slot) -> &mut Cpu {
        let cpu = self[slot].cpu;
        &mut self.cpus[cpu]
    }

    pub(crate) fn invalidate(&mut self, space_id: u64, first: Vpn, nr_pages: u64) {
        for cpu in &mut self.cpus {
            let flushed = cpu.tlb.invalidate_of(space_id, first, nr_pages);
            cpu.follow(flushed);
        }
    }

    pub(crate) fn end_space(&mut self, space_id: u64) {
        for cpu in &mut self.cpus {
            let flushed = cpu.tlb.end_space(space_id);
            cpu.follow(flushed);
        }
    }

    pub(crate) const fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    pub(crate) fn counters(&self) -> tlb::Counters {
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

#[derive(Clone, Copy)]
pub(crate) struct Reference {
    pub(crate) side: Side,
    pub(crate) tlb: tlb::Access,
    pub(crate) mm: fault::Access,
}

impl Reference {
    pub(crate) const EXEC: Self =
        Self { side: Side::Instruction, tlb: tlb::Access::Read, mm: fault::Access::Exec };
    pub(crate) const READ: Self =
        Self { side: Side::Data, tlb: tlb::Access::Read, mm: fault::Access::Read };
    pub(crate) const WRITE: Self =
        Self { side: Side::Data, tlb: tlb::Access::Write, mm: fault::Access::Write };
}

/// Returns a leaf's entry for the TLB. The first store through a clean entry walks the table again,
/// to set the entry's dirty bit.
pub(crate) fn walk_of(table: &PageTable, leaf: &Leaf, vpn: Vpn, coalescing: Coalescing) -> Walk {
    let bits = match coalescing.aggregation {
        Aggregation::Zen | Aggregation::Zen32K => AccessBits::Equal,
        Aggregation::None | Aggregation::Hpa => AccessBits::Any,
    };
    let run = match coalescing.run_cap() {
        Order::ZERO => Order::ZERO,
        cap => table.contiguous_run(vpn, cap, bits).unwrap_or(Order::ZERO),
    };
    Walk {
        leaf: leaf.kind,
        order: leaf.order,
        run,
        ..Walk::page(vpn, leaf.pfn_of(vpn), leaf.flags.contains(STORED))
    }
}
