//! The hot loop: replays the rows of a trace in order.
//!
//! A CPU's TLB serves consecutive rows with remembered entries ([`Tlb::serve`]). Any other
//! reference is placed and looked up in the TLB, and on a miss in the page table. Only an unmapped
//! page reaches the memory manager. So the cost of the trace grows with the number of rows, and the
//! cost of memory management with the number of distinct pages.

use std::ops::Range;
use std::sync::Arc;

use largefolio_mm::fault;
use largefolio_mm::fault::FaultError;
use largefolio_mm::pgtable::Leaf;
use largefolio_mm::reclaim::compact::PROACTIVE_SLEEP_NS;
use largefolio_mm::units::{Vaddr, Vpn};
use largefolio_trace::validate::{NR_THREADS_MAX, REFERENCE_PAGE_BYTES};
use largefolio_trace::{Batch, Event, Op, ThreadId};

use crate::replay::cell::{Cell, Counted, Pass};
use crate::replay::error::CellError;
use crate::replay::hardware::clock::Sleeper;
use crate::replay::hardware::{Cpu, Hardware, HardwareThread, Reference, Slot, walk_of};
use crate::replay::observers::keeper::Stacks;
use crate::replay::program::ProcessNr;
use crate::replay::program::space::SpaceNr;
use crate::tlb::{Lookup, Rows, Side, Tlb, Walk};

const EXEC: u8 = Op::Exec as u8;
const READ: u8 = Op::Read as u8;
const WRITE: u8 = Op::Write as u8;

#[derive(Clone, Copy)]
struct AccessRun {
    addr: u64,
    count: u64,
    /// Distance in rows to the load that supplied the address; 0 = unknown.
    link: u32,
}

impl Cell {
    /// Replays the rows of a batch.
    ///
    /// # Errors
    /// Memory is exhausted, or a recorded call cannot be replayed.
    pub fn replay(&mut self, batch: &Batch) -> Result<(), CellError> {
        self.allow(batch.len());
        let (first, nr_rows) = (self.counted.nr_rows, batch.len());
        let mut row = 0;
        loop {
            // Stops at the start of the recording and after each tenth, to save the counters, and
            // where a setting changes.
            let before = self.rows_until_recording();
            let tenth = self.counted.tenths.next_end();
            let left = before.min(tenth).min(self.next_change()).saturating_sub(first);
            let end = usize::try_from(left).unwrap_or(usize::MAX);
            self.replay_rows(batch, row..end.min(nr_rows))?;
            if end > nr_rows {
                break;
            }
            row = end;
            let at = first + end as u64;
            if before == at {
                self.begin_recording();
            } else if tenth == at {
                self.counted.tenths.end(self.memory.counters());
            }
            self.change_settings(at);
        }
        self.counted.nr_rows += nr_rows as u64;
        match self.change(largefolio_mm::memory::Memory::take_policy_failure) {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    fn replay_rows(&mut self, batch: &Batch, rows: Range<usize>) -> Result<(), CellError> {
        let (threads, ops) = (batch.threads(), batch.ops());
        let (addrs, lens, links) = (batch.addrs(), batch.lens(), batch.flags());
        let (mut row, mut same_end) = (rows.start, rows.start);
        loop {
            if row == same_end {
                same_end = end_of_thread(batch, row..rows.end);
            }
            row += self.serve(batch, row..same_end);
            if row == rows.end {
                return Ok(());
            }
            if row == same_end {
                continue;
            }
            let run = AccessRun { addr: addrs[row], count: lens[row], link: links[row] };
            let replayed = match ops[row] {
                EXEC => self.reference(threads[row], Reference::EXEC, run),
                READ => self.reference(threads[row], Reference::READ, run),
                WRITE => self.reference(threads[row], Reference::WRITE, run),
                _ => self.call(&batch.event(row)),
            };
            if let Err(error) = replayed {
                return Err(error.at(self.counted.nr_rows + row as u64, Op::from_number(ops[row])));
            }
            row += 1;
        }
    }

    /// Serves rows of one thread from the TLB and returns their number: 0 with TLB curves or regions,
    /// which must see every row, and if references to files are counted.
    fn serve(&mut self, batch: &Batch, rows: Range<usize>) -> usize {
        let slot = batch.threads().get(rows.start).and_then(|&id| self.hardware.slot_of(id));
        let sees_all = self.regions.is_some() || self.counted.met.counts_references();
        let Some(slot) = slot.filter(|_| !sees_all) else { return 0 };
        let epoch = self.program.spaces[self.hardware[slot].space].epoch;
        let cpu = self.hardware.run(slot);
        if cpu.stacks.is_some() {
            return 0;
        }
        let (ops, addrs, lens) = (batch.ops(), batch.addrs(), batch.lens());
        let (ops, addrs, lens) = (&ops[rows.clone()], &addrs[rows.clone()], &lens[rows]);
        let rows = Rows { ops, addrs, lens };
        let served = cpu.tlb.serve(rows, self.clock.limit(), epoch);
        self.hardware.nr_references += served.nr_references;
        self.clock.advance(served.nr_references);
        served.nr_rows
    }

    fn call(&mut self, event: &Event) -> Result<(), CellError> {
        self.count_event();
        let Some(process) = self.process_of(event.thread)? else { return Ok(()) };
        let (program, before) = (self.program_of(process), self.faults_so_far());
        if self.program.policies.is_used() {
            self.follow_thread(self.program.space(process).mm, event.thread);
        }
        self.event(process, event)?;
        self.charge_faults(program, before);
        self.sweep_opens();
        if matches!(
            event.op,
            Op::Unlink
                | Op::Close
                | Op::Open
                | Op::Munmap
                | Op::Mmap
                | Op::Mremap
                | Op::Exit
                | Op::Execve
        ) {
            self.free_unlinked();
        }
        self.watch_call(event);
        if self.memory.khugepaged_has_new_work() {
            self.wake_khugepaged();
        }
        self.check_budget(process)
    }

    #[inline]
    fn reference(
        &mut self,
        thread: ThreadId,
        kind: Reference,
        AccessRun { addr, count, link }: AccessRun,
    ) -> Result<(), CellError> {
        if self.clock.advance(count) {
            self.wake_sleepers()?;
        }
        let slot = match self.hardware.slot_of(thread) {
            Some(slot) => Some(slot),
            None => self.start_thread(thread)?,
        };
        let Some(slot) = slot else {
            self.counted.strays.unmapped += count;
            return Ok(());
        };
        let Some(vpn) = self.place(self.hardware[slot].space, addr) else {
            self.counted.strays.unmapped += count;
            return Ok(());
        };
        self.hardware.nr_references += count;
        if self.counted.met.counts_references() {
            self.count_file(slot, addr, count);
        }
        if let (Side::Instruction, Some(regions)) = (kind.side, &mut self.regions) {
            regions.execute(thread, addr);
        }
        let cpu = self.hardware.run(slot);
        cpu.tlb.bring_in(kind.side, addr / REFERENCE_PAGE_BYTES, count);
        let lookup = cpu.tlb.lookup_run(kind.side, vpn, kind.tlb, count);
        if lookup == Lookup::L2 && link > 0 && kind.side == Side::Data {
            cpu.tlb.count_chained_hit();
        }
        if let Some(stacks) = &cpu.stacks
            && !stacks.of(kind.side).is_top(cpu.tlb.tagged(vpn), kind.tlb)
        {
            self.measure(slot, kind, vpn, lookup);
        }
        let is_store = kind.mm == fault::Access::Write;
        if lookup.needs_walk() {
            self.walk(slot, kind, vpn, AccessRun { addr, count, link })?;
        } else if is_store {
            let mm = self.program.spaces[self.hardware[slot].space].mm;
            self.change(|memory| memory.note_store(mm, vpn));
        }
        self.hardware.cpu_mut(slot).tlb.remember(kind.side, addr, vpn, is_store);
        Ok(())
    }

    /// Counts references to a file whose filesystem is not covered.
    #[cold]
    #[inline(never)]
    fn count_file(&mut self, slot: Slot, addr: u64, nr: u64) {
        let segments = &self.program.spaces[self.hardware[slot].space].segments;
        if let Some((file, _)) = segments.find(addr).and_then(|segment| segment.file) {
            self.counted.met.references(file, nr);
        }
    }

    /// Wakes each due daemon once. Rows that the TLB serves reach no other check of the budget.
    #[cold]
    #[inline(never)]
    fn wake_sleepers(&mut self) -> Result<(), CellError> {
        if self.clock.is_due(Sleeper::Kcompactd) {
            self.change(largefolio_mm::memory::Memory::compact_in_advance);
            self.clock.sleep(Sleeper::Kcompactd, PROACTIVE_SLEEP_NS);
        }
        if self.clock.is_due(Sleeper::Khugepaged) {
            let wake_ns = self.memory.khugepaged_wakes_ns();
            self.change(|memory| memory.run_khugepaged(wake_ns));
            let sleep_ns = self.memory.khugepaged_wakes_ns() - wake_ns;
            self.clock.sleep(Sleeper::Khugepaged, sleep_ns);
        }
        if self.clock.is_due(Sleeper::Policy)
            && let Some(interval_ns) = self.memory.policy_interval_ns()
        {
            let now_ns = self.clock.now_ns();
            self.change(|memory| memory.run_policy_interval(now_ns));
            self.clock.sleep(Sleeper::Policy, interval_ns);
        }
        self.watch_khugepaged();
        self.check_limits()
    }

    #[cold]
    #[inline(never)]
    fn walk(
        &mut self,
        slot: Slot,
        kind: Reference,
        vpn: Vpn,
        AccessRun { addr: recorded, count, link }: AccessRun,
    ) -> Result<(), CellError> {
        let HardwareThread { process, space, .. } = self.hardware[slot];
        let mm = self.program.spaces[space].mm;
        let (faults, before) = (self.faults_so_far(), self.before_touch());
        if self.program.policies.is_used() {
            self.follow_thread(mm, self.hardware[slot].thread);
        }
        let start = self.before_fault();
        let addr = vpn.vaddr(self.page());
        let touched = self.change(|memory| memory.touch(mm, addr, kind.mm));
        self.count_pictures();
        let is_hit =
            touched.as_ref().is_ok_and(|touched| touched.outcome == fault::FaultOutcome::Hit);
        if !is_hit {
            self.charge_faults(self.hardware[slot].program, faults);
        }
        let touched = match touched {
            Ok(touched) => touched,
            Err(error) => return self.stray(error, count),
        };
        if !is_hit {
            if self.memory.khugepaged_has_new_work() {
                self.wake_khugepaged();
            }
            self.check_budget(process)?;
        }
        self.watch_touch(mm, kind, touched.leaf.pfn_of(vpn), before);
        self.count_fault(slot, recorded, start);
        let is_written = touched.outcome != fault::FaultOutcome::Hit;
        let walk = self.walk_of(slot, vpn, &touched.leaf);
        self.fill(slot, kind.side, &Walk { link, is_written, ..walk });
        self.count_region(slot, recorded, kind.side, is_written);
        Ok(())
    }

    fn walk_of(&self, slot: Slot, vpn: Vpn, leaf: &Leaf) -> Walk {
        let mm = self.program.spaces[self.hardware[slot].space].mm;
        let coalescing = self.hardware.cpu(slot).tlb.coalescing();
        let walk = walk_of(&self.memory.space(mm).table, leaf, vpn, coalescing);
        Walk { folio: self.memory.core().folios.span_of(walk.pfn).order, ..walk }
    }

    fn fill(&mut self, slot: Slot, side: Side, walk: &Walk) {
        let cpu = self.hardware.cpu_mut(slot);
        cpu.tlb.fill_walk(side, walk);
        if cpu.stacks.is_some() {
            self.fill_stack(slot, side, walk);
        }
    }

    fn stray(&mut self, error: FaultError, count: u64) -> Result<(), CellError> {
        let strays = &mut self.counted.strays;
        match error {
            FaultError::NotMapped(_) => strays.unmapped += count,
            FaultError::Protected(_) => strays.protected += count,
            FaultError::BeyondFile(_) => strays.beyond_file += count,
            // Counted by the memory manager (`nr_sigbus`).
            FaultError::NoHugePage(_) => {}
            FaultError::OutOfMemory(_) | FaultError::GroupOutOfMemory(_) => {
                return Err(error.into());
            }
        }
        Ok(())
    }

    #[inline]
    fn place(&mut self, space: SpaceNr, addr: u64) -> Option<Vpn> {
        match self.places.find(self.program.spaces[space].epoch, addr) {
            Some(vpn) => Some(vpn),
            None => self.place_slowly(space, addr),
        }
    }

    #[cold]
    #[inline(never)]
    fn place_slowly(&mut self, space: SpaceNr, addr: u64) -> Option<Vpn> {
        let space = &self.program.spaces[space];
        let segment = space.segments.find(addr)?;
        let vpn = Vaddr(segment.place(addr)).vpn(self.memory.rules().page);
        if let Some((file, pos)) = segment.file {
            let pos = pos + (addr - segment.start);
            self.counted.touched.mark(file, pos, 1, self.program.files[file].size_bytes);
        }
        self.places.insert(space.epoch, addr, vpn);
        Some(vpn)
    }

    /// Invalidates all places of a process after its segments changed.
    pub(crate) fn change_places(&mut self, process: ProcessNr) {
        self.program.space_mut(process).epoch = self.places.next();
    }

    /// Assigns a CPU to a thread that runs for the first time; `None` if its process has ended.
    #[cold]
    fn start_thread(&mut self, thread: ThreadId) -> Result<Option<Slot>, CellError> {
        if thread as usize >= NR_THREADS_MAX {
            return Err(CellError::TooManyThreads(thread));
        }
        let Some(process) = self.process_of(thread)? else { return Ok(None) };
        let page = self.page();
        let is_drawn = self.pictures.is_some() && !self.is_warming() && !self.meta.faults_only;
        let new = || {
            let stacks = is_drawn.then(|| Box::new(Stacks::new(page)));
            Cpu::new(Tlb::new(&self.spec.machine.tlb, page), stacks)
        };
        let (space, space_id) =
            (self.program.processes[process].space, self.program.space(process).id);
        let program = self.program_of(process);
        let started = HardwareThread { thread, process, program, space, space_id, cpu: 0 };
        self.count_steps(self.hardware.nr_cpus() / 8);
        Ok(Some(self.hardware.start(started, new)))
    }

    /// Ends the run that filled the page cache and loads the program again.
    ///
    /// # Errors
    /// The layout cannot be placed.
    pub(crate) fn end_warming(&mut self) -> Result<(), CellError> {
        self.end_processes();
        self.pass = Pass::Reported;
        self.cgroups.mark(&self.memory);
        let base = self.mark();
        let tenths = self.counted.tenths.again();
        self.counted = Counted { base, tenths, ..Counted::new(&self.spec, &self.meta) };
        self.change(largefolio_mm::memory::Memory::take_observed);
        self.change(largefolio_mm::memory::Memory::take_stretches);
        self.restart_pictures();
        self.hardware = Hardware::new(self.spec.nr_cpus());
        self.program.restart();
        self.meter.process_bytes = 0;
        let meta = Arc::clone(&self.meta);
        self.start(&meta)
    }
}

/// Returns the first row of `rows` with a different thread than the first row.
fn end_of_thread(batch: &Batch, rows: Range<usize>) -> usize {
    if batch.thread().is_some() {
        return rows.end;
    }
    let threads = &batch.threads()[rows.clone()];
    let same = threads.iter().position(|&thread| thread != threads[0]);
    same.map_or(rows.end, |nr| rows.start + nr)
}
