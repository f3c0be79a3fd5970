//! The start and end of processes and threads: fork, vfork, execve, exit.
//!
//! ```text
//!   fork     another process, its memory a copy          vfork   another process, the same memory
//!   execve   the same process, another memory            exit    memory goes with its last process
//! ```
//!
//! An address space's mappings are counted when it ends: at the exit or execve of its last process,
//! or at the end of the trace; shared memory also before it is unmapped. Owns these events. A row
//! is a stray if its thread's process has ended, or has continued without the thread.

use largefolio_mm::units::Vaddr;
use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY};
use largefolio_trace::validate::{NR_PROCESSES_MAX, NR_THREADS_MAX};
use largefolio_trace::{Event, Meta, ThreadId};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::observers::programs::ProgramNr;
use crate::replay::observers::sizes::{FolioSizes, is_shared};
use crate::replay::program::space::{AddressSpace, SpaceNr};
use crate::replay::program::{Membership, Process, ProcessNr};
use crate::replay::request::pattern::name_of;
use crate::replay::request::spec::SharedMoment;

const FIRST_THREAD: ThreadId = 0;
const STEPS_OF_MAPPING: usize = 8;

impl Cell {
    pub(crate) fn start(&mut self, meta: &Meta) -> Result<(), CellError> {
        let nr = self.program.nr_started;
        let path = meta.program_of(&meta.layout);
        let program = self.counted.programs.number_of(path);
        let space = self.new_space(nr, program);
        self.name_space(space, path);
        if let Some(group) = self.cgroups.at_start(&self.spec.cgroups, path) {
            let mm = self.program.spaces[space].mm;
            self.change(|memory| memory.join_group(mm, group));
        }
        self.limit_thp(space);
        self.place_on_node(space)?;
        let process = self.program.start(Process::new(nr, space, program));
        self.counted.programs.started();
        self.change_lives(program, 1);
        self.program.start_thread(FIRST_THREAD, process);
        self.load(process, &meta.layout, meta.brk)?;
        self.watch_start();
        self.check_budget(process)
    }

    fn new_space(&mut self, owner: usize, program: ProgramNr) -> SpaceNr {
        let (mm, id) = (self.change(largefolio_mm::memory::Memory::new_space), self.places.next());
        self.program.add_space(AddressSpace::new(mm, id, owner, program))
    }

    /// Sets the name under which a policy knows the program: its file's name.
    ///
    /// Differs: a kernel takes the name given to execve, even for a link. A trace records the
    /// mapped file.
    fn name_space(&mut self, space: SpaceNr, path: Option<&str>) {
        if let Some(path) = path {
            let mm = self.program.spaces[space].mm;
            self.change(|memory| memory.set_comm(mm, name_of(path)));
        }
    }

    /// Returns the process of a thread, or `None` if the thread or its process has ended.
    pub(crate) fn process_of(&self, thread: ThreadId) -> Result<Option<ProcessNr>, CellError> {
        match self.program.threads.of(thread) {
            Membership::Of(process) => Ok(Some(process)),
            Membership::Ended => Ok(None),
            Membership::Unknown => Err(CellError::UnknownThread(thread)),
        }
    }

    pub(crate) fn fork(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let Ok(thread) = u32::try_from(event.aux) else { return Ok(()) };
        if thread as usize >= NR_THREADS_MAX {
            return Err(CellError::TooManyThreads(thread));
        }
        let of_thread = if event.flags & SHARES_MEMORY != 0 {
            process
        } else {
            self.fork_process(process, event.flags & BORROWS_MEMORY != 0)?
        };
        if self.program.policies.is_used() {
            let task = self.memory.task(self.program.space(process).mm);
            self.program.policies.inherit(event.thread, thread, task);
        }
        // Ids are used once. In a damaged trace, an earlier thread with this id has ended.
        self.hardware.end(thread);
        self.program.start_thread(thread, of_thread);
        Ok(())
    }

    fn fork_process(&mut self, parent: ProcessNr, borrows: bool) -> Result<ProcessNr, CellError> {
        if self.program.processes.len() >= NR_PROCESSES_MAX {
            return Err(CellError::TooManyProcesses);
        }
        let nr = self.program.nr_started;
        let of_parent = self.program.processes[parent].space;
        let space = if borrows {
            self.program.spaces[of_parent].nr_users += 1;
            of_parent
        } else {
            let parent = self.program.spaces[of_parent].mm;
            let mm = self.change(|memory| memory.fork(parent))?;
            let id = self.places.next();
            let copy = self.program.spaces[of_parent].forked(mm, id, nr);
            self.count_steps(copy.nr_entries());
            self.program.add_space(copy)
        };
        let forked = self.program.processes[parent].forked(nr, space);
        self.count_steps(forked.nr_entries());
        for open in forked.opens() {
            self.change(|memory| memory.share_open(open));
        }
        let program = forked.program;
        let child = self.program.start(forked);
        self.counted.programs.started();
        self.change_lives(program, 1);
        self.measure_process(child);
        Ok(child)
    }

    /// Starts another program in a process. Its other threads end, and so does its memory unless it
    /// was borrowed. The remaining thread is placed on a CPU again, as `sched_exec` does.
    pub(crate) fn execve(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let meta = std::sync::Arc::clone(&self.meta);
        let Some(image) = meta.image_of(event.aux) else { return Ok(()) };
        self.end_threads(process);
        let before = self.memory.space(self.program.space(process).mm);
        let (group, thp_off) = (before.group, before.thp_off);
        let place = self.memory.node_place(self.program.space(process).mm);
        self.release_space(process);
        // Each entry is checked, even if it stays open.
        self.count_steps(self.program.processes[process].nr_entries());
        for open in self.program.processes[process].close_on_exec() {
            self.change(|memory| memory.close(open));
        }
        let path = meta.program_of(&image.layout);
        let program = self.counted.programs.number_of(path);
        let space = self.new_space(self.program.processes[process].nr, program);
        self.name_space(space, path);
        // A program without its own cgroup stays in its parent's.
        let group = self.cgroups.of(&self.spec.cgroups, path).unwrap_or(group);
        let mm = self.program.spaces[space].mm;
        self.change(|memory| memory.join_group(mm, group));
        self.change(|memory| memory.set_thp_off(mm, thp_off));
        self.change(|memory| memory.set_node_place(mm, place))?;
        let executing = &mut self.program.processes[process];
        let before = std::mem::replace(&mut executing.program, program);
        let counts = std::mem::replace(&mut executing.has_executed, true);
        executing.space = space;
        self.counted.programs.executed(before, counts);
        self.change_lives(before, -1);
        self.change_lives(program, 1);
        self.program.start_thread(event.thread, process);
        self.count_steps(STEPS_OF_MAPPING * image.layout.len());
        self.load(process, &image.layout, image.brk)
    }

    pub(crate) fn end_process(&mut self, process: ProcessNr) {
        self.end_threads(process);
        self.release_space(process);
        self.close_all(process);
        if let Some(ended) = self.program.processes.remove(process) {
            self.meter.process_bytes -= ended.measured_bytes;
            self.counted.programs.ended(ended.program);
            self.change_lives(ended.program, -1);
        }
    }

    fn change_lives(&mut self, program: ProgramNr, nr: i64) {
        if let Some(keeper) = &mut self.pictures {
            keeper.change_lives(program, nr, self.hardware.nr_references);
        }
    }

    pub(crate) fn end_processes(&mut self) {
        let mut living: Vec<(usize, ProcessNr)> =
            self.program.processes.iter().map(|(slot, process)| (process.nr, slot)).collect();
        living.sort_unstable();
        for (_, process) in living {
            self.end_process(process);
        }
    }

    fn end_threads(&mut self, process: ProcessNr) {
        let threads = std::mem::take(&mut self.program.processes[process].threads);
        self.count_steps(threads.len());
        for thread in threads {
            if self.program.threads.ended(thread, process) {
                self.hardware.end(thread);
            }
        }
    }

    /// Keeps the current statistics if more is mapped than ever before.
    fn observe_statistics(&mut self) {
        let living = self.program.spaces.iter().map(|(_, space)| (space.owner, space.mm));
        if self.counted.largest.observe(&self.memory, living) {
            self.count_steps(self.counted.largest.nr_pages(self.page()));
        }
    }

    /// Looks at shared memory that is about to be unmapped.
    pub(crate) fn observe_shared(&mut self, process: ProcessNr, start: Vaddr, len_bytes: u64) {
        if self.spec.shared_memory == SharedMoment::End {
            return;
        }
        let page = self.page();
        let (first, end) = (start.vpn(page), Vaddr(start.0 + len_bytes).vpn(page));
        let Self { memory, program, .. } = self;
        let space = program.space_mut(process);
        let areas = memory.space(space.mm).vmas.overlapping(first, end);
        if !areas.iter().any(|vma| is_shared(memory, vma)) {
            return;
        }
        if let Some(bytes) = space.shared.observe(memory, space.mm) {
            self.count_steps(usize::try_from(bytes >> page.shift()).unwrap_or(usize::MAX));
            self.observe_statistics();
        }
    }

    /// Detaches a process from its address space; the last one counts and unmaps the space.
    fn release_space(&mut self, process: ProcessNr) {
        let nr = self.program.processes[process].space;
        let space = &mut self.program.spaces[nr];
        space.nr_users -= 1;
        if space.nr_users > 0 {
            return;
        }
        self.observe_statistics();
        let space = &mut self.program.spaces[nr];
        let mm = space.mm;
        let mut sizes = FolioSizes::default();
        sizes.add_process(&self.memory, mm);
        std::mem::take(&mut space.shared).replace(&mut sizes.shmem);
        self.counted.sizes.add(&sizes);
        self.counted.programs.add_space(space.program, &sizes);
        if let Some(keeper) = &mut self.pictures {
            keeper.add_space(&self.memory, space);
        }
        self.hardware.end_space(space.id);
        self.change(|memory| memory.exit(mm));
        if let Some(ended) = self.program.spaces.remove(nr) {
            self.meter.process_bytes -= ended.measured_bytes;
        }
        self.change(|memory| memory.forget(mm));
    }
}

#[cfg(test)]
mod tests;
